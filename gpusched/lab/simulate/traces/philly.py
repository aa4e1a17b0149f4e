"""Jobs from the log of the Philly clusters, ``cluster_job_log`` of msr-fiddle/philly-traces.

A JSON list of jobs with ``jobid``, ``vc`` (virtual cluster, here the queue), ``user``, ``status``,
``submitted_time`` and ``attempts``, each with ``start_time``, ``end_time`` and ``detail``: a list
of ``ip`` and ``gpus``. Times are local, ``YYYY-MM-DD HH:MM:SS``. A job has as many GPUs as its
largest attempt, and runs as long as its attempts did together. The trace itself says that attempts
may lack times, that jobs may have no attempt, and that the last end of a job that still ran is
None: such jobs are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.lab.simulate.traces.csv_jobs import shift_to_zero
from gpusched.lab.simulate.traces.model import Trace, TraceJob
from gpusched.lab.simulate.traces.rows import (
    GPUS_MAX,
    RowReader,
    UnusableRow,
    check_span,
    read_text,
)

_TIME: Final = "%Y-%m-%d %H:%M:%S"
_NONE: Final = (None, "", "None")


@frozen
class PhillyLog:
    """What the log tells.

    Attributes:
        nodes: GPUs of each machine as far as jobs used them, by its name: the cluster of the trace.
    """

    trace: Trace
    nodes: Mapping[str, int]


def read_philly(path: Path, *, strict: bool = False) -> PhillyLog:
    """Read the log.

    Args:
        path: of ``cluster_job_log``, perhaps compressed with gzip.
        strict: jobs that cannot be used are an error.

    Raises:
        ConfigError: it cannot be read, is no such log, holds no job that can be used, or has
            holes and none are allowed.
    """
    text = read_text(path)
    try:
        rows = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON: {error}") from error
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: is no list of jobs, as cluster_job_log of philly-traces is")
    sieve = RowReader()
    jobs: list[TraceJob] = []
    machines: dict[str, set[str]] = {}
    for number, row in enumerate(rows, start=1):
        try:
            jobs.append(_job(row, sieve, machines))
        except UnusableRow as why:
            sieve.passed(f"{path}:row {number}", why)
    check_span(path, [job.submit_s for job in jobs])
    trace = sieve.trace(str(path), shift_to_zero(jobs), strict=strict)
    return PhillyLog(trace, {name: len(gpus) for name, gpus in sorted(machines.items())})


def _job(row: Any, sieve: RowReader, machines: dict[str, set[str]]) -> TraceJob:
    if not isinstance(row, dict):
        raise UnusableRow("no job", "is no job but a " + type(row).__name__)
    ident, queue = row.get("jobid"), row.get("vc")
    if not isinstance(ident, str) or not ident:
        raise UnusableRow("no jobid", "jobid is missing")
    if not isinstance(queue, str) or not queue:
        raise UnusableRow("no vc", f"job {ident}: vc is missing")
    submitted = _time(row.get("submitted_time"), ident, "submitted_time")
    attempts = row.get("attempts")
    if not isinstance(attempts, list) or not attempts:
        raise UnusableRow(
            "no attempt", f"job {ident} has no attempt, so that its GPUs are not known"
        )
    gpus, seconds = 0, 0
    used: dict[str, set[str]] = {}
    for attempt in attempts:
        if not isinstance(attempt, dict):
            raise UnusableRow("bad attempt", f"job {ident}: an attempt is no object")
        start = _time(attempt.get("start_time"), ident, "start_time of an attempt")
        end = _time(attempt.get("end_time"), ident, "end_time of an attempt")
        if end < start:
            raise UnusableRow("end before start", f"job {ident}: an attempt ends before it starts")
        seconds += int(end - start)
        gpus = max(gpus, _gpus(attempt.get("detail"), ident, used))
    if not 1 <= gpus <= GPUS_MAX:
        raise UnusableRow("no GPUs", f"job {ident} has {gpus} GPUs")
    for ip, names in used.items():
        machines.setdefault(ip, set()).update(names)
    user = row.get("user")
    return TraceJob(
        name=sieve.name(ident),
        submit_s=submitted,
        duration_s=max(1, seconds),
        gpus=gpus,
        queue=sieve.label("queue", queue, prefix="vc-"),
        user=sieve.label("user", user) if isinstance(user, str) and user else "",
    )


def _time(text: Any, ident: str, field: str) -> float:
    if text in _NONE:
        raise UnusableRow(f"no {field}", f"job {ident}: {field} is missing")
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
    except (ValueError, TypeError):
        raise UnusableRow(
            f"{field} is no time", f"job {ident}: {field} is {str(text)[:40]!r}, no time"
        ) from None


def _gpus(detail: Any, ident: str, used: dict[str, set[str]]) -> int:
    if not isinstance(detail, Sequence) or isinstance(detail, str):
        raise UnusableRow("no detail", f"job {ident}: an attempt has no detail")
    count = 0
    for each in detail:
        gpus = each.get("gpus") if isinstance(each, dict) else None
        if not isinstance(gpus, list) or not isinstance(each.get("ip"), str):
            raise UnusableRow(
                "bad detail", f"job {ident}: a machine of an attempt has no ip or gpus"
            )
        used.setdefault(each["ip"], set()).update(str(gpu) for gpu in gpus)
        count += len(gpus)
    return count
