"""The part of the cluster that one daemon decides about: all of it, unless shards divide it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import PodClass
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
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

    def queue_shares(self, queues: Collection[Queue]) -> Collection[Queue]:
        """Queues with what they deserve and are guaranteed here."""
        return queues

    def held_elsewhere(self, _queues: Collection[Queue]) -> Mapping[str, Resources]:
        """The parts of capabilities that are not to be used here, by queue."""
        return {}

    def users_here(self, _queues: Collection[Queue]) -> Mapping[str, Mapping[str, Resources]]:
        """What users and groups may have here, by queue that limits them and by account.

        Queues that are not named are not divided; accounts that are not named have nothing here.
        """
        return {}

    def note_snapshot(self, _snapshot: Snapshot) -> None:
        """This is what a session will decide about."""

    @property
    def tells_cluster(self) -> bool:
        """Whether what concerns the cluster as a whole is told here: Topologies."""
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
