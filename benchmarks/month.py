"""A month of 100,000 jobs on 1,000 nodes, as ``gpusched simulate --generate philly`` plays it.

The jobs use 83 % of the 8,000 GPUs if none waits. The play ends with the month or when its CPU seconds are
spent (``MONTH_CPU_S``, 600): then it is told how far it came, and jobs per CPU second are those of that part.
``MONTH_FROM_DAY`` begins later in the month: jobs that would run then come at once, for the rest of their time.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from typing import Final

import attrs

from benchmarks.figures import Figure
from gpusched.config.model import DEFAULT
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.simulate.traces.generator import GeneratorOptions, generate_jobs
from gpusched.lab.simulate.traces.model import TraceJob
from gpusched.lab.simulate.traces.workload import (
    JobShape,
    equal_nodes,
    gpu_shares,
    job_arrivals,
    queue_manifests,
)

JOBS: Final = 100_000
DAYS: Final = 30
NODES: Final = 1_000
PER_RACK: Final = 10
BUDGET_S: Final = 600.0


def measure() -> list[Figure]:
    """Jobs that came and were decided about, per CPU second."""
    budget_s = float(os.environ.get("MONTH_CPU_S", BUDGET_S))
    from_day = float(os.environ.get("MONTH_FROM_DAY", "0"))
    trace = generate_jobs(GeneratorOptions(jobs=JOBS, days=DAYS))
    jobs = _from_day(trace.jobs, from_day) if from_day else trace.jobs
    objects = [
        *equal_nodes(NODES, 8, per_rack=PER_RACK),
        *queue_manifests(gpu_shares(trace.jobs, NODES * 8)),
    ]
    gc.collect()
    collect_garbage_rarely(plays=True)  # as the command does
    began = time.process_time()
    record = run_simulation(
        SimulationCase(
            name="month",
            config=DEFAULT,
            objects=objects,
            arrivals=job_arrivals(jobs, JobShape()),
            enough=lambda sessions: not sessions % 64 and time.process_time() - began > budget_s,
        )
    )
    spent_s = time.process_time() - began
    started = sum(job.started is not None for job in record.jobs)
    whole = len(record.jobs) == JOBS and all(job.ended is not None for job in record.jobs)
    days = f"{record.seconds / 86_400:.2f} days of {DAYS}"
    part = (
        "all of it"
        if whole
        else f"its first {days}"
        if not from_day
        else f"from day {from_day:g} {days}"
    )
    sessions = int(record.counters["sessions"])
    return [
        Figure(
            name=f"month of {JOBS:,} jobs on {NODES:,} nodes: {part}, {len(record.jobs):,} jobs "
            f"came, {started:,} started, {sessions:,} sessions",
            measured=spent_s,
            unit="s of CPU",
            target=f"all in < {BUDGET_S:g}",
            met=whole and spent_s < BUDGET_S,
        ),
        Figure(
            name="month: jobs that started, per CPU second",
            measured=started / spent_s,
            unit="jobs/s",
            target=f">= {JOBS / BUDGET_S:.0f}",
            met=started / spent_s >= JOBS / BUDGET_S,
        ),
        Figure(name="month: CPU of a session", measured=spent_s * 1000 / sessions, unit="ms"),
    ]


def _from_day(jobs: Sequence[TraceJob], day: float) -> list[TraceJob]:
    """Jobs that come from a day on, and for the rest of their time those that would run then if nobody waited."""
    began = day * 86_400
    return [
        attrs.evolve(
            job,
            submit_s=max(0.0, job.submit_s - began),
            duration_s=round(min(job.duration_s, job.submit_s + job.duration_s - began)),
        )
        for job in jobs
        if job.submit_s + job.duration_s >= began + 1
    ]
