"""The examples, applied to the embedded cluster with the whole daemon, do what their comments say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
Obj = dict[str, Any]
RESOURCES = {
    "Queue": "queues.scheduling.gpusched.io",
    "PodGroup": "podgroups.scheduling.gpusched.io",
    "Topology": "topologies.scheduling.gpusched.io",
    "Reservation": "reservations.scheduling.gpusched.io",
    "PriorityClass": "priorityclasses.scheduling.k8s.io",
    "Job": "jobs.batch",
}
GPU = "nvidia.com/gpu"


def nodes(world: ClusterRun, count: int, *, first: int = 0) -> None:
    """Fake nodes of eight GPUs, four in a rack; those from the first number on."""
    for number in range(first, count):
        room = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
        name = f"n{number}"
        labels = {
            "topology.kubernetes.io/zone": "z", "gpusched.io/block": "b",
            "gpusched.io/rack": f"rack-{number // 4 + 1}", "kubernetes.io/hostname": name,
        }  # fmt: skip
        meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        status = {"allocatable": room, "capacity": room}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
        world.client.create("nodes", node)


def apply(world: ClusterRun, file: str, *, but: str = "") -> Obj:
    """Apply the objects of a file, all but one Job, which is returned."""
    left: Obj = {}
    for found in yaml.safe_load_all((EXAMPLES / file).read_text()):
        if (found["kind"], found["metadata"]["name"]) == ("Job", but):
            left = found
        else:
            world.client.create(RESOURCES[found["kind"]], found)
    return left


def job(world: ClusterRun, name: str) -> Obj:
    """A Job as it is."""
    found: Obj = world.client.get("jobs.batch", "default", name) or {}
    return found


def done(world: ClusterRun, name: str) -> bool:
    """Whether a Job is Complete."""
    conditions = job(world, name).get("status", {}).get("conditions", [])
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def running(world: ClusterRun, name: str) -> int:
    """Pods of a Job that run."""
    return sum(
        pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        for pod in world.client.list("pods", "default")
        if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name
    )


def played(scenario: Any) -> None:
    """From an empty cluster to the scenario's end."""
    simulate_cluster(scenario, options=SimulationOptions(seed=5, limit_s=7200))


def test_all_examples_at_once():
    """Each object is taken as it is written, every queue is Ready, and every Job completes."""

    async def story(world: ClusterRun) -> None:
        nodes(world, 20)
        for file in sorted(EXAMPLES.glob("*.yaml")):
            apply(world, file.name)
        names = [each["metadata"]["name"] for each in world.client.list("jobs.batch", "default")]
        await world.until(lambda: all(done(world, name) for name in names), within_s=5400)
        for queue in world.client.list(RESOURCES["Queue"]):
            (ready,) = queue["status"]["conditions"]
            assert ready["status"] == "True", ready

    played(story)


def test_borrow_and_reclaim():
    """Red borrows 8 GPUs beside blue's guarantee; blue takes back what it deserves, no more."""

    async def story(world: ClusterRun) -> None:
        nodes(world, 4)
        blue = apply(world, "borrow-and-reclaim.yaml", but="blue-train")
        await world.until(lambda: running(world, "red-sweep") == 3, within_s=30)
        red = world.client.get(RESOURCES["Queue"], None, "team-red")
        await world.clock.sleep(5)
        red = world.client.get(RESOURCES["Queue"], None, "team-red")
        assert red is not None
        assert red["status"]["borrowed"] == {GPU: "8"}
        world.client.create("jobs.batch", blue)
        await world.until(lambda: running(world, "blue-train") == 2, within_s=30)
        assert running(world, "red-sweep") == 2
        await world.until(lambda: done(world, "red-sweep"), within_s=1800)

    played(story)


def test_priorities():
    """The experiment runs its minimum, is paused for the hotfix, and goes on after it."""

    async def story(world: ClusterRun) -> None:
        nodes(world, 4)
        hotfix = apply(world, "priorities.yaml", but="hotfix")
        await world.until(lambda: running(world, "experiment") == 2, within_s=30)
        world.client.create("jobs.batch", hotfix)
        await world.until(lambda: running(world, "hotfix") == 2, within_s=60)
        assert job(world, "experiment")["spec"]["suspend"] is True
        assert job(world, "experiment")["status"].get("failed", 0) == 0
        await world.until(lambda: done(world, "hotfix"), within_s=120)
        await world.until(lambda: done(world, "experiment"), within_s=600)

    played(story)


def test_suspended_jobs():
    """One starts when the other has ended, with as many workers as the queue may have."""

    async def story(world: ClusterRun) -> None:
        nodes(world, 4)
        apply(world, "suspended-job.yaml")
        await world.until(lambda: running(world, "nightly-1-evaluate") == 4, within_s=30)
        assert job(world, "nightly-2-embed")["spec"]["suspend"] is True
        await world.until(lambda: running(world, "nightly-2-embed") == 4, within_s=120)
        embed = job(world, "nightly-2-embed")
        assert embed["spec"]["parallelism"] == 4
        assert embed["metadata"]["annotations"]["gpusched.io/parallelism"] == "16"
        await world.until(lambda: done(world, "nightly-2-embed"), within_s=600)

    played(story)


def test_backfill():
    """The short Job passes the wide one and delays it not; the late one waits behind it."""

    async def story(world: ClusterRun) -> None:
        nodes(world, 4)
        apply(world, "backfill.yaml")
        await world.until(lambda: running(world, "batch-1-first") == 3, within_s=30)
        await world.until(lambda: running(world, "batch-3-short") == 1, within_s=30)
        await world.clock.sleep(5)
        (said,) = [
            event["message"]
            for event in world.client.list("events", "default")
            if event["reason"] == "FailedScheduling"
            and event["involvedObject"]["name"] == "batch-2-wide"
        ]
        assert said.startswith("needs 4 pods with 8 nvidia.com/gpu; ")
        assert said.endswith("when default/batch-1-first is to have ended")
        assert running(world, "batch-4-late") == 0
        await world.until(lambda: running(world, "batch-2-wide") == 4, within_s=400)
        assert done(world, "batch-1-first")
        assert not done(world, "batch-4-late")
        await world.until(lambda: done(world, "batch-4-late"), within_s=900)

    played(story)


def test_reservation():
    """The short Job starts before the windows; the patient one waits for nodes without any."""

    async def story(world: ClusterRun) -> None:
        nodes(world, 4)
        apply(world, "reservation.yaml")
        await world.until(lambda: running(world, "reservation-1-short") == 1, within_s=30)
        await world.until(lambda: bool(scheduled(world, "patient")), within_s=30)
        told = scheduled(world, "patient")
        assert told["reason"] == "Reserved"
        assert "4 are kept by Reservation firmware for maintenance from" in told["message"]
        assert running(world, "reservation-2-patient") == 0
        (course,) = [
            each
            for each in world.client.list(RESOURCES["Reservation"])
            if each["metadata"]["name"] == "course"
        ]
        assert course["status"]["phase"] == "Announced"
        assert course["status"]["nodeCount"] == 1
        nodes(world, 5, first=4)
        await world.until(lambda: running(world, "reservation-2-patient") == 1, within_s=30)

    played(story)


def scheduled(world: ClusterRun, name: str) -> Obj:
    """The condition Scheduled of a PodGroup; empty while nobody wrote it."""
    group: Obj = world.client.get(RESOURCES["PodGroup"], "default", name) or {}
    conditions = group.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Scheduled"), {})


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_every_example_begins_with_a_comment(file):
    """Whoever opens one reads first what it shows."""
    assert (EXAMPLES / file).read_text().startswith("# ")
