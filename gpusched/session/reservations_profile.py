"""Room on nodes over time: what is held now, what ends when, and what is kept free from when on.

Pure arithmetic on rows and columns; times are whole seconds since the epoch. Use only falls
with time, except where a hold begins, so that the most that is used between two moments is used
at the first of them or when a hold begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from copy import copy
from operator import is_not
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Demand, Ints, how_many_fit
from gpusched.objects.meta import GangKey
from gpusched.objects.resources import NOTHING, Resources
from gpusched.session.reservations_timeline import NUMBERS_MAX, Timeline

FOREVER: Final = 2**62
"""The end of what nobody knows the end of."""
_KEPT_MAX: Final = 2**20
"""Numbers in tables of one profile that are kept: eight megabytes."""


@attrs.frozen(slots=True, eq=False)
class Release:
    """At ``time`` so much becomes free on some rows.

    Attributes:
        rows: row numbers, repeated where several members of a gang share a node.
        amounts: int64, shape (len(rows), resources), never negative.
        gang: that ends then.
        path: names of its queue and those above it.
        requests: the same amounts for the accounts of these queues.
    """

    time: int
    rows: Ints
    amounts: Ints
    gang: GangKey
    path: tuple[str, ...] = ()
    requests: Resources = NOTHING


@attrs.frozen(slots=True, eq=False)
class Hold:
    """Room kept free for a gang from ``start`` on, until ``end``.

    Attributes:
        rows: row numbers, each once, ascending.
        amounts: int64, shape (len(rows), resources).
        path, requests: as for ``Release``.
    """

    gang: GangKey
    start: int
    end: int
    rows: Ints
    amounts: Ints
    path: tuple[str, ...] = ()
    requests: Resources = NOTHING

    def active(self, time: int) -> bool:
        """Whether it counts at that moment."""
        return self.start <= time < self.end


class Holds:
    """Several holds as arrays, so that looking at a moment costs the same for one and for many.

    ``starts``, ``ends`` and ``rows`` have shape (rows of all holds,), ``amounts`` as many rows.
    """

    def __init__(self, holds: Sequence[Hold], width: int) -> None:
        self.holds = tuple(holds)
        counts = [len(hold.rows) for hold in holds]
        begins = np.array([hold.start for hold in holds], dtype=np.int64)
        ends = np.array([hold.end for hold in holds], dtype=np.int64)
        self.starts: Ints = np.repeat(begins, counts)
        self.ends: Ints = np.repeat(ends, counts)
        self.rows: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *(h.rows for h in holds)])
        self.amounts: Ints = np.concatenate(
            [np.zeros((0, width), dtype=np.int64), *(h.amounts for h in holds)]
        )
        self.begins: list[int] = sorted(set(begins.tolist()))

    def plus(self, holds: Sequence[Hold]) -> Holds:
        """These, when some more came behind them; made from these where that is all."""
        known, width = len(self.holds), self.amounts.shape[1]
        if len(holds) < known or any(map(is_not, self.holds, holds)):
            return Holds(holds, width)
        if len(holds) == known:
            return self
        more = copy(self)
        more.holds = tuple(holds)
        for hold in holds[known:]:
            size = len(hold.rows)
            more.starts = np.append(more.starts, np.full(size, hold.start, dtype=np.int64))
            more.ends = np.append(more.ends, np.full(size, hold.end, dtype=np.int64))
            more.rows = np.append(more.rows, hold.rows)
            more.amounts = np.concatenate([more.amounts, hold.amounts])
        more.begins = sorted({*self.begins, *(hold.start for hold in holds[known:])})
        return more

    def take(self, free: Ints, time: int) -> None:
        """Subtract what is held at a moment, in place."""
        active = (self.starts <= time) & (time < self.ends)
        np.subtract.at(free, self.rows[active], self.amounts[active])

    def go_on(self, free: Ints, here: int, time: int) -> None:
        """From what is free at one moment to a later one, the first at which a hold begins."""
        begun = self.starts == time
        np.subtract.at(free, self.rows[begun], self.amounts[begun])
        ended = (self.starts <= here) & (here < self.ends) & (self.ends <= time)
        if ended.any():
            np.add.at(free, self.rows[ended], self.amounts[ended])

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Ends, rows and amounts of all holds."""
        return self.ends, self.rows, self.amounts

    def begin_between(self, start: int, end: int) -> list[int]:
        """When holds begin after one moment and before another, ascending."""
        low = bisect_right(self.begins, start)
        return self.begins[low : bisect_left(self.begins, end)]


