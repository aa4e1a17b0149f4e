"""What a pod of a finished Job costs in virtual time, with the daemon that schedules it.

Suspended Jobs of 10 pods each come at once and all find room on 100 nodes, so that sessions are few
and what is measured is all the rest: Jobs resumed, pods created, bound, started and ended by
stages, counted and freed by the Job controller, events, and the daemon that follows it all. A
small and a large run are held against each other: what both need to start falls out.
"""

from __future__ import annotations

import gc
import resource
import time
from typing import Any, Final

from benchmarks.figures import Figure
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

JOBS: Final = (20, 220)
MEMBERS: Final = 10
NODES: Final = 100
CPU_MAX_MS: Final = 4.0
MEMORY_MAX_KB: Final = 100.0
_LOOK_S: Final = 10.0
Obj = dict[str, Any]


def measure() -> list[Figure]:
    """CPU and memory of one pod from its Job's creation to its end."""
    spent: list[tuple[float, int]] = []
    for jobs in JOBS:
        gc.collect()
        began = time.process_time()
        _run(jobs)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        spent.append((time.process_time() - began, peak))
    (less_s, less_kb), (more_s, more_kb) = spent
    pods = (JOBS[1] - JOBS[0]) * MEMBERS
    cpu_ms = (more_s - less_s) * 1000 / pods
    memory_kb = (more_kb - less_kb) / pods
    return [
        Figure(
            name=f"virtual time: a pod of a finished Job, one of {pods:,}, daemon and all",
            measured=cpu_ms,
            unit="ms of CPU",
            target=f"< {CPU_MAX_MS:g}",
            met=cpu_ms < CPU_MAX_MS,
        ),
        Figure(
            name="virtual time: memory that a finished pod leaves, history and all",
            measured=memory_kb,
            unit="KiB",
            target=f"< {MEMORY_MAX_KB:g}",
            met=memory_kb < MEMORY_MAX_KB,
        ),
    ]


def _run(jobs: int) -> None:
    async def scenario(world: ClusterRun) -> None:
        client = world.client
        for index in range(NODES):
            client.create("nodes", _node(index))
        client.create("queues.scheduling.gpusched.io", _QUEUE)
        for number in range(jobs):
            client.create("jobs.batch", _job(number))

        def finished() -> bool:
            return all("completionTime" in job["status"] for job in client.list("jobs.batch"))

        while not finished():
            await world.clock.sleep(_LOOK_S)

    simulate_cluster(scenario, options=SimulationOptions())


_QUEUE: Final[Obj] = {
    "apiVersion": "scheduling.gpusched.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "q"},
    "spec": {},
}


def _node(index: int) -> Obj:
    name = f"node-{index:03d}"
    amounts = {"cpu": "48", "memory": "48Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _job(number: int) -> Obj:
    labels = {"gpusched.io/queue": "q"}
    requests = {"cpu": "2", "memory": "2Gi"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number:04d}", "namespace": "default", "labels": labels},
        "spec": {
            "parallelism": MEMBERS,
            "completions": MEMBERS,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "suspend": True,
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {"gpusched.io/run-for": f"{180 + number % 91}s"},
                },
                "spec": {
                    "schedulerName": "gpusched",
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "c", "image": "x", "resources": {"requests": requests}}
                    ],
                },
            },
        },
    }
