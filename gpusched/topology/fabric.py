"""Which GPU slots of a node a pod gets: those that sit together, and that break up least."""

from __future__ import annotations

from gpusched.objects.slot import mask_of


def choose_slots(free: int, count: int, layout: tuple[tuple[int, ...], ...]) -> int:
    """Choose ``count`` free slots.

    The fullest island that still holds them all is taken, so that whole islands stay whole;
    where none does, as few islands as possible, the emptiest first. Ties go to the lowest slot.

    Args:
        free: bitmask of slots that may be taken.
        count: how many.
        layout: slot numbers by island; slots that it does not name form one more island.

    Returns:
        A bitmask of exactly ``count`` slots, or 0 when there are not so many.
    """
    if count <= 0 or free.bit_count() < count:
        return 0
    islands = [mask_of(island) & free for island in layout]
    rest = free
    for island in islands:
        rest &= ~island
    islands = [island for island in (*islands, rest) if island]
    holding = [island for island in islands if island.bit_count() >= count]
    if holding:
        return _lowest(min(holding, key=lambda island: (island.bit_count(), island)), count)
    chosen = 0
    for island in sorted(islands, key=lambda island: (-island.bit_count(), island)):
        missing = count - chosen.bit_count()
        if missing <= 0:
            break
        chosen |= _lowest(island, min(missing, island.bit_count()))
    return chosen


def _lowest(mask: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        low = mask & -mask
        chosen |= low
        mask ^= low
    return chosen
