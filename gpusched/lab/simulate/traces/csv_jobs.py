"""Jobs from a plain CSV file: ``submit_s,duration_s,gpus,queue`` and, if there is one, ``user``, ``name``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from gpusched.lab.simulate.traces.model import Trace, TraceJob
from gpusched.lab.simulate.traces.rows import (
    DURATION_MAX_S,
    GPUS_MAX,
    RowReader,
    UnusableRow,
    check_span,
    parse_integer,
    parse_seconds,
    read_csv,
)

NEEDED: Final = ("submit_s", "duration_s", "gpus", "queue")
KNOWN: Final = (*NEEDED, "user", "name")


def read_csv_jobs(path: Path, *, strict: bool = False) -> Trace:
    """Read a file; times count from its earliest job.

    Args:
        path: of the file, perhaps compressed with gzip.
        strict: rows that cannot be used are an error.

    Raises:
        ConfigError: it cannot be read, holds no job, or has holes and none are allowed.
    """
    sieve = RowReader()
    jobs: list[TraceJob] = []
    for line, row in read_csv(path, needed=NEEDED, known=KNOWN):
        try:
            jobs.append(_job(row, line, sieve))
        except UnusableRow as why:
            sieve.passed(f"{path}:{line}", why)
    check_span(path, [job.submit_s for job in jobs])
    return sieve.trace(str(path), shift_to_zero(jobs), strict=strict)


def _job(row: dict[str, str], line: int, sieve: RowReader) -> TraceJob:
    if not row["queue"]:
        raise UnusableRow("no queue", "queue is missing")
    gpus = parse_integer(row, "gpus", most=GPUS_MAX)
    if not gpus:
        raise UnusableRow("no GPUs", "gpus is 0: a job has at least one")
    return TraceJob(
        submit_s=parse_seconds(row, "submit_s", most=2**40),
        duration_s=parse_seconds(row, "duration_s", least=1, most=DURATION_MAX_S),
        gpus=gpus,
        name=sieve.name(row.get("name") or f"job-{line}"),
        queue=sieve.label("queue", row["queue"]),
        user=sieve.label("user", row["user"]) if row.get("user") else "",
    )


def shift_to_zero(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The same jobs, the earliest at second 0."""
    first = min((job.submit_s for job in jobs), default=0.0)
    return [attrs.evolve(job, submit_s=job.submit_s - first) for job in jobs]