class Profile:
    """See the module.

    Args:
        allocatable: int64, shape (rows, resources). Not copied, not changed.
        staying: what is held by those who have not left and do not leave now, same shape.
        now: whole seconds since the epoch.
        releases: what ends later, in any order.
    """

    def __init__(
        self, allocatable: Ints, staying: Ints, *, now: int, releases: Iterable[Release]
    ) -> None:
        self.allocatable = allocatable
        self.staying: Ints = staying.copy()
        self.now = now
        self.releases = sorted(releases, key=lambda each: (each.time, each.gang))
        self._flat: tuple[Ints, Ints, Ints] | None = None
        self._free: dict[int, Ints] = {}
        """What is free once so many entries of ``flat`` have ended, beside no holds."""
        self._table = Holds((), staying.shape[1])
        self._times: tuple[tuple[int, int], list[int]] = ((-1, 0), [])
        self._timeline: Timeline | None = None
        self.version = 0
        """Grows with every move."""

    # -- what moves in a session -------------------------------------------------------------
    def start(self, release: Release) -> None:
        """From now until ``release.time`` the amounts are held; for ever where that is FOREVER."""
        np.add.at(self.staying, release.rows, release.amounts)
        self._moved()
        if release.time < FOREVER:
            self.releases.append(release)
            self.releases.sort(key=lambda each: (each.time, each.gang))
            self._flat = None

    def forget(self, release: Release) -> None:
        """The reverse, for what is held by a gang that was started once."""
        np.subtract.at(self.staying, release.rows, release.amounts)
        self._moved()
        if release.time < FOREVER:
            self.releases = [each for each in self.releases if each.gang != release.gang]
            self._flat = None

    def _moved(self) -> None:
        self._free.clear()
        self._timeline = None
        self.version += 1

    def ending_earlier(self, releases: Iterable[Release]) -> Profile:
        """The same, with these gangs gone at other times than known."""
        moved = list(releases)
        gangs = {each.gang for each in moved}
        kept = [each for each in self.releases if each.gang not in gangs]
        return Profile(self.allocatable, self.staying, now=self.now, releases=[*kept, *moved])

    # -- reading -----------------------------------------------------------------------------
    def times(self, until: int) -> list[int]:
        """When something ends, ascending, each once, after now and not after ``until``."""
        if self._times[0] != (self.version, until):
            times = self.flat()[0]
            low, high = np.searchsorted(times, (self.now, until), side="right").tolist()
            self._times = ((self.version, until), np.unique(times[low:high]).tolist())
        return self._times[1]

    def ends_at(self, time: int) -> GangKey | None:
        """A gang that ends then."""
        return next((each.gang for each in self.releases if each.time == time), None)

    def table(self, holds: Sequence[Hold]) -> Holds:
        """Holds to be looked at beside this profile."""
        self._table = self._table.plus(holds)
        return self._table

    def timeline(self, holds: Sequence[Hold], until: int) -> Timeline | None:
        """All moments beside the holds; None where they are too many for these rows."""
        moments = 1 + len(self.times(until)) + 2 * len(holds)
        if moments * self.staying.size > NUMBERS_MAX:
            return None
        if self._timeline is None or not self._timeline.add(holds, until=until):
            self._timeline = Timeline(self, until)
            self._timeline.add(holds, until=until)
        return self._timeline

    def free_at(self, time: int, holds: Holds) -> Ints:
        """What is free at one moment beside the holds; negative where there is too much."""
        free = self._free_of(int(np.searchsorted(self.flat()[0], time, side="right"))).copy()
        holds.take(free, time)
        return free

    def _free_of(self, count: int) -> Ints:
        """Beside no holds, when the first so many entries of ``flat`` have ended. Kept."""
        free = self._free.get(count)
        if free is None:
            if len(self._free) * self.staying.size > _KEPT_MAX:
                self._free.clear()
            _, rows, amounts = self.flat()
            free = self._free[count] = self.allocatable - self.staying
            np.add.at(free, rows[:count], amounts[:count])
        return free

    def free_between(self, start: int, end: int, holds: Holds) -> Ints:
        """The least that is free in the whole of a span, its start included and its end not."""
        free = self.free_at(start, holds)
        least = free.copy()
        times, rows, amounts = self.flat()
        here, seen = start, int(np.searchsorted(times, start, side="right"))
        for time in holds.begin_between(start, end):
            count = int(np.searchsorted(times, time, side="right"))
            if count > seen:
                np.add.at(free, rows[seen:count], amounts[seen:count])
            holds.go_on(free, here, time)
            np.minimum(least, free, out=least)
            here, seen = time, count
        return least

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Times, rows and amounts of all that ends, by time."""
        if self._flat is None:
            width = self.staying.shape[1]
            counts = [len(each.rows) for each in self.releases]
            times = np.repeat(np.array([e.time for e in self.releases], dtype=np.int64), counts)
            rows = [each.rows for each in self.releases]
            amounts = [each.amounts for each in self.releases]
            self._flat = (
                times,
                np.concatenate([np.zeros(0, dtype=np.int64), *rows]),
                np.concatenate([np.zeros((0, width), dtype=np.int64), *amounts]),
            )
        return self._flat


@attrs.frozen(slots=True, eq=False)
class Part:
    """So many equal members, and the rows that filters allow them."""

    ask: Demand
    allowed: Bools
    count: int


def pack(
    free: Ints, parts: Sequence[Part], within: Bools | None = None
) -> tuple[Ints, Ints] | None:
    """Put all members on rows, the first rows first.

    The order of rows never depends on use. So what was found is found again as long as the
    chosen rows keep the room for it, whatever happens elsewhere: a reservation needs no memory.

    Args:
        free: int64, shape (rows, resources).
        parts: in the order in which they choose.
        within: rows that may be chosen.

    Returns:
        Rows, ascending, and what is taken of each, shape (len(rows), resources); None when
        there is too little.
    """
    taken = np.zeros_like(free)
    for index, part in enumerate(parts):
        ask = part.ask
        if ask.missing:
            return None
        left = free[:, ask.columns] - (taken[:, ask.columns] if index else 0)
        allowed = part.allowed if within is None else part.allowed & within
        fits = np.where(allowed, np.minimum(how_many_fit(left, ask.amounts), part.count), 0)
        before = np.cumsum(fits) - fits
        take = np.minimum(fits, np.maximum(part.count - before, 0))
        if int(take.sum()) < part.count:
            return None
        taken[:, ask.columns] += take[:, np.newaxis] * ask.amounts
    rows = np.flatnonzero(taken.any(axis=1))
    return rows, taken[rows]
