"""The earliest time at which a gang that is blocked now can start, and where."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.base.classes import define, frozen
from gpusched.base.limits import GANG_PODS_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.node_sets import candidate_node_sets
from gpusched.session.allocate.start_members import choose_start_members
from gpusched.session.allocate.suspended_jobs import node_pool_variants
from gpusched.session.backfill.availability_profile import (
    AvailabilityProfile,
    AvailabilityTimeline,
    EqualMembers,
    Reservation,
    ReservationTable,
    pack_first_rows,
)
from gpusched.session.backfill.running.fit_counts import CountsBesideReservations, FitCounts
from gpusched.session.backfill.running.quota_over_time import (
    FittingLoad,
    QueueLoad,
    quota_allows_beside,
)
from gpusched.session.backfill.running.release_order import FOREVER, Release
from gpusched.session.backfill.running.waiting_devices import waiting_devices
from gpusched.session.backfill.start_sweep import StartSweep, SweepLostError
from gpusched.session.gpu_types.options import types_to_start_on
from gpusched.session.state.equivalence import EquivalenceClasses
from gpusched.session.state.session import Session

_MOMENTS_MAX: Final = 512
"""Moments looked at one by one beside reservations; before them the search halves."""

_MOMENTS_COUNTED_MIN: Final = 16
"""Moments that are counted at first where most gangs find their start; then four times as many."""


@define(slots=True)
class SearchBudget:
    """A bound in moments looked at, the same on every machine."""

    left: int


RowChooser = Callable[[Sequence[EqualMembers], Sequence[Bools | None]], tuple[Ints, Ints] | None]
"""Rows and amounts for members in one of some areas, or None."""


@frozen(slots=True, eq=False)
class _StartOption:
    """One way to start the gang: in one node pool, its largest or its smallest members first."""

    gang: Gang
    parts: tuple[EqualMembers, ...]


class StartSearch:
    """A search for the earliest start of one gang.

    Args:
        session: whose filters, topology and quotas count.
        gang: blocked now.
        profile: of all rows over time.
        length: seconds it will run; FOREVER when that is unknown.
        work: how much may still be looked at; when that is used up, nothing is found.
        windows: of Reservations that bind the gang, in which it may not be on their nodes.
    """

    def __init__(
        self,
        session: Session,
        gang: Gang,
        profile: AvailabilityProfile,
        *,
        length: int,
        work: SearchBudget,
        windows: tuple[Reservation, ...] = (),
    ) -> None:
        self._work = work
        self._windows = windows
        self._related: list[Release] | None = None
        """Of queues above or below which a quota of the gang lies; made when first needed."""
        self._short = 0
        """How many members at least did not fit at the moment that was looked at last."""
        self._session = session
        self._gang = gang
        self._profile = profile
        self._length = length
        self._ways = _start_options(session, gang)
        self._path = frozenset(session.queue_path(gang))
        self._fitting = FittingLoad()
        self._areas_known: dict[tuple[bool, ...], Sequence[Bools | None]] = {}
        self._counts: tuple[int, FitCounts] | None = None
        """Made when first needed, with the version of the profile that they are of."""

    def for_equal_gang(self, gang: Gang) -> StartSearch:
        """This search for an equal gang of the same walltime, as long as nothing has moved."""
        other = object.__new__(StartSearch)
        vars(other).update(vars(self))  # a tenth of what copying it takes
        other._gang = gang
        return other

    @property
    def usable(self) -> Bools:
        """Rows on which any of its members could ever sit, were they empty."""
        allocatable, least = self._profile.allocatable, self._profile.least_allocatable
        usable = np.zeros(allocatable.shape[0], dtype=np.bool_)
        for way in self._ways:
            for part in way.parts:
                if not part.request.missing:
                    fits = part.allowed.copy()
                    asked = zip(part.request.columns.tolist(), part.request.amounts, strict=True)
                    for column, amount in asked:
                        if amount > least[column]:
                            fits &= allocatable[:, column] >= amount
                    usable |= fits
        return usable

    def lacks_room_or_quota_now(
        self, reservations: Sequence[Reservation], *, until: int | None = None
    ) -> bool:
        """Whether the gang lacks room or quota now: no reservation helps against other causes.

        Args:
            reservations: of others.
            until: as for ``find_earliest_start``, which is asked next on the same profile; None for no.
        """
        reservations = (*self._windows, *reservations)
        line = self._profile.build_timeline(reservations, until) if until is not None else None
        if line is not None and not line.has_room_now([way.parts for way in self._ways]):
            self._work.left -= 1
            return True
        counts = self._fit_counts() if line is None else None
        if counts is not None and not counts.has_room_at(self._profile.now):
            self._work.left -= 1
            return True
        return (
            self._pack_at(
                self._profile.now, reservations, self._profile.reservation_table(reservations)
            )
            is None
        )

    @property
    def simple(self) -> bool:
        """Whether all members are of one class and no window binds them, so that more room never hurts."""
        return len(self._ways) == 1 and len(self._ways[0].parts) == 1 and not self._windows

    def find_earliest_start(
        self,
        reservations: Sequence[Reservation],
        *,
        until: int,
        before: EarlierResult | None = None,
    ) -> Reservation | None:
        """Find the earliest start, as a reservation.

        Args:
            reservations: of others, which are left whole.
            until: the last moment that is looked at.
            before: what was found for an equal gang; what is found for this one is entered there.

        Returns:
            None when nothing that is known to end leaves enough room until then.
        """
        before = EarlierResult() if before is None else before
        reservations = (*self._windows, *reservations)
        if before.start:
            with suppress(SweepLostError):
                return self.find_start_behind(before, reservations, until=until)
        if before.alone is None:
            return None
        profile = self._profile
        line = profile.build_timeline(reservations, until)
        # When a gang stops holding out it may start though nothing has ended.
        if line is not None and not any(profile.now < time for time in self._preference_expiries()):
            return self._search_timeline(line, reservations, before, until=until)
        times = self._candidate_times(reservations, until)
        if before.alone == 0:
            before.alone = self._first_time_alone(times)
        if before.alone is None:
            return None
        table = profile.reservation_table(reservations)
        first = bisect_left(times, before.alone)
        here = max(first, bisect_left(times, before.start))
        last = min(len(times), first + _MOMENTS_MAX)
        counts = self._fit_counts()
        if counts is not None:
            start = self._first_start_counted(counts, times[here:last], reservations)
            before.start = before.start if start is None else start.start
            return start
        gains: Ints | None = None
        looks = 0
        while here < last and self._work.left > 0:
            found = self._pack_at(times[here], reservations, table)
            if found is not None:
                before.start = times[here]
                return self._reservation_at(times[here], found)
            looks += 1
            here += 1
            if looks > 1:  # most of those who are one of many like them start at the next moment
                # So many more must fit: go on where what ended until then could make that true.
                gains = self._members_gained(times, table) if gains is None else gains
                here = max(here, int(np.searchsorted(gains, gains[here - 1] + self._short)))
        return None

    def _first_start_counted(
        self, counts: FitCounts, times: Sequence[int], reservations: Sequence[Reservation]
    ) -> Reservation | None:
        """A start at the first of some moments at which all members fit and quotas allow it."""
        table, low, size = self._profile.reservation_table(reservations), 0, _MOMENTS_COUNTED_MIN
        while low < len(times):
            beside = CountsBesideReservations(counts, table, times[low : low + size])
            low, size, here = low + size, size * 4, 0
            while here < len(beside.times):
                if self._work.left <= 0:
                    return None
                self._work.left -= 1
                time = beside.times[here]
                missing, end = beside.missing_at(here), self._end_of_start(time)
                if not missing:
                    self._work.left -= len(table.starts_between(time, end))
                    missing = beside.missing_until(here, end)
                if not missing and self._within_quota(time, reservations):
                    places = beside.first_rows(here, end)
                    return None if places is None else self._reservation_at(time, places)
                # So many more must fit: go on where what ended until then could make that true.
                gains = beside.gains
                here = max(here + 1, int(np.searchsorted(gains, gains[here] + missing)))
        return None

    def _fit_counts(self) -> FitCounts | None:
        """Its members on all rows that they may use; None where members or areas are of several kinds."""
        if not self.simple or self._preference_expiries():
            return None
        version = self._profile.version
        if self._counts is None or self._counts[0] != version:
            part, areas = self._ways[0].parts[0], self._start_areas(self._gang, self._profile.now)
            if len(areas) != 1 or part.request.missing:
                return None
            allowed = part.allowed if areas[0] is None else part.allowed & areas[0]
            counts = FitCounts(self._profile.releases_by_row(), part, allowed)
            self._counts = (version, counts)
        return self._counts[1]

    def _candidate_times(self, reservations: Sequence[Reservation], until: int) -> Sequence[int]:
        """Moments at which there may be more room than before, ascending."""
        moments = {*self._preference_expiries(), *(reservation.end for reservation in reservations)}
        known = self._profile.release_times(until)
        more = []
        for time in sorted(moments):
            index = bisect_left(known, time)
            if self._profile.now < time <= until and known[index : index + 1] != [time]:
                more.append(time)
        if not more:
            return known
        times = known.copy()
        for time in more:
            insort(times, time)
        return times

    def _search_timeline(
        self,
        line: AvailabilityTimeline,
        reservations: Sequence[Reservation],
        before: EarlierResult,
        *,
        until: int,
    ) -> Reservation | None:
        """Find the earliest start; only moments at which there is room are looked at one by one."""
        ways = [way.parts for way in self._ways]
        first = max(before.alone or 0, before.start, line.times[0] + 1)
        looks = 0
        for block in line.moments_with_room(ways, bisect_left(line.times, first)):
            self._work.left -= 1
            for index in block:
                time = line.times[index]
                if looks == 1 and not before.alone:
                    # Areas or quota are in the way, perhaps for long.
                    before.alone = self._first_time_alone(
                        self._candidate_times(reservations, until)
                    )
                    if before.alone is None:
                        return None
                if time < (before.alone or 0):
                    continue
                if self._work.left <= 0 or looks >= _MOMENTS_MAX:
                    return None
                self._work.left -= 1
                looks += 1
                found = self._pack_members(line.least_free(index, self._end_of_start(time)), time)
                if found is not None and self._within_quota(time, reservations):
                    before.start = time
                    return self._reservation_at(time, found)
        before.alone = None  # nor will there be any for those like it, beside more holds
        return None

    def find_start_behind(
        self, before: EarlierResult, reservations: Sequence[Reservation], *, until: int
    ) -> Reservation | None:
        """Find the earliest start behind that of an equal gang; see ``StartSweep``.

        Raises:
            SweepLostError: it has to be searched for.
        """
        if before.sweep is None:
            part, areas = self._ways[0].parts[0], self._start_areas(self._gang, before.start)
            if len(areas) != 1 or part.request.missing:
                raise SweepLostError
            before.sweep = StartSweep(self._profile, part, areas[0], time=before.start, until=until)

        def allowed(time: int) -> bool:
            self._work.left -= 1
            return self._within_quota(time, reservations)

        try:
            found = before.sweep.find_next_start(reservations, allowed)
        except SweepLostError:
            before.sweep = None
            raise
        if found is None:
            return None
        before.start = found[0]
        return self._reservation_at(*found)

    def _first_time_alone(self, times: Sequence[int]) -> int | None:
        """The first of these times at which the gang could start, were nothing reserved."""
        if self._windows:
            return times[0] if times else None  # room comes and goes with them: nothing to halve
        counts = self._fit_counts()
        if counts is not None:
            return self._first_time_counted(counts, times)
        nobody = ReservationTable((), self._profile.staying.shape[1])

        def can_start(time: int) -> bool:
            return self._pack_at(time, (), nobody) is not None

        if not times or not can_start(times[-1]):
            return None
        # Without the holds of others there is only ever more room: halve up to where it suffices.
        return times[bisect_left(times, True, key=can_start)]

    def _first_time_counted(self, counts: FitCounts, times: Sequence[int]) -> int | None:
        """The same where it is known when there is room: halve up to where quotas allow it, too."""
        self._work.left -= 1
        with_room = counts.first_time
        if with_room is None or not times or times[-1] < with_room:
            return None
        first = bisect_left(times, with_room)
        if self._within_quota(times[first], ()):
            return times[first]
        if not self._within_quota(times[-1], ()):
            return None
        allowed = bisect_left(times, True, first, key=lambda time: self._within_quota(time, ()))
        return times[allowed]

    def _members_gained(self, times: Sequence[int], table: ReservationTable) -> Ints:
        """How many more members at most fit by each time than before all of them; ascending.

        Not worked out where members differ: then any time may be enough.
        """
        if not self.simple:
            return np.arange(len(times), dtype=np.int64) * GANG_PODS_MAX
        part = self._ways[0].parts[0]
        gained: Ints = np.zeros(len(times) + 1, dtype=np.int64)
        for ends, rows, amounts in (self._profile.flatten_releases(), table.flatten_columns()):
            whole = -(-amounts[:, part.request.columns] // part.request.amounts)
            more = np.where(part.allowed[rows], whole.max(axis=1), 0)
            np.add.at(gained, np.searchsorted(times, ends), more)
        return np.cumsum(gained[:-1])

    def start_at_once(self, reservations: Sequence[Reservation]) -> Reservation | None:
        """A start at once, on a profile without gangs that would be evicted."""
        reservations = (*self._windows, *reservations)
        found = self._pack_at(
            self._profile.now, reservations, self._profile.reservation_table(reservations)
        )
        return self._reservation_at(self._profile.now, found) if found else None

    @property
    def feasible_rows(self) -> Bools:
        """Rows that filters allow any of its members, whatever their size: its node pool."""
        rows = np.zeros(self._profile.allocatable.shape[0], dtype=np.bool_)
        for way in self._ways:
            for part in way.parts:
                rows |= part.allowed
        return rows

    def first_choice(self, choose: RowChooser) -> tuple[Ints, Ints] | None:
        """The first choice that is one, over the ways to start now and their areas."""
        for way in self._ways:
            found = choose(way.parts, self._start_areas(way.gang, self._profile.now))
            if found is not None:
                return found
        return None

    # -- one moment --------------------------------------------------------------------------
    def _pack_at(
        self, time: int, reservations: Sequence[Reservation], table: ReservationTable
    ) -> tuple[Ints, Ints] | None:
        found = self._rows_at(time, table)
        if found is None or not self._within_quota(time, reservations):
            return None
        return found

    def _rows_at(self, time: int, table: ReservationTable) -> tuple[Ints, Ints] | None:
        self._work.left -= 1
        free = self._profile.free_at(time, table)
        self._short = min((_missing_members(free, way.parts) for way in self._ways), default=1)
        if self._short:
            return None
        end = self._end_of_start(time)
        begins = table.starts_between(time, end)
        if time == self._profile.now and end < FOREVER:
            later = bisect_left(table.begins, end)
            if later < len(table.begins):  # the longer it waits, the later it would end
                self._session.snapshot.changes_at(time + table.begins[later] - end + 1)
        if begins:
            self._work.left -= len(begins)
            free = self._profile.free_between(time, end, table)
        return self._pack_members(free, time)

    def _pack_members(self, free: Ints, time: int) -> tuple[Ints, Ints] | None:
        for way in self._ways:
            for within in self._start_areas(way.gang, time):
                found = pack_first_rows(free, way.parts, within)
                if found is not None:
                    return found
        return None

    def _start_areas(self, gang: Gang, time: int) -> Sequence[Bools | None]:
        """Rows of each area in which it may start then; they change when it stops holding out."""
        expiries = self._preference_expiries()
        for each in expiries:
            self._session.snapshot.changes_at(each)
        key = tuple(time >= each for each in expiries)
        known = self._areas_known.get(key)
        if known is None:
            areas, refusal = candidate_node_sets(self._session, gang, at=float(time))
            known = self._areas_known[key] = [] if refusal else [area.rows for area in areas]
        return known

    def _within_quota(self, time: int, reservations: Sequence[Reservation]) -> bool:
        if self._fitting.covers_all(reservations, self._path):
            return True
        end = self._end_of_start(time)
        beside = QueueLoad(
            (reservation.path, reservation.requests)
            for reservation in reservations
            if reservation.start < end
            and time < reservation.end
            and not self._path.isdisjoint(reservation.path)
        )
        if self._fitting.covers(beside, partial(quota_allows_beside, self._session, self._gang)):
            return True
        if quota_allows_beside(self._session, self._gang, beside):
            return True
        if self._related is None:
            self._related = [
                each for each in self._profile.releases if not self._path.isdisjoint(each.path)
            ]
        ended = QueueLoad((each.path, each.requests) for each in self._related if each.time <= time)
        return quota_allows_beside(self._session, self._gang, beside, ended)

    def _end_of_start(self, time: int) -> int:
        return FOREVER if self._length >= FOREVER else time + self._length

    def _preference_expiries(self) -> tuple[int, ...]:
        wish = self._gang.topology
        if not wish.preferred or not wish.max_wait_ns:
            return ()
        return (-int(-(self._gang.created + wish.max_wait_ns / 1e9) // 1),)

    def _reservation_at(self, time: int, found: tuple[Ints, Ints]) -> Reservation:
        session, end = self._session, self._end_of_start(time)
        snapshot = session.snapshot
        snapshot.changes_at(time if time > self._profile.now else time + 1)
        if end < FOREVER:  # from then on it is among the moments that are looked at
            snapshot.changes_at(end - int(snapshot.limits.reservation_window_s))
        return Reservation(
            gang=self._gang.key,
            start=time,
            end=end,
            rows=found[0],
            amounts=found[1],
            path=session.queue_path(self._gang),
            requests=session.view.minimum(self._gang),
        )


def _missing_members(free: Ints, parts: Sequence[EqualMembers]) -> int:
    """How many members of one part at least do not fit, wherever they may sit."""
    lacking = 0
    for part in parts:
        if part.request.missing:
            return part.count
        fits = how_many_fit(free[:, part.request.columns], part.request.amounts)
        total = int(np.minimum(fits[part.allowed], part.count).sum())
        lacking = max(lacking, part.count - total)
    return lacking


def _start_options(session: Session, gang: Gang) -> list[_StartOption]:
    """Ways to start; nodes that Reservations close to the gang are closed by the time of its start."""
    with session.class_infos.close_nodes(None):
        return _options_on_all_nodes(session, gang)


def _options_on_all_nodes(session: Session, gang: Gang) -> list[_StartOption]:
    ways = []
    for variant in node_pool_variants(session, gang):
        pod_sets = variant.gang.pod_sets
        for largest_first in (True, False) if len(pod_sets) > 1 else (True,):
            members, too_few = choose_start_members(variant.gang, largest_first=largest_first)
            if too_few or not members:
                continue
            for types in types_to_start_on(session, variant.gang):
                with session.confined_to_gpu_types(types) if types else nullcontext():
                    seats = [
                        (session.class_info(pod_set.pod_class), pod_set.pod_class, count)
                        for pod_set, count in members
                    ]
                devices = waiting_devices(session)
                parts = tuple(
                    EqualMembers(
                        devices.request_vector(pod_class, seat.request.with_whole_gpus),
                        seat.class_fit.allowed,
                        count,
                    )
                    for seat, pod_class, count in seats
                )
                ways.append(_StartOption(variant.gang, parts))
    return ways


@define(slots=True)
class EarlierResult:
    """What was found for an equal gang of the same walltime: this one starts no sooner.

    On the same profile and accounts, beside reservations that are still there.

    Attributes:
        alone: when it could start if nothing were reserved; None where it cannot start until the
            last moment, 0 for not known yet.
        start: of what was found for it beside the reservations; 0 where nothing was.
        search: that looked for it.
        sweep: that goes on behind it.
    """

    alone: int | None = 0
    start: int = 0
    search: StartSearch | None = None
    sweep: StartSweep | None = None


class StartCache:
    """Earlier results by equivalence class, walltime and the state in which they were found."""

    def __init__(self, kinds: EquivalenceClasses) -> None:
        self._kinds = kinds
        self._known: dict[Hashable, EarlierResult] = {}

    def get_or_make(self, gang: Gang, *, length: int, state: Hashable) -> EarlierResult:
        """The entry for gangs equal to this one, to be read and filled; a new one for a gang without equals.

        Args:
            gang: that is looked for a start.
            length: seconds it will run.
            state: of everything on which a start depends but reservations, which are only added.
        """
        kind = self._kinds.class_of(gang)
        if kind is None:
            return EarlierResult()
        return self._known.setdefault((kind, length, state), EarlierResult())


def has_published_start(gang: Gang) -> bool:
    """Whether a start was published for the gang: it had a reservation, which may be due."""
    return gang.pod_group is not None and b'"estimatedStartTime"' in gang.pod_group.status
