"""Victims that are a pod each, in columns by queue: worked out once a session, taken over by tables of all claimants."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, Final, TypeVar

from gpusched.api.gang.running_kind import RunningKind
from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.victims.model import EvictablePod
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.proposal import allowed_victims, victim_sort_keys
from gpusched.session.preempt.pools.pod_line import PodLine, lines_of
from gpusched.session.preempt.victims import (
    COST_OF_GANG,
    CandidateVictim,
    Victims,
    name_order,
)

_AFTER_ALL_LETTERS: Final = chr(sys.maxunicode)
"""Behind a name it makes the shorter of two that begin alike the larger one."""
T = TypeVar("T")
Amounts = tuple[tuple[int, ...], tuple[int, ...]]
"""What a pod frees and what is taken with it, by column."""


@frozen(slots=True, eq=False)
class PodColumns:
    """Those of a block that have not left, in columns.

    Attributes:
        kinds: numbers of their kinds.
        ranks: places among those of the block that cost the same: the youngest first.
        rows: of their nodes, as a bundle has them.
        costs: of their leaving.
    """

    gangs: list[Gang]
    seats: list[CandidateVictim]
    uids: list[UID]
    keys: list[GangKey]
    kinds: list[int]
    ranks: list[int]
    rows: list[tuple[int, ...]]
    costs: list[int]
    draws: list[bool]

    def keep_rows(self, stays: Sequence[bool]) -> PodColumns:
        """Those of them that stay."""

        def left(column: Sequence[T]) -> list[T]:
            return list(compress(column, stays))

        return PodColumns(
            left(self.gangs), left(self.seats), left(self.uids), left(self.keys), left(self.kinds),
            left(self.ranks), left(self.rows), left(self.costs), left(self.draws),
        )  # fmt: skip


class PodBlock:
    """Gangs of one queue, each of them a pod that runs and may leave.

    Args:
        gangs: all of the queue, by key, those included that left.
        kinds: numbers of their kinds, which are in the order of the first of each.
        seats: of each; None for those that left.
    """

    def __init__(
        self,
        gangs: list[Gang],
        kinds: Sequence[int],
        seats: Sequence[CandidateVictim | None],
    ) -> None:
        self.gangs = gangs
        self.queue = gangs[0].queue
        self.size = len(gangs)
        self.keys = {gang.key for gang in gangs}
        self.firsts: list[Gang] = []
        """The first gang of each kind, of which policies are asked."""
        for gang, kind in zip(gangs, kinds, strict=True):
            if kind == len(self.firsts):
                self.firsts.append(gang)
        stays = [seat is not None for seat in seats]
        there = [seat for seat in seats if seat is not None]
        of_seat = gangs if len(there) == len(gangs) else list(compress(gangs, stays))
        self._columns = PodColumns(
            of_seat,
            there,
            [seat.member.pod.uid for seat in there],
            [gang.key for gang in of_seat],
            list(compress(kinds, stays)),
            _ranks_of_loss(of_seat),
            [(seat.row,) for seat in there],
            [seat.cost + COST_OF_GANG for seat in there],
            [bool(seat.budgets) for seat in there],
        )
        self._left: set[UID] = set()
        self.kinds = sorted(set(self._columns.kinds))
        """Numbers of the kinds of those that stay."""
        self._pods: tuple[Mapping[int, Amounts], list[EvictablePod]] = ({}, [])

    def drop(self, uid: UID) -> None:
        """A pod has left."""
        self._left.add(uid)

    @property
    def columns(self) -> PodColumns:
        """Of those that stay."""
        if self._left:
            left = self._left
            self._columns = self._columns.keep_rows([uid not in left for uid in self._columns.uids])
            self.kinds = sorted(set(self._columns.kinds))
            self._left, self._pods = set(), ({}, [])
        return self._columns

    def pods(self, amounts: Mapping[int, Amounts]) -> list[EvictablePod]:
        """Pods that stay, as a search has them, with these amounts by kind."""
        columns = self.columns
        if self._pods[0] != amounts:
            made = []
            for seat, kind in zip(columns.seats, columns.kinds, strict=True):
                frees, taken = amounts[kind]
                made.append(EvictablePod(seat.row, frees, seat.cost, seat.budgets, taken))
            self._pods = (amounts, made)
        return self._pods[1]

    @cached_property
    def lines(self) -> list[PodLine]:
        """Those that stay when they are first asked for, in lines; a line follows who leaves after that."""
        those = self.columns
        return lines_of(those.gangs, those.seats, costs=those.costs, ranks=those.ranks)


@frozen(slots=True, eq=False)
class StandingBlocks:
    """Blocks as they stand to a claimant.

    Attributes:
        blocks: those from which may be taken.
        sources: of each the number of its source.
        places: of each its place among blocks whose pods cost the same; those of one place stand together.
        firsts: the first gang of each source.
        size: gangs that may leave.
    """

    blocks: list[PodBlock]
    sources: list[int]
    places: list[int]
    firsts: dict[int, Gang]
    size: int

    def orders(self) -> dict[str, list[int]]:
        """Places of gangs among equals, by queue."""
        groups: list[list[PodBlock]] = [[] for _ in range(max(self.places, default=-1) + 1)]
        for block, place in zip(self.blocks, self.places, strict=True):
            groups[place].append(block)
        return orders_of_blocks(groups)


def standing_blocks(
    hooks: Hooks, blocks: Sequence[PodBlock], claimant: Gang, action: str
) -> StandingBlocks | None:
    """Blocks as policies order them; None where they tell those of a queue apart, or let some of all not be stopped."""
    firsts = [gang for block in blocks for gang in block.firsts]
    keys = victim_sort_keys(hooks.victim_orders, claimant, firsts, action)
    preferences = victim_sort_keys(hooks.victim_preferences, claimant, firsts, action)
    sources: dict[Any, int] = {}
    found: list[PodBlock] = []
    source_of: list[int] = []
    preferred: list[Any] = []
    place = 0
    for block in blocks:
        key, preference = keys[place], preferences[place]
        for _ in block.firsts:
            if keys[place] != key or preferences[place] != preference:
                return None
            place += 1
        if key is None:
            continue  # nobody knows where it stands: it is no victim
        stands = ("" if hooks.victim_orders_fixed else block.queue, key)
        source = sources.setdefault(stands, len(sources))
        if preference is not None:
            found.append(block)
            source_of.append(source)
            preferred.append(preference)
    asked = [gang for block in found for gang in block.columns.gangs]
    if len(allowed_victims(hooks.stop_filters, claimant, asked, action)) < len(asked):
        return None
    there: dict[int, Gang] = {}
    for block, source in zip(found, source_of, strict=True):
        if block.columns.gangs:
            there.setdefault(source, block.columns.gangs[0])
    ranks = {preference: rank for rank, preference in enumerate(sorted(set(preferred)))}
    places = [ranks[preference] for preference in preferred]
    return StandingBlocks(found, source_of, places, there, len(asked))


def orders_of_blocks(standing: Iterable[Sequence[PodBlock]]) -> dict[str, list[int]]:
    """Places of gangs among equals, by queue.

    Args:
        standing: blocks that stand together, the first to go first.
    """
    orders: dict[str, list[int]] = {}
    first = 0
    for blocks in standing:
        if len(blocks) == 1:
            orders[blocks[0].queue] = [first + rank for rank in blocks[0].columns.ranks]
        else:
            merged = sorted(
                (-gang.created, name_order(gang), number, place)
                for number, block in enumerate(blocks)
                for place, gang in enumerate(block.columns.gangs)
            )
            for block in blocks:
                orders[block.queue] = [0] * len(block.columns.gangs)
            for order, (_, _, number, place) in enumerate(merged, first):
                orders[blocks[number].queue][place] = order
        first += sum(block.size for block in blocks)
    return orders


class PodBlocks:
    """Blocks of all queues, for one session.

    Args:
        victims: of the session.
    """

    def __init__(self, victims: Victims) -> None:
        self._victims = victims
        self._known: dict[str, PodBlock | None] = {}
        self._of_pod: dict[UID, PodBlock] = {}
        self._seen_log = len(victims.log)

    def of_queue(self, queue: str) -> PodBlock | None:
        """Victims of a queue; None where one of them is no pod alone, or there are none."""
        self._follow()
        if queue not in self._known:
            block = self.find(list(self._victims.of_queue(queue)))
            self._known[queue] = block
            if block is not None:
                self._of_pod.update(dict.fromkeys(block.columns.uids, block))
        return self._known[queue]

    def _follow(self) -> None:
        """Take in who left."""
        log = self._victims.log
        for uid in log[self._seen_log :]:
            block = self._of_pod.get(uid)
            if block is not None:
                block.drop(uid)
        self._seen_log = len(log)

    def find(self, gangs: list[Gang]) -> PodBlock | None:
        """Gangs of one queue as a block, which does not follow who leaves; None as above."""
        kinds: dict[RunningKind, int] = {}
        numbers = []
        for gang in gangs:
            kind = gang.running_kind
            if kind is None or not gang.terms.preemptible:
                return None
            numbers.append(kinds.setdefault(kind, len(kinds)))
        return PodBlock(gangs, numbers, self._victims.seats_of_pods(gangs)) if gangs else None


def _ranks_of_loss(gangs: Sequence[Gang]) -> list[int]:
    """Places of gangs among each other where they cost the same: by when they were made, then by ``name_order``."""
    names = [gang.key.name + _AFTER_ALL_LETTERS for gang in gangs]
    order = sorted(range(len(gangs)), key=names.__getitem__, reverse=True)
    created = [gang.created for gang in gangs]
    order.sort(key=created.__getitem__, reverse=True)  # equal ones stay as they are
    ranks = [0] * len(gangs)
    for rank, number in enumerate(order):
        ranks[number] = rank
    return ranks
