"""Room on nodes over time: what is used now, what ends when, and what is reserved from when on.

Pure arithmetic on rows and columns; times are whole seconds since the epoch. Use only falls
with time, except where a reservation begins, so that the most that is used between two moments is used
at the first of them or when a reservation begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from operator import is_not
from typing import Final

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.arrays.columns import Bools, Ints, RequestVector, how_many_fit
from gpusched.base.classes import frozen
from gpusched.base.limits import COLUMN_MAX
from gpusched.session.backfill.running.release_order import (
    FlatReleases,
    Release,
    ReleaseOrder,
    RowReleases,
)

_FREE_NUMBERS_KEPT_MAX: Final = 2**20
"""Numbers in tables of one profile that are kept: eight megabytes."""


@frozen(slots=True, eq=False)
class Reservation:
    """Room reserved for a gang from ``start`` on, until ``end``, seconds since the epoch.

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

    def is_active_at(self, time: int) -> bool:
        """Whether the reservation counts at that moment."""
        return self.start <= time < self.end


class ReservationTable:
    """Reservations as arrays, so that a look at a moment costs the same for one and for many.

    ``starts``, ``ends`` and ``rows`` have shape (rows of all reservations,), ``amounts`` as many rows.
    """

    def __init__(self, reservations: Sequence[Reservation], width: int) -> None:
        self.reservations = tuple(reservations)
        counts = [len(reservation.rows) for reservation in reservations]
        begins = np.array([reservation.start for reservation in reservations], dtype=np.int64)
        ends = np.array([reservation.end for reservation in reservations], dtype=np.int64)
        self.starts: Ints = np.repeat(begins, counts)
        self.ends: Ints = np.repeat(ends, counts)
        self.rows: Ints = np.concatenate(
            [np.zeros(0, dtype=np.int64), *(h.rows for h in reservations)]
        )
        self.amounts: Ints = np.concatenate(
            [np.zeros((0, width), dtype=np.int64), *(h.amounts for h in reservations)]
        )
        self.begins: list[int] = sorted(set(begins.tolist()))

    def with_reservations(self, reservations: Sequence[Reservation]) -> ReservationTable:
        """A table of these reservations, made from this one where some only came behind its own."""
        known, width = len(self.reservations), self.amounts.shape[1]
        if len(reservations) < known or any(map(is_not, self.reservations, reservations)):
            return ReservationTable(reservations, width)
        if len(reservations) == known:
            return self
        more = copy(self)
        more.reservations = tuple(reservations)
        for reservation in reservations[known:]:
            span = np.repeat(
                [[reservation.start], [reservation.end]], len(reservation.rows), axis=1
            )
            more.starts = np.concatenate([more.starts, span[0]])
            more.ends = np.concatenate([more.ends, span[1]])
            more.rows = np.concatenate([more.rows, reservation.rows])
            more.amounts = np.concatenate([more.amounts, reservation.amounts])
        more.begins = sorted(
            {*self.begins, *(reservation.start for reservation in reservations[known:])}
        )
        return more

    def subtract_reserved(self, free: Ints, time: int) -> None:
        """Subtract what is reserved at a moment, in place."""
        active = (self.starts <= time) & (time < self.ends)
        np.subtract.at(free, self.rows[active], self.amounts[active])

    def go_on(self, free: Ints, here: int, time: int) -> None:
        """Turn what is free at one moment into what is free at the next at which a reservation begins."""
        begun = self.starts == time
        np.subtract.at(free, self.rows[begun], self.amounts[begun])
        ended = (self.starts <= here) & (here < self.ends) & (self.ends <= time)
        if ended.any():
            np.add.at(free, self.rows[ended], self.amounts[ended])

    def flatten_columns(self) -> tuple[Ints, Ints, Ints]:
        """Ends, rows and amounts of all reservations."""
        return self.ends, self.rows, self.amounts

    def on_rows(self, index: Ints, columns: Ints) -> ReservationTable:
        """This table for a choice of columns, on rows that have other numbers; each of its rows must have one."""
        other = copy(self)
        other.rows, other.amounts = index[self.rows], self.amounts[:, columns]
        return other

    def starts_between(self, start: int, end: int) -> list[int]:
        """Moments at which reservations begin between two moments, ascending."""
        low = bisect_right(self.begins, start)
        return self.begins[low : bisect_left(self.begins, end)]


