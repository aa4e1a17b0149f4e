"""Choices among victims that are a pod each and make room for one claimant each: without a table of them.

Where each possible victim holds just what one claimant asks for, which node it is on makes no difference: the
cheapest leave that queues may lose, one after the other. They stand in lines by queue, which all claimants
share, so that a claim looks at the first of each line, and at those that are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from typing import Any

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.arrays.columns import Bools, RequestVector
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.nodes.gpu_share_room import requests_beside_share
from gpusched.placement.victims.loss_limits import (
    BundleLoss,
    LossLimits,
    add_loss,
    is_freed,
    limits_hold,
    may_go_next,
)
from gpusched.session.preempt.pools.loss_accounts import LossAccounts
from gpusched.session.preempt.pools.pod_blocks import StandingBlocks
from gpusched.session.preempt.pools.pod_line import LinePod, PodLine

_Entry = tuple[Any, ...]
"""Where the next pod of a line stands among all; last the numbers of the line, and of the pod in it."""


@define(slots=True, eq=False)
class StandingLines:
    """Lines as the victims of a claimant stand in them, in columns.

    Attributes:
        preferences: of each its place among lines of pods that cost the same; smaller ones first.
        blocks: of each the number of its queue among those from which is taken.
        losses: of each what its queue loses with a pod.
    """

    lines: list[PodLine] = attrs.Factory(list)
    preferences: list[int] = attrs.Factory(list)
    blocks: list[int] = attrs.Factory(list)
    losses: list[BundleLoss] = attrs.Factory(list)


@frozen(slots=True, eq=False)
class LineChoice:
    """Pods that leave.

    Attributes:
        pods: in the order in which a table would have them; none where there are not enough.
        cost: of their leaving.
        priority: the highest among them.
    """

    pods: tuple[LinePod, ...]
    cost: int = 0
    priority: int = 0


_NOT_ENOUGH = LineChoice(())


class VictimLines:
    """See the module: those of one class of claimants.

    Args:
        standing: lines of all possible victims.
        rows: where claimants may run, shape (nodes,).
        has_left: whether a claim of this session made a pod leave.
    """

    def __init__(
        self, standing: StandingLines, rows: Bools, has_left: Callable[[UID], bool]
    ) -> None:
        self._standing = standing
        self._lines = standing.lines
        self._rows: set[int] | None = None if rows.all() else set(rows.nonzero()[0].tolist())
        self._has_left = has_left
        there = [line for line in self._lines if self._cost_at(line) is not None]
        self._least_priority = min((line.priority for line in there), default=0)
        self._excluded: set[GangKey] = set()
        self._kept: dict[str, Collection[GangKey]] = {}
        self._heads = [-1] * len(self._lines)
        self._entries: list[_Entry | None] = [None] * len(self._lines)
        """Of the first pod of each line that may leave, as long as neither it nor the line's head has left."""

    def exclude_gangs(self, gangs: Iterable[Gang]) -> None:
        """These are no victims after all."""
        self._excluded.update(gang.key for gang in gangs)
        self._heads = [-1] * len(self._lines)

    def exclude_queue(self, queue: str, keep: Collection[GangKey]) -> None:
        """Nothing may be taken from a queue but these gangs."""
        kept = self._kept.get(queue)
        self._kept[queue] = set(keep) if kept is None else {key for key in kept if key in keep}
        self._heads = [-1] * len(self._lines)

    def choose(
        self, missing: int, limits: LossLimits, free: Sequence[Sequence[int]]
    ) -> LineChoice | None:
        """The cheapest pods that make room for so many claimants more; None where that is not told by lines.

        Args:
            missing: claimants.
            limits: on what queues lose.
            free: amounts by row; below zero a node is over what it offers, so that a pod that leaves makes no room.
        """
        heap, losses = self._first_entries(), self._standing.losses
        heapify(heap)
        rights = [right.frees for side in limits.sides for right in side]
        opens = [frees for frees in rights if any(amount > 0 for _, _, amount in frees)]
        lost: dict[int, list[int]] = {}
        freed = [is_freed(frees, lost) for frees in opens]
        waiting: list[_Entry] = []
        picked: list[_Entry] = []
        while heap and len(picked) < missing:
            entry = heappop(heap)
            loss = losses[entry[-2]]
            if not limits.empty and not may_go_next(limits, lost, loss):
                waiting.append(entry)  # until a right is opened
                continue
            picked.append(entry)
            if min(free[self._lines[entry[-2]].pods[entry[-1]].seat.row]) < 0:
                return None
            following = self._entry_from(entry[-2], entry[-1] + 1)
            if following is not None:
                heappush(heap, following)
            add_loss(lost, loss.accounts, loss.taken)
            if opens and freed != (freed := [is_freed(frees, lost) for frees in opens]):
                for each in waiting:
                    heappush(heap, each)
                waiting.clear()
        each_lost = [losses[each[-2]].of_gang(number) for number, each in enumerate(picked)]
        if len(picked) < missing or not (limits.empty or limits_hold(limits, each_lost)):
            return _NOT_ENOUGH
        return self._choice_of(picked)

    def _choice_of(self, picked: Sequence[_Entry]) -> LineChoice:
        found = []
        for number, at in (each[-2:] for each in picked):
            line = self._lines[number]
            pod = line.pods[at]
            found.append((line.priority, self._standing.blocks[number], pod.place, pod))
        found.sort(key=lambda each: each[:3])
        pods = tuple([each[3] for each in found])
        return LineChoice(pods, sum(pod.cost for pod in pods), max(each[0] for each in found))

    def costs_least(self, choice: LineChoice) -> bool:
        """Whether it is seen at a glance that as many pods cost no less, and that none of a lower priority might leave."""
        count = len(choice.pods)
        if count > 1 and choice.priority != self._least_priority:
            return False
        heads = [self._cost_at(line) for line in self._lines]
        if choice.cost <= count * min(cost for cost in heads if cost is not None):
            return True
        each_of = (islice(self._costs_of(line), count) for line in self._lines)
        return choice.cost <= sum(nsmallest(count, (cost for some in each_of for cost in some)))

    def _cost_at(self, line: PodLine) -> int | None:
        """What the first pod of a line costs that has not left."""
        at = line.first_standing(self._has_left)
        return line.pods[at].cost if at < len(line.pods) else None

    def _costs_of(self, line: PodLine) -> Iterator[int]:
        """Costs of pods of a line that may leave, on whatever node they are."""
        pods = line.pods
        for at in range(line.first_standing(self._has_left), len(pods)):
            if not self._left_at(line, at) and self._is_victim(pods[at].gang):
                yield pods[at].cost

    def _first_entries(self) -> list[_Entry]:
        found = []
        for number, line in enumerate(self._lines):
            head, entry = line.first_standing(self._has_left), self._entries[number]
            if head != self._heads[number] or (
                entry is not None and entry[-1] > head and self._left_at(line, entry[-1])
            ):
                self._heads[number] = head
                entry = self._entries[number] = self._entry_from(number, head)
            if entry is not None:
                found.append(entry)
        return found

    def _entry_from(self, number: int, at: int) -> _Entry | None:
        """Of the first pod of a line from some place on that may leave; None where there is none."""
        line, rows, standing = self._lines[number], self._rows, self._standing
        pods = line.pods
        for place in range(at, len(pods)):
            pod = pods[place]
            if rows is not None and pod.seat.row not in rows:
                continue
            if self._is_victim(pod.gang) and not self._left_at(line, place):
                cost, created, name = line.key_at(place)
                preference, block = standing.preferences[number], standing.blocks[number]
                about = (line.priority, cost, preference, created, name)
                return (*about, block, pod.place, number, place)
        return None

    def _left_at(self, line: PodLine, at: int) -> bool:
        return self._has_left(line.pods[at].seat.member.pod.uid)

    def _is_victim(self, gang: Gang) -> bool:
        if gang.key in self._excluded:
            return False
        kept = self._kept.get(gang.queue) if self._kept else None
        return kept is None or gang.key in kept


