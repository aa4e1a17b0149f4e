"""What a what-if answers, and what then happens when the change really is made: the same starts.

The whole daemon runs jobs on an embedded cluster in virtual time. At a moment the cluster is recorded and
asked about a change; then the change is made to the cluster itself, and the daemon goes on.
"""

from __future__ import annotations

import random

import pytest

from gpusched.api.meta.identity import parse_time
from gpusched.engine.from_snapshot import start_from_snapshot
from gpusched.engine.world import SimulatedDelays
from gpusched.io.recordings.snapshot_file import SnapshotFile
from gpusched.lab.simulate.traces.model import TraceJob
from gpusched.lab.simulate.traces.workload import (
    JobShape,
    equal_nodes,
    job_manifest,
    queue_manifests,
)
from gpusched.lab.virtual_time.cluster_run import SimulationOptions, simulate_cluster
from gpusched.lab.whatif.change_plan import ChangeRequest, plan_changes
from gpusched.lab.whatif.play import PlayedCluster, PlayInput, play_cluster
from tests.engine.engine_cases import QUICK
from tests.populations import one_of

pytestmark = pytest.mark.long
KINDS = {
    "namespaces": "Namespace", "nodes": "Node", "queues.scheduling.gpusched.io": "Queue", "jobs.batch": "Job",
    "pods": "Pod",
}  # fmt: skip
ASKED_AT_S = 150
CASES = [
    ChangeRequest(option="--drain", words="node-1", since="+60s", span="3m"),
    ChangeRequest(option="--drain", words="node-2", since="+30s"),
    ChangeRequest(option="--set", words="queue/a.deserved=4"),
    ChangeRequest(option="--set", words="queue/b.stopPolicy=Hold", since="+45s"),
    ChangeRequest(option="--add-nodes", words="1:like=node-0"),
    ChangeRequest(option="--add-nodes", words="2:like=node-1", since="+100s"),
]


def random_jobs(seed):
    """Jobs of two queues that keep three nodes busy for about ten minutes, whose lengths are known."""
    draw = random.Random(seed)
    jobs = [
        TraceJob(
            name=f"job-{number:02}", submit_s=float(draw.randrange(ASKED_AT_S - 10)),
            duration_s=draw.randrange(60, 400), gpus=draw.choice([1, 2, 4, 8, 16]), queue=draw.choice("ab"),
        )
        for number in range(14)
    ]  # fmt: skip
    return sorted(jobs, key=lambda job: job.submit_s)


def starts_of_the_daemon(jobs, request):
    """Starts after the question, seconds since it, by job; and the answer that it got."""

    async def scenario(world):
        client, clock = world.client, world.clock
        client.create(
            "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trace"}}
        )
        for obj in [*equal_nodes(3, 8), *queue_manifests({"a": 12, "b": 12})]:
            if obj["kind"] == "Node":
                _create_node(client, obj)
            else:
                client.create("queues.scheduling.gpusched.io", obj)
        await clock.sleep(30)
        begin = clock.monotonic()
        for job in jobs:
            await clock.sleep(max(0.0, begin + job.submit_s - clock.monotonic()))
            client.create("jobs.batch", job_manifest(job, JobShape(told="truth")))
        await clock.sleep(begin + ASKED_AT_S - clock.monotonic())
        snapshot = _recorded(client, clock.now())
        answer = _answer(snapshot, request)
        await _make_change(client, clock, snapshot, request)
        await world.until(lambda: _is_over(client), within_s=3000)
        return _last_starts(client, snapshot.taken_at), answer

    return simulate_cluster(scenario, options=SimulationOptions(config=QUICK)).value


def _create_node(client, obj):
    obj["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    client.create("nodes", obj)


def _recorded(client, now):
    objects = {
        resource: tuple(
            {"apiVersion": _version(resource), "kind": kind, **obj} for obj in client.list(resource)
        )
        for resource, kind in KINDS.items()
    }
    return SnapshotFile(path="live", taken_at=now, server="v1", recorder="test", objects=objects)


def _version(resource):
    group = resource.partition(".")[2]
    return {"": "v1", "batch": "batch/v1"}.get(group, f"{group}/v1alpha1")


def _answer(snapshot, request):
    """The record of the changed cluster."""
    start = start_from_snapshot(snapshot)
    plan = plan_changes([request], start.objects, now=snapshot.taken_at)
    given = PlayInput(
        objects=start.objects, epoch=snapshot.taken_at, until=3000.0,
        pace=SimulatedDelays(start_s=1.0, stop_s=1.0),
    )  # fmt: skip
    return play_cluster(given, PlayedCluster(name="changed", config=QUICK, changes=plan.changes))


async def _make_change(client, clock, snapshot, request):
    """The same as an admin does it, with the client of the cluster."""
    plan = plan_changes([request], list(snapshot), now=snapshot.taken_at)
    begin = clock.monotonic()
    for change in plan.changes:
        await clock.sleep(max(0.0, begin + change.at - clock.monotonic()))
        for obj in getattr(change, "objects", ()):
            if obj["kind"] == "Node":
                _create_node(client, {**obj, "spec": {}})
            else:
                client.create("reservations.scheduling.gpusched.io", obj)
        if hasattr(change, "edit"):
            name = {"queues": "queues.scheduling.gpusched.io"}[change.plural]
            client.update(name, change.edit(client.get(name, None, change.key.name)))


def _is_over(client):
    """Every job that may start has completed."""
    waits = {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        for pod in client.list("pods") if not pod["spec"].get("nodeName")
    }  # fmt: skip
    held = {
        queue["metadata"]["name"] for queue in client.list("queues.scheduling.gpusched.io")
        if queue["spec"].get("stopPolicy") == "Hold"
    }  # fmt: skip
    return all(
        _is_complete(job)
        or (
            job["metadata"]["name"] in waits
            and job["metadata"]["labels"]["gpusched.io/queue"] in held
        )
        for job in client.list("jobs.batch")
    )


def _is_complete(job):
    conditions = job.get("status", {}).get("conditions", ())
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def _last_starts(client, since):
    """Of pods that succeeded and were bound after the question: node and moment, by job."""
    found = {}
    for pod in client.list("pods", "trace"):
        conditions = pod.get("status", {}).get("conditions", ())
        bound = [
            parse_time(each["lastTransitionTime"]) for each in conditions
            if each["type"] == "PodScheduled" and each["status"] == "True"
        ]  # fmt: skip
        if pod["status"]["phase"] == "Succeeded" and bound[0] >= since:
            name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
            found.setdefault(name, []).append((pod["spec"]["nodeName"], bound[0] - since))
    return {name: sorted(places) for name, places in found.items()}


POPULATION = [(seed, number) for number in range(len(CASES)) for seed in (1, 3, 5, 6)]


@pytest.mark.parametrize(("seed", "request_number"), one_of(9, POPULATION))
def test_what_is_answered_is_what_happens(seed, request_number):
    # Given a cluster on which the daemon runs jobs, and a question
    request = CASES[request_number]
    # When it is answered, and the change then is made
    happened, record = starts_of_the_daemon(random_jobs(seed), request)
    # Then jobs start where and when the answer says
    answered = {}
    for pod in record.pods:
        if pod.end == "Succeeded" and pod.bound:
            answered.setdefault(pod.job.partition("/")[2], []).append((pod.node, pod.bound))
    answered = {name: sorted(places) for name, places in answered.items()}
    assert set(answered) == set(happened)
    for name, places in happened.items():
        assert [node for node, _ in answered[name]] == [node for node, _ in places], name
        assert answered[name][0][1] == pytest.approx(places[0][1], abs=6), name
    assert len(happened) >= 3
