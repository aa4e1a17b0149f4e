"""Reservations on a whole daemon, in virtual time: scenario 66 and its kin."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.api.meta.identity import parse_time
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

Obj = dict[str, Any]
QUEUES = "queues.scheduling.gpusched.io"
GROUPS = "podgroups.scheduling.gpusched.io"


def nodes(world: ClusterRun, count: int, **labels: str) -> None:
    """Fake nodes of eight GPUs."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    for number in range(count):
        world.client.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": f"node-{number}",
                    "labels": labels,
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )


def queue(world: ClusterRun, name: str, **spec: Any) -> None:
    """A queue that deserves more than there is: nothing here is about shares."""
    spec.setdefault("deserved", {"nvidia.com/gpu": 1000})
    world.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def gang(
    world: ClusterRun, name: str, pods: int, *, runs: str = "100h", says: str = "", **how: Any
):
    """Pods of eight GPUs that start together; ``runs`` is the truth, ``says`` the walltime."""
    spec = {"queue": how.get("queue", "default"), "minMember": pods}
    if says:
        spec["expectedDuration"] = says
    if "preemptible" in how:
        spec["preemptible"] = how["preemptible"]
    world.client.create(
        GROUPS,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        },
    )
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    for number in range(pods):
        world.client.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{number}",
                    "namespace": "default",
                    "labels": {"gpusched.io/pod-group": name},
                    "annotations": {"gpusched.io/run-for": runs},
                },
                "spec": {
                    "schedulerName": "gpusched",
                    "restartPolicy": "Never",
                    "priorityClassName": how.get("priority", ""),
                    "containers": [container],
                },
            },
        )


def priorities(world: ClusterRun) -> None:
    """Two classes."""
    for name, value in (("high", 100), ("low", 1)):
        world.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            },
        )


def started(world: ClusterRun, name: str) -> float:
    """When the last of its pods was scheduled, 0.0 while one is not."""
    times = []
    for pod in world.client.list("pods", "default", f"gpusched.io/pod-group={name}"):
        conditions = (pod.get("status") or {}).get("conditions") or []
        found = [each for each in conditions if each["type"] == "PodScheduled"]
        if not pod["spec"].get("nodeName") or not found:
            return 0.0
        times.append(parse_time(found[0]["lastTransitionTime"]))
    return max(times, default=0.0)


def status(world: ClusterRun, name: str) -> Obj:
    """Of a pod group."""
    return (world.client.get(GROUPS, "default", name) or {}).get("status") or {}


VARIANTS = {
    "short": ({"runs": "80s", "says": "80s"}, True),
    "long": ({"runs": "200s", "says": "200s", "priority": "high"}, False),
    "unknown": ({"runs": "200s", "preemptible": False, "priority": "low"}, False),
    "yields": ({"runs": "200s", "preemptible": True, "priority": "low"}, True),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_holder_starts_when_it_was_told_whatever_else_is_submitted(variant):
    """Scenario 66: R holds 3 of 4 nodes for 100 s, H needs 4, S is short, long, unknown, yielding."""
    how, passes = VARIANTS[variant]

    async def scenario(world: ClusterRun) -> Obj:
        priorities(world)
        queue(world, "default")
        nodes(world, 4)
        gang(world, "r", 3, runs="100s", says="100s", priority="high", preemptible=False)
        await world.until(lambda: started(world, "r"), within_s=60)
        gang(world, "h", 4, priority="high", preemptible=False)
        await world.until(lambda: status(world, "h").get("estimatedStartTime"), within_s=10)
        told = parse_time(status(world, "h")["estimatedStartTime"])
        gang(world, "s", 1, **how)
        await world.clock.sleep(5)
        early = bool(started(world, "s"))
        await world.until(lambda: started(world, "h"), within_s=150)
        return {
            "early": early,
            "late_s": started(world, "h") - started(world, "r") - 100,
            "told_s": told - started(world, "r"),
        }

    seen = simulate_cluster(scenario, options=SimulationOptions(seed=3)).value
    assert seen["early"] == passes
    assert seen["told_s"] == 100
    # A pod needs seconds to start, to be seen at its end, and to be evicted.
    assert 0 <= seen["late_s"] <= 15


def test_freed_nodes_are_held_for_who_waited_too_long():
    """Scenario 67: endless jobs come and go on 4 nodes; after maxWait they are held for H."""

    async def scenario(world: ClusterRun) -> Obj:
        queue(world, "default", maxWait="10m")
        nodes(world, 4)
        number = 0

        def keep_full() -> bool:
            nonlocal number
            pods = world.client.list("pods", "default")
            waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
            for _ in range(3 - len([pod for pod in waiting if "job" in pod["metadata"]["name"]])):
                number += 1
                gang(world, f"job-{number}", 1, runs=f"{60 + number * 37 % 90}s")
            return bool(started(world, "h"))

        keep_full()
        await world.clock.sleep(20)
        gang(world, "h", 4)
        born = world.clock.now()
        await world.until(keep_full, within_s=1200)
        return {"waited_s": started(world, "h") - born, "jobs": number}

    seen = simulate_cluster(scenario, options=SimulationOptions(seed=3)).value
    assert seen["jobs"] > 10
    # The last job that started before the ten minutes were over ends within 150 s.
    assert 600 <= seen["waited_s"] <= 600 + 160


def test_a_restart_keeps_the_reservation_and_what_was_told():
    """A daemon that starts anew works out the same holds: nobody slips in, nothing is rewritten."""

    async def scenario(world: ClusterRun) -> Obj:
        queue(world, "default")
        nodes(world, 4)
        gang(world, "r", 3, runs="300s", says="300s")
        await world.until(lambda: started(world, "r"), within_s=60)
        gang(world, "h", 4)
        await world.until(lambda: status(world, "h").get("estimatedStartTime"), within_s=30)
        told = status(world, "h")["estimatedStartTime"]
        first, second = world.daemons
        first.cancel()
        gang(world, "s", 1, runs="400s", says="400s")
        await world.clock.sleep(60)
        assert not second.done()
        slipped = started(world, "s")
        same = status(world, "h")["estimatedStartTime"] == told
        reason = [
            each["reason"]
            for each in status(world, "s").get("conditions", ())
            if each["type"] == "Scheduled"
        ]
        await world.clock.sleep(320 - (world.clock.now() - started(world, "r")))
        return {
            "slipped": slipped,
            "same": same,
            "reason": reason,
            "late_s": started(world, "h") - started(world, "r") - 300,
        }

    seen = simulate_cluster(scenario, options=SimulationOptions(seed=5, daemons=2)).value
    assert seen["slipped"] == 0.0
    assert seen["same"]
    assert seen["reason"] == ["Reserved"]
    assert 0 <= seen["late_s"] <= 15
