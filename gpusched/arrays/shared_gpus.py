"""GPUs of one node that are shared: how much of each is taken, now and later.

A GPU that is shared now has its slot as its name. One that only promises will open has a number
below zero, because a promise names no slot. Amounts are thousandths of a GPU.

Seen *now*, a share needs room beside those that are there and beside those that will be: it may
leave a GPU open that was to become free as a whole, and then takes that GPU from what is free
later. Seen *later*, what counts is what will be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusched.api.meta.units import DEVICE
from gpusched.arrays.columns import SharedSlots
from gpusched.base.classes import frozen


@frozen(slots=True)
class GpuShareRoom:
    """GPUs of a node that shares could open.

    Attributes:
        slots: bitmask of those that are free now.
        whole: how many GPUs may be opened as one looks at it.
        later: how many may be, by what will be free.
        overcommitted: whether pods hold more GPUs than the node offers. Another scheduler's pod
            may then use any of them, so that no share joins one.
    """

    slots: int
    whole: int
    later: int
    overcommitted: bool = False


class SharedGpus:
    """See the module.

    Args:
        slots: what is taken of each slot, and the part of that which leaves.
    """

    def __init__(self, slots: SharedSlots) -> None:
        self._now = {slot: taken for slot, (taken, _) in slots.items() if taken}
        self._later = {slot: now - going for slot, (now, going) in slots.items() if now > going}

    @property
    def now_and_later_differ(self) -> bool:
        """Whether now and later do."""
        return self._now != self._later

    def move_share(self, key: int, *, now: int, later: int) -> tuple[int, int]:
        """So much more is taken of a GPU.

        Returns:
            How many GPUs more have shares by it, now and later: each -1, 0 or 1.
        """
        return _add(self._now, key, now), _add(self._later, key, later)

    def free_part(self, key: int, *, later: bool) -> int:
        """What another share could take of a GPU as one looks at it."""
        taken = self._later.get(key, 0)
        return DEVICE - (taken if later else max(taken, self._now.get(key, 0)))

    def open_gpus(self, *, later: bool) -> list[int]:
        """GPUs with shares that others may join without taking one more from what is free later."""
        if later:
            return sorted(self._later)
        return sorted(key for key in self._now if key in self._later)

    def taken_parts(self) -> Iterator[tuple[int, int]]:
        """Slots with shares now, and how much is taken of each."""
        yield from sorted(self._now.items())

    def count(self, part: int, spare: GpuShareRoom, *, later: bool) -> int:
        """How many equal shares fit."""
        if spare.overcommitted:
            return 0
        fits = sum(
            max(0, self.free_part(key, later=later)) // part for key in self.open_gpus(later=later)
        )
        if later:
            return fits + spare.whole * (DEVICE // part)
        fresh = self._count_fresh(spare)
        fits += fresh * (DEVICE // part)
        closing = sorted(
            (self._left_of_closing(key) // part for key in self._closing_gpus()), reverse=True
        )
        return fits + sum(closing[: max(0, spare.later - fresh)])

    def best_gpu(self, part: int, spare: GpuShareRoom, *, later: bool) -> int | None:
        """Which GPU of those with shares another one is to join; None for one of its own.

        The fullest that has room, then the lowest. A GPU that is to become free as a whole is
        joined only where that costs no GPU that could be opened; of these the emptiest, so that
        as many fit after it as ``count`` says.
        """
        if spare.overcommitted:
            return None
        found = self._fullest_gpu(self.open_gpus(later=later), part, later=later)
        if found is not None or later:
            return found
        if spare.later > self._count_fresh(spare):
            lefts = [(-self._left_of_closing(key), key) for key in self._closing_gpus()]
            if lefts and -min(lefts)[0] >= part:
                return min(lefts)[1]
        return None

    def unopened_slots(self, spare: GpuShareRoom) -> int:
        """Free slots; one on which a share is promised already waits for that one."""
        slots = spare.slots
        for key in self._later:
            if key >= 0:
                slots &= ~(1 << key)
        return slots

    def next_unnamed_number(self) -> int:
        """A number for a GPU that a promise opens."""
        return min(0, *self._later) - 1 if self._later else -1

    def has_shares(self, key: int) -> bool:
        """Whether a GPU has shares now."""
        return key in self._now

    def _fullest_gpu(self, keys: Iterable[int], part: int, *, later: bool) -> int | None:
        lefts = [(self.free_part(key, later=later), key) for key in keys]
        fitting = [each for each in lefts if each[0] >= part]
        return min(fitting)[1] if fitting else None

    def _closing_gpus(self) -> list[int]:
        return sorted(key for key in self._now if key not in self._later)

    def _left_of_closing(self, key: int) -> int:
        return max(0, DEVICE - self._now[key])

    def _count_fresh(self, spare: GpuShareRoom) -> int:
        return max(0, min(spare.whole, spare.later, self.unopened_slots(spare).bit_count()))


def _add(taken: dict[int, int], key: int, amount: int) -> int:
    before = taken.get(key, 0)
    after = before + amount
    if after:
        taken[key] = after
    else:
        taken.pop(key, None)
    return (after > 0) - (before > 0)
