"""The part of the cluster that one daemon decides about: all of it, unless shards divide it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import PodClass
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.cache.queues.queues_here import ALL_HERE, QueuesHere
from gpusched.cache.snapshot import Snapshot

PlacedPods = Sequence[tuple[PodClass, str]]
"""Classes of pods, and the names of the nodes that they get."""


class ClusterPart:
    """The whole cluster; ``shards.part`` has the part of a daemon that holds some shards."""

    def takes_node(self, _node: Node) -> bool:
        """Whether pods may be placed on a node."""
        return True

    def forget_node(self, _name: str) -> None:
        """A node is gone."""

    def takes_gang(self, _key: GangKey) -> bool:
        """Whether a gang is decided about here."""
        return True

    def queues_here(self, _queues: Collection[Queue]) -> QueuesHere:
        """What is to be had here of queues."""
        return ALL_HERE

    def note_snapshot(self, _snapshot: Snapshot) -> None:
        """This is what a session will decide about."""

    @property
    def tells_cluster(self) -> bool:
        """Whether what concerns the cluster as a whole is told here: Topologies, states and budgets of queues."""
        return True

    def reservations_here(
        self, reservations: Mapping[ObjectKey, AdvanceReservation]
    ) -> tuple[AdvanceReservation, ...]:
        """What Reservations keep here, by key."""
        found = (self.reservation_here(item) for _, item in sorted(reservations.items()))
        return tuple(each for each in found if each is not None)

    def reservation_here(self, reservation: AdvanceReservation) -> AdvanceReservation | None:
        """What a Reservation keeps here; None for nothing."""
        return reservation

    def start_gang(self, _gang: GangKey, _path: tuple[str, ...], _pods: PlacedPods) -> str:
        """Count the start of a gang; why it must not start now, empty when it is counted.

        Args:
            _path: names of its queue and the queues above it.
            _pods: that are bound.
        """
        return ""


WHOLE_CLUSTER = ClusterPart()
