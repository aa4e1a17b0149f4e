"""The order of a tenant's gangs, kept from session to session while the gangs and their keys are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.session.state.order.work_budget import Tenant


@attrs.frozen(eq=False)
class GangOrder:
    """Gangs of one tenant in the order of their turns.

    Attributes:
        gangs: as they came.
        ordered: the same in order.
        names: their keys.
        kinds: those that are equal to each other, by their equivalence class.
        others: those without a class.
        keys: of one gang of each class, in the order of the classes.
    """

    gangs: Sequence[Gang]
    ordered: Sequence[Gang]
    names: frozenset[GangKey]
    kinds: dict[EquivalenceClass, list[Gang]]
    others: Sequence[Gang]
    keys: Sequence[Any]


class KeptOrders:
    """The orders of all tenants."""

    def __init__(self) -> None:
        self._known: dict[Tenant, GangOrder] = {}

    def order_of(
        self, tenant: Tenant, gangs: Sequence[Gang], keys: OrderKeys, kinds: EquivalenceClasses
    ) -> GangOrder:
        """The order of a tenant's gangs; as it was where neither they nor the keys of their classes changed."""
        known = self._known.get(tenant)
        if known is not None and known.gangs == gangs and keys.shared_by_class and not known.others:
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
            gangs, ordered, frozenset(gang.key for gang in gangs), by_kind, others, first
        )
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
    return (1,) if key is None else (0, key)
