"""How many equal members fit at every moment at once, counted on each row over all that ends there.

A moment that has no room for a gang is told from one that has by adding up what single releases gained. Only rows
on which something is reserved are looked at moment by moment: there room comes and goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.session.backfill.availability_profile import (
    EqualMembers,
    ReservationTable,
    least_free_between,
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
        self.at_first: Ints = self.fits_on(releases.free, allowed)
        """How many fit each row before anything has ended, shape (rows,)."""
        after = self.fits_on(releases.after, allowed[releases.rows])
        gained = np.diff(after, prepend=0)
        gained[releases.first] = (
            after[releases.first] - self.at_first[releases.rows[releases.first]]
        )
        self.gained = np.empty(len(gained), dtype=np.int32)
        """How many more fit by each release, in the order of time."""
        self.gained[releases.order] = gained

    def fits_on(self, free: Ints, allowed: Bools) -> Ints:
        """How many members fit, up to all of them, where so much is free."""
        ask = self.part.request
        fits = np.minimum(how_many_fit(free[:, ask.columns], ask.amounts), self.part.count)
        return np.where(allowed, fits, 0)

    @cached_property
    def first_time(self) -> int | None:
        """When all members have room for the first time, were nothing reserved; None for never.

        It is not after the first look where nothing has to end.
        """
        lacking = self.part.count - int(self.at_first.sum())
        times = self.releases.flat[0]
        if lacking <= 0:
            return 0
        last = int(np.searchsorted(np.cumsum(self.gained, dtype=np.int64), lacking))
        return int(times[last]) if last < len(times) else None


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
        ends, rows, amounts = counts.releases.flat
        reserved = np.unique(table.rows)
        index = np.full(len(counts.allowed), -1, dtype=np.int64)
        index[reserved] = np.arange(len(reserved))
        here = index[rows] >= 0
        self._moments: Ints = np.array(times, dtype=np.int64)
        sums = np.cumsum(np.where(here, 0, counts.gained), dtype=np.int64)
        sums = np.concatenate([np.zeros(1, dtype=np.int64), sums])
        self._elsewhere: Ints = (
            int(counts.at_first[index < 0].sum())
            + sums[np.searchsorted(ends, self._moments, side="right")]
        )
        """Members that fit rows on which nothing is reserved, at each moment."""
        some = np.flatnonzero(here)
        self._flat: FlatReleases = (ends[some], index[rows[some]], amounts[some][:, columns])
        self._free: Ints = counts.releases.free[reserved][:, columns]
        self._allowed: Bools = counts.allowed[reserved]
        self._table = table.on_rows(index, columns)

    def missing_at(self, moment: int) -> int:
        """How many members lack room at a moment; the moment is given by its number."""
        return self._missing(moment, self._free_at(self.times[moment]))

    def missing_until(self, moment: int, end: int) -> int:
        """How many members lack room somewhere between a moment and a later time."""
        time = self.times[moment]
        free = self._free_at(time)
        return self._missing(moment, least_free_between(free, self._flat, time, end, self._table))

    def _free_at(self, time: int) -> Ints:
        ends, rows, amounts = self._flat
        ended = int(np.searchsorted(ends, time, side="right"))
        free = self._free.copy()
        np.add.at(free, rows[:ended], amounts[:ended])
        self._table.subtract_reserved(free, time)
        return free

    def _missing(self, moment: int, free: Ints) -> int:
        part = self._counts.part
        fits = np.minimum(how_many_fit(free, part.request.amounts), part.count)
        found = int(fits[self._allowed].sum()) + int(self._elsewhere[moment])
        return max(0, part.count - found)

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
