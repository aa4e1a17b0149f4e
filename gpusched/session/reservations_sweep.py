"""Starts of gangs of one kind, one behind the other: a walk through time that never goes back.

The next of them starts no sooner than the one before it. So what is free is carried along, and
only rows on which something ends or begins are looked at again. It finds what ``Seeker`` finds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.session.reservations_profile import Hold, Part, Profile

TIMES_MAX: Final = 256
"""Where more ends or is held, the search by halves is as quick."""
Found = tuple[int, tuple[Ints, Ints]]
"""When, and rows and amounts."""


class LostTrackError(Exception):
    """A walk cannot tell the next start: it is to be searched for."""


class Sweep:
    """See the module. It is right as long as the profile does not move and holds only are added.

    Args:
        profile: room over time.
        part: all members of each of the gangs.
        within: rows that they may use; None for all.
        time: at which the gang before was found a start.
        until: the last moment that is looked at.
    """

    def __init__(
        self, profile: Profile, part: Part, within: Bools | None, *, time: int, until: int
    ) -> None:
        self._profile = profile
        self._part = part
        self._allowed = part.allowed if within is None else part.allowed & within
        self._time = time
        self._until = until
        self._seen: tuple[Hold, ...] = ()
        self._free = profile.free_at(time, profile.table(()))
        self._fits: Ints = np.zeros(len(self._free), dtype=np.int64)
        self._look(np.arange(len(self._free)))

    def next(self, holds: Sequence[Hold], allowed: Callable[[int], bool]) -> Found | None:
        """The next start; None for none until the last moment.

        Args:
            holds: those of the call before, and those that came behind them.
            allowed: whether quotas let one start at a time.

        Raises:
            LostTrackError: some begin later than this walk has come, or there are many.
        """
        new = holds[len(self._seen) :]
        many = len(holds) + len(self._profile.releases) > TIMES_MAX
        if many or any(hold.start > self._time for hold in new):
            raise LostTrackError
        self._seen = tuple(holds)
        for hold in new:
            if hold.end > self._time:
                self._add(hold.rows, -hold.amounts)
        while True:
            if int(self._fits.sum()) >= self._part.count and allowed(self._time):
                return self._time, self._taken()
            if not self._go_on():
                return None

    def _taken(self) -> tuple[Ints, Ints]:
        """As ``pack``: the first rows first."""
        rows = np.flatnonzero(self._fits)
        fits = self._fits[rows]
        before = np.cumsum(fits) - fits
        take = np.minimum(fits, np.maximum(self._part.count - before, 0))
        some = take > 0
        rows, take = rows[some], take[some]
        amounts: Ints = np.zeros((len(rows), self._free.shape[1]), dtype=np.int64)
        amounts[:, self._part.ask.columns] = take[:, np.newaxis] * self._part.ask.amounts
        return rows, amounts

    def _go_on(self) -> bool:
        """To the next moment at which something ends; whether there is one."""
        here, times = self._time, self._profile.times(self._until)
        number = bisect_right(times, here)
        moments = [hold.end for hold in self._seen if here < hold.end <= self._until]
        moments += times[number : number + 1]
        if not moments:
            return False
        self._time = min(moments)
        ends, rows, amounts = self._profile.flat()
        low, high = np.searchsorted(ends, (here, self._time), side="right").tolist()
        if high > low:
            self._add(rows[low:high], amounts[low:high])
        for hold in self._seen:
            if here < hold.end <= self._time:
                self._add(hold.rows, hold.amounts)
        return True

    def _add(self, rows: Ints, amounts: Ints) -> None:
        np.add.at(self._free, rows, amounts)
        self._look(rows)

    def _look(self, rows: Ints) -> None:
        """Rows that changed; some may be named several times."""
        ask = self._part.ask
        fits = how_many_fit(self._free[rows][:, ask.columns], ask.amounts)
        self._fits[rows] = np.where(self._allowed[rows], np.minimum(fits, self._part.count), 0)
