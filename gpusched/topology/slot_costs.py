"""What taking slots of a node costs: islands spanned, and room for whole pods broken up.

Exact for nodes of up to ``SLOTS_MAX`` slots: all ways of taking so many slots from each island
are looked at, once for each state of the islands, and remembered. On larger nodes each pod
takes slots by one rule, ``greedy_order``: out of the fullest island that holds it, else whole
islands, the emptiest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gpusched.arrays.node_usage import DEFAULT_POPULATION
from gpusched.base.classes import frozen
from gpusched.topology.islands import (
    Free,
    inner_islands,
    island_counts,
    island_depth,
    undivided_island,
)

SLOTS_MAX: Final = 16

POPULATION: Final = DEFAULT_POPULATION
Population = tuple[tuple[int, int], ...]
NOT_NUMBERED: Final = 2**40
Node = tuple[Free, ...]
"""A node's islands; ``((8, 3), (8, 8))`` are two of eight slots, of which 3 and 8 are free."""


@lru_cache(maxsize=65536)
def slot_fragmentation(free: Node, population: Population = POPULATION) -> int:
    """Free slots that the typical pod cannot use, in thousandths of a slot.

    For each size the slots that are left over when as many pods of it as possible take theirs
    without spanning islands that they need not span: inside the narrowest islands that are
    large enough, and out of whole islands of the level below.

    Args:
        free: of the node.
        population: sizes and their shares, thousandths.
    """
    total = island_counts(free)[1]
    return sum(share * (total - size * _count_fitting(free, size)) for size, share in population)


def _count_fitting(free: Free, size: int) -> int:
    """How many pods of a size fit an island well."""
    whole = undivided_island(free) if free else (0, 0)
    if whole is not None:
        return whole[1] // size
    inside = inner_islands(free)
    sizes = [island_counts(each) for each in inside]
    if size <= max(slots for slots, _ in sizes):
        return sum(_count_fitting(each, size) for each in inside)
    return sum(slots for slots, left in sizes if left == slots) // size


@frozen(eq=False)
class SlotTables:
    """The costs of some states, numbered as they were met.

    Attributes:
        states: the islands of each state.
        population: see ``slot_fragmentation``.
    """

    states: tuple[Node, ...]
    population: Population = POPULATION

    def slot_cost(self, state: int, sizes: tuple[int, ...]) -> tuple[int, int]:
        """See ``placement.problem.SlotCosts``; nothing where a node's slots are not numbered.

        Pods that find fewer free slots than they ask for, because a pod holds slots that no
        amount tells of, cost nothing that is known.
        """
        free = self.states[state]
        left = island_counts(free)[1] if free else 0
        while sizes and sum(sizes) > left:
            sizes = sizes[1:]
        return slot_cost(free, sizes, self.population) if free else (0, 0)

    def least_fragmentation(self, state: int) -> int:
        """See ``placement.problem.SlotCosts``: at best nothing is left that cannot be used."""
        return -slot_fragmentation(self.states[state], self.population)

    def count_free(self, state: int) -> int:
        """How many slots are free; a very large number where they are not numbered."""
        free = self.states[state]
        return island_counts(free)[1] if free else NOT_NUMBERED


def slot_cost(
    free: Node, sizes: tuple[int, ...], population: Population = POPULATION
) -> tuple[int, int]:
    """The least (span, fragmentation added) with which pods take slots of one node together.

    Args:
        free: the islands.
        sizes: slots of each pod, all above 0, largest first.
        population: see ``slot_fragmentation``.

    Raises:
        ValueError: they take more slots than are free.
    """
    size, left = island_counts(free)
    if sum(sizes) > left:
        raise ValueError(f"{sum(sizes)} slots are taken where {left} are free")
    best = best_slot_cost if size <= SLOTS_MAX else _greedy_cost
    span, after = best(free, sizes, population)
    return span, after - slot_fragmentation(free, population)


@lru_cache(maxsize=400_000)
def best_slot_cost(free: Node, sizes: tuple[int, ...], population: Population) -> tuple[int, int]:
    """The least (span, fragmentation afterwards); as ``cost_of``, by looking at all ways."""
    if not sizes:
        return 0, slot_fragmentation(free, population)
    levels = island_depth(free)
    best: tuple[int, int] | None = None
    for rest, touched in _ways_to_take(free, sizes[0]):
        further = best_slot_cost(rest, sizes[1:], population)
        found = (touched - levels + further[0], further[1])
        best = found if best is None else min(best, found)
    if best is None:
        raise ValueError(f"{sizes[0]} slots are taken where fewer are free")
    return best


@lru_cache(maxsize=100_000)
def _ways_to_take(free: Node, count: int) -> tuple[tuple[Node, int], ...]:
    """What may be left after so many slots are taken, and how many islands were touched.

    Islands of all levels count; of the ways to the same rest the one that touches fewest.
    """
    if not free:
        return (((), 0),) if count == 0 else ()
    found: dict[Node, int] = {}
    for take in range(min(island_counts(free[0])[1], count) + 1):
        for others, touched in _ways_to_take(free[1:], count - take):
            for first, more in _ways_inside(free[0], take):
                rest = tuple(sorted((first, *others)))
                total = touched + more
                if total < found.get(rest, total + 1):
                    found[rest] = total
    return tuple(found.items())


def _ways_inside(island: Free, count: int) -> Iterable[tuple[Free, int]]:
    if count == 0:
        return ((island, 0),)
    whole = undivided_island(island)
    if whole is not None:
        return (((whole[0], whole[1] - count), 1),)
    return [(rest, touched + 1) for rest, touched in _ways_to_take(inner_islands(island), count)]


# -- large nodes -----------------------------------------------------------------------------
def greedy_order(islands: list[Free], count: int) -> list[tuple[int, int]]:
    """From which islands a pod takes its slots by rule, and how many from each.

    The fullest one that still holds it; where none does, the emptiest whole, and so on.
    Islands that are alike are taken in the order in which they are given.

    Args:
        islands: with no fewer free slots than ``count`` together.
        count: above 0.

    Returns:
        Pairs of position and slots.
    """
    left = {number: island_counts(island)[1] for number, island in enumerate(islands)}
    taken = []
    while count:
        holding = [number for number in left if left[number] >= count]
        if holding:
            number = min(holding, key=lambda each: (left[each], islands[each], each))
        else:
            number = min(left, key=lambda each: (-left[each], islands[each], each))
        take = min(count, left.pop(number))
        if take:
            taken.append((number, take))
        count -= take
    return taken


@lru_cache(maxsize=100_000)
def _greedy_cost(free: Node, sizes: tuple[int, ...], population: Population) -> tuple[int, int]:
    if not sizes:
        return 0, slot_fragmentation(free, population)
    rest, touched = _greedy_take(free, sizes[0])
    span, after = _greedy_cost(rest, sizes[1:], population)
    return touched - island_depth(free) + span, after


def _greedy_take(free: Node, count: int) -> tuple[Node, int]:
    islands = list(free)
    touched = 0
    for number, take in greedy_order(islands, count):
        whole = undivided_island(islands[number])
        if whole is not None:
            islands[number], more = (whole[0], whole[1] - take), 0
        else:
            islands[number], more = _greedy_take(inner_islands(islands[number]), take)
        touched += 1 + more
    return tuple(sorted(islands)), touched
