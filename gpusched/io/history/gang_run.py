"""One run of a gang: from the moment it waits to the moment it holds nothing any more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.classes import define

STILL_OPEN: Final = 1e12
"""The end of a run that has none yet: sorts behind every other."""
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
DELETED: Final = "Deleted"
UNKNOWN: Final = "Unknown"
"""How runs end that nobody ended by an eviction."""


@define(slots=True, kw_only=True, eq=False)
class GangRun:
    """See the module. Times are seconds since the epoch, 0.0 for what has not been.

    Attributes:
        seen: when the first daemon saw it; with the gang it names the run.
        user: who made the gang, as far as that is proven; empty for not known.
        owner: kind and name of what made its pods, where that is not the gang's own object.
        members, gpus: most of them that it had or asked for; GPUs in thousandths.
        created: when the gang's object, or its first pod, was made.
        since: from when this run counts as waiting.
        admitted: when its queue let it in.
        started: when it had its minimum.
        ended: when it held nothing any more, or ``STILL_OPEN``.
        outcome: how it ended: a reason of evictions, or one of this module's words.
        reason: sentence of the eviction that ended it.
        ended_by: the gang that needed its room, or the action that ended it.
        evictions: of its pods.
        lost_gpu_seconds: work that these lost.
        repeated_evictions: evictions of the gang that left it without its minimum within the window before this run's.
        gpu_seconds: GPUs times seconds that it held, by GPU type; "" where the type is not known.
        counted_until: when that was added up last.
        told_at, first_start: when it was told first when it would start, and that time.
        half_start: the start that it was told when half of its wait was over.
        earliest_start, latest_start, known_by: the range of that estimate, and what it rested on.
        estimate_moves: changes of its estimate that counted.
        estimate_change: why it changed last.
    """

    gang: GangKey
    uid: UID
    seen: float
    queue: str
    priority: int
    min_member: int
    created: float
    since: float
    user: str = ""
    owner: str = ""
    members: int = 0
    gpus: int = 0
    admitted: float = 0.0
    started: float = 0.0
    ended: float = STILL_OPEN
    outcome: str = ""
    reason: str = ""
    ended_by: str = ""
    evictions: int = 0
    lost_gpu_seconds: float = 0.0
    gpu_seconds: dict[str, float] = attrs.Factory(dict)
    counted_until: float = 0.0
    told_at: float = 0.0
    first_start: float = 0.0
    half_start: float = 0.0
    earliest_start: float = 0.0
    latest_start: float = 0.0
    known_by: str = ""
    estimate_moves: int = 0
    estimate_change: str = ""
    repeated_evictions: int = 0

    @property
    def name(self) -> tuple[str, str, float]:
        """What tells it from all other runs."""
        return (self.uid, self.gang.name, self.seen)

    @property
    def total_gpu_seconds(self) -> float:
        """GPUs times seconds of all types."""
        return sum(self.gpu_seconds.values())


RUN_COLUMNS: Final = (
    "uid", "name", "seen", "namespace", "kind", "queue", "user", "priority", "members",
    "min_member", "gpus", "gpu_type", "gpu_types", "created", "since", "admitted", "started",
    "ended", "outcome", "reason", "ended_by", "evictions", "gpu_seconds", "lost_gpu_seconds",
    "counted_until", "owner", "told_at", "first_start", "half_start", "earliest_start",
    "latest_start", "known_by", "estimate_moves", "estimate_change",
    "repeated_evictions",
)  # fmt: skip
"""Columns of the file, in the order of ``run_as_row``. The first three name the run."""


def run_as_row(run: GangRun) -> tuple[Any, ...]:
    """Values for the columns; GPU types are apart only where there are several."""
    types = sorted(name for name, seconds in run.gpu_seconds.items() if seconds > 0)
    several = json.dumps({name: run.gpu_seconds[name] for name in types}) if len(types) > 1 else ""
    return (
        run.uid, run.gang.name, run.seen, run.gang.namespace, run.gang.kind, run.queue, run.user,
        run.priority, run.members, run.min_member, run.gpus, ",".join(types), several,
        run.created, run.since, run.admitted, run.started, run.ended, run.outcome, run.reason,
        run.ended_by, run.evictions, run.total_gpu_seconds, run.lost_gpu_seconds,
        run.counted_until, run.owner, run.told_at, run.first_start, run.half_start,
        run.earliest_start, run.latest_start, run.known_by, run.estimate_moves,
        run.estimate_change, run.repeated_evictions,
    )  # fmt: skip


def run_from_row(row: Sequence[Any]) -> GangRun:
    """The run that a row of the file is about."""
    told = dict(zip(RUN_COLUMNS, row, strict=True))
    kind, namespace, name = told.pop("kind"), told.pop("namespace"), told.pop("name")
    types, only = told.pop("gpu_types"), told.pop("gpu_type")
    total = float(told.pop("gpu_seconds"))
    by_type = json.loads(types) if types else {only: total} if total else {}
    return GangRun(gang=GangKey(kind, namespace, name), gpu_seconds=by_type, **told)
