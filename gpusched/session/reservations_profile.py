"""Room on nodes over time: what is held now, what ends when, and what is kept free from when on.

Pure arithmetic on rows and columns; times are whole seconds since the epoch. Use only falls
with time, except where a hold begins, so that the most that is used between two moments is used
at the first of them or when a hold begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Demand, Ints, how_many_fit
from gpusched.objects.meta import GangKey
from gpusched.objects.resources import NOTHING, Resources

FOREVER: Final = 2**62
"""The end of what nobody knows the end of."""


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
    """Several holds as arrays, so that looking at a moment costs the same for one and for many."""

    def __init__(self, holds: Sequence[Hold], width: int) -> None:
        counts = [len(hold.rows) for hold in holds]
        begins = np.array([hold.start for hold in holds], dtype=np.int64)
        ends = np.array([hold.end for hold in holds], dtype=np.int64)
        self._starts: Ints = np.repeat(begins, counts)
        self._ends: Ints = np.repeat(ends, counts)
        self._rows: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *(h.rows for h in holds)])
        self._amounts: Ints = np.concatenate(
            [np.zeros((0, width), dtype=np.int64), *(h.amounts for h in holds)]
        )
        self.begins: list[int] = sorted(set(begins.tolist()))
        self.ends: list[int] = sorted(set(ends.tolist()))

    def take(self, free: Ints, time: int) -> None:
        """Subtract what is held at a moment, in place."""
        active = (self._starts <= time) & (time < self._ends)
        np.subtract.at(free, self._rows[active], self._amounts[active])

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Ends, rows and amounts of all holds."""
        return self._ends, self._rows, self._amounts

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

    # -- what moves in a session -------------------------------------------------------------
    def start(self, release: Release) -> None:
        """From now until ``release.time`` the amounts are held; for ever where that is FOREVER."""
        np.add.at(self.staying, release.rows, release.amounts)
        if release.time < FOREVER:
            self.releases.append(release)
            self.releases.sort(key=lambda each: (each.time, each.gang))
            self._flat = None

    def forget(self, release: Release) -> None:
        """The reverse, for what is held by a gang that was started once."""
        np.subtract.at(self.staying, release.rows, release.amounts)
        if release.time < FOREVER:
            self.releases = [each for each in self.releases if each.gang != release.gang]
            self._flat = None

    def ending_earlier(self, releases: Iterable[Release]) -> Profile:
        """The same, with these gangs gone at other times than known."""
        moved = list(releases)
        gangs = {each.gang for each in moved}
        kept = [each for each in self.releases if each.gang not in gangs]
        return Profile(self.allocatable, self.staying, now=self.now, releases=[*kept, *moved])

    # -- reading -----------------------------------------------------------------------------
    def times(self, until: int) -> list[int]:
        """When something ends, ascending, each once, after now and not after ``until``."""
        return sorted({each.time for each in self.releases if self.now < each.time <= until})

    def ends_at(self, time: int) -> GangKey | None:
        """A gang that ends then."""
        return next((each.gang for each in self.releases if each.time == time), None)

    def table(self, holds: Sequence[Hold]) -> Holds:
        """Holds to be looked at beside this profile."""
        return Holds(holds, self.staying.shape[1])

    def free_at(self, time: int, holds: Holds) -> Ints:
        """What is free at one moment beside the holds; negative where there is too much."""
        free: Ints = self.allocatable - self.staying
        times, rows, amounts = self.flat()
        count = int(np.searchsorted(times, time, side="right"))
        np.add.at(free, rows[:count], amounts[:count])
        holds.take(free, time)
        return free

    def free_between(self, start: int, end: int, holds: Holds) -> Ints:
        """The least that is free in the whole of a span, its start included and its end not."""
        free = self.free_at(start, holds)
        for time in holds.begin_between(start, end):
            np.minimum(free, self.free_at(time, holds), out=free)
        return free

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
