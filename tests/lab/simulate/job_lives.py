"""Nodes and Jobs of a simulated cluster, and what became of them, for tests of whole lives."""

from __future__ import annotations

from typing import Any

from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

Obj = dict[str, Any]
GPU = "nvidia.com/gpu"


def node(world: ClusterRun, name: str, gpus: int = 8, **labels: str) -> None:
    """A fake node."""
    meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    status = {"allocatable": room, "capacity": room}
    world.client.create(
        "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
    )


def job(
    world: ClusterRun, name: str, pods: int, *, gpus: int = 8, run_for: str = "60s", **more: Any
) -> None:
    """An Indexed Job, suspended, of the default queue.

    Args:
        world: gets it.
        name: of the Job.
        pods: its parallelism.
        gpus: of each pod.
        run_for: how long each pod runs.
        more: ``priority`` (class), ``queue``, ``annotations``, ``completions`` (else ``pods``).
    """
    limits = {"resources": {"limits": {GPU: str(gpus), "cpu": "1", "memory": "1Gi"}}}
    template = {
        "metadata": {"annotations": {"gpusched.io/run-for": run_for}},
        "spec": {
            "schedulerName": "gpusched",
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", **limits}],
            **({"priorityClassName": more["priority"]} if "priority" in more else {}),
        },
    }
    meta = {
        "name": name,
        "namespace": "default",
        "labels": {"gpusched.io/queue": more.pop("queue", "default")},
        "annotations": more.pop("annotations", {}),
    }
    spec = {
        "suspend": True,
        "parallelism": pods,
        "completions": more.pop("completions", pods),
        "completionMode": "Indexed",
        "template": template,
    }
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    world.client.create("jobs.batch", body)


def get(world: ClusterRun, name: str) -> Obj:
    """A Job as it is."""
    found: Obj = world.client.get("jobs.batch", "default", name) or {}
    return found


def done(world: ClusterRun, name: str) -> bool:
    """Whether a Job is Complete."""
    conditions = get(world, name).get("status", {}).get("conditions", [])
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def running(world: ClusterRun, name: str) -> int:
    """Pods of a Job that are bound and have not ended."""
    return sum(
        bool(pod["spec"].get("nodeName"))
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
        for pod in world.client.list("pods", "default")
        if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name
    )


def played(scenario: Any) -> Any:
    """What a scenario returns."""
    return simulate_cluster(scenario, options=SimulationOptions(seed=3, limit_s=4000)).value


def priority_class(world: ClusterRun, name: str, value: int, **more: str) -> None:
    """A PriorityClass."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value, **more}
    world.client.create("priorityclasses.scheduling.k8s.io", {**body, "metadata": {"name": name}})
