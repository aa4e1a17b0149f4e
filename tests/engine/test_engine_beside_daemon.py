"""The same jobs under the whole daemon and in the simulator: the same places, nearly the same times."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.identity import parse_time
from gpusched.base.clock import EPOCH
from gpusched.lab.simulate.traces.workload import JobShape, job_manifest
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from tests.engine.engine_cases import QUICK, cluster, job, run

JOBS = [
    job("one", 1, 40, 4),
    job("two", 4, 60, 16),
    job("three", 8, 20, 2, "b"),
    job("four", 12, 30, 16),
    job("five", 15, 20, 8, "b"),
    job("six", 19, 10, 1),
]
DESERVED = {"a": 8, "b": 8}
KINDS = {"Node": "nodes", "Queue": "queues.scheduling.gpusched.io"}
Seats = dict[tuple[str, str], list[tuple[str, str, float]]]


def by_daemon(*, suspend: bool) -> tuple[Seats, float]:
    """Node, slots and moment of the binding of each pod that completed, by its job."""

    async def scenario(world: ClusterRun) -> Seats:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trace"}}
        world.client.create("namespaces", space)
        for obj in cluster(2, deserved=DESERVED):
            obj["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
            world.client.create(KINDS[obj["kind"]], obj)
        await world.clock.sleep(30)
        start = world.clock.monotonic()
        for each in JOBS:
            await world.clock.sleep(start + each.submit_s - world.clock.monotonic())
            world.client.create("jobs.batch", job_manifest(each, JobShape(suspend=suspend)))
        await world.until(
            lambda: all(_complete(each) for each in world.client.list("jobs.batch")), within_s=900
        )
        seats: Seats = {}
        for pod in world.client.list("pods", "trace"):
            if pod["status"]["phase"] == "Succeeded":
                _seat(seats, pod, start)
        return seats

    outcome = simulate_cluster(scenario, options=SimulationOptions(config=QUICK))
    return outcome.value, outcome.virtual_s


def _seat(seats: Seats, pod: dict[str, Any], start: float) -> None:
    notes = pod["metadata"]["annotations"]
    job_name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    scheduled = next(
        parse_time(each["lastTransitionTime"])
        for each in pod["status"]["conditions"]
        if each["type"] == "PodScheduled"
    )
    slots = notes.get("gpusched.io/slots", "")
    seat = (pod["spec"]["nodeName"], slots, scheduled - EPOCH - start)
    seats.setdefault(("trace", job_name), []).append(seat)


def _complete(obj: dict[str, Any]) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


@pytest.mark.parametrize("suspend", [False, True])
def test_both_place_alike(suspend: bool) -> None:
    """Places of every job that completed are the same, moments within the daemon's latencies."""
    # Given jobs that fill two nodes, wait, and have their room reclaimed
    # When the whole daemon and the simulator run them
    seats, _ = by_daemon(suspend=suspend)
    record = run(JOBS, cluster(2, deserved=DESERVED), shape=JobShape(suspend=suspend))
    # Then every pod sits on the same slots
    assert len(seats) == len(JOBS)
    ours: Seats = {}
    for pod in record.pods:
        if pod.end == "Succeeded":
            slots = format_slots(sum(1 << slot for slot in pod.slots))
            ours.setdefault(("trace", pod.job.partition("/")[2]), []).append(
                (pod.node, slots, pod.bound or 0.0)
            )
    for key, mine in sorted(ours.items()):
        theirs = seats[key]
        assert sorted(each[:2] for each in mine) == sorted(each[:2] for each in theirs), key
        assert mine[0][2] == pytest.approx(theirs[0][2], abs=3), key
    assert not record.broken