class AvailabilityProfile:
    """Room on nodes over time; see the module.

    Args:
        allocatable: int64, shape (rows, resources). Not copied, not changed.
        staying: what is used by pods that have not left and do not leave now, same shape.
        now: whole seconds since the epoch.
        order: what ends later.
    """

    def __init__(self, allocatable: Ints, staying: Ints, *, now: int, order: ReleaseOrder) -> None:
        self.allocatable = allocatable
        self.staying: Ints = staying.copy()
        self.now = now
        self._order = order
        self._free: dict[int, Ints] = {}
        """What is free once so many entries of ``flatten_releases`` have ended, beside no reservations."""
        self._table = ReservationTable((), staying.shape[1])
        self._times: tuple[tuple[int, int], list[int]] = ((-1, 0), [])
        self._timeline: AvailabilityTimeline | None = None
        self._by_row: RowReleases | None = None
        self.version = 0
        """Number of changes so far."""

    # -- what moves in a session -------------------------------------------------------------
    def start(self, release: Release) -> None:
        """Use the amounts from now until ``release.time``; for ever where that is FOREVER."""
        np.add.at(self.staying, release.rows, release.amounts)
        self._moved()
        if release.ends:
            self._order = self._order.with_changes((), [release])

    def forget(self, release: Release) -> None:
        """Free again what a gang uses that was started once: the reverse of ``start``."""
        np.subtract.at(self.staying, release.rows, release.amounts)
        self._moved()
        if release.ends:
            gone = [each for each in self.releases if each.gang == release.gang]
            self._order = self._order.with_changes(gone, ())

    def _moved(self) -> None:
        self._free.clear()
        self._timeline = None
        self._by_row = None
        self.version += 1

    def with_release_times(self, releases: Iterable[Release]) -> AvailabilityProfile:
        """A profile in which these gangs end at other times than known."""
        moved = list(releases)
        gangs = {each.gang for each in moved}
        gone = [each for each in self.releases if each.gang in gangs]
        order = self._order.with_changes(gone, moved)
        return AvailabilityProfile(self.allocatable, self.staying, now=self.now, order=order)

    # -- reading -----------------------------------------------------------------------------
    @cached_property
    def least_allocatable(self) -> list[int]:
        """The least that any row offers of each resource; nothing where there is no row."""
        return [int(least) for least in self.allocatable.min(axis=0, initial=COLUMN_MAX)]

    @property
    def releases(self) -> Sequence[Release]:
        """What ends later, by time and gang."""
        return self._order.releases

    def release_times(self, until: int) -> list[int]:
        """When something ends, ascending, each once, after now and not after ``until``."""
        if self._times[0] != (self.version, until):
            times = self._order.times
            low, high = bisect_right(times, self.now), bisect_right(times, until)
            self._times = ((self.version, until), times[low:high])
        return self._times[1]

    def ends_at(self, time: int) -> GangKey | None:
        """A gang that ends then."""
        return self._order.first_at(time)

    def last_releases(self, rows: Ints, until: int, most: int) -> list[tuple[int, GangKey]]:
        """Times and gangs of the last releases on some rows up to a time, the last one first, at most so many."""
        self.flatten_releases()
        on = np.zeros(len(self.staying), dtype=np.bool_)
        on[rows] = True
        return self._order.last_on_rows(on, until, most)

    def reservation_table(self, reservations: Sequence[Reservation]) -> ReservationTable:
        """Reservations as a table of this profile's width, made from the last one where they only grew."""
        self._table = self._table.with_reservations(reservations)
        return self._table

    def build_timeline(
        self, reservations: Sequence[Reservation], until: int
    ) -> AvailabilityTimeline | None:
        """Free amounts at all moments beside the reservations; None where those are too many numbers."""
        moments = 1 + len(self.release_times(until)) + 2 * len(reservations)
        if moments * self.staying.size > TIMELINE_NUMBERS_MAX:
            return None
        if self._timeline is None or not self._timeline.add(reservations, until=until):
            self._timeline = AvailabilityTimeline(self, until)
            self._timeline.add(reservations, until=until)
        return self._timeline

    def free_at(self, time: int, reservations: ReservationTable) -> Ints:
        """Free amounts at one moment beside the reservations; negative where too much is taken."""
        free = self._free_of(
            int(np.searchsorted(self.flatten_releases()[0], time, side="right"))
        ).copy()
        reservations.subtract_reserved(free, time)
        return free

    def _free_of(self, count: int) -> Ints:
        """Free amounts beside no reservations once the first so many entries of ``flatten_releases`` have ended."""
        free = self._free.get(count)
        if free is None:
            if len(self._free) * self.staying.size > _FREE_NUMBERS_KEPT_MAX:
                self._free.clear()
            _, rows, amounts = self.flatten_releases()
            free = self._free[count] = self.allocatable - self.staying
            np.add.at(free, rows[:count], amounts[:count])
        return free

    def free_between(self, start: int, end: int, reservations: ReservationTable) -> Ints:
        """The least that is free in the whole of a span, its start included and its end not."""
        free = self.free_at(start, reservations)
        return least_free_between(free, self.flatten_releases(), start, end, reservations)

    def flatten_releases(self) -> FlatReleases:
        """Times, rows and amounts of all that ends, by time."""
        return self._order.arrays(self.staying.shape[1])

    def releases_by_row(self) -> RowReleases:
        """What is free on its row after each release, beside no reservations."""
        if self._by_row is None:
            free = self.allocatable - self.staying
            self._by_row = RowReleases(free, self.flatten_releases())
        return self._by_row


