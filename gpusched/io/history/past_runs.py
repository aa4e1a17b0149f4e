"""Runs and their sums as others see them: ``/v1/history`` and ``get history``."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gpusched.api.meta.identity import format_time
from gpusched.api.meta.units import DEVICE
from gpusched.io.history.gang_run import STILL_OPEN, GangRun
from gpusched.io.history.history_query import RUNNING, WAITING, HistorySum, cost_of_types

_HOUR_S: Final = 3_600


class PastRunName(msgspec.Struct, frozen=True, kw_only=True):
    """Which gang it is a run of."""

    namespace: str
    name: str
    uid: str


class PastRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run of a gang; times are those of the API, empty for what has not been.

    Attributes:
        user: who made the gang, empty where that is not known.
        owner: kind and name of what made its pods, empty where that is the gang's own object.
        gpus: most of them that it had or asked for, as a quantity.
        state: ``Waiting``, ``Running``, or how it ended.
        since: from when it counts as waiting.
        ended_by, message: who needed its room, or which action ended it, and why.
        cost: GPU-hours times the prices of their types.
        told_at, first_estimate: when it was told first when it would start, and that time.
        estimate, estimate_earliest, estimate_latest, estimate_known_by: what it was told when half of its
            wait was over: its start, the range of it, and what that rested on.
        estimate_error_seconds: from that estimate to its start, negative where it came earlier.
        estimate_moves, estimate_change: how often its estimate changed so that it counted, and why last.
        repeated_evictions: evictions of the gang that left it without its minimum within ``limits.evictionWindow`` before
            this run's.
    """

    metadata: PastRunName
    gang_kind: str
    queue: str
    user: str
    owner: str
    priority: int
    members: int
    min_member: int
    gpus: str
    gpu_type: str
    state: str
    created: str
    since: str
    admitted: str
    started: str
    ended: str
    wait_seconds: float
    run_seconds: float
    evictions: int
    ended_by: str
    message: str
    gpu_hours: float
    gpu_hours_by_type: dict[str, float]
    lost_gpu_hours: float
    cost: float
    told_at: str = ""
    first_estimate: str = ""
    estimate: str = ""
    estimate_earliest: str = ""
    estimate_latest: str = ""
    estimate_known_by: str = ""
    estimate_error_seconds: float | None = None
    estimate_moves: int = 0
    estimate_change: str = ""
    repeated_evictions: int = 0


class PastSum(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Runs of one queue, namespace, user, GPU type or day added up.

    Attributes:
        by: which of these.
        name: empty where it is not known, or for days of runs that go on.
        starts: runs that had their minimum.
        cost: GPU-hours times the prices of their types.
    """

    by: str
    name: str
    runs: int
    starts: int
    wait_seconds: float
    longest_wait_seconds: float
    run_seconds: float
    evictions: int
    gpu_hours: float
    lost_gpu_hours: float
    cost: float


def run_state(run: GangRun) -> str:
    """``Waiting``, ``Running``, or how it ended."""
    if run.ended >= STILL_OPEN:
        return RUNNING if run.started else WAITING
    return run.outcome


def run_as_json(run: GangRun, now: float) -> dict[str, Any]:
    """A ``PastRun`` as JSON values.

    Args:
        run: that is shown.
        now: seconds since the epoch, until which a run counts that goes on.
    """
    end = min(run.ended, now)
    past = PastRun(
        metadata=PastRunName(namespace=run.gang.namespace, name=run.gang.name, uid=run.uid),
        gang_kind=run.gang.kind,
        queue=run.queue,
        user=run.user,
        owner=run.owner,
        priority=run.priority,
        members=run.members,
        min_member=run.min_member,
        gpus=f"{run.gpus / DEVICE:.15g}",
        gpu_type=",".join(sorted(name for name in run.gpu_seconds if name)),
        state=run_state(run),
        created=_time(run.created),
        since=_time(run.since),
        admitted=_time(run.admitted),
        started=_time(run.started),
        ended=_time(run.ended if run.ended < STILL_OPEN else 0.0),
        wait_seconds=_seconds((run.started or end) - run.since),
        run_seconds=_seconds(end - run.started) if run.started else 0.0,
        evictions=run.evictions,
        ended_by=run.ended_by,
        message=run.reason,
        gpu_hours=_hours(run.total_gpu_seconds),
        gpu_hours_by_type={name: _hours(run.gpu_seconds[name]) for name in sorted(run.gpu_seconds)},
        lost_gpu_hours=_hours(run.lost_gpu_seconds),
        cost=_hours(cost_of_types(run.gpu_seconds)),
        told_at=_time(run.told_at),
        first_estimate=_time(run.first_start),
        estimate=_time(run.half_start),
        estimate_earliest=_time(run.earliest_start),
        estimate_latest=_time(run.latest_start),
        estimate_known_by=run.known_by,
        estimate_error_seconds=round(run.started - run.half_start, 3)
        if run.started and run.half_start
        else None,
        estimate_moves=run.estimate_moves,
        estimate_change=run.estimate_change,
        repeated_evictions=run.repeated_evictions,
    )
    shown: dict[str, Any] = msgspec.to_builtins(past)
    return shown


def sum_as_json(each: HistorySum, by: str) -> dict[str, Any]:
    """A ``PastSum`` as JSON values.

    Args:
        each: that is shown.
        by: of ``SUM_KEYS``.
    """
    past = PastSum(
        by=by,
        name=each.key,
        runs=each.runs,
        starts=each.started,
        wait_seconds=_seconds(each.waited_s),
        longest_wait_seconds=_seconds(each.longest_wait_s),
        run_seconds=_seconds(each.ran_s),
        evictions=each.evictions,
        gpu_hours=_hours(each.gpu_seconds),
        lost_gpu_hours=_hours(each.lost_gpu_seconds),
        cost=_hours(each.cost),
    )
    shown: dict[str, Any] = msgspec.to_builtins(past)
    return shown


def _hours(gpu_seconds: float) -> float:
    return round(gpu_seconds / _HOUR_S, 4)


def _seconds(span: float) -> float:
    return round(max(0.0, span), 3)


def _time(seconds: float) -> str:
    return format_time(seconds) if seconds else ""
