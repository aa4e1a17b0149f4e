"""The GPUs of a node as a tree of islands: wide ones (NUMA halves) that hold narrow ones (pairs).

A layout is lists of slot numbers, such as ``((0, 1, 2, 3), (4, 5, 6, 7))``, or lists of such
lists: ``(((0, 1), (2, 3)), ((4, 5), (6, 7)))``. All islands have the same depth: one that is not
divided where others are counts as one island of each narrower level. What placement reads are
two forms of it: ``Isle``, with the slots as bitmasks, and ``Free``, in which islands that look
alike are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias, cast

from gpusched.api.devices.gpu_layout import Island
from gpusched.api.devices.slots import slot_mask

Isle: TypeAlias = "int | tuple[Isle, ...]"
"""An island: the bitmask of its slots, or the islands in it."""

Free: TypeAlias = "tuple[int, int] | tuple[Free, ...]"
"""What is left of an island: (size, free slots), or the islands in it, sorted.

A whole node is a tuple of islands, always."""


@lru_cache(maxsize=4096)
def node_islands(layout: tuple[Island, ...], slots: int) -> tuple[Isle, ...]:
    """The islands of a node that has these slots.

    Args:
        layout: see the module; slots that the node does not have are left out, and those that
            it does not name form one more island.
        slots: bitmask of what the node has.
    """
    found = [isle for each in layout if (isle := _island(each, slots)) is not None]
    named = 0
    for isle in found:
        named |= island_slots(isle)
    if slots & ~named:
        found.append(slots & ~named)
    depth = max((_nesting_depth(isle) for isle in found), default=0)
    node = tuple(_nest_deeper(isle, depth) for isle in found)
    while depth >= 0 and node and all(size == 1 for size in _leaf_slots(node)):
        # Islands of one slot say nothing: every pod spans as many as it has slots.
        node, depth = _without_narrowest(node, depth), depth - 1
    return node


@lru_cache(maxsize=65536)
def island_slots(isle: Isle) -> int:
    """All slots of an island."""
    if isinstance(isle, int):
        return isle
    mask = 0
    for each in isle:
        mask |= island_slots(each)
    return mask


@lru_cache(maxsize=65536)
def free_islands(node: tuple[Isle, ...], free: int) -> tuple[Free, ...]:
    """What is left of a node's islands.

    Args:
        node: its islands.
        free: bitmask of its free slots.
    """
    return tuple(sorted(island_free_slots(isle, free) for isle in node))


@lru_cache(maxsize=65536)
def island_state(layout: tuple[Island, ...], slots: int, free: int) -> tuple[Free, ...]:
    """What is left of the islands of a node with this layout and these slots."""
    return free_islands(node_islands(layout, slots), free)


def island_free_slots(isle: Isle, free: int) -> Free:
    """What is left of one island."""
    if isinstance(isle, int):
        return isle.bit_count(), (isle & free).bit_count()
    return free_islands(isle, free)


def undivided_island(free: Free) -> tuple[int, int] | None:
    """Size and free slots of an island that is not divided; None for one that is."""
    first = free[0]
    return cast("tuple[int, int]", free) if isinstance(first, int) else None


def inner_islands(free: Free) -> tuple[Free, ...]:
    """The islands in one that is divided."""
    return cast("tuple[Free, ...]", free)


@lru_cache(maxsize=65536)
def island_counts(free: Free) -> tuple[int, int]:
    """Size and free slots of an island, however it is divided."""
    if not free:
        return 0, 0
    whole = undivided_island(free)
    if whole is not None:
        return whole
    inside = [island_counts(each) for each in inner_islands(free)]
    return sum(size for size, _ in inside), sum(left for _, left in inside)


@lru_cache(maxsize=65536)
def island_depth(free: tuple[Free, ...]) -> int:
    """How many levels of islands a node has."""
    if not free:
        return 0
    if undivided_island(free[0]) is not None:
        return 1
    return 1 + island_depth(inner_islands(free[0]))


def _island(island: Island, slots: int) -> Isle | None:
    numbers = tuple(each for each in island if isinstance(each, int))
    if numbers:
        return slot_mask(numbers) & slots or None
    inside = tuple(
        isle
        for each in island
        if not isinstance(each, int) and (isle := _island(each, slots)) is not None
    )
    return inside or None


def _nesting_depth(isle: Isle) -> int:
    return 0 if isinstance(isle, int) else 1 + max(_nesting_depth(each) for each in isle)


def _nest_deeper(isle: Isle, depth: int) -> Isle:
    if depth == 0:
        return isle
    if isinstance(isle, int):
        return (_nest_deeper(isle, depth - 1),)
    return tuple(_nest_deeper(each, depth - 1) for each in isle)


def _leaf_slots(node: tuple[Isle, ...]) -> Iterator[int]:
    for isle in node:
        if isinstance(isle, int):
            yield isle.bit_count()
        else:
            yield from _leaf_slots(isle)


def _without_narrowest(node: tuple[Isle, ...], depth: int) -> tuple[Isle, ...]:
    """The same without the narrowest level of islands."""
    if depth == 0:
        return (island_slots(node),)
    return tuple(
        island_slots(isle)
        if depth == 1 or isinstance(isle, int)
        else _without_narrowest(isle, depth - 1)
        for isle in node
    )
