"""What shards save a daemon, and what they lose against one that decides about everything.

Work: 20,000 nodes that are half full; 2,000 gangs of 4 pods wait. One daemon decides about all of it, or four about a quarter each, of
which every one sees all events. CPU seconds of the busiest one of four, in turns with the one, as this machine has two cores.

Loss: the same jobs on 32 nodes, simulated with one daemon and with four of eight nodes each, for three seeds.
"""

from __future__ import annotations

import gc
import random
import time
from statistics import mean
from typing import Final

import attrs
import msgspec

from benchmarks.figures import Figure, middle
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.meta.identity import ResourceVersion
from gpusched.api.pod.pod import Pod, PodPhase
from gpusched.config.model import DEFAULT, Config, ShardConfig
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.simulate.traces.model import TraceJob
from gpusched.lab.simulate.traces.workload import (
    JobShape,
    equal_nodes,
    job_arrivals,
    queue_manifests,
)
from gpusched.shards.board import Board
from gpusched.shards.layout import ShardLayout
from gpusched.shards.part import ShardPart
from gpusched.testing import entities
from gpusched.testing.given import Given

NODES: Final = 20_000
GANGS: Final = 2_000
MEMBERS: Final = 4
GPUS: Final = 8
SHARDS: Final = ("a", "b", "c", "d")
TIMES_MIN: Final = 2.5
LOSS_NODES: Final = 32
RACK: Final = 8
JOBS: Final = 400
SEEDS: Final = (1, 2, 3)
QUEUES: Final = ("one", "one", "two", "three")
"""Of which one has twice as many jobs as the others."""


def measure() -> list[Figure]:
    """Work of the busiest daemon, and waits, GPU use and fairness beside one daemon."""
    collect_garbage_rarely()  # as the daemon does
    return [*_work(), *_losses()]


def sharded_config(*, lends: bool = False) -> Config:
    """Four shards by one label."""
    return attrs.evolve(
        DEFAULT,
        shards=tuple(
            ShardConfig(
                name,
                Selector((Requirement("gpusched.io/rack", "In", (f"rack-{index:03d}",)),)),
                lends_nodes=lends,
            )
            for index, name in enumerate(SHARDS)
        ),
    )


# -- work ---------------------------------------------------------------------------------------


def _work() -> list[Figure]:
    one = _burst(_cluster())
    four = [_burst(_of_shard(_cluster(), name)) for name in SHARDS]
    pods = GANGS * MEMBERS
    assert one[1] == sum(each[1] for each in four) == pods, (one, four)
    busiest = max(each[0] for each in four)
    size = f"{NODES:,} nodes, {pods:,} pods in gangs of {MEMBERS}"
    return [
        Figure(name=f"one daemon decides about all: {size}", measured=one[0], unit="s of CPU"),
        Figure(
            name=f"the busiest of four daemons: {size}", measured=busiest, unit="s of CPU",
            raw=one[0], raw_is="one daemon",
        ),
        Figure(
            name="pods a second, four daemons beside one", measured=one[0] / busiest, unit="times",
            target=f">= {TIMES_MIN:g}", met=one[0] / busiest >= TIMES_MIN,
        ),
    ]  # fmt: skip


def _cluster() -> Given:
    c = Given(config=DEFAULT)
    for number in range(NODES):
        c.node(
            f"node-{number}", cpu=64_000, memory=256 * entities.GIB, gpus=GPUS,
            labels={"gpusched.io/rack": f"rack-{number % len(SHARDS):03d}"},
        )  # fmt: skip
        if number % 8 < 4:
            c.pod(
                f"runs-{number}", node=f"node-{number}", slots=(1 << GPUS) - 1, gpus=GPUS, cpu=1000,
                memory=entities.GIB, phase=PodPhase.RUNNING, plan="p", scheduled=c.now - 60,
            )  # fmt: skip
    c.when.one_session()
    for number in range(GANGS):
        c.gang(f"waits-{number}", pods=MEMBERS, gpus=GPUS, cpu=1000, memory=entities.GIB)
    return c


def _of_shard(c: Given, name: str) -> Given:
    """The same cluster as the daemon of one shard sees it."""
    layout = ShardLayout.from_config(sharded_config())
    part = ShardPart(layout, first=name, held=frozenset((name,)), board=Board(layout=layout.digest))
    part.take_effect(c.cache)
    return c


