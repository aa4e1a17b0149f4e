"""Small clusters and jobs for the simulator's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from gpusched.config.model import DEFAULT, Config
from gpusched.engine.run_record import JobLife, RunRecord
from gpusched.engine.simulation import Arrival, SimulationCase, run_simulation
from gpusched.lab.simulate.traces.model import TraceJob
from gpusched.lab.simulate.traces.workload import (
    JobShape,
    equal_nodes,
    job_arrivals,
    queue_manifests,
)

Obj = dict[str, Any]
QUICK: Config = attrs.evolve(DEFAULT, placement=attrs.evolve(DEFAULT.placement, solver="greedy"))


def job(name: str, at: float, runs: int, gpus: int, queue: str = "a") -> TraceJob:
    """One job of a trace."""
    return TraceJob(name=name, submit_s=at, duration_s=runs, gpus=gpus, queue=queue)


def cluster(count: int, gpus: int = 8, deserved: Mapping[str, int] | None = None) -> list[Obj]:
    """Nodes and queues."""
    return [*equal_nodes(count, gpus), *queue_manifests(deserved or {"a": 0})]


def run(
    jobs: Sequence[TraceJob],
    objects: Sequence[Obj],
    *,
    shape: JobShape | None = None,
    config: Config = QUICK,
    more: Sequence[Arrival] = (),
    until: float | None = None,
) -> RunRecord:
    """Simulate them."""
    came = [*job_arrivals(jobs, shape or JobShape()), *more]
    came.sort(key=lambda each: each.at)
    case = SimulationCase(name="test", config=config, objects=objects, arrivals=came, until=until)
    return run_simulation(case)


def of(record: RunRecord, name: str) -> JobLife:
    """A job by its name."""
    return next(each for each in record.jobs if each.key.endswith(f"/{name}"))
