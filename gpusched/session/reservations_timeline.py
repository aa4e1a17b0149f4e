"""Room over time beside holds, all moments in one array: a search asks many of them at once.

Most of what it costs to look at one moment is the calls themselves, as long as nodes are few. So
where moments times nodes are few, what is free at each moment is kept, and changed in place when
holds are added.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from operator import is_not
from typing import TYPE_CHECKING, Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.limits import COLUMN_MAX

if TYPE_CHECKING:  # it keeps one of these
    from gpusched.session.reservations_profile import Hold, Part, Profile

NUMBERS_MAX: Final = 2**18
"""Moments times rows times resources: two megabytes, which each new hold copies."""
_BLOCK: Final = 16
"""Moments that are asked together at first; then twice as many each time."""


class Timeline:
    """See the module. It is right as long as the profile does not move.

    Args:
        profile: room over time.
        until: the last moment that is looked at.

    Attributes:
        times: now, and when something ends or holds begin or end until then, ascending.
        free: at each of these, int64, shape (times, rows, resources).
    """

    def __init__(self, profile: Profile, until: int) -> None:
        self.times: list[int] = [profile.now, *profile.times(until)]
        self.free: Ints = np.zeros((len(self.times), *profile.staying.shape), dtype=np.int64)
        self._until = until
        self._holds: tuple[Hold, ...] = ()
        self._begins: list[int] = []
        ends, rows, amounts = profile.flat()
        last = int(np.searchsorted(ends, until, side="right"))
        moments = np.searchsorted(np.array(self.times, dtype=np.int64), ends[:last])
        np.add.at(self.free, (moments, rows[:last]), amounts[:last])
        self.free[0] += profile.allocatable - profile.staying
        np.cumsum(self.free, axis=0, out=self.free)

    def add(self, holds: Sequence[Hold], *, until: int) -> bool:
        """Take in the last of these holds; False where this was made for others, or another end."""
        known = len(self._holds)
        if self._until != until or len(holds) < known or any(map(is_not, self._holds, holds)):
            return False
        for hold in holds[known:]:
            first, last = self._index(hold.start), self._index(hold.end)
            self.free[first:last, hold.rows] -= hold.amounts
            insort(self._begins, hold.start)
        self._holds = tuple(holds)
        return True

    def _index(self, time: int) -> int:
        """Of the first moment not before a time, which becomes one where it may be looked at."""
        index = bisect_left(self.times, time)
        if self.times[0] < time <= self._until and self.times[index : index + 1] != [time]:
            self.times.insert(index, time)
            self.free = np.insert(self.free, index, self.free[index - 1], axis=0)
        return index

    def roomy(self, ways: Sequence[Sequence[Part]], first: int) -> Iterator[list[int]]:
        """Indices of moments at which there is room for every part of one of the ways.

        Each part is looked at by itself: whether they have room together is not said.

        Args:
            ways: to start.
            first: index to begin at.

        Yields:
            Those of one block of moments after another, ascending.
        """
        size = _BLOCK
        while first < len(self.times):
            enough = _enough(self.free[first : first + size], ways)
            yield (np.flatnonzero(enough) + first).tolist()
            first, size = first + size, size * 2

    def roomy_now(self, ways: Sequence[Sequence[Part]]) -> bool:
        """Whether the first moment is one of those."""
        return bool(_enough(self.free[:1], ways)[0])

    def least(self, index: int, end: int) -> Ints:
        """The least that is free from a moment on and before a time. Not to be changed.

        Args:
            index: of the moment.
            end: later than the moment.

        Returns:
            int64, shape (rows, resources).
        """
        begun = bisect_right(self._begins, self.times[index])
        if begun == len(self._begins) or self._begins[begun] >= end:
            last = index + 1  # use only falls until then
        else:
            last = bisect_left(self.times, end)
        least: Ints = self.free[index:last].min(axis=0)
        return least


def _enough(free: Ints, ways: Sequence[Sequence[Part]]) -> Bools:
    """At which moments each part of one of the ways has room, shape (moments,)."""
    enough = np.zeros(len(free), dtype=np.bool_)
    for parts in ways:
        enough |= np.logical_and.reduce([_suffices(free, part) for part in parts])
    return enough


def _suffices(free: Ints, part: Part) -> Bools:
    """At which moments all members of a part have room somewhere, shape (moments,)."""
    ask = part.ask
    if ask.missing:
        return np.zeros(len(free), dtype=np.bool_)
    if ask.amounts.size:
        fits = (free[:, part.allowed][:, :, ask.columns] // ask.amounts).min(axis=2)
    else:
        fits = np.full((len(free), int(part.allowed.sum())), COLUMN_MAX, dtype=np.int64)
    enough: Bools = np.clip(fits, 0, part.count).sum(axis=1) >= part.count
    return enough
