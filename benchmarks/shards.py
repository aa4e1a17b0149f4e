"""What shards save a daemon, and what they lose against one that decides about everything.

Work: 20,000 nodes that are half full; 2,000 gangs of 4 pods wait. One daemon decides about all of it, or four about a quarter each, of
which every one sees all events. CPU seconds of the busiest one of four, in turns with the one, as this machine has two cores.

Loss: the same jobs on 32 nodes in virtual time, by one daemon and by four of eight nodes each, with an embedded API server between them.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable
from statistics import mean, quantiles
from typing import Any, Final

import attrs
import msgspec

from benchmarks.figures import Figure
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.meta.identity import ResourceVersion, parse_time
from gpusched.api.pod.pod import Pod, PodPhase
from gpusched.app import App, AppOptions
from gpusched.config.model import DEFAULT, Config, ShardConfig
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import (
    ClusterRun,
    SimulationOptions,
    credentials_of,
    simulate_cluster,
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
JOBS: Final = 120
SEED: Final = 1


def measure() -> list[Figure]:
    """Work of the busiest daemon, and waits, GPU use and fairness beside one daemon."""
    collect_garbage_rarely()  # as the daemon does
    return [*_work(), *_losses()]


def sharded_config() -> Config:
    """Four shards by one label."""
    return attrs.evolve(
        DEFAULT,
        shards=tuple(
            ShardConfig(name, Selector((Requirement("pool", "In", (name,)),))) for name in SHARDS
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
            labels={"pool": SHARDS[number % len(SHARDS)]},
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


@attrs.frozen
class Outcome:
    """What came of the jobs."""

    waits: list[float]
    used: float
    shares: float


def _losses() -> list[Figure]:
    one, four = _play(()), _play(SHARDS)
    load = f"{JOBS} jobs on {LOSS_NODES} nodes"
    return [
        Figure(name=f"mean wait, four shards: {load}", measured=mean(four.waits), unit="s",
               raw=mean(one.waits), raw_is="one daemon"),
        Figure(name="wait of the 95th percentile, four shards", measured=_p95(four.waits), unit="s",
               raw=_p95(one.waits), raw_is="one daemon"),
        Figure(name="GPUs in use while jobs come, four shards", measured=100 * four.used, unit="%",
               raw=100 * one.used, raw_is="one daemon"),
        Figure(name="distance of two equal queues from their halves, mean, four shards",
               measured=100 * four.shares, unit="% of GPUs", raw=100 * one.shares, raw_is="one daemon"),
    ]  # fmt: skip


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


def _play(shards: tuple[str, ...]) -> Outcome:
    config = sharded_config() if shards else DEFAULT

    async def scenario(run: ClusterRun) -> Outcome:
        tasks = []
        for number, name in enumerate(shards or ("",)):
            options = AppOptions(
                config=config, clock=run.clock, rng=random.Random(number),
                kubeconfig=credentials_of(run.cluster), identity=f"d-{number}", inline=True,
                opened=sessions_to(run.cluster.in_process), shards=(name,) if name else (),
            )  # fmt: skip
            tasks.append(asyncio.create_task(App(options).run()))
        try:
            return await _jobs(run)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return simulate_cluster(scenario, options=SimulationOptions(seed=SEED, daemons=0)).value


async def _jobs(run: ClusterRun) -> Outcome:
    dice = random.Random(SEED)
    for number in range(LOSS_NODES):
        run.client.create("nodes", _node(number))
    for queue in ("one", "two"):
        run.client.create("queues.scheduling.gpusched.io", {
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
            "metadata": {"name": queue}, "spec": {},
        })  # fmt: skip
    await run.clock.sleep(40)
    made: dict[str, float] = {}
    looks: list[tuple[int, dict[str, int]]] = []
    for number in range(JOBS):
        job = _job(number, dice)
        run.client.create("jobs.batch", job)
        made[job["metadata"]["name"]] = run.clock.now()
        await run.clock.sleep(dice.expovariate(1 / 14))
        if number >= JOBS // 5:
            looks.append(_look(run))
    await _until(run, lambda: len(_starts(run)) == JOBS)
    starts = _starts(run)
    capacity = LOSS_NODES * GPUS
    contended = [held for waiting, held in looks if waiting]
    return Outcome(
        waits=[starts[name] - made[name] for name in made],
        used=mean(sum(held.values()) / capacity for _, held in looks),
        shares=mean(abs(held["one"] - held["two"]) / 2 / capacity for held in contended),
    )


async def _until(run: ClusterRun, true: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if true():
            return
        await run.clock.sleep(5)
    raise RuntimeError("the jobs did not all start")


def _starts(run: ClusterRun) -> dict[str, float]:
    """When each job had all its pods, of those that have or had them."""
    times: dict[str, list[float]] = {}
    for pod in run.client.list("pods"):
        job = pod["metadata"]["labels"]["job-name"]
        times.setdefault(job, []).append(parse_time(pod["status"].get("startTime") or ""))
    sizes = {
        job["metadata"]["name"]: job["spec"]["parallelism"] for job in run.client.list("jobs.batch")
    }
    return {
        name: max(found)
        for name, found in times.items()
        if len(found) >= sizes[name] and all(found)
    }


def _look(run: ClusterRun) -> tuple[int, dict[str, int]]:
    held, waiting = {"one": 0, "two": 0}, 0
    for pod in run.client.list("pods"):
        if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        gpus = int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        if pod["spec"].get("nodeName"):
            held[pod["metadata"]["labels"]["gpusched.io/queue"]] += gpus
        else:
            waiting += 1
    return waiting, held


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"node-{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"pool": SHARDS[number % len(SHARDS)]},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _job(number: int, dice: random.Random) -> dict[str, Any]:
    pods, gpus = dice.choice(((1, 1), (1, 2), (1, 8), (2, 8), (4, 8)))
    queue = dice.choice(("one", "one", "two"))
    labels = {"gpusched.io/queue": queue}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number}", "namespace": "default", "labels": labels},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        "gpusched.io/run-for": f"{dice.randint(120, 600)}s",
                        "gpusched.io/min-member": str(pods),
                    },
                },
                "spec": {
                    "schedulerName": "gpusched",
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                        }
                    ],
                },
            },
        },
    }
