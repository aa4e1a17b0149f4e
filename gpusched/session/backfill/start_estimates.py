"""When waiting gangs are expected to start, as far as walltimes tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpusched.api.meta.identity import GangKey, InvalidObject, parse_time
from gpusched.base.limits import (
    ESTIMATE_STEP_S,
    ESTIMATE_WORK_MAX,
    ESTIMATES_MAX,
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

    Holders start when their holds begin; those behind them are laid around and after them in
    turn, as if they were holders too. No start is told that rests on a gang which is over its
    walltime, or on a wait that nobody knows the end of: it would move with every look.
    """
    now = reservations.lengths.now
    if not waiting or not reservations.profile.releases:
        return {}
    holders = {holder.gang.key: holder.hold for holder in reservations.holders}
    holds = list(holders.values())
    work = SearchBudget(ESTIMATE_WORK_MAX)
    told: dict[GangKey, float] = {}
    for gang in waiting[:ESTIMATES_MAX]:
        hold = holders.get(gang.key)
        if hold is None:
            if work.left <= 0:
                break
            hold = reservations.seek(gang, holds, until=now + reservations.window_s, work=work)
            if hold is None:
                continue
            holds.append(hold)
        if hold.start > now and not _rests_on_overrun(reservations, hold):
            told[gang.key] = _stable_estimate(gang, float(hold.start), now=now)
    return told


def _rests_on_overrun(reservations: Reservations, hold: Reservation) -> bool:
    late = reservations.lengths.overruns
    if not late:
        return False
    rows = set(hold.rows.tolist())
    return any(
        each.gang in late and not rows.isdisjoint(each.rows.tolist())
        for each in reservations.profile.releases
        if each.time <= hold.start
    )


def published_start(status: bytes) -> float:
    """The start that a PodGroup's status tells, seconds since the epoch; 0.0 for none.

    What somebody else wrote there and cannot be read counts for nothing; ours replaces it.
    """
    try:
        told = msgspec.json.decode(status, type=_PublishedEstimate).estimated
        return parse_time(told) if told else 0.0
    except (msgspec.MsgspecError, InvalidObject):
        return 0.0


def _stable_estimate(gang: Gang, start: float, *, now: int) -> float:
    """The start that was told before, where it is still about right: no write for a second."""
    known = published_start(gang.pod_group.status) if gang.pod_group is not None else 0.0
    return known if known > now and abs(known - start) < ESTIMATE_STEP_S else start
