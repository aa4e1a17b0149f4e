"""The order of a tenant's gangs, kept from session to session while the gangs and their keys are the same."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.session.state.order.room_totals import Asking
from gpusched.session.state.order.work_budget import Tenant, asks_for_place

Spots = Sequence[int]
"""Places of gangs in an order, ascending; not to be changed."""


@frozen(slots=False, eq=False)
class GangOrder:
    """Gangs of one tenant in the order of their turns.

    Attributes:
        gangs: as they came.
        ordered: the same in order.
        names: their keys.
        kinds: those that are equal to each other, by their equivalence class.
        others: those without a class.
        keys: of one gang of each class, in the order of the classes.
        rests_on: all on which the keys depend beside the gangs; None where that is not known.
    """

    gangs: Sequence[Gang]
    ordered: Sequence[Gang]
    names: frozenset[GangKey]
    kinds: dict[EquivalenceClass, list[Gang]]
    others: Sequence[Gang]
    keys: Sequence[Any]
    rests_on: tuple[Hashable, ...] | None
    _not_in: dict[int, tuple[AbstractSet[GangKey], OrderedGangs]] = attrs.field(
        init=False, factory=dict
    )
    """Answers of ``gangs_not_in`` by the ``id`` of what was asked about, which is kept so that no other gets it."""

    def gangs_not_in(self, names: AbstractSet[GangKey]) -> OrderedGangs:
        """Gangs that are not among some; found once for the same object, as rounds leave it to the next session."""
        known = self._not_in.get(id(names))
        if known is None:
            if len(self._not_in) >= _ANSWERS_MAX:
                del self._not_in[next(iter(self._not_in))]
            left = self.names - names
            known = self._not_in[id(names)] = (names, OrderedGangs(self, left, self._spots(left)))
        return known[1]

    def _spots(self, names: frozenset[GangKey]) -> Spots:
        """Places of some of these, from those of a set that was asked about and differs in few."""
        for _, answer in reversed(self._not_in.values()):
            if abs(len(answer.names) - len(names)) <= _FEW:
                other = answer.names ^ names
                if len(other) <= _FEW:
                    return self.changed(answer.spots, gone=other - names, more=other & names)
        return sorted(map(self.places.__getitem__, names))

    def changed(self, spots: Spots, *, gone: Iterable[GangKey], more: Iterable[GangKey]) -> Spots:
        """Places without those of some gangs, which are there, and with those of others, which are not; few of both."""
        found, places = list(spots), self.places
        for name in gone:
            del found[bisect_left(found, places[name])]
        for name in more:
            insort(found, places[name])
        return found

    def keys_at(self, spots: Spots) -> list[GangKey]:
        """The keys of gangs at some places."""
        return list(map(self.keys_in_turn.__getitem__, spots))

    def those_at(self, spots: Spots, names: Iterable[GangKey]) -> frozenset[GangKey]:
        """Those of some gangs that are at one of these places."""
        found = ((name, self.places.get(name, -1)) for name in names)
        last = len(spots)
        return frozenset(
            name
            for name, place in found
            if (spot := bisect_left(spots, place)) < last and spots[spot] == place
        )

    @cached_property
    def keys_in_turn(self) -> Sequence[GangKey]:
        """The key of each gang in ``ordered``."""
        return [gang.key for gang in self.ordered]

    @cached_property
    def places(self) -> Mapping[GangKey, int]:
        """The place of each gang in ``ordered``."""
        return {gang.key: place for place, gang in enumerate(self.ordered)}

    @cached_property
    def asking(self) -> Asking:
        """Those that look for a place, by class."""
        kinds = [gangs for gangs in self.kinds.values() if asks_for_place(gangs[0])]
        return Asking([(gangs[0], [gang.key for gang in gangs]) for gangs in kinds])

    def in_turn(self, names: Iterable[GangKey]) -> list[Gang]:
        """Those of some gangs that are among these, in the order of their turns."""
        places = map(self.places.get, names)
        return [self.ordered[place] for place in sorted([p for p in places if p is not None])]


_ANSWERS_MAX: Final = 4
_FEW: Final = 32
"""So many places are taken out or put in one by one."""


@frozen(slots=True, eq=False)
class OrderedGangs:
    """Some gangs of an order.

    Attributes:
        spots: their places.
    """

    order: GangOrder
    names: frozenset[GangKey]
    spots: Spots

    @property
    def in_turn(self) -> Iterator[Gang]:
        """The gangs in the order of their turns."""
        return map(self.order.ordered.__getitem__, self.spots)

    def with_others(self, names: AbstractSet[GangKey]) -> OrderedGangs:
        """These and others of the order."""
        more = names - self.names
        if not more:
            return self
        if len(more) <= _FEW:
            spots = self.order.changed(self.spots, gone=(), more=more)
        else:
            spots = sorted({*self.spots, *map(self.order.places.__getitem__, more)})
        return OrderedGangs(self.order, self.names | more, spots)

    def without(self, names: AbstractSet[GangKey]) -> Spots:
        """The places of these but for some gangs."""
        gone = self.names & names
        if len(gone) <= _FEW:
            return self.order.changed(self.spots, gone=gone, more=()) if gone else self.spots
        left = set(map(self.order.places.__getitem__, gone))
        return [spot for spot in self.spots if spot not in left]


class KeptOrders:
    """The orders of all tenants."""

    def __init__(self) -> None:
        self._known: dict[Tenant, GangOrder] = {}

    def order_of(
        self,
        tenant: Tenant,
        gangs: Sequence[Gang],
        keys: OrderKeys,
        kinds: EquivalenceClasses,
    ) -> GangOrder:
        """The order of a tenant's gangs; as it was where neither they nor the keys of their classes changed."""
        known = self._known.get(tenant)
        if known is not None and known.gangs == gangs and keys.shared_by_class and not known.others:
            if known.rests_on is not None and known.rests_on == keys.rests_on:
                return known
            now = [sort_key(each[0], keys) for each in known.kinds.values()]
            if now == known.keys:
                return known
        by_kind: dict[EquivalenceClass, list[Gang]] = {}
        others: list[Gang] = []
        ordered = in_order(gangs, keys)
        for gang in ordered:
            kind = kinds.class_of(gang)
            if kind is None:
                others.append(gang)
            else:
                by_kind.setdefault(kind, []).append(gang)
        first = [sort_key(each[0], keys) for each in by_kind.values()]
        found = self._known[tenant] = GangOrder(
            gangs, ordered, frozenset(gang.key for gang in gangs), by_kind, others, first,
            None if _LEFT_OUT in first else keys.rests_on,
        )  # fmt: skip
        return found

    def forget_others(self, tenants: Sequence[Tenant]) -> None:
        """Keep those of these tenants alone."""
        for gone in self._known.keys() - set(tenants):
            del self._known[gone]


def in_order(gangs: Sequence[Gang], keys: OrderKeys) -> list[Gang]:
    """Gangs in the order of their turns; those that policies leave out of the session come last."""
    return sorted(
        gangs, key=lambda gang: (sort_key(gang, keys), int(gang.waits_since * 1e6), gang.key)
    )


def sort_key(gang: Gang, keys: OrderKeys) -> Any:
    """The key of a gang's turn among those of its queue."""
    key = keys.gang_key(gang)
    return _LEFT_OUT if key is None else (0, key)


_LEFT_OUT: Final = (1,)
