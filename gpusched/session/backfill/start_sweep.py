"""The starts of equal gangs one behind the other, in one walk over time."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.session.backfill.availability_profile import (
    AvailabilityProfile,
    EqualMembers,
    Reservation,
)

SWEEP_MOMENTS_MAX: Final = 256
"""Number of ends and reservations above which the search by halves is as quick."""
SweepStart = tuple[int, tuple[Ints, Ints]]
"""When, and rows and amounts."""


class SweepLostError(Exception):
    """The walk cannot find the next start: it has to be searched for."""


class StartSweep:
    """A walk from the start of one gang to those of equal gangs behind it.

    It is right as long as the profile does not change and reservations are only added.

    Args:
        profile: room over time.
        part: all members of each of the gangs.
        within: rows that they may use; None for all.
        time: at which the gang before was found a start.
        until: the last moment that is looked at.
    """

    def __init__(
        self,
        profile: AvailabilityProfile,
        part: EqualMembers,
        within: Bools | None,
        *,
        time: int,
        until: int,
    ) -> None:
        self._profile = profile
        self._part = part
        self._until = until
        self._time = time
        self._seen = 0
        """How many reservations are taken into account."""
        self._ahead: list[tuple[int, int]] = []
        """Ends ahead of reservations that were added, by time, with their numbers."""
        free = profile.free_at(time, profile.reservation_table(()))
        self._width = free.shape[1]
        self._free: Ints = free[:, part.request.columns]
        """Of the resources that a member asks for, shape (rows, resources asked)."""
        allowed = part.allowed if within is None else part.allowed & within
        self._most: Ints = np.where(allowed, part.count, 0)
        """Members that count on each row."""
        self._fits = np.minimum(how_many_fit(self._free, part.request.amounts), self._most)
        self._released = int(np.searchsorted(profile.flatten_releases()[0], time, side="right"))
        """How many releases are behind the walk."""

    def find_next_start(
        self, reservations: Sequence[Reservation], allowed: Callable[[int], bool]
    ) -> SweepStart | None:
        """Find the next start; None where there is none until the last moment.

        Args:
            reservations: those of the call before, and those that came behind them.
            allowed: whether quotas let one start at a time.

        Raises:
            SweepLostError: some begin later than this walk has come, or there are many.
        """
        new = reservations[self._seen :]
        many = len(reservations) + len(self._profile.releases) > SWEEP_MOMENTS_MAX
        if many or any(reservation.start > self._time for reservation in new):
            raise SweepLostError
        for number, reservation in enumerate(new, start=self._seen):
            if reservation.end > self._time:
                insort(self._ahead, (reservation.end, number))
                self._add(reservation.rows, -reservation.amounts)
        self._seen = len(reservations)
        while True:
            if int(self._fits.sum()) >= self._part.count and allowed(self._time):
                return self._time, self._taken_amounts()
            if not self._continue_round(reservations):
                return None

    def _taken_amounts(self) -> tuple[Ints, Ints]:
        """Rows and amounts of all members, the first rows first, as ``pack_first_rows`` has them."""
        rows = self._fits.nonzero()[0]
        fits = self._fits[rows]
        before = np.cumsum(fits) - fits
        take = np.minimum(fits, np.maximum(self._part.count - before, 0))
        some = take > 0
        rows, take = rows[some], take[some]
        amounts: Ints = np.zeros((len(rows), self._width), dtype=np.int64)
        amounts[:, self._part.request.columns] = take[:, np.newaxis] * self._part.request.amounts
        return rows, amounts

    def _continue_round(self, reservations: Sequence[Reservation]) -> bool:
        """Go on to the next moment at which something ends; whether there is one."""
        times = self._profile.release_times(self._until)
        number = bisect_right(times, self._time)
        moments = times[number : number + 1]
        if self._ahead and self._ahead[0][0] <= self._until:
            moments.append(self._ahead[0][0])
        if not moments:
            return False
        self._time = min(moments)
        ends, rows, amounts = self._profile.flatten_releases()
        low, high = self._released, int(ends.searchsorted(self._time, side="right"))
        if high > low:
            self._released = high
            self._add(rows[low:high], amounts[low:high])
        while self._ahead and self._ahead[0][0] <= self._time:
            ended = reservations[self._ahead.pop(0)[1]]
            self._add(ended.rows, ended.amounts)
        return True

    def _add(self, rows: Ints, amounts: Ints) -> None:
        """Add to what is free on rows, some perhaps named several times, and count again what fits them."""
        ask = self._part.request
        np.add.at(self._free, rows, amounts.take(ask.columns, axis=1))
        self._fits[rows] = np.minimum(how_many_fit(self._free[rows], ask.amounts), self._most[rows])
