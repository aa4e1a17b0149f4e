"""Whom of a tenant that has more than its share a session looks at, kept while all that it rests on is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import TenantRound
from gpusched.session.state.order.kept_orders import GangOrder, Spots
from gpusched.session.state.order.work_budget import GangCosts, Tenant

HEAD_DIVISOR: Final = 4
"""A fourth of a tenant's share is for the gangs that are first in line, in every session."""

_LOOKS_MAX: Final = 4
"""Looks of one tenant that are kept: some sessions follow each other after each change."""


Turns = tuple[frozenset[GangKey], frozenset[GangKey]]
"""Gangs that were chosen and had no turn: those that were put back, and those that were put off."""


class LookBasis(NamedTuple):
    """All that says whom of a tenant a session looks at when it looks anew.

    Attributes:
        order: of the tenant's gangs.
        before: how far the round had come.
        share: units of the session for the tenant.
        nodes: how many the cluster has.
        evicts: whether the session may evict pods.
        pressing: gangs that press.
        behind: those of them for which room that is not reserved is too little.
    """

    order: GangOrder
    before: TenantRound
    share: int
    nodes: int
    evicts: bool
    pressing: frozenset[GangKey]
    behind: frozenset[GangKey]

    def is_like(self, other: LookBasis) -> bool:
        """Whether another says the same; long lists of names are the same objects where they are left alone."""
        one, two = self.before, other.before
        return (
            self.order is other.order
            and self[2:] == other[2:]
            and (one.looked_at is two.looked_at and one.known is two.known and one.left is two.left)
            and (one.cut, one.paused, one.changed) == (two.cut, two.paused, two.changed)
            and one.in_vain == two.in_vain
        )


@define(slots=True, eq=False)
class TenantLook:
    """Whom of a tenant a session looks at.

    Attributes:
        basis: what it rests on.
        head: keys of gangs that are first in line.
        chosen: gangs that are looked at, by key; not to be changed.
        for_room: keys of those that are chosen because nodes may have room for them, and for nothing else.
        presses: whether some of those that are left press.
        after: how far the round is after the session, by who of them was put back and who was put off.
    """

    basis: LookBasis
    head: tuple[GangKey, ...]
    chosen: Mapping[GangKey, Gang]
    for_room: AbstractSet[GangKey]
    presses: bool
    after: dict[Turns, TenantRound] = attrs.field(init=False, factory=dict)
    _left: tuple[tuple[GangKey, ...], Spots] | None = attrs.field(init=False, default=None)

    @property
    def keys_left(self) -> tuple[GangKey, ...]:
        """Keys of gangs that the round is still to look at, in the order of their turns."""
        return self._those_left()[0]

    @property
    def spots_left(self) -> Spots:
        """Their places in the order."""
        return self._those_left()[1]

    def _those_left(self) -> tuple[tuple[GangKey, ...], Spots]:
        """Worked out when they are asked for: a session that ends early leaves the round as it was."""
        if self._left is None:
            order, before = self.basis.order, self.basis.before
            unseen = order.gangs_not_in(before.looked_at)
            left = unseen.with_others(self.basis.pressing).without(set(self.chosen))
            self._left = (same_names(order.keys_at(left), before.left), left)
        return self._left

    def keep_after(self, turns: Turns, after: TenantRound) -> None:
        """Keep how far the round is when these had no turn after all."""
        if len(self.after) >= _LOOKS_MAX:
            self.after.clear()
        self.after[turns] = after


class KeptLooks:
    """Looks of all tenants."""

    def __init__(self) -> None:
        self._known: dict[Tenant, list[TenantLook]] = {}

    def find(self, tenant: Tenant, basis: LookBasis, costs: Callable[[], GangCosts]) -> TenantLook:
        """The look that rests on so much, made where it is not known.

        Args:
            tenant: whose gangs are looked at.
            basis: of the look.
            costs: of the tenant's gangs, by these numbers of the basis.
        """
        looks = self._known.setdefault(tenant, [])
        known = next((each for each in looks if each.basis.is_like(basis)), None)
        if known is None:
            known = _choose_anew(basis, costs())
            looks[:] = [*looks[1 - _LOOKS_MAX :], known]
        return known

    def forget_others(self, tenants: Sequence[Tenant]) -> None:
        """Keep those of these tenants alone."""
        for gone in self._known.keys() - set(tenants):
            del self._known[gone]


