"""When waiting gangs are expected to start, as far as walltimes tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpusched.api.meta.identity import GangKey, InvalidObject, parse_time
from gpusched.base.limits import (
    ESTIMATE_STEP_S,
    ESTIMATE_WORK_MAX,
)
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.availability_profile import Reservation
from gpusched.session.backfill.earliest_start import SearchBudget
from gpusched.session.backfill.reservations import Reservations


class _PublishedEstimate(msgspec.Struct):
    """What we read of a status that we wrote."""

    estimated: str | None = msgspec.field(default=None, name="estimatedStartTime")


def estimate_starts(reservations: Reservations, waiting: Sequence[Gang]) -> dict[GangKey, float]:
    """The expected start of the first gangs that wait, in seconds since the epoch.

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
    estimates: dict[GangKey, float] = {}
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
        if reservation.start > now and not _rests_on_overrun(reservations, reservation):
            estimates[gang.key] = _stable_estimate(gang, float(reservation.start), now=now)
    return estimates


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
