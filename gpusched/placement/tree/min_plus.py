"""Tables of least costs, and how those of two halves make the table of the whole.

A table says for each number of members, from none up to all that fit, what the least cost is.
The whole takes k where one half takes i and the other k - i: a convolution in which products are
sums and sums are minima. Tables that were made once are never made again: equal tables have the
same number, and so have equal pairs of them.

Costs are one or two ints of at most ``BITS`` bits, compared from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen

BITS: Final = 60
_NEVER: Final = 2**61
"""Above every cost; two of them still fit 64 bits."""
_FIRST: Final = 4096
_SOME: Final = 256
"""Tables that are merged sooner one by one than in arrays."""
_FEW: Final = 64
"""Pairs that are looked up sooner than sorted."""
_LITTLE: Final = 100_000
"""Additions that take less time than looking at what could be saved of them."""


@frozen(eq=False)
class MergeRound:
    """Tables side by side that become half as many.

    Attributes:
        numbers: of the tables.
        left, right: positions of the two that make each of the next; right is -1 for none.
    """

    numbers: Ints | list[int]
    left: Ints | list[int]
    right: Ints | list[int]


@frozen(eq=False)
class TableMerge:
    """What each parent's tables make together.

    Attributes:
        numbers: by parent, the number of an empty table where a parent has none.
        steps: first to last.
        position: of each parent after the last step, -1 for one that has no tables.
    """

    numbers: Ints
    steps: tuple[MergeRound, ...]
    position: Ints


class CostTables:
    """Tables by number.

    Args:
        members: no table goes further.
        words: ints of one cost.
    """

    def __init__(self, members: int, words: int) -> None:
        self.members = members
        self.words = words
        self.size = 0
        """Number of costs held, by which memory is bounded."""
        self._costs: Ints = np.zeros((words, _FIRST), dtype=np.int64)
        self._start: Ints = np.zeros(_FIRST, dtype=np.int64)
        self._most: Ints = np.zeros(_FIRST, dtype=np.int64)
        self._count = 0
        self._leaves: dict[bytes, int] = {}
        self._made: dict[tuple[int, int], int] = {}
        self._charged: dict[tuple[int, tuple[int, ...]], int] = {}
        self._strided: dict[tuple[int, int], int] = {}
        self._cut: dict[tuple[int, int], int] = {}
        self.none = self._append_tables(np.zeros((words, 1), dtype=np.int64), np.zeros(1, np.int64))
        """The number of the table of what takes no members."""

    # -- reading -----------------------------------------------------------------------------
    def largest_counts(self, numbers: Ints) -> Ints:
        """How many members each table goes up to."""
        return self._most[numbers]

    def cost_at(self, numbers: Ints, taken: int) -> Ints:
        """What it costs to take so many members, shape (words, tables)."""
        return self._costs[:, self._start[numbers] + taken]

    def trace_back(self, merge: TableMerge, parent: int, taken: int) -> list[tuple[int, int]]:
        """Which of the tables that were merged take how many of a parent's members.

        Returns:
            Pairs of position and members; those that take none are left out.
        """
        found: list[tuple[int, int]] = []
        stack = [(len(merge.steps), int(merge.position[parent]), taken)]
        while stack:
            depth, place, count = stack.pop()
            if count == 0:
                continue
            if depth == 0:
                found.append((place, count))
                continue
            step = merge.steps[depth - 1]
            first, second = int(step.left[place]), int(step.right[place])
            if second < 0:
                stack.append((depth - 1, first, count))
                continue
            ours = self._best_split(int(step.numbers[first]), int(step.numbers[second]), count)
            stack.append((depth - 1, second, count - ours))
            stack.append((depth - 1, first, ours))
        return found

    def _best_split(self, left: int, right: int, taken: int) -> int:
        """How many of the members go left, at least cost; the more the better among equals."""
        most_left, most_right = int(self._most[left]), int(self._most[right])
        high, low = min(most_left, taken), max(0, taken - most_right)
        if high == low:
            return high
        # Left takes high, high - 1, .., low: the first least is the one with most on the left.
        begin = int(self._start[left])
        ours = self._costs[:, begin + low : begin + high + 1][:, ::-1]
        begin = int(self._start[right]) + taken - high
        sums = ours + self._costs[:, begin : begin + high - low + 1]
        if self.words == 1:
            return high - int(sums[0].argmin())
        head = sums[0] == sums[0].min()
        return high - int(np.where(head, sums[1], _NEVER).argmin())

    # -- making ------------------------------------------------------------------------------
    def add_leaf(self, costs: Ints) -> int:
        """The number of this table.

        Args:
            costs: shape (words, up to ``members`` + 1); nothing for no members.
        """
        key = costs.tobytes()
        found = self._leaves.get(key)
        if found is None:
            size = np.array([costs.shape[1] - 1], dtype=np.int64)
            found = self._leaves[key] = self._append_tables(costs, size)
        return found

    def charge_tables(self, numbers: Ints, kinds: Ints, charges: Sequence[tuple[int, ...]]) -> Ints:
        """Tables of domains that cost something to enter.

        Args:
            numbers: of the tables, shape (domains,).
            kinds: of charge of each, index of ``charges``.
            charges: words that are added where members are taken.
        """
        return self._map_pairs(
            numbers,
            kinds,
            lambda number, kind: self._charge_table(number, charges[kind]),
        )

    def stride_tables(self, numbers: Ints, units: Ints) -> Ints:
        """Tables that count in units of members: what 0, 1, 2.. units cost.

        Args:
            numbers: of the tables, shape (domains,).
            units: members of one unit; 0 where nothing may be taken.
        """
        return self._map_pairs(numbers, units, self._stride_table)

    def cut_tables(self, numbers: Ints, most: Ints) -> Ints:
        """Tables of domains that take no more than so many members.

        Args:
            numbers: of the tables, shape (domains,).
            most: members that each domain takes, shape (domains,).
        """
        return self._map_pairs(numbers, np.clip(most, 0, self.members), self._shorten_table)

    def merge_tables(self, parents: Ints, numbers: Ints, count: int) -> TableMerge:
        """What each parent's domains make together.

        Args:
            parents: of each table, ascending, shape (tables,).
            numbers: of the tables.
            count: parents there are.
        """
        steps: list[MergeRound] = []
        sizes = np.bincount(parents, minlength=count)
        whole = np.full(count, self.none, dtype=np.int64)
        held = np.flatnonzero(sizes)
        position = np.full(count, -1, dtype=np.int64)
        position[held] = np.arange(len(held))
        if len(numbers) <= _SOME:
            whole[held], steps = self._merged_some(sizes[held].tolist(), numbers.tolist())
            return TableMerge(whole, tuple(steps), position)
        for left, paired in _merge_rounds(sizes[held]):
            right = np.where(paired, left + 1, -1)
            steps.append(MergeRound(numbers, left, right))
            after = numbers[left]
            after[paired] = self._merge_pairs(after[paired], numbers[left[paired] + 1])
            numbers = after
        whole[held] = numbers
        return TableMerge(whole, tuple(steps), position)

    def _merged_some(
        self, sizes: list[int], numbers: list[int]
    ) -> tuple[list[int], list[MergeRound]]:
        """The same, table by table, which is quicker where there are not many."""
        steps: list[MergeRound] = []
        while max(sizes, default=0) > 1:
            left: list[int] = []
            right: list[int] = []
            begin = 0
            for size in sizes:
                end = begin + size
                left += range(begin, end, 2)
                right += range(begin + 1, end, 2)
                right += [-1] * (size & 1)
                begin = end
            steps.append(MergeRound(numbers, left, right))
            pairs = [(numbers[a], numbers[b]) for a, b in zip(left, right, strict=True) if b >= 0]
            merged = iter(self._pairs_made(pairs))
            numbers = [
                next(merged) if b >= 0 else numbers[a] for a, b in zip(left, right, strict=True)
            ]
            sizes = [(size + 1) // 2 for size in sizes]
        return numbers, steps

    def _map_pairs(self, numbers: Ints, kinds: Ints, make: Callable[[int, int], int]) -> Ints:
        """``make`` of each pair that differs."""
        if len(numbers) <= _SOME:
            asked = list(zip(numbers.tolist(), kinds.tolist(), strict=True))
            of = {pair: make(*pair) for pair in dict.fromkeys(asked)}
            return np.array([of[pair] for pair in asked], dtype=np.int64)
        width = int(kinds.max()) + 1
        pairs, which = np.unique(numbers * width + kinds, return_inverse=True)
        made = [make(pair // width, pair % width) for pair in pairs.tolist()]
        return np.array(made, dtype=np.int64)[which]

    def _charge_table(self, number: int, charge: tuple[int, ...]) -> int:
        if not any(charge):
            return number
        key = (number, charge)
        found = self._charged.get(key)
        if found is None:
            begin, most = int(self._start[number]), self._most[number]
            costs = self._costs[:, begin : begin + int(most) + 1].copy()
            costs[:, 1:] += np.array(charge, dtype=np.int64)[:, None]
            found = self._charged[key] = self._append_tables(costs, most[None])
        return found

    def _stride_table(self, number: int, unit: int) -> int:
        if unit == 0:
            return self.none
        if unit == 1:
            return number
        key = (number, unit)
        found = self._strided.get(key)
        if found is None:
            begin, most = int(self._start[number]), int(self._most[number])
            costs = self._costs[:, begin : begin + most + 1 : unit].copy()
            found = self._strided[key] = self._append_tables(
                costs, np.array([most // unit], dtype=np.int64)
            )
        return found

    def _shorten_table(self, number: int, most: int) -> int:
        if int(self._most[number]) <= most:
            return number
        if most == 0:
            return self.none
        key = (number, most)
        found = self._cut.get(key)
        if found is None:
            begin = int(self._start[number])
            costs = self._costs[:, begin : begin + most + 1].copy()
            found = self._cut[key] = self._append_tables(costs, np.array([most], dtype=np.int64))
        return found

    def _merge_pairs(self, left: Ints, right: Ints) -> Ints:
        """Numbers of the tables that these make two by two."""
        if len(left) > _FEW:
            keys, which = np.unique(left * self._count + right, return_inverse=True)
            left, right = np.divmod(keys, self._count)
            return self._pairs_one_by_one(left, right)[which]
        return self._pairs_one_by_one(left, right)

    def _pairs_one_by_one(self, left: Ints, right: Ints) -> Ints:
        pairs = list(zip(left.tolist(), right.tolist(), strict=True))
        return np.array(self._pairs_made(pairs), dtype=np.int64)

    def _pairs_made(self, pairs: list[tuple[int, int]]) -> list[int]:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._made]
        if new:
            self._made.update(zip(new, self._merge_new_pairs(new), strict=True))
        return [self._made[pair] for pair in pairs]

    def _merge_new_pairs(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Work out tables of pairs, those of about the same lengths at once."""
        ends = np.array(pairs, dtype=np.int64)
        most = self._most[ends]
        swap = most[:, 0] < most[:, 1]
        ends[swap], most[swap] = ends[swap][:, ::-1], most[swap][:, ::-1]
        # One batch is as long as its longest: worth it where there is little to do at all.
        wide = len(pairs) * (int(most[:, 0].max()) + 1) * (int(most[:, 1].max()) + 1)
        if wide <= _LITTLE:
            first = self._merge_batch(ends, most)
            return list(range(first, first + len(pairs)))
        kinds = _bit_length(most[:, 0]) * 64 + _bit_length(most[:, 1])
        made = np.zeros(len(pairs), dtype=np.int64)
        for kind in np.unique(kinds).tolist():
            rows = np.flatnonzero(kinds == kind)
            made[rows] = self._merge_batch(ends[rows], most[rows]) + np.arange(len(rows))
        numbers: list[int] = made.tolist()
        return numbers

    def _merge_batch(self, ends: Ints, most: Ints) -> int:
        """Add the table of each pair, the longer one first; the number of the first.

        Args:
            ends: numbers of both, shape (pairs, 2).
            most: members that both take, same shape.
        """
        long, short = most[:, 0], most[:, 1]
        costs = _least_sums(
            self._lay_side_by_side(ends[:, 0], int(long.max())),
            self._lay_side_by_side(ends[:, 1], int(short.max())),
            self.members,
        )
        reach = np.minimum(long + short, self.members)
        inside = np.arange(costs.shape[2])[None, :] <= reach[:, None]
        return self._append_tables(costs[:, inside], reach)

    def _lay_side_by_side(self, numbers: Ints, width: int) -> Ints:
        """Tables side by side, ``_NEVER`` beyond their ends; shape (words, tables, width + 1)."""
        steps = np.arange(width + 1)
        inside = steps[None, :] <= self._most[numbers][:, None]
        places = np.where(inside, self._start[numbers][:, None] + steps[None, :], 0)
        return np.where(inside[None], self._costs[:, places], _NEVER)

    def _append_tables(self, costs: Ints, most: Ints) -> int:
        """Add tables, one after the other; the number of the first.

        Args:
            costs: shape (words, all of them).
            most: of each, shape (tables,).
        """
        more, first = costs.shape[1], self._count
        while self.size + more > self._costs.shape[1]:
            self._costs = np.hstack([self._costs, np.zeros_like(self._costs)])
        while first + len(most) > len(self._start):
            self._start = np.r_[self._start, np.zeros_like(self._start)]
            self._most = np.r_[self._most, np.zeros_like(self._most)]
        self._costs[:, self.size : self.size + more] = costs
        ends = self.size + np.cumsum(most + 1)
        self._start[first : first + len(most)] = ends - most - 1
        self._most[first : first + len(most)] = most
        self.size += more
        self._count += len(most)
        return first


