"""How many equal members fit at every moment at once, counted on each row over all that ends there.

A moment that has no room for a gang is told from one that has by adding up what single releases gained. Only rows
on which something is reserved are looked at moment by moment: there room comes and goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.session.backfill.availability_profile import (
    EqualMembers,
    ReservationTable,
    amounts_on_rows,
    least_free_between,
    take_first_rows,
)
from gpusched.session.backfill.running.release_order import FlatReleases, RowReleases


class FitCounts:
    """Equal members that fit at each moment, on all rows that they may use.

    Args:
        releases: of all rows.
        part: all members; what they request is offered by some node.
        allowed: rows that they may use, shape (rows,).
    """

    def __init__(self, releases: RowReleases, part: EqualMembers, allowed: Bools) -> None:
        self.releases, self.part, self.allowed = releases, part, allowed
        self._fits = releases.fits_of(part.request)
        self.at_first: Ints = np.where(allowed, np.minimum(self._fits.at_first, part.count), 0)
        """How many fit each row before anything has ended, shape (rows,)."""
        self._gained: Ints = np.zeros(0, dtype=np.int64)

    def gained(self, count: int) -> Ints:
        """How many more members fit by each of the first so many releases, by time."""
        known = len(self._gained)
        if known < count:
            releases, upto = self.releases, max(count, 2 * known, _RELEASES_COUNTED_MIN)
            allowed, most = self.allowed[releases.flat[1][known:upto]], self.part.count
            before, after = (each[known:upto] for each in self._fits.beside_releases(upto))
            more = np.where(allowed, np.minimum(after, most) - np.minimum(before, most), 0)
            self._gained = np.concatenate([self._gained, more])
        return self._gained[:count]

    def has_room_at(self, time: int) -> bool:
        """Whether all members have room at a moment, were nothing reserved."""
        ended = int(np.searchsorted(self.releases.flat[0], time, side="right"))
        there = int(self.at_first.sum()) + int(self.gained(ended).sum())
        return there >= self.part.count

    @cached_property
    def first_time(self) -> int | None:
        """When all members have room for the first time, were nothing reserved; None for never.

        It is not after the first look where nothing has to end.
        """
        lacking = self.part.count - int(self.at_first.sum())
        if lacking <= 0:
            return 0
        times = self.releases.flat[0]
        count = _RELEASES_COUNTED_MIN
        while True:
            last = int(np.searchsorted(np.cumsum(self.gained(count)), lacking))
            if last < min(count, len(times)):
                return int(times[last])
            if count >= len(times):
                return None
            count *= 4


_RELEASES_COUNTED_MIN: Final = 1024
"""Releases that are counted at once: most gangs start long before all have ended."""


class CountsBesideReservations:
    """The same beside reservations, at some moments.

    Args:
        counts: were nothing reserved.
        table: of the reservations.
        times: moments, ascending.
    """

    def __init__(self, counts: FitCounts, table: ReservationTable, times: Sequence[int]) -> None:
        self.times = times
        self._counts = counts
        columns = counts.part.request.columns
        self._moments: Ints = np.array(times, dtype=np.int64)
        ended = np.searchsorted(counts.releases.flat[0], self._moments, side="right")
        count = int(ended.max(initial=0))
        ends, rows, amounts = (each[:count] for each in counts.releases.flat)
        reserved = np.unique(table.rows)
        index = np.full(len(counts.allowed), -1, dtype=np.int64)
        index[reserved] = np.arange(len(reserved))
        here = index[rows] >= 0
        sums = np.cumsum(np.where(here, 0, counts.gained(count)))
        sums = np.concatenate([np.zeros(1, dtype=np.int64), sums])
        self._elsewhere: Ints = int(counts.at_first[index < 0].sum()) + sums[ended]
        """Members that fit rows on which nothing is reserved, at each moment."""
        self._ended, self._reserved = ended, reserved
        some = np.flatnonzero(here)
        self._flat: FlatReleases = (ends[some], index[rows[some]], amounts[some][:, columns])
        self._by_row = np.argsort(self._flat[1], kind="stable")
        self._first_of_row = np.searchsorted(self._flat[1][self._by_row], np.arange(len(reserved)))
        self._after: Ints = counts.releases.free_after(count)[some][:, columns]
        self._free: Ints = counts.releases.free[reserved][:, columns]
        self._allowed: Bools = counts.allowed[reserved]
        self._table = table.on_rows(index, columns)

    def missing_at(self, moment: int) -> int:
        """How many members lack room at a moment; the moment is given by its number."""
        return self._missing(moment, self._fits_at(moment))

    def missing_until(self, moment: int, end: int) -> int:
        """How many members lack room somewhere between a moment and a later time."""
        return self._missing(moment, self._fits_until(moment, end))

    def first_rows(self, moment: int, end: int) -> tuple[Ints, Ints] | None:
        """The first rows that take all members until a later time, and what of each; None for too few."""
        counts, ended = self._counts, int(self._ended[moment])
        fits = counts.at_first.copy()
        np.add.at(fits, counts.releases.flat[1][:ended], counts.gained(ended))
        fits[self._reserved] = self._fits_until(moment, end)
        chosen = take_first_rows(fits, counts.part.count)
        width = counts.releases.free.shape[1]
        return chosen and amounts_on_rows(*chosen, counts.part.request, width=width)

    def _missing(self, moment: int, fits: Ints) -> int:
        found = int(fits.sum()) + int(self._elsewhere[moment])
        return max(0, self._counts.part.count - found)

    def _fits_at(self, moment: int) -> Ints:
        return self._fits_in(self._free_at(self.times[moment]))

    def _fits_until(self, moment: int, end: int) -> Ints:
        time = self.times[moment]
        free = self._free_at(time)
        return self._fits_in(least_free_between(free, self._flat, time, end, self._table))

    def _fits_in(self, free: Ints) -> Ints:
        part = self._counts.part
        fits = np.minimum(how_many_fit(free, part.request.amounts), part.count)
        return np.where(self._allowed, fits, 0)

    def _free_at(self, time: int) -> Ints:
        """What is free on the rows on which something is reserved."""
        ended = int(np.searchsorted(self._flat[0], time, side="right"))
        count = np.bincount(self._flat[1][:ended], minlength=len(self._free))
        free, some = self._free.copy(), np.flatnonzero(count)
        free[some] = self._after[self._by_row[self._first_of_row[some] + count[some] - 1]]
        self._table.subtract_reserved(free, time)
        return free

    @cached_property
    def gains(self) -> Ints:
        """How many more members at most fit at each moment than before all of them; ascending."""
        asked = self._counts.part.request.amounts
        gained: Ints = np.zeros(len(self.times) + 1, dtype=np.int64)
        for ends, rows, amounts in (self._flat, self._table.flatten_columns()):
            most = (-(-amounts // asked)).max(axis=1, initial=0)
            more = np.where(self._allowed[rows], most, 0)
            np.add.at(gained, np.searchsorted(self._moments, ends), more)
        return np.cumsum(gained[:-1]) + self._elsewhere
