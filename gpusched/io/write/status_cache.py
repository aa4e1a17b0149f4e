"""Objects whose status is written, as the API showed them last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import Topology
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS
from gpusched.io.write.bind_calls import ServedForeignKinds

E_co = TypeVar("E_co", covariant=True)


class EntityStore(Protocol[E_co]):
    """Entities of one kind."""

    @property
    def items(self) -> Mapping[ObjectKey, E_co]:
        """Entities of the kind by key."""


class StatusCache(Protocol):
    """What the API showed last."""

    @property
    def groups(self) -> EntityStore[PodGroup]:
        """Store of all PodGroups."""

    @property
    def composites(self) -> EntityStore[PodGroup]:
        """Store of all CompositePodGroups."""

    @property
    def queues(self) -> EntityStore[Queue]:
        """Store of all Queues."""

    @property
    def topologies(self) -> EntityStore[Topology]:
        """Store of all Topologies."""

    @property
    def reservations(self) -> EntityStore[AdvanceReservation]:
        """Store of all Reservations."""

    @property
    def foreign(self) -> ServedForeignKinds:
        """Where groups and queues of other projects are."""

    def find_pod(self, uid: UID) -> Pod | None:
        """The pod of that UID."""

    def member_pods(self, gang: GangKey) -> Iterable[Pod]:
        """All pods that belong to a gang."""

    def withdraw_nomination(self, uid: UID, reason: str) -> None:
        """A promise of a waiting pod holds no more, though the API shows it yet."""


def find_group(cache: StatusCache, gang: GangKey) -> PodGroup | None:
    """The object that describes a gang, where it is a PodGroup or CompositePodGroup."""
    if gang.kind not in GROUP_KINDS:
        return None
    groups = cache.composites if gang.kind == COMPOSITE else cache.groups
    return groups.items.get(ObjectKey(gang.namespace, gang.name))
