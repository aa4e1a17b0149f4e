"""Which slots of a node a pod gets, against trying all of them."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from gpusched.api.devices.slots import slot_mask, slot_numbers
from gpusched.topology.islands import free_islands, node_islands
from gpusched.topology.slot_choice import choose_slots
from gpusched.topology.slot_costs import POPULATION, SlotTables, slot_cost, slot_fragmentation

pytestmark = pytest.mark.long

QUADS = ((0, 1, 2, 3), (4, 5, 6, 7))
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
NESTED = (((0, 1), (2, 3)), ((4, 5), (6, 7)))
UNEVEN = ((0, 1, 2), (3, 4, 5, 6), (7,))
LAYOUTS = ((), ((0, 1, 2, 3, 4, 5, 6, 7),), QUADS, PAIRS, NESTED, UNEVEN)
SIZES = (1, 2, 3, 4, 5, 7, 8)
ALL = 255


def islands_by_level(layout):
    """The same islands as lists of sets, widest level first; written apart from the product."""
    if not layout:
        return [[set(range(8))]]
    if isinstance(layout[0][0], int):
        return [[set(island) for island in layout]]
    wide = [{slot for part in island for slot in part} for island in layout]
    return [wide, [set(part) for island in layout for part in island]]


def span_of(layout, slots):
    """Islands beyond the first that some slots lie in, summed over levels."""
    return sum(
        sum(1 for island in level if island & slots) - 1 for level in islands_by_level(layout)
    )


def slots_of(island):
    """All slots of an island."""
    return {island} if isinstance(island, int) else set().union(*map(slots_of, island))


def fits(island, free, size):
    """Pods of a size that fit well, from the definition."""
    if isinstance(island[0], int):
        return len(free & set(island)) // size
    if size <= max(len(slots_of(each)) for each in island):
        return sum(fits(each, free, size) for each in island)
    return sum(len(slots_of(each)) for each in island if slots_of(each) <= free) // size


def wasted(layout, free):
    """Fragmentation in thousandths of a slot, from the definition."""
    node = layout or (tuple(range(8)),)
    return sum(share * (len(free) - size * fits(node, free, size)) for size, share in POPULATION)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pod_gets_the_best_slots_that_exist(layout):
    """Fewest islands, then least fragmentation left, then the lowest mask: against all subsets."""
    for free in range(1, 256):
        slots = set(slot_numbers(free))
        for count in range(1, len(slots) + 1):
            best = min(
                (span_of(layout, set(some)), wasted(layout, slots - set(some)), slot_mask(some))
                for some in combinations(sorted(slots), count)
            )
            assert best[2] == choose_slots(free, count, layout, slots=ALL), (free, count)


def masks(rng, times):
    """So many random masks of eight slots with at least one free."""
    return [rng.randint(1, ALL) for _ in range(times)]


def sizes_within(rng, room):
    """Sizes of pods that take no more than there is, largest first."""
    sizes = []
    while room and len(sizes) < 4:
        sizes.append(rng.randint(1, room))
        room -= sizes[-1]
    return tuple(sorted(sizes, reverse=True))


def least(layout, slots, sizes):
    """The least span and fragmentation of pods that take disjoint slots, by trying everything."""
    if not sizes:
        return 0, wasted(layout, slots)
    found = []
    for some in combinations(sorted(slots), sizes[0]):
        span, after = least(layout, slots - set(some), sizes[1:])
        found.append((span_of(layout, set(some)) + span, after))
    return min(found)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_several_pods_together_cost_the_least_that_is_possible(layout):
    """The cost of pods of several sizes is the minimum over all ways to share out the slots."""
    rng = random.Random(7)
    for free in masks(rng, 12):
        sizes = sizes_within(rng, free.bit_count())[:3]
        slots = set(slot_numbers(free))
        span, after = least(layout, slots, sizes)
        state = free_islands(node_islands(layout, ALL), free)
        assert (span, after - wasted(layout, slots)) == slot_cost(state, sizes), (free, sizes)


LARGE = (
    (tuple(range(12)), tuple(range(12, 24))),
    (((0, 1, 2, 3), (4, 5, 6, 7)), ((8, 9, 10, 11), (12, 13, 14, 15)), ((16, 17), (18, 19))),
    ((0, 1, 2, 3, 4), (5, 6, 7), (8, 9, 10, 11, 12, 13, 14, 15, 16, 17)),
)


@pytest.mark.parametrize("layout", [*LAYOUTS, *LARGE])
def test_pods_placed_one_after_the_other_reach_the_cost_of_all(layout):
    """Largest first, each knowing who follows: together they cost what was promised."""
    rng = random.Random(11)
    many = 24 if layout in LARGE else 8
    every = slot_mask(tuple(slots_of(layout))) if layout else ALL
    for _ in range(150):
        free = rng.randint(1, 2**many - 1) & every
        sizes = sizes_within(rng, free.bit_count())
        promised = slot_cost(free_islands(node_islands(layout, every), free), sizes)
        left, touched = free, 0
        for number, size in enumerate(sizes):
            taken = choose_slots(left, size, layout, slots=every, then=sizes[number + 1 :])
            assert taken & ~left == 0
            assert taken.bit_count() == size
            touched += span(layout, every, taken)
            left &= ~taken
        node = node_islands(layout, every)
        added = slot_fragmentation(free_islands(node, left)) - slot_fragmentation(
            free_islands(node, free)
        )
        assert promised == (touched, added), (free, sizes)


def span(layout, every, taken):
    """Islands of all levels beyond the first that a pod touches."""
    levels, level = [], list(node_islands(layout, every))
    while level:
        levels.append([slot_mask(tuple(bits(each))) for each in level])
        level = [part for each in level if not isinstance(each, int) for part in each]
    return sum(sum(1 for each in level if each & taken) - 1 for level in levels)


def bits(isle):
    """Slot numbers of an island given as masks."""
    if isinstance(isle, int):
        yield from slot_numbers(isle)
    else:
        for each in isle:
            yield from bits(each)


def test_islands_of_single_slots_are_as_good_as_none():
    """Where every slot stands alone, all choices span the same, so the lowest are taken."""
    alone = tuple((slot,) for slot in range(16))
    assert node_islands(alone, 2**16 - 1) == (2**16 - 1,)
    assert choose_slots(2**16 - 1, 8, alone) == 255


def test_an_island_that_is_not_divided_counts_once_at_each_level():
    """Pairs in one half, nothing known of the other: a pod in either spans nothing."""
    layout = (((0, 1), (2, 3)), (4, 5, 6, 7))
    assert choose_slots(0b11110111, 4, layout, slots=ALL) == 0b11110000
    state = free_islands(node_islands(layout, ALL), ALL)
    assert SlotTables((state,)).slot_cost(0, (4,))[0] == 0


def test_more_slots_than_are_free_are_refused():
    """Nothing is chosen where too few are free, and a cost of it is a fault of the caller."""
    assert choose_slots(0b111, 4, QUADS) == 0
    with pytest.raises(ValueError, match="4 slots are taken where 3 are free"):
        slot_cost(free_islands(node_islands(QUADS, ALL), 0b111), (4,))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pod_more_never_makes_the_others_cheaper(layout):
    """Span of more pods is never below that of fewer."""
    rng = random.Random(5)
    for free in masks(rng, 60):
        sizes = sizes_within(rng, free.bit_count())
        state = free_islands(node_islands(layout, ALL), free)
        assert slot_cost(state, sizes[1:])[0] <= slot_cost(state, sizes)[0]
