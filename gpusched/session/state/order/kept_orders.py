"""The order of a tenant's gangs, kept from session to session while the gangs and their keys are the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.session.state.order.work_budget import Tenant


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
                self._not_in.clear()
            known = self._not_in[id(names)] = (names, OrderedGangs(self, self.names - names))
        return known[1]

    @cached_property
    def places(self) -> Mapping[GangKey, int]:
        """The place of each gang in ``ordered``."""
        return {gang.key: place for place, gang in enumerate(self.ordered)}

    def in_turn(self, names: Iterable[GangKey]) -> list[Gang]:
        """Those of some gangs that are among these, in the order of their turns."""
        places = map(self.places.get, names)
        return [self.ordered[place] for place in sorted([p for p in places if p is not None])]


_ANSWERS_MAX: Final = 4


@frozen(slots=False, eq=False)
class OrderedGangs:
    """Some gangs of an order."""

    order: GangOrder
    names: frozenset[GangKey]

    @cached_property
    def in_turn(self) -> tuple[Gang, ...]:
        """The gangs in the order of their turns."""
        return tuple(self.order.in_turn(self.names))

    @cached_property
    def keys_in_turn(self) -> tuple[GangKey, ...]:
        """Their keys in the order of their turns."""
        return tuple([gang.key for gang in self.in_turn])


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
