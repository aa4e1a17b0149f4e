"""Gangs that come and end, for virtual and for real time; as a program it prints the history.

``python gang_lives.py SEED`` simulates and prints the digest and the outcome as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

NODES = 6
GANGS = {"red": 2, "green": 3, "blue": 4, "white": 2}
Obj = dict[str, Any]


def node(world: ClusterRun, name: str) -> None:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    marks = {"kwok.x-k8s.io/node": "fake"}
    world.client.create(
        "nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": marks},
            "status": {"capacity": amounts, "allocatable": amounts},
        },
    )


def pod_template(group: str, run_for: str) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "metadata": {
            "labels": {"gpusched.io/pod-group": group},
            "annotations": {"gpusched.io/run-for": run_for},
        },
        "spec": {
            "schedulerName": "gpusched",
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


def gang(world: ClusterRun, name: str, count: int, *, run_for: str) -> None:
    world.client.create(
        "podgroups.scheduling.gpusched.io",
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"queue": "default", "minMember": count},
        },
    )
    world.client.create(
        "jobs.batch",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "completionMode": "Indexed",
                "parallelism": count,
                "completions": count,
                "template": pod_template(name, run_for),
            },
        },
    )


def bound(world: ClusterRun, name: str) -> int:
    pods = world.client.list("pods", "default", f"gpusched.io/pod-group={name}")
    return sum("nodeName" in pod["spec"] for pod in pods)


def complete(world: ClusterRun) -> list[str]:
    jobs = world.client.list("jobs.batch")
    done = [job for job in jobs if (job.get("status") or {}).get("completionTime")]
    return [job["metadata"]["name"] for job in done]


async def gang_lives(world: ClusterRun) -> Obj:
    """Each gang is placed before the next one comes; the last waits for GPUs of the first."""
    for number in range(NODES):
        node(world, f"node-{number}")
    for name, count in GANGS.items():
        gang(world, name, count, run_for="5m")
        await world.until(lambda n=name, c=count: bound(world, n) == c, within_s=7200)
    await world.until(lambda: len(complete(world)) == len(GANGS), within_s=7200)
    return seen(world)


async def one_after_another(world: ClusterRun) -> Obj:
    """Beside a gang that stays, each runs to its end alone: how fast things happen plays no part."""
    for number in range(NODES):
        node(world, f"node-{number}")
    gang(world, "stays", 2, run_for="100h")
    await world.until(lambda: bound(world, "stays") == 2, within_s=36_000)
    for name, count in GANGS.items():
        gang(world, name, count, run_for="1m")
        await world.until(lambda n=name: n in complete(world), within_s=36_000)
    return seen(world)


def seen(world: ClusterRun) -> Obj:
    pods = world.client.list("pods")
    return {
        "complete": complete(world),
        "pods": {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods},
    }


async def half_an_hour(world: ClusterRun) -> Obj:
    """Lives of gangs, then a quiet cluster: leases, heartbeats, things that are forgotten."""
    outcome = await gang_lives(world)
    await world.clock.sleep(1800 - world.clock.monotonic())
    return outcome


def half_an_hour_as_text(seed: int) -> str:
    made = simulate_cluster(half_an_hour, options=SimulationOptions(seed=seed))
    return json.dumps({"digest": made.digest, "writes": made.writes, **made.value})


if __name__ == "__main__":
    sys.stdout.write(half_an_hour_as_text(int(sys.argv[1])))
