"""Which GPU slots of a node a pod gets: those that sit together, and that break up least."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gpusched.api.devices.gpu_layout import Island, all_slots
from gpusched.api.devices.slots import slot_mask
from gpusched.topology.islands import (
    Isle,
    free_islands,
    island_counts,
    island_depth,
    island_free_slots,
    island_slots,
    node_islands,
)
from gpusched.topology.slot_costs import (
    POPULATION,
    SLOTS_MAX,
    Population,
    best_slot_cost,
    greedy_order,
)


def choose_slots(
    free: int,
    count: int,
    layout: tuple[Island, ...],
    *,
    slots: int = 0,
    then: tuple[int, ...] = (),
    population: Population = POPULATION,
    within: tuple[int, ...] = (),
) -> int:
    """Choose ``count`` free slots.

    Those that span the fewest islands, of all levels of links together; of these the ones that
    leave the least fragmentation; of these the lowest, as the bitmask has it. Pods that are
    placed one after the other, largest first, each with the sizes of the others as ``then``,
    get in all what ``slot_costs.cost_of`` says.

    Args:
        free: bitmask of slots that may be taken.
        count: how many.
        layout: slot numbers by island; slots that it does not name form one more island.
        slots: bitmask of all slots of the node, taken ones too; 0 for those in ``free`` and
            in ``layout``.
        then: sizes of pods that will take slots of this node next.
        population: see ``slot_costs.slot_fragmentation``.
        within: bitmasks of which one must hold all of them; none for no such rule. Those that
            have too few free slots are passed over; where all have, the rule is.

    Returns:
        A bitmask of exactly ``count`` slots, or 0 when there are not so many.
    """
    if count <= 0 or free.bit_count() < count:
        return 0
    node = node_islands(layout, (slots or slot_mask(tuple(all_slots(layout)))) | free)
    while then and count + sum(then) > free.bit_count():
        then = then[:-1]
    if not within:  # nearly always
        return _best_of_sizes(node, free, free, (count, *then), population)[2]
    inside = [mask & free for mask in within if (mask & free).bit_count() >= count]
    found = [
        _best_of_sizes(node, free, mask, (count, *then), population) for mask in inside or [free]
    ]
    return min(found)[2]


@lru_cache(maxsize=65536)
def _best_of_sizes(
    node: tuple[Isle, ...],
    free: int,
    takeable: int,
    sizes: tuple[int, ...],
    population: Population,
) -> tuple[int, int, int]:
    """Span, fragmentation afterwards, and the slots of the first of these sizes."""
    count, then = sizes[0], sizes[1:]
    state = free_islands(node, free)
    if island_counts(state)[0] > SLOTS_MAX:
        return 0, 0, _by_rule(node, takeable, count)
    levels = island_depth(state)
    best: tuple[int, int, int] | None = None
    for mask, touched in _choices_on_node(node, takeable, count):
        span, after = best_slot_cost(free_islands(node, free & ~mask), then, population)
        found = (touched - levels + span, after, mask)
        best = found if best is None else min(best, found)
    assert best is not None
    return best


def _choices_on_node(node: tuple[Isle, ...], free: int, count: int) -> Iterator[tuple[int, int]]:
    """All ways to take so many slots from each undivided island, the lowest of it each time."""
    if not node:
        if count == 0:
            yield 0, 0
        return
    first, others = node[0], node[1:]
    here = island_slots(first) & free
    elsewhere = island_slots(others) & free
    for take in range(max(0, count - elsewhere.bit_count()), min(count, here.bit_count()) + 1):
        for mask, touched in _choices_on_node(others, free, count - take):
            for inside, more in _choices_in_island(first, free, take):
                yield mask | inside, touched + more


def _choices_in_island(isle: Isle, free: int, count: int) -> Iterator[tuple[int, int]]:
    if count == 0:
        yield 0, 0
    elif isinstance(isle, int):
        yield _lowest_slots(isle & free, count), 1
    else:
        for mask, touched in _choices_on_node(isle, free, count):
            yield mask, touched + 1


def _by_rule(node: tuple[Isle, ...], free: int, count: int) -> int:
    """See ``slot_costs.greedy_order``: what is left is what it says, so that costs agree."""
    islands = [island_free_slots(isle, free) for isle in node]
    order = sorted(
        range(len(node)), key=lambda number: (islands[number], island_slots(node[number]))
    )
    chosen = 0
    for position, take in greedy_order([islands[number] for number in order], count):
        isle = node[order[position]]
        if isinstance(isle, int):
            chosen |= _lowest_slots(isle & free, take)
        else:
            chosen |= _by_rule(isle, free, take)
    return chosen


def _lowest_slots(mask: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        low = mask & -mask
        chosen |= low
        mask ^= low
    return chosen