def _choose_anew(basis: LookBasis, costs: GangCosts) -> TenantLook:
    order, before, share, pressing = basis.order, basis.before, basis.share, basis.pressing
    head, _ = first_within_share(order.ordered, costs, share // HEAD_DIVISOR)
    chosen_head = [] if before.cut else head
    units = share - share // HEAD_DIVISOR if chosen_head else share
    unseen = order.gangs_not_in(before.looked_at)
    gone = {gang.key for gang in chosen_head}
    found = choose(
        (gang for gang in unseen.in_turn if gang.key not in gone),
        order.in_turn(pressing - gone),
        before,
        costs,
        units,
        behind=basis.behind,
        shared=bool(pressing),
    )
    chosen = {gang.key: gang for gang in (*chosen_head, *found.chosen)}
    return TenantLook(
        basis,
        tuple([gang.key for gang in head]),
        chosen,
        found.for_room,
        found.presses,
    )


def same_names(names: Sequence[GangKey], before: tuple[GangKey, ...]) -> tuple[GangKey, ...]:
    """Names in the order of their turns; the same object where they are those of before, which tells the next session so."""
    found = tuple(names)
    return before if found == before else found


class Choice(NamedTuple):
    """Who of those that wait is looked at, who of them for room alone, and whether some press who are not."""

    chosen: list[Gang]
    for_room: AbstractSet[GangKey]
    presses: bool


def choose(
    unseen: Iterable[Gang],
    pressing: Sequence[Gang],
    before: TenantRound,
    costs: GangCosts,
    units: int,
    *,
    behind: AbstractSet[GangKey],
    shared: bool,
) -> Choice:
    """In turn whom the round has not looked at, where it is not paused, and with half of the units those that press.

    Of those that press those come first for which there is room that is not reserved, and of these those that have had no turn in the round, then those that have waited for another
    one since an earlier change: however often something changes, everybody's turn comes. Whoever was looked at and presses
    no more has had its turn.

    Args:
        unseen: whom the round has not looked at, in the order of their turns.
        pressing: those that press, in the order of their turns.
        before: how far the round has come.
        costs: of gangs.
        units: that they may cost together.
        behind: those that press for which only reserved room is enough.
        shared: whether half of the units is for those that press.
    """
    left: AbstractSet[GangKey] = frozenset()

    def turns_had(gang: Gang) -> int:
        key = gang.key
        if key in before.in_vain:
            return 2
        return 0 if key not in before.looked_at else 1 if key in left else 2

    in_turn: list[Gang] = []
    if not before.paused:
        part = units // 2 if shared else units
        in_turn, over = first_within_share(unseen, costs, part)
        units += over - part
    gone = {gang.key for gang in in_turn}
    first = [gang for gang in pressing if gang.key not in gone]
    if any(gang.key in before.looked_at and gang.key not in before.in_vain for gang in first):
        left = frozenset(before.left)
    in_turns = sorted(first, key=lambda gang: (gang.key in behind, turns_had(gang)))
    chosen, _ = first_within_share(in_turns, costs, max(0, units))
    return Choice(
        chosen=[*in_turn, *chosen],
        for_room=frozenset(gang.key for gang in chosen if gang.key in before.known),
        presses=len(chosen) < len(first),
    )


def first_within_share(
    gangs: Iterable[Gang], costs: GangCosts, share: int
) -> tuple[list[Gang], int]:
    """The first of them that cost no more than the share together, and one at least; and what they leave of it."""
    chosen: list[Gang] = []
    for gang in gangs:
        left = share - costs.units_for(gang)
        if chosen and left < 0:
            break
        chosen.append(gang)
        share = left
    return chosen, share