def _burst(c: Given) -> tuple[float, int]:
    """CPU seconds until nothing more starts, with all that the watch shows of others; pods that were bound."""
    gc.collect()
    mine: list[str] = []
    used = 0.0
    while True:
        began = time.process_time()
        plan = c.when.one_session()
        used += time.process_time() - began
        if not plan.binds:
            break
        for gang in plan.binds:
            c.when.accept(gang)
            mine += [bind.key.name for bind in gang.binds]
    others = [pod for pod in c.cache.pods.values() if not pod.node and pod.key.name not in mine]
    return used + _seen(c, others), len(mine)


def _seen(c: Given, pods: list[Pod]) -> float:
    """CPU seconds for pods that other daemons bound: each is applied, and wakes nobody."""
    began = time.process_time()
    for number, pod in enumerate(pods):
        bound = msgspec.structs.replace(
            pod,
            node=f"node-{number % NODES}",
            resource_version=ResourceVersion(str(10**9 + number)),
        )
        c.cache.put_pod(bound)
    return time.process_time() - began


# -- loss ---------------------------------------------------------------------------------------


def _losses() -> list[Figure]:
    """Each figure by four shards that keep their nodes, and by four that lend idle ones, beside one daemon."""
    runs = {
        name: [_play(config, seed) for seed in SEEDS]
        for name, config in (
            ("one daemon", DEFAULT),
            ("four shards", sharded_config()),
            ("four that lend", sharded_config(lends=True)),
        )
    }
    one = runs.pop("one daemon")
    found = []
    for title, statistic_name, unit, factor in _STATISTICS:
        raw = factor * mean(_value(record, statistic_name) for record in one)
        for name, records in runs.items():
            values = [factor * _value(record, statistic_name) for record in records]
            found.append(
                Figure(
                    name=f"{title}, {name}", measured=mean(values), unit=unit, raw=raw, raw_is="one daemon",
                    spread=middle(values)[1],
                )
            )  # fmt: skip
    return found


_STATISTICS: Final = (
    ("mean wait", "mean(wait)", "s", 1),
    ("wait of the 95th percentile", "p95(wait)", "s", 1),
    ("GPUs in use while a job waits", "gpuUseBusy", "%", 100),
    ("free GPUs of no use", "fragmentation", "%", 100),
    ("Jain's index of fairness", "fairness", "", 1),
    ("pods evicted", "evictions", "pods", 1),
    ("work lost by them", "lostGpuHours", "GPU-h", 1),
)


def _value(record: RunRecord, name: str) -> float:
    return statistic(record, name).value or 0.0


def _play(config: Config, seed: int) -> RunRecord:
    record = run_simulation(
        SimulationCase(
            name="loss",
            config=attrs.evolve(config, placement=attrs.evolve(config.placement, solver="greedy")),
            objects=[
                *equal_nodes(LOSS_NODES, GPUS, per_rack=RACK),
                *queue_manifests(dict.fromkeys(QUEUES, 0)),
            ],
            arrivals=job_arrivals(_jobs(seed), JobShape()),
            plays_shards=True,
            seed=seed,
        )
    )
    problems = (record.broken, record.unfinished)
    assert not any(problems), problems
    return record


def _jobs(seed: int) -> list[TraceJob]:
    """Jobs that use three quarters of all GPUs while they come, if nobody waits."""
    dice, at, jobs = random.Random(seed), 0.0, []
    gpus_mean = sum(gpus * weight for gpus, weight in _SIZES) / sum(weight for _, weight in _SIZES)
    apart_s = gpus_mean * _RUNS_MEAN_S / (LOSS_NODES * GPUS * _LOAD)
    for index in range(JOBS):
        (gpus,) = dice.choices([gpus for gpus, _ in _SIZES], [weight for _, weight in _SIZES])
        jobs.append(
            TraceJob(
                name=f"job-{index}", submit_s=at, gpus=gpus, queue=dice.choice(QUEUES),
                duration_s=round(dice.expovariate(1 / _RUNS_MEAN_S)) + 1,
            )
        )  # fmt: skip
        at += dice.expovariate(1 / apart_s)
    return jobs


_SIZES: Final = ((1, 20), (2, 15), (4, 15), (8, 25), (16, 12), (32, 9), (64, 4))
"""GPUs of jobs, and how many of a hundred have so many."""
_RUNS_MEAN_S: Final = 900
_LOAD: Final = 0.75