def least_free_between(
    free: Ints, releases: FlatReleases, start: int, end: int, reservations: ReservationTable
) -> Ints:
    """The least that is free in the whole of a span, its start included and its end not.

    Args:
        free: at the start beside the reservations, shape (rows, resources); it is changed.
        releases: on these rows.
        start: of the span.
        end: of the span.
        reservations: on these rows.
    """
    times, rows, amounts = releases
    least = free.copy()
    here, seen = start, int(np.searchsorted(times, start, side="right"))
    for time in reservations.starts_between(start, end):
        count = int(np.searchsorted(times, time, side="right"))
        if count > seen:
            np.add.at(free, rows[seen:count], amounts[seen:count])
        reservations.go_on(free, here, time)
        np.minimum(least, free, out=least)
        here, seen = time, count
    return least


@frozen(slots=True, eq=False)
class EqualMembers:
    """A count of equal members, and the rows that filters allow them."""

    request: RequestVector
    allowed: Bools
    count: int


def pack_first_rows(
    free: Ints, parts: Sequence[EqualMembers], within: Bools | None = None
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
    if len(parts) == 1:  # as most have: nothing is to be taken off for the parts before
        found = _first_rows_of_part(free, parts[0], within)
        if found is None:
            return None
        return amounts_on_rows(*found, parts[0].request, width=free.shape[1])
    taken = np.zeros_like(free)
    for part in parts:
        found = _first_rows_of_part(free - taken, part, within)
        if found is None:
            return None
        rows, take = found
        columns = part.request.columns
        taken[np.ix_(rows, columns)] += take[:, np.newaxis] * part.request.amounts
    rows = np.flatnonzero(taken.any(axis=1))
    return rows, taken[rows]


def _first_rows_of_part(
    free: Ints, part: EqualMembers, within: Bools | None
) -> tuple[Ints, Ints] | None:
    """The first rows that take all members of a part, ascending, and how many each; None for too little room."""
    ask = part.request
    if ask.missing:
        return None
    allowed = np.flatnonzero(part.allowed if within is None else part.allowed & within)
    fits = np.minimum(how_many_fit(free[np.ix_(allowed, ask.columns)], ask.amounts), part.count)
    chosen = take_first_rows(fits, part.count)
    return None if chosen is None else (allowed[chosen[0]], chosen[1])


def take_first_rows(fits: Ints, count: int) -> tuple[Ints, Ints] | None:
    """The first positions that take so many, ascending, and how many each; None where all take fewer."""
    some = np.flatnonzero(fits)
    total = np.cumsum(fits[some])
    last = int(np.searchsorted(total, count))
    if last == len(total):
        return None
    take = fits[some[: last + 1]]
    take[-1] -= total[last] - count
    return some[: last + 1], take


def amounts_on_rows(
    rows: Ints, take: Ints, request: RequestVector, *, width: int
) -> tuple[Ints, Ints]:
    """Rows on which equal members take anything, and what they take of each, shape (rows, width)."""
    amounts: Ints = np.zeros((len(rows), width), dtype=np.int64)
    amounts[:, request.columns] = take[:, np.newaxis] * request.amounts
    some = amounts.any(axis=1)
    return rows[some], amounts[some]


TIMELINE_NUMBERS_MAX: Final = 2**18
"""Moments times rows times resources: two megabytes, which each new reservation copies."""
_MOMENTS_PER_BLOCK: Final = 16
"""Moments that are asked together at first; then twice as many each time."""


class AvailabilityTimeline:
    """Free amounts at every moment at once. It is right as long as the profile does not change.

    Args:
        profile: room over time.
        until: the last moment that is looked at.

    Attributes:
        times: now, and when something ends or reservations begin or end until then, ascending.
        free: at each of these, int64, shape (times, rows, resources).
    """

    def __init__(self, profile: AvailabilityProfile, until: int) -> None:
        self.times: list[int] = [profile.now, *profile.release_times(until)]
        self.free: Ints = np.zeros((len(self.times), *profile.staying.shape), dtype=np.int64)
        self._until = until
        self._reservations: tuple[Reservation, ...] = ()
        self._begins: list[int] = []
        ends, rows, amounts = profile.flatten_releases()
        last = int(np.searchsorted(ends, until, side="right"))
        moments = np.searchsorted(np.array(self.times, dtype=np.int64), ends[:last])
        np.add.at(self.free, (moments, rows[:last]), amounts[:last])
        self.free[0] += profile.allocatable - profile.staying
        np.cumsum(self.free, axis=0, out=self.free)

    def add(self, reservations: Sequence[Reservation], *, until: int) -> bool:
        """Add the last of these reservations; False where this was made for others, or another end."""
        known = len(self._reservations)
        if (
            self._until != until
            or len(reservations) < known
            or any(map(is_not, self._reservations, reservations))
        ):
            return False
        for reservation in reservations[known:]:
            first, last = self._moment_index(reservation.start), self._moment_index(reservation.end)
            self.free[first:last, reservation.rows] -= reservation.amounts
            insort(self._begins, reservation.start)
        self._reservations = tuple(reservations)
        return True

    def _moment_index(self, time: int) -> int:
        """Of the first moment not before a time, which becomes one where it may be looked at."""
        index = bisect_left(self.times, time)
        if self.times[0] < time <= self._until and self.times[index : index + 1] != [time]:
            self.times.insert(index, time)
            self.free = np.insert(self.free, index, self.free[index - 1], axis=0)
        return index

    def moments_with_room(
        self, ways: Sequence[Sequence[EqualMembers]], first: int
    ) -> Iterator[list[int]]:
        """Indices of moments at which there is room for every part of one of the ways.

        Each part is looked at by itself: whether they have room together is not said.

        Args:
            ways: to start.
            first: index to begin at.

        Yields:
            Those of one block of moments after another, ascending.
        """
        size = _MOMENTS_PER_BLOCK
        while first < len(self.times):
            enough = _moments_that_fit(self.free[first : first + size], ways)
            yield (np.flatnonzero(enough) + first).tolist()
            first, size = first + size, size * 2

    def has_room_now(self, ways: Sequence[Sequence[EqualMembers]]) -> bool:
        """Whether the first moment is one of those."""
        return bool(_moments_that_fit(self.free[:1], ways)[0])

    def least_free(self, index: int, end: int) -> Ints:
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


def _moments_that_fit(free: Ints, ways: Sequence[Sequence[EqualMembers]]) -> Bools:
    """At which moments each part of one of the ways has room, shape (moments,)."""
    enough = np.zeros(len(free), dtype=np.bool_)
    for parts in ways:
        enough |= np.logical_and.reduce([_moments_that_fit_part(free, part) for part in parts])
    return enough


def _moments_that_fit_part(free: Ints, part: EqualMembers) -> Bools:
    """At which moments all members of a part have room somewhere, shape (moments,)."""
    ask = part.request
    if ask.missing:
        return np.zeros(len(free), dtype=np.bool_)
    wanted = list(zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True))
    some: Bools = np.repeat(part.allowed[np.newaxis], len(free), axis=0)
    # In a full cluster few rows take one: how many they take is asked of those alone.
    for column, amount in wanted:
        some &= free[:, :, column] >= amount
    moments, rows = np.nonzero(some)
    fits: Ints = np.full(len(rows), part.count, dtype=np.int64)
    for column, amount in wanted:
        np.minimum(fits, free[moments, rows, column] // amount, out=fits)
    enough: Bools = np.bincount(moments, fits, minlength=len(free)) >= part.count
    return enough
