"""What taking slots of a node costs: islands spanned, and room for whole pods broken up.

Exact for nodes of up to ``SLOTS_MAX`` slots: all ways of taking so many slots from each island
are looked at, once for each state of the islands, and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Final

import attrs

SLOTS_MAX: Final = 16

Free = tuple[tuple[int, int], ...]
"""Islands of a node: (size, free slots), sorted, so that islands that look alike are alike."""

POPULATION: Final = ((1, 300), (2, 120), (4, 180), (8, 400))
"""Request sizes and how many of a thousand pods have them, where nothing else is known."""


def fragmentation(free: Free, population: tuple[tuple[int, int], ...] = POPULATION) -> int:
    """Free slots that the typical pod cannot use, in thousandths of a slot.

    For each size the slots that are left over when as many pods of it as possible take theirs
    without spanning islands; a size above the largest island takes whole islands.

    Args:
        free: of the node.
        population: sizes and their shares, thousandths.
    """
    total = sum(left for _, left in free)
    largest = max((size for size, _ in free), default=0)
    wasted = 0
    for size, share in population:
        if size <= largest:
            fit = sum(left // size for _, left in free)
        else:
            fit = sum(left for whole, left in free if left == whole) // size
        wasted += share * (total - size * fit)
    return wasted


@attrs.frozen(eq=False)
class SlotTables:
    """The costs of some states, numbered as they were met.

    Attributes:
        states: the islands of each state.
        population: see ``fragmentation``.
    """

    states: tuple[Free, ...]
    population: tuple[tuple[int, int], ...] = POPULATION

    def cost(self, state: int, sizes: tuple[int, ...]) -> tuple[int, int]:
        """See ``placement.problem.SlotCosts``."""
        free = self.states[state]
        return _best(free, sizes, fragmentation(free, self.population), self.population)

    def least(self, state: int) -> int:
        """See ``placement.problem.SlotCosts``: at best nothing is left that cannot be used."""
        return -fragmentation(self.states[state], self.population)


@lru_cache(maxsize=200_000)
def _best(
    free: Free, sizes: tuple[int, ...], before: int, population: tuple[tuple[int, int], ...]
) -> tuple[int, int]:
    if not sizes:
        return 0, fragmentation(free, population) - before
    best: tuple[int, int] | None = None
    for taken in _ways(free, sizes[0]):
        rest = tuple(
            sorted((size, left - take) for (size, left), take in zip(free, taken, strict=True))
        )
        span = sum(1 for take in taken if take) - 1
        further = _best(rest, sizes[1:], before, population)
        found = (span + further[0], further[1])
        best = found if best is None else min(best, found)
    if best is None:
        raise ValueError(f"{sizes[0]} slots are taken where fewer are free")
    return best


@lru_cache(maxsize=20_000)
def _ways(free: Free, count: int) -> tuple[tuple[int, ...], ...]:
    """How many slots to take from each island; of islands that are alike one order is enough."""
    found: dict[tuple[tuple[int, int, int], ...], tuple[int, ...]] = {}
    for taken in product(*(range(min(left, count) + 1) for _, left in free)):
        if sum(taken) == count:
            shape = tuple(
                sorted((size, left, take) for (size, left), take in zip(free, taken, strict=True))
            )
            found.setdefault(shape, taken)
    return tuple(found.values())
