"""Pods that could leave, in what pieces, and a choice among them: ints and tuples.

``placement.victim_field`` chooses; ``placement.cpsat_victims`` proves the choice or betters it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpusched.base.classes import frozen
from gpusched.placement.victims.loss_limits import NO_LOSS, BundleLoss

VictimRank = tuple[Any, ...]
"""Compared before cost: bundles of smaller ranks are taken first. All of one field compare."""
COST_RATIO: Final = 2**20
"""Costs a place are compared in parts of this."""


class EvictablePod(NamedTuple):
    """A pod that could leave.

    Attributes:
        row: of its node; -1 where the claimants may not run, so that it frees nothing for them.
        frees: amounts by column of the claimants' request.
        cost: what is lost when it leaves.
        draws: numbers of limits; its leaving takes one from each.
        taken: amounts by column of the loss limits.
    """

    row: int
    frees: tuple[int, ...]
    cost: int
    draws: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()


class VictimBundle(NamedTuple):
    """Members that leave together or not at all.

    Attributes:
        members: numbers of members.
        order: decides among equals, smaller first; unique.
        group: bundles that share members have the same number; of two that do, one has all
            members of the other and replaces it.
        extra: cost beside that of the members.
        draws: limits that it takes one from each time they are named, beside those of its
            members. Of a bundle of several members, the first is its own, the others are
            those that its members name as bundles of one.
        source: bundles of one source are compared among themselves by ``rank`` and cost; of
            sources, one is exhausted before the next, in an order that may change.
        loss: what it takes, as the loss limits see it, with all its members; whose gang it is
            of is said by ``group``.
        part: whether the rest of its group goes on without it.
    """

    members: tuple[int, ...]
    order: int
    group: int
    extra: int = 0
    draws: tuple[int, ...] = ()
    source: int = 0
    rank: VictimRank = ()
    loss: BundleLoss = NO_LOSS
    part: bool = False


class BundleIndex:
    """Members and bundles, and which belong together: the same wherever the claimants may run.

    Args:
        members: that could leave.
        bundles: of these members.
    """

    rows_by_cost = False
    """Whether ``of_row`` has the rows in the order of their cheapest bundles, and those of each row by rank, cost and order."""

    def __init__(self, members: Sequence[EvictablePod], bundles: Sequence[VictimBundle]) -> None:
        self.members = members
        self.bundles = bundles
        of_group: dict[int, list[int]] = {}
        of_member: dict[int, list[int]] = {}
        self.of_group: Mapping[int, Sequence[int]] = of_group
        """Numbers of bundles by group."""
        self.of_member: Mapping[int, Sequence[int]] = of_member
        """Numbers of bundles by member."""
        self.of_row: dict[int, list[int]] = {}
        """Numbers of bundles by row of one of their members."""
        self.rows_of: list[tuple[int, ...]] = []
        """Rows of each bundle, sorted."""
        self.costs: list[int] = []
        """What is lost by each bundle when all its members leave with it."""
        self.draws: list[bool] = []
        """Whether a bundle takes anything from a limit."""
        for number, bundle in enumerate(bundles):
            of_group.setdefault(bundle.group, []).append(number)
            if len(bundle.members) == 1:  # thousands of single pods
                of_member.setdefault(bundle.members[0], []).append(number)
                self._index_pod(number, bundle)
                continue
            for m in bundle.members:
                of_member.setdefault(m, []).append(number)
            rows = tuple(sorted({members[m].row for m in bundle.members} - {-1}))
            self.rows_of.append(rows)
            for row in rows:
                self.of_row.setdefault(row, []).append(number)
            self.draws.append(bool(bundle.draws) or any(members[m].draws for m in bundle.members))
            self.costs.append(sum(members[m].cost for m in bundle.members) + bundle.extra)
        self._look_at_all()

    def _index_pod(self, number: int, bundle: VictimBundle) -> None:
        member = self.members[bundle.members[0]]
        if member.row >= 0:
            self.rows_of.append((member.row,))
            self.of_row.setdefault(member.row, []).append(number)
        else:
            self.rows_of.append(())
        self.draws.append(bool(bundle.draws or member.draws))
        self.costs.append(member.cost + bundle.extra)

    def _look_at_all(self) -> None:
        bundles = self.bundles
        self.losses, self.loss_kinds = _loss_numbers(bundles)
        """The same number for bundles that lose the same, whatever gang they are of; and what those of each number lose."""
        self.firsts: Sequence[int] = [
            bundle.members[0] if bundle.members else -1 for bundle in bundles
        ]
        """The first member of each bundle."""
        self.orders: list[int] = [bundle.order for bundle in bundles]
        self.ranks: list[VictimRank] = [bundle.rank for bundle in bundles]
        self.only_pods = all(len(bundle.members) == 1 for bundle in bundles)
        """Whether each bundle is of one pod."""
        self.bundles_draw = any(bundle.draws for bundle in bundles)
        """Whether a bundle takes anything from a limit beside its members."""
        self.kinds = {(bundle.source, bundle.rank) for bundle in bundles}
        """Sources and ranks of bundles."""
        self.wholes: Sequence[int] = [
            number for number, bundle in enumerate(bundles) if not bundle.part
        ]
        """Numbers of bundles of which nothing of the group stays."""
        self.dearest_first = self._sort_dearest_first()

    def _sort_dearest_first(self) -> list[int]:
        """Numbers of bundles by what they cost, the dearest first."""
        return sorted(range(len(self.bundles)), key=self.costs.__getitem__, reverse=True)

    @property
    def sources(self) -> list[int]:
        """Sources of bundles, sorted."""
        return sorted({source for source, _ in self.kinds})

    @property
    def amounts_lost(self) -> set[tuple[int, ...]]:
        """What some bundle loses, by column; none of those that lose nothing."""
        return {loss.taken for loss in self.loss_kinds if loss.taken}


def plain_rows(
    of_row: Mapping[int, Sequence[int]], bundles: Sequence[VictimBundle]
) -> dict[int, int]:
    """Rows whose bundles are single pods of one source, and that source."""
    plain: dict[int, int] = {}
    for row, numbers in of_row.items():
        there = [bundles[number] for number in numbers]
        sources = {bundle.source for bundle in there}
        if len(sources) == 1 and all(len(bundle.members) == 1 for bundle in there):
            plain[row] = sources.pop()
    return plain


def rows_of_losses(
    of_row: Mapping[int, Sequence[int]], index: BundleIndex
) -> dict[tuple[int, tuple[int, ...]], set[int]]:
    """Rows with bundles of a side that are charged to some accounts."""
    of_loss: list[set[int]] = [set() for _ in index.loss_kinds]
    losses = index.losses
    for row, numbers in of_row.items():
        for number in numbers:
            of_loss[losses[number]].add(row)
    rows: dict[tuple[int, tuple[int, ...]], set[int]] = {}
    for loss, some in zip(index.loss_kinds, of_loss, strict=True):
        if some:
            rows.setdefault((loss.side, loss.accounts), set()).update(some)
    return rows


def _loss_numbers(bundles: Sequence[VictimBundle]) -> tuple[list[int], list[BundleLoss]]:
    """A number for what each bundle loses, whatever gang it is of, and the first loss of each number."""
    numbers: dict[tuple[object, ...], int] = {}
    of_loss: dict[int, int] = {}  # by id, as bundles hold them
    found: list[int] = []
    kinds: list[BundleLoss] = []
    for bundle in bundles:
        loss = bundle.loss
        known = of_loss.get(id(loss))
        if known is None:
            alike = (loss.side, loss.accounts, loss.judged, loss.taken, loss.last)
            known = of_loss[id(loss)] = numbers.setdefault(alike, len(numbers))
            if known == len(kinds):
                kinds.append(loss)
        found.append(known)
    return found, kinds


@frozen(slots=True, eq=False)
class ChosenBundle:
    """A bundle of a choice, with the members that leave by it."""

    bundle: int
    members: tuple[int, ...]


@frozen(slots=True, eq=False)
class VictimChoice:
    """Bundles that leave; ``cost`` is the sum over picks and their extras, ``rank`` the largest."""

    picks: tuple[ChosenBundle, ...]
    cost: int
    rank: VictimRank


@frozen(slots=True, eq=False)
class EvictionOption:
    """Bundles of one row, or one bundle, and how many claimants more fit when they leave."""

    rank: VictimRank
    cost: int
    gain: int
    bundles: tuple[int, ...]
    source: int

    def sort_key(self, need: int, orders: Sequence[VictimBundle]) -> tuple[Any, ...]:
        """Among moves of one source."""
        gain = min(self.gain, need)
        order = orders[self.bundles[0]].order
        return (self.rank, self.cost * COST_RATIO // gain, self.cost, order)


BundleSlot = tuple[int, int]
"""Whose move it is: a row and a source, or ``-1 - bundle`` and 0."""
BundleEntry = tuple[tuple[Any, ...], BundleSlot, int, EvictionOption | None]
"""A move with its key; the number tells older entries of its slot from the last.

Without a move the key is that of none that the slot offers, or smaller.
"""
