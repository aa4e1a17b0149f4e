"""One virtual hour of a busy cluster in one process, without a scheduler: a trivial binder places.

1,000 nodes send a heartbeat every ten minutes. 625 Jobs of 8 pods each keep 5,000 pods alive: pods
are created, bound, started by stages, run 18 to 22 minutes and succeed; a Job that is complete is
deleted with its pods and comes again under a new name. So the hour holds about 17,000 pods created
and 12,000 finished, and 136,000 writes: Jobs and their status, pods, events, garbage collection.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any, Final

from benchmarks.figures import Figure
from benchmarks.inputs import gang_pod, node
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.lab.virtual_time.cluster_run import (
    ClusterRun,
    RunOutcome,
    SimulationOptions,
    simulate_cluster,
)

NODES: Final = 1_000
JOBS: Final = 625
MEMBERS: Final = 8
HOUR_S: Final = 3_600.0
REAL_MAX_S: Final = 60.0
Obj = dict[str, Any]


def measure() -> list[Figure]:
    """Real seconds of the hour, and how many writes it was."""
    began = time.monotonic()
    made = hour()
    real = time.monotonic() - began
    created, finished = made.value
    return [
        Figure(
            name=f"virtual hour: {NODES:,} nodes, {JOBS * MEMBERS:,} pods at a time, "
            f"{created:,} created, {finished:,} finished, {made.writes:,} writes",
            measured=real,
            unit="s",
            target=f"< {REAL_MAX_S:g}",
            met=real < REAL_MAX_S,
        )
    ]


def hour() -> RunOutcome[tuple[int, int]]:
    """Run it; the value is how many pods were created and how many ended well."""
    return simulate_cluster(_scenario, options=SimulationOptions(daemons=0))


async def _scenario(world: ClusterRun) -> tuple[int, int]:
    client = world.client
    for index in range(NODES):
        made = node(index)
        made["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        client.create("nodes", made)
    tally = {"created": 0, "finished": 0}
    numbers = count()
    tasks = [
        asyncio.create_task(_bind_all(client, tally)),
        asyncio.create_task(_come_again(client, numbers)),
    ]
    for _ in range(JOBS):
        client.create("jobs.batch", _job(next(numbers)))
    await world.clock.sleep(HOUR_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tally["created"], tally["finished"]


async def _bind_all(client: LocalClient, tally: dict[str, int]) -> None:
    turn = count()
    async for item in client.watch("pods"):
        if item.type == "ADDED":
            tally["created"] += 1
            meta = item.object["metadata"]
            client.bind(meta["namespace"], meta["name"], f"node-{next(turn) % NODES:05d}")
        elif item.type == "MODIFIED" and item.object["status"].get("phase") == "Succeeded":
            before = (item.previous or {}).get("status") or {}
            tally["finished"] += before.get("phase") != "Succeeded"


async def _come_again(client: LocalClient, numbers: count[int]) -> None:
    async for item in client.watch("jobs.batch"):
        done = (item.object.get("status") or {}).get("completionTime")
        if item.type == "MODIFIED" and done and "deletionTimestamp" not in item.object["metadata"]:
            meta = item.object["metadata"]
            client.delete("jobs.batch", meta["namespace"], meta["name"], propagation="Background")
            client.create("jobs.batch", _job(next(numbers)))


def _job(number: int) -> Obj:
    template = gang_pod(0)
    metadata = template["metadata"]
    metadata["annotations"]["gpusched.io/run-for"] = f"{18 + number % 5}m"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number:05d}", "namespace": "default"},
        "spec": {
            "completionMode": "Indexed",
            "completions": MEMBERS,
            "parallelism": MEMBERS,
            "template": {
                "metadata": {
                    "labels": {"app.kubernetes.io/name": "trainer"},
                    "annotations": metadata["annotations"],
                },
                "spec": template["spec"],
            },
        },
    }
