"""Small clusters and jobs for the simulator's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from gpusched.config.model import DEFAULT, Config
from gpusched.report.record import JobLife, Record
from gpusched.simulate.engine import Arrival, Case, play
from gpusched.simulate.traces.model import TraceJob
from gpusched.simulate.traces.workload import Shape, arrivals, nodes, queues

Obj = dict[str, Any]
QUICK: Config = attrs.evolve(DEFAULT, placement=attrs.evolve(DEFAULT.placement, solver="greedy"))


def job(name: str, at: float, runs: int, gpus: int, queue: str = "a") -> TraceJob:
    """One job of a trace."""
    return TraceJob(name=name, submit_s=at, duration_s=runs, gpus=gpus, queue=queue)


def cluster(count: int, gpus: int = 8, deserved: Mapping[str, int] | None = None) -> list[Obj]:
    """Nodes and queues."""
    return [*nodes(count, gpus), *queues(deserved or {"a": 0})]


def run(
    jobs: Sequence[TraceJob],
    objects: Sequence[Obj],
    *,
    shape: Shape | None = None,
    config: Config = QUICK,
    more: Sequence[Arrival] = (),
    until: float | None = None,
) -> Record:
    """Simulate them."""
    came = [*arrivals(jobs, shape or Shape()), *more]
    came.sort(key=lambda each: each.at)
    case = Case(name="test", config=config, objects=objects, arrivals=came, until=until)
    return play(case)


def of(record: Record, name: str) -> JobLife:
    """A job by its name."""
    return next(each for each in record.jobs if each.key.endswith(f"/{name}"))
