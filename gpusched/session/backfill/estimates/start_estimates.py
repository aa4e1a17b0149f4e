"""When waiting gangs are expected to start, as far as walltimes tell."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

import msgspec

from gpusched.api.meta.identity import GangKey, InvalidObject, parse_time
from gpusched.api.queue.start_errors import StartKnownBy
from gpusched.base.limits import (
    ESTIMATE_STEP_S,
    ESTIMATE_WORK_MAX,
)
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import ExpectedStarts, StartEstimate
from gpusched.session.backfill.availability_profile import Reservation
from gpusched.session.backfill.earliest_start import SearchBudget
from gpusched.session.backfill.estimates.start_ranges import (
    range_factors,
    range_stays_until,
    start_range,
)
from gpusched.session.backfill.reservations import Reservations
from gpusched.session.backfill.running.release_order import FOREVER

_ENDS_TOLD_MAX: Final = 4
"""Ends that an estimate names: the last of them decide."""
_LEAST_CERTAIN_FIRST: Final = (
    StartKnownBy.WAITING,
    StartKnownBy.LEARNED,
    StartKnownBy.MAX_RUNTIME,
    StartKnownBy.ANNOUNCED,
)


class _PublishedEstimate(msgspec.Struct):
    """What we read of a status that we wrote."""

    estimated: str | None = msgspec.field(default=None, name="estimatedStartTime")


def expected_starts(reservations: Reservations, waiting: Sequence[Gang]) -> ExpectedStarts:
    """When gangs that wait are expected to start.

    Of sessions that follow each other fast the first works that out, and the others leave what it told until
    ``limits.ESTIMATES_EVERY_S`` have passed: starts move with every change, and nothing is decided by them. In rounds a
    session that comes for a change leaves it to those that follow for the others in line.
    """
    snapshot = reservations.session.snapshot
    # That time has passed decides nothing, and has nobody looked at: kept sessions ask by themselves.
    before, now = snapshot.expected_starts, snapshot.unobserved_now
    if not snapshot.leaves_expected_starts:
        return ExpectedStarts(now, estimate_starts(reservations, waiting))
    there = (each.key for each in waiting[: snapshot.limits.start_estimates])
    still = {key: before.estimates[key] for key in there if key in before.estimates}
    return ExpectedStarts(before.at, {key: each for key, each in still.items() if each.start > now})


def estimate_starts(
    reservations: Reservations, waiting: Sequence[Gang]
) -> dict[GangKey, StartEstimate]:
    """The expected start of the first gangs that wait.

    Reserved gangs start when their reservations begin; those behind them are laid around and after
    them in queue order, as if room were reserved for them too. No start is estimated that rests on a
    gang which is over its walltime, or on a wait without a known end: it would move with every look.
    """
    now = reservations.walltimes.now
    windows = reservations.session.snapshot.reservations
    if not waiting or not (reservations.profile.releases or windows):
        return {}
    reserved = {each.gang.key: each.reservation for each in reservations.reserved_gangs}
    planned = list(reserved.values())
    work = SearchBudget(ESTIMATE_WORK_MAX)
    estimates: dict[GangKey, StartEstimate] = {}
    ahead: list[GangKey] = []
    ended = _Ends(reservations, planned)
    factors_of = cache(partial(range_factors, reservations.session.snapshot.start_errors))
    for gang in waiting[: reservations.session.snapshot.limits.start_estimates]:
        reservation = reserved.get(gang.key)
        if reservation is None:
            if work.left <= 0:
                break
            reservation = reservations.find_start(
                gang, planned, until=now + reservations.window_s, work=work
            )
            if reservation is None:
                continue
            planned.append(reservation)
            ended.add(reservation)
        if reservation.start > now and not _rests_on_overrun(reservations, reservation):
            estimates[gang.key] = _estimate(
                reservations, gang, reservation, ended, factors_of, ahead=ahead
            )
        ahead.append(gang.key)
    return estimates


class _Ends:
    """Ends of gangs that run, and of those that are planned, with the rows that they leave."""

    def __init__(self, reservations: Reservations, planned: Sequence[Reservation]) -> None:
        self._profile = reservations.profile
        self._planned: list[tuple[int, GangKey]] = []
        """By time and gang."""
        self._rows: dict[GangKey, frozenset[int]] = {}
        self._times: set[int] = set()
        for each in planned:
            self.add(each)

    def add(self, planned: Reservation) -> None:
        """Add the end of a gang for which room was planned."""
        if planned.end >= FOREVER:
            return
        self._times.add(planned.end)
        self._rows[planned.gang] = frozenset(planned.rows.tolist())
        insort(self._planned, (planned.end, planned.gang))

    def last_before(self, reservation: Reservation) -> tuple[tuple[GangKey, int], ...]:
        """The last ends on the reserved rows until the reservation begins, the last one first."""
        running = self._profile.last_releases(reservation.rows, reservation.start, _ENDS_TOLD_MAX)
        rows = frozenset(reservation.rows.tolist())
        until = bisect_right(self._planned, reservation.start, key=lambda each: each[0])
        leaves_them = (e for e in self._planned[:until] if not rows.isdisjoint(self._rows[e[1]]))
        last = sorted({*running, *leaves_them}, key=lambda each: (-each[0], each[1]))
        return tuple((gang, time) for time, gang in last[:_ENDS_TOLD_MAX])

    def is_end(self, time: int) -> bool:
        """Whether anything ends then, on whatever rows."""
        return time in self._times or self._profile.ends_at(time) is not None


def _estimate(
    reservations: Reservations,
    gang: Gang,
    reservation: Reservation,
    ended: _Ends,
    factors_of: Callable[[tuple[str, ...], str], tuple[float, float] | None],
    *,
    ahead: Sequence[GangKey],
) -> StartEstimate:
    """The estimate of one gang with what it rests on and, where that was learned, its range."""
    session, now = reservations.session, reservations.walltimes.now
    ends = ended.last_before(reservation)
    known_by = _known_by(reservations, gang, reservation, ends, ended)
    start = _stable_estimate(gang, float(reservation.start), now=now)
    reservations.walltimes.changes_at(start)
    factors = factors_of(session.queue_path(gang), known_by)
    earliest, latest = start_range(now, start, factors) if factors else (0.0, 0.0)
    if factors:
        reservations.walltimes.changes_at(range_stays_until(now, start, factors))
    return StartEstimate(
        start=start, known_by=known_by, earliest=earliest, latest=latest, ends=ends,
        ahead=tuple(ahead),
    )  # fmt: skip


def _known_by(
    reservations: Reservations,
    gang: Gang,
    reservation: Reservation,
    ends: Sequence[tuple[GangKey, int]],
    ended: _Ends,
) -> StartKnownBy:
    """What an estimate rests on, the least certain of it."""
    if any(each.end == reservation.start for each in reservations.windows_binding(gang)):
        return StartKnownBy.WINDOW
    if all(time != reservation.start for _, time in ends):
        elsewhere = ended.is_end(reservation.start)
        return StartKnownBy.QUOTA if elsewhere else StartKnownBy.EVICTIONS
    running = reservations.session.snapshot.placed_gangs
    sources = {
        reservations.walltimes.source_of(running[key]) if key in running else StartKnownBy.WAITING
        for key, _ in ends
    }
    return next(each for each in _LEAST_CERTAIN_FIRST if each in sources)


def _rests_on_overrun(reservations: Reservations, reservation: Reservation) -> bool:
    late = reservations.walltimes.overruns
    if not late:
        return False
    rows = set(reservation.rows.tolist())
    return any(
        each.gang in late and not rows.isdisjoint(each.rows.tolist())
        for each in reservations.profile.releases
        if each.time <= reservation.start
    )


def published_start(status: bytes) -> float:
    """The start that a PodGroup's status tells, seconds since the epoch; 0.0 for none.

    What was written there by others and cannot be read counts for nothing; ours replaces it.
    """
    try:
        estimates = msgspec.json.decode(status, type=_PublishedEstimate).estimated
        return parse_time(estimates) if estimates else 0.0
    except (msgspec.MsgspecError, InvalidObject):
        return 0.0


def _stable_estimate(gang: Gang, start: float, *, now: int) -> float:
    """The start that was published before, where it is still about right: no write for a second."""
    known = published_start(gang.pod_group.status) if gang.pod_group is not None else 0.0
    return known if known > now and abs(known - start) < ESTIMATE_STEP_S else start
