"""What leaves of one row, or one bundle alone, so that claimants more fit: moves of which a choice is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusched.placement.victims.free_amounts import FreeAmounts
from gpusched.placement.victims.model import (
    BundleIndex,
    EvictablePod,
    EvictionOption,
    VictimBundle,
    VictimRank,
)

MIXED: Final = -1
"""The source of moves whose bundles are of several sources."""


class RowMoves(FreeAmounts):
    """See the module.

    Args:
        ask, free, members, bundles, limits, index: as ``FreeAmounts`` has them.
    """

    def __init__(
        self,
        ask: Sequence[int],
        free: Mapping[int, Sequence[int]],
        members: Sequence[EvictablePod],
        bundles: Sequence[VictimBundle],
        *,
        limits: Sequence[int] = (),
        index: BundleIndex | None = None,
    ) -> None:
        super().__init__(ask, free, members, bundles, limits=limits, index=index)
        self._sources = self._index.sources
        self._keys: dict[int, Any] = {}
        of_row = self._index.of_row
        self._of_row = {row: of_row[row] for row in self.free if row in of_row}

    def _by_cost(self, number: int) -> tuple[Any, ...]:
        return (self.rank_of(number), self.cost_of(number), self.bundles[number].order)

    def rank_of(self, number: int) -> VictimRank:
        """Where a bundle stands now: its source's key, then its own rank."""
        bundle = self.bundles[number]
        return (self._keys[bundle.source], bundle.rank)

    def _own_move(self, number: int) -> EvictionOption | None:
        if not self._is_possible(number, {}):
            return None
        gain = self._count_gained([number])
        if not gain:
            return None
        bundle = self.bundles[number]
        return EvictionOption(bundle.rank, self.cost_of(number), gain, (number,), bundle.source)

    def _row_move(self, row: int, source: int) -> EvictionOption | None:
        """The cheapest bundles found with which one claimant more fits the row."""
        numbers = [
            number
            for number in self._of_row.get(row, ())
            if source == MIXED or self.bundles[number].source == source
        ]
        found: list[EvictionOption] = []
        if source == MIXED:
            numbers.sort(key=self._by_cost)
        first = self._gather_bundles(row, numbers)
        if first is not None:
            found.append(first)
        if first is None or len(first.bundles) > 1:
            dense = self._gather_bundles(
                row, sorted(numbers, key=lambda n: (self.rank_of(n), *self.cost_density(n, row)))
            )
            if dense is not None:
                found.append(dense)
        if not found:
            return None
        return min(found, key=lambda move: move.sort_key(2**30, self.bundles))

    def _gather_bundles(self, row: int, numbers: Sequence[int]) -> EvictionOption | None:
        free = list(self.free[row])
        base = self.fits[row]
        drawn: dict[int, int] = {}
        taken: list[int] = []
        lost: dict[int, list[int]] | None = None
        for number in numbers:
            if not self._is_possible(number, drawn):
                continue
            freed = self.freed_amounts(number, row)
            if not any(freed):
                continue
            if taken:
                lost = self._lost_with(taken) if lost is None else lost
                if not self._may_be_lost_after(number, lost):
                    continue
                others = [other for other in taken if self._share_member(number, other)]
                if not all(self._covers_bundle(number, other) for other in others):
                    continue
                lost = self._lost_with(taken, but=others) if others else lost
                for other in others:  # a whole gang replaces those of it that were spare
                    taken.remove(other)
                    free = [
                        a - b for a, b in zip(free, self.freed_amounts(other, row), strict=True)
                    ]
            if self._index.draws[number]:
                for limit, count in self.drawn_limits(number).items():
                    drawn[limit] = drawn.get(limit, 0) + count
            free = [a + b for a, b in zip(free, freed, strict=True)]
            taken.append(number)
            if self.count_claimants(free) > base:
                break
            if lost is not None:
                self._add_loss_of(number, lost)
        else:
            return None
        return self._option_of(row, taken, free, base)

    def _option_of(self, row: int, taken: list[int], free: list[int], base: int) -> EvictionOption:
        """The move of bundles that leave so much free on a row, where so many fitted before."""
        if len(taken) == 1 and len(self.bundles[taken[0]].members) == 1:
            bundle = self.bundles[taken[0]]
            gain = max(1, self.count_claimants(free) - base)
            return EvictionOption(
                bundle.rank, self.cost_of(taken[0]), gain, (taken[0],), bundle.source
            )
        taken = self._needed_bundles(row, taken, free, base)
        if len(taken) > 1:
            taken.sort(key=self._by_cost, reverse=True)
        rank = max(self.bundles[number].rank for number in taken)
        cost = sum(self.cost_of(number) for number in taken)
        sources = {self.bundles[number].source for number in taken}
        source = sources.pop() if len(sources) == 1 else MIXED
        return EvictionOption(rank, cost, max(1, self._count_gained(taken)), tuple(taken), source)

    def _needed_bundles(self, row: int, taken: list[int], free: list[int], base: int) -> list[int]:
        if len(taken) == 1:
            return taken
        for number in sorted(taken, key=self._by_cost, reverse=True):
            less = [a - b for a, b in zip(free, self.freed_amounts(number, row), strict=True)]
            if self.count_claimants(less) > base:
                free = less
                taken.remove(number)
        return taken
