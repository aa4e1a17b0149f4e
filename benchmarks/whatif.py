"""A month of what-if on 1,000 nodes of 8 GPUs: both plays and their comparison, in seconds of CPU.

Gangs of 8 to 256 GPUs arrive evenly, with run times drawn log-normally so that they ask for 85 % of all GPUs;
fewer gangs run longer. The cluster is empty at first. A rack is drained for two hours
in the middle of the month, and one queue deserves twice as much from the beginning.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any, Final

from benchmarks.figures import Figure
from gpusched.config.model import DEFAULT
from gpusched.engine.world import SimulatedDelays
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.simulate.traces.workload import equal_nodes, queue_manifests
from gpusched.lab.whatif.arrivals import LoadJob, repeat_load
from gpusched.lab.whatif.change_plan import ChangeRequest, plan_changes
from gpusched.lab.whatif.outcome import compare_outcomes
from gpusched.lab.whatif.play import CHANGED, UNCHANGED, PlayedCluster, PlayInput, play_cluster

NODES: Final = 1000
DAYS: Final = 30
GANGS: Final = 2500
QUEUES: Final = 8
LOAD: Final = 0.85
STEP_S: Final = 300.0
CPU_MAX_S: Final = 60.0
SIZES: Final = (8, 16, 32, 64, 128, 256)
SHARES: Final = (0.45, 0.20, 0.15, 0.10, 0.07, 0.03)
_SPREAD: Final = 1.0
_LONGEST_S: Final = 10 * 86_400
Obj = dict[str, Any]


def measure() -> list[Figure]:
    """CPU of one question about a month."""
    collect_garbage_rarely()  # as the command does
    objects, load = month_of_gangs(GANGS)
    began = time.process_time()
    requests = [
        ChangeRequest(option="--drain", words="rack=rack-007", since="+15d", span="2h"),
        ChangeRequest(option="--set", words="queue/q-1.deserved=2000"),
    ]
    plan = plan_changes(requests, objects, now=0.0)
    given = PlayInput(
        objects=objects, epoch=0.0, until=DAYS * 86_400.0, pace=SimulatedDelays(stop_s=30.0),
        step_s=STEP_S,
    )  # fmt: skip
    records = [
        play_cluster(given, PlayedCluster(name=name, config=DEFAULT, load=load, changes=changes))
        for name, changes in ((UNCHANGED, ()), (CHANGED, plan.changes))
    ]
    outcome = compare_outcomes(*records)
    spent = time.process_time() - began
    assert outcome.rows, "nothing was compared"
    assert not any(record.broken for record in records), "an invariant did not hold"
    sessions = sum(int(record.counters["sessions"]) for record in records)
    return [
        Figure(
            name=f"what-if: a month on {NODES:,} nodes, {GANGS:,} gangs, both plays, {sessions:,} sessions",
            measured=spent,
            unit="s of CPU",
            target=f"< {CPU_MAX_S:g}",
            met=spent < CPU_MAX_S,
        )
    ]


def month_of_gangs(gangs: int) -> tuple[list[Obj], tuple[LoadJob, ...]]:
    """The cluster and what arrives in it."""
    draw = random.Random(1)
    span_s = DAYS * 86_400.0
    mean_gpus = sum(size * share for size, share in zip(SIZES, SHARES, strict=True))
    mean_s = NODES * 8 * span_s * LOAD / gangs / mean_gpus
    jobs = []
    for number in range(gangs):
        gpus = draw.choices(SIZES, SHARES)[0]
        run_s = mean_s * math.exp(draw.gauss(-(_SPREAD**2) / 2, _SPREAD))
        jobs.append(
            LoadJob(
                name=f"gang-{number}", namespace="team", queue=f"q-{draw.randrange(QUEUES)}",
                at=float(int(draw.uniform(0, span_s))), run_s=round(min(_LONGEST_S, max(60, run_s))),
                pods=gpus // 8, pod_gpus=8000,
            )
        )  # fmt: skip
    jobs.sort(key=lambda job: job.at)
    queues = queue_manifests({f"q-{number}": NODES for number in range(QUEUES)})
    return [*equal_nodes(NODES, 8, per_rack=10), *queues], repeat_load(
        jobs, window_s=None, until=span_s
    )
