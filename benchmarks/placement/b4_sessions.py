"""B4 in whole sessions: newcomers of sub-groups, and victims of two and three queues.

The clusters are invented, see ``benchmarks.placement.aged``; every job is a gang that has run for 1 to 24
hours, a third of them can spare members. The newcomer's queue deserves what it asks for. Each
other queue holds more than it deserves, but none so much that it could give all, so that no single queue does. What
a session evicts is compared with the best of the same session whose solver has 60 deterministic
seconds for each model. A session proved its choice when every model that it asked was solved to
the end, within 0.5 deterministic seconds in all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import mean, median
from typing import Any, Final

import attrs

from benchmarks.figures import Figure
from benchmarks.placement.aged import BLOCK, GPUS, RACK, Cluster, Job, aged
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.config.model import PlacementConfig
from gpusched.placement.model.problem import SearchOutcome, search_in_process
from gpusched.placement.victims.solver_model import VictimModel, VictimModelResult
from gpusched.session.state.plan import Plan
from gpusched.testing import entities
from gpusched.testing.given import Given

SESSION_S: Final = 0.5
PROOF_S: Final = 60.0
PROVEN_MIN: Final = 0.95
HOUR: Final = 3600
NODES: Final = 1000


@attrs.frozen
class Shape:
    """A newcomer: its sub-groups, as (how many, GPUs of each pod), and who gives.

    Attributes:
        queues: with victims; 0 for preemption in the newcomer's own queue.
        level: of which one domain holds each sub-group; of all where there is one sub-group.
    """

    name: str
    parts: tuple[tuple[int, ...], ...]
    queues: int
    level: str = ""
    used: float = 0.97
    seeds: int = 10


SHAPES: Final = (
    Shape("4 sub-groups of 8x8 in racks", ((8,) * 8,) * 4, 0, "rack"),
    Shape("16 sub-groups of 2x8 in racks", ((8,) * 2,) * 16, 0, "rack"),
    Shape("6 sub-groups of 4x8 and 2x4 in racks", ((8,) * 4 + (4,) * 2,) * 6, 0, "rack"),
    Shape("32x8", ((8,) * 32,), 2),
    Shape("48x4 in a block", ((4,) * 48,), 2, "block"),
    Shape("32x8", ((8,) * 32,), 3),
    Shape("24x8 and 8x2 in a block", ((8,) * 24 + (2,) * 8,), 3, "block"),
    Shape("4 sub-groups of 8x8 in racks", ((8,) * 8,) * 4, 2, "rack"),
    Shape("4 sub-groups of 8x8 in racks", ((8,) * 8,) * 4, 3, "rack"),
)


@attrs.frozen
class Run:
    """Work that a session destroys, the least there is, and what its models took."""

    ours: int
    best: int
    proven: bool
    spent: float
    seconds: float


@attrs.define
class _Watched:
    """A solver whose answers about victims are counted."""

    budget_s: float
    spent: float = 0.0
    open_ended: int = 0

    def __call__(self, job: Any) -> Any:
        if not isinstance(job, VictimModel):
            return search_in_process(job)
        if self.budget_s:
            job = attrs.evolve(job, budget_s=self.budget_s)
        answer = search_in_process(job)
        assert isinstance(answer, VictimModelResult)
        self.spent += answer.spent
        self.open_ended += answer.outcome in (SearchOutcome.UNKNOWN, SearchOutcome.FEASIBLE)
        return answer


def measure() -> list[Figure]:
    """A row for each shape: cost against the optimum, and the share that was proven."""
    figures = []
    for shape in SHAPES:
        runs = [run for seed in range(shape.seeds) if (run := run_of(shape, seed)) is not None]
        ratios = [run.ours / run.best for run in runs]
        proven = sum(run.proven for run in runs)
        whose = f"from {shape.queues} queues" if shape.queues else "in its queue"
        figures.append(
            Figure(
                name=f"B4 in sessions, {shape.name} {whose}, {NODES:,} nodes, {shape.used:.0%}",
                measured=max(ratios),
                unit="times",
                spread=f"mean {mean(ratios):.3f}; {proven} of {len(runs)} proven; solver "
                f"{median(run.spent for run in runs):.2f} s, max {max(run.spent for run in runs):.2f}; "
                f"session {median(run.seconds for run in runs) * 1e3:.0f} ms",
                target=f"1.000, {PROVEN_MIN:.0%} proven in {SESSION_S} s",
                met=max(ratios) <= 1.0 and proven >= PROVEN_MIN * len(runs),
            )
        )
    return figures


def run_of(shape: Shape, seed: int) -> Run | None:
    """One session, and the best of the same; None where nobody leaves."""
    rng = random.Random(f"{shape} {seed}")
    cluster = aged(NODES, shape.used, rng)
    made = _given(shape, cluster, rng)
    watched = _Watched(0.0)
    made.search = watched
    began = time.process_time()
    plan = made.when.one_session()
    seconds = time.process_time() - began
    ours = _work(plan)
    made.search, made.placement = _Watched(PROOF_S), PlacementConfig(time_budget_s=20 * PROOF_S)
    best = _work(made.when.one_session())
    if not best:
        return None
    proven = not watched.open_ended and watched.spent <= SESSION_S
    return Run(ours, best, proven, watched.spent, seconds)


def _work(plan: Plan) -> int:
    stops = [stop for each in plan.preemptions for stop in each.stops]
    return sum(each.gpu_seconds for stop in stops for each in stop.evictions)


# -- the cluster as objects ------------------------------------------------------------------
def _given(shape: Shape, cluster: Cluster, rng: random.Random) -> Given:
    c = Given()
    for row in range(NODES):
        c.node(
            f"n{row}",
            gpus=GPUS,
            cpu=128_000,
            memory=2048 * entities.GIB,
            labels={"gpusched.io/block": f"b{row // BLOCK}", "gpusched.io/rack": f"r{row // RACK}"},
        )
    names = [f"q{number}" for number in range(shape.queues)] or ["mine"]
    held = dict.fromkeys(names, 0)
    for number, job in enumerate(cluster.jobs):
        queue = rng.choice(names)
        held[queue] += len(job.rows) * job.request[0]
        _runs(c, number, job, queue, rng)
    asked = sum(sum(part) for part in shape.parts)
    if shape.queues:
        c.queue("mine", limits={"deserved": {entities.GPU: asked}})
        for name in names:
            over = asked * rng.randint(40, 80) // 100
            c.queue(name, limits={"deserved": {entities.GPU: max(0, held[name] - over)}})
    else:
        c.queue("mine")
    _newcomer(c, shape)
    return c


def _runs(c: Given, number: int, job: Job, queue: str, rng: random.Random) -> None:
    name, pods = f"j{number}", len(job.rows)
    gpus, cpu, memory = job.request
    ran = max(1, (job.cost - 1) // (gpus * pods)) * HOUR + rng.randrange(HOUR)
    least = pods if rng.random() < 2 / 3 else rng.randint(1, pods)
    c.group(name, queue=queue, min_member=least, phase="Running")
    for place, row in enumerate(job.rows):
        c.pod(
            f"{name}-{place}",
            group=name,
            rank=place,
            gpus=gpus,
            cpu=cpu * 1000,
            memory=memory * entities.GIB,
            priority=0 if job.priority < 2 else 100,
            node=f"n{row}",
            slots=job.masks[place],
            plan="p",
            phase=PodPhase.RUNNING,
            scheduled=entities.NOW - ran,
        )


def _newcomer(c: Given, shape: Shape) -> None:
    parts = shape.parts
    level = TopologyRequest(required=shape.level)
    alone = len(parts) == 1
    more: dict[str, Any] = {"topology": level} if alone else {}
    if not alone:
        more["sub_groups"] = tuple(
            SubGroup(f"s{number}", len(part), level) for number, part in enumerate(parts)
        )
        more["min_sub_groups"] = len(parts)
    c.group("new", queue="mine", min_member=sum(len(part) for part in parts), **more)
    for number, part in enumerate(parts):
        _members(c, number, part, alone=alone)


def _members(c: Given, number: int, part: Sequence[int], *, alone: bool) -> None:
    for place, gpus in enumerate(part):
        c.pod(
            f"new-{number}-{place}",
            group="new",
            rank=number * 100 + place,
            gpus=gpus,
            cpu=gpus * (12_000 if gpus == GPUS else 10_000),
            memory=gpus * 100 * entities.GIB,
            priority=100,
            role=f"g{gpus}",
            sub_group="" if alone else f"s{number}",
        )