def merge_work(parents: Ints, most: Ints, members: int) -> tuple[int, Ints]:
    """How many additions a merge takes at most, and how far the table of each parent goes.

    Args:
        parents: of each table, ascending, shape (tables,).
        most: members that each takes.
        members: no table goes further.
    """
    total = 0
    held, sizes = np.unique(parents, return_counts=True)
    for left, paired in _merge_rounds(sizes):
        after = most[left]
        other = most[left[paired] + 1]
        total += int(((np.minimum(after[paired], other) + 1) * (after[paired] + 1)).sum())
        after[paired] = np.minimum(after[paired] + other, members)
        most = after
    whole = np.zeros(int(parents.max(initial=-1)) + 1, dtype=np.int64)
    whole[held] = most
    return total, whole


def _merge_rounds(sizes: Ints) -> Iterator[tuple[Ints, Bools]]:
    """Which of the tables side by side are merged with the next, until each parent has one.

    Args:
        sizes: tables of each parent, none without any.

    Yields:
        Positions of the tables that are left of a pair or alone, and whether they have a pair.
    """
    while int(sizes.max(initial=0)) > 1:
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        left: Ints = np.flatnonzero(within & 1 == 0)
        yield left, within[left] + 1 < np.repeat(sizes, (sizes + 1) // 2)
        sizes = (sizes + 1) // 2


def _bit_length(values: Ints) -> Ints:
    """Of ints below 2**53, exactly."""
    _, exponent = np.frexp(values)
    return exponent.astype(np.int64)


def _least_sums(long: Ints, short: Ints, members: int) -> Ints:
    """Least sums of two batches of tables, cut at ``members``; shape (words, tables, ..)."""
    words, count, width = long.shape
    reach = min(width + short.shape[2] - 2, members)
    best = np.full((words, count, reach + 1), _NEVER, dtype=np.int64)
    for taken in range(min(short.shape[2], reach + 1)):
        end = min(width, reach + 1 - taken)
        sums = long[:, :, :end] + short[:, :, taken, None]
        into = best[:, :, taken : taken + end]
        if words == 1:
            np.minimum(into, sums, out=into)
        else:
            _keep_less(into, sums)
    return best


def _keep_less(into: Ints, sums: Ints) -> None:
    less: Bools = (sums[0] < into[0]) | ((sums[0] == into[0]) & (sums[1] < into[1]))
    np.copyto(into, sums, where=less[None])
