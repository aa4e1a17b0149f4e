"""What gangs that wait have in common, worked out once for each gang and cached between sessions.

Gangs are frozen, and shared by snapshots as long as nothing about them changes. So what is read
of a gang alone is remembered by its identity: a changed gang is another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from typing import Final, Generic, Literal, TypeVar

from gpusched.api.pod.pod import PodClass
from gpusched.cache.gangs.equivalence import (
    Omit,
    PlacementKey,
    lone_key,
    placement_key,
    without_length,
)
from gpusched.cache.gangs.gang import Gang, PodSet

V = TypeVar("V")
_SEEN_MAX: Final = 1024
_GANGS_KEPT_MIN: Final = 48
"""Sweeping so few costs microseconds; values of gangs that are gone are memory that others
lie behind, and that the process so never gives back."""


class GangCache(Generic[V]):
    """Values by the identity of gangs."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Gang, V]] = {}
        """By ``id``; with the gang itself, so that no other gets its ``id``."""

    def get(self, gang: Gang) -> V | None:
        """Value of the gang; None when there is none."""
        known = self.known.get(id(gang))
        return None if known is None else known[1]

    def set(self, gang: Gang, value: V) -> None:
        """Remember a value of the gang."""
        self.known[id(gang)] = (gang, value)

    def clear(self) -> None:
        """Drop all values of the cache."""
        self.known.clear()

    def keep_only(self, gangs: Iterable[Gang], count: int) -> None:
        """Forget all other gangs, to bound memory; ``count`` is the number of these."""
        if len(self.known) > max(_GANGS_KEPT_MIN, 2 * count):
            known = self.known
            self.known = {id(each): known[id(each)] for each in gangs if id(each) in known}


class EquivalenceClass:
    """Gangs with the same ``placement_key``; an object is equal only to itself.

    Args:
        classes: pod classes of the members, each once.
        maker: finds the class of all gangs that differ from these at most in their length; None for such a class itself.
        gang: one of these gangs, for the maker.
        beside_members: equal for gangs of one pod that are equal in all but their pod's class and deadline; None where that is
            not told.
    """

    __slots__ = ("_gang", "_maker", "_timeless", "beside_members", "classes")

    def __init__(
        self,
        classes: tuple[PodClass, ...],
        maker: EquivalenceClasses | None = None,
        gang: Gang | None = None,
        beside_members: Hashable | None = None,
    ) -> None:
        self.classes = classes
        self.beside_members = beside_members
        self._maker = maker
        self._gang = gang
        self._timeless: EquivalenceClass | None = None if maker is not None else self

    @property
    def timeless(self) -> EquivalenceClass:
        """The class that is the same for gangs that differ only in how long they say they run."""
        if self._timeless is None:
            assert self._maker is not None
            assert self._gang is not None
            self._timeless = self._maker.class_of_any_length(self._gang, self.classes)
        return self._timeless

    @property
    def others(self) -> tuple[EquivalenceClass, ...]:
        """The timeless class, where somebody asked for it."""
        return () if self._timeless is None else (self._timeless,)


class EquivalenceClasses:
    """Equivalence classes of gangs, for one session after another."""

    def __init__(self) -> None:
        self._by_gang: GangCache[EquivalenceClass | Literal[False]] = GangCache()
        self._known: dict[PlacementKey, EquivalenceClass] = {}
        self._known_after_sweep = 0
        self._common: dict[Hashable, int] = {}
        """Numbers of what gangs of one pod have in common; those with one number are equal in it."""
        self._numbers = count()
        self._beside_members: dict[Hashable, Hashable] = {}
        """What gangs of one pod have beside its class, each once."""
        self._seen: dict[tuple[int, int, int], tuple[tuple[object, ...], int]] = {}
        """The same by the ``id`` of what they have in common, with that itself, so that no other gets its ``id``."""

    def class_of(self, gang: Gang) -> EquivalenceClass | None:
        """The gang's kind; None for one that is like no other.

        Gangs with places have rooms of their own, gangs that wait for a preferred topology have
        waited for different times, pods that are on their way have nominations, and claims that
        pods name are shared. Claims of templates differ in their names alone; whether they are
        there is in no key, and is asked by the caller where it matters.
        """
        known = self._by_gang.known.get(id(gang))  # called several times for every gang that waits
        if known is not None:
            return known[1] or None
        kind = self._find_class(gang)
        self._by_gang.set(gang, kind or False)
        return kind

    def keep_only(self, gangs: Sequence[Gang]) -> None:
        """Forget all other gangs, and classes of which there is none, to bound memory."""
        self._by_gang.keep_only(gangs, len(gangs))
        if len(self._known) > 2 * max(_GANGS_KEPT_MIN, self._known_after_sweep):
            kinds = {kind for _, kind in self._by_gang.known.values() if kind}
            there = kinds.union(*(kind.others for kind in kinds))
            self._known = {key: kind for key, kind in self._known.items() if kind in there}
            self._known_after_sweep = len(self._known)
            used = {key[-1] for key in self._known}
            self._common = {what: n for what, n in self._common.items() if n in used}
        self._beside_members.clear()
        self._seen.clear()  # what it speeds up is within a session

    def _find_class(self, gang: Gang) -> EquivalenceClass | None:
        pod_sets = gang.pod_sets
        if (
            gang.placed
            or gang.succeeded_counted
            or gang.sub_groups
            or (gang.expected_count and not gang.suspended)
            or gang.topology.max_wait_ns
            or any(map(_is_unlike_others, pod_sets))
        ):
            return None
        beside: Hashable | None = None
        key = lone_key(gang)  # most are one pod, and may all differ: hashing the whole key costs
        if key is None:
            key = placement_key(gang, without=Omit.NAMESPACE)
        else:
            number = self._number_of(gang.terms, gang.topology, gang.accounts)
            key = (*key, number)
            common = (gang.queue, gang.priority, gang.error, number)
            beside = self._beside_members.setdefault(common, common)
        known = self._known.get(key)
        if known is None:
            classes = {each.pod_class.digest: each.pod_class for each in pod_sets}
            known = EquivalenceClass(tuple(classes.values()), self, gang, beside)
            self._known[key] = known
        return known

    def _number_of(self, *common: Hashable) -> int:
        ids = id(common[0]), id(common[1]), id(common[2])
        seen = self._seen.get(ids)
        if seen is None:
            number = self._common.get(common)
            if number is None:
                number = self._common[common] = next(self._numbers)
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            seen = self._seen[ids] = (common, number)
        return seen[1]

    def class_of_any_length(self, gang: Gang, classes: tuple[PodClass, ...]) -> EquivalenceClass:
        """The class of gangs of these classes of pods that differ from one at most in their length."""
        key = without_length(placement_key(gang, without=Omit.NAMESPACE))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = EquivalenceClass(classes)
        return known


def _is_unlike_others(pod_set: PodSet) -> bool:
    pod_class = pod_set.pod_class
    if pod_class.unsupported or not pod_class.claims:
        return bool(pod_class.unsupported)
    return any(named.claim for named in pod_class.claims)