def victim_lines(
    standing: StandingBlocks,
    accounts: LossAccounts,
    ask: RequestVector,
    *,
    columns: Mapping[str, int],
    rows: Bools,
    has_left: Callable[[UID], bool],
) -> VictimLines | None:
    """Lines of all who may leave; None where one frees something else than one claimant asks for.

    Args:
        standing: their blocks.
        accounts: of their queues.
        ask: of one claimant.
        columns: numbers of all columns, by the name of their resource.
        rows: where claimants may run.
        has_left: whether a claim of this session made a pod leave.
    """
    amounts, asked = ask.amounts.tolist(), ask.columns.tolist()
    if len(standing.firsts) != 1 or ask.share is not None or not asked:
        return None
    name_of = {column: name for name, column in columns.items()}
    names = [name_of[column] for column in asked]
    found = StandingLines()
    known: dict[str, bool] = {}
    for number, (block, place) in enumerate(zip(standing.blocks, standing.places, strict=True)):
        if any(block.columns.draws):
            return None
        for line in block.lines:
            pod_class = line.pod_class
            alike = known.get(pod_class.digest)
            if alike is None:
                freed = requests_beside_share(pod_class)
                alike = [freed.get(name) for name in names] == amounts
                known[pod_class.digest] = alike
            if not alike:
                return None
            loss = accounts.pod_loss(line.pods[0].gang, accounts.taken_with(pod_class))
            found.lines.append(line)
            found.preferences.append(place)
            found.blocks.append(number)
            found.losses.append(loss)
    return VictimLines(found, rows, has_left)
