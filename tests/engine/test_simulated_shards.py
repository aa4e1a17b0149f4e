"""Shards are simulated with a scheduler for each, which agree by a board as daemons do."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import attrs
import pytest

from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.meta.identity import parse_time
from gpusched.app import App, AppOptions
from gpusched.base.clock import EPOCH
from gpusched.cli.main import main
from gpusched.config.model import ShardConfig
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.lab.simulate.traces.workload import (
    JobShape,
    equal_nodes,
    job_arrivals,
    job_manifest,
    queue_manifests,
)
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import (
    ClusterRun,
    SimulationOptions,
    credentials_of,
    simulate_cluster,
)
from tests.engine.engine_cases import QUICK, job, of

KINDS = {"Node": "nodes", "Queue": "queues.scheduling.gpusched.io"}
SETTLED_S = 40.0
"""After which the daemons have taken their Leases and counted everything."""


def in_racks(*racks: int, lends: bool = False):
    """A configuration with a shard for each rack."""
    shards = tuple(
        ShardConfig(
            f"rack-{rack}",
            Selector((Requirement("gpusched.io/rack", "In", (f"rack-{rack:03d}",)),)),
            lends_nodes=lends,
        )
        for rack in racks
    )
    return attrs.evolve(QUICK, shards=shards)


def play(jobs, objects, config, **how) -> RunRecord:
    """Simulate them, with a scheduler for each shard."""
    arrivals = [*job_arrivals(jobs, JobShape())]
    return run_simulation(
        SimulationCase(
            name="test", config=config, objects=objects, arrivals=arrivals, plays_shards=True, **how
        )
    )


def running_pod(pod) -> dict[str, Any]:
    """A member of a gang of three that has its place, and goes on."""
    slots = ",".join(str(slot) for slot in pod.slots)
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod.name, "namespace": pod.namespace,
            "labels": {"gpusched.io/pod-group": "large", "gpusched.io/queue": "a"},
            "annotations": {"gpusched.io/slots": slots},
        },
        "spec": {
            "schedulerName": "gpusched", "nodeName": pod.node,
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
            ],
        },
        "status": {"phase": "Running"},
    }  # fmt: skip


def shards_of(record: RunRecord, name: str) -> set[int]:
    """Racks of two nodes in which a job was."""
    pods = [pod for pod in record.pods if pod.job.endswith(f"/{name}") and pod.bound is not None]
    return {int(pod.node.rpartition("-")[2]) // 2 for pod in pods}


# -- beside the daemons -------------------------------------------------------------------------
JOBS = [
    job("one", 1, 400, 8),
    job("two", 5, 300, 16),
    job("three", 25, 200, 8, "b"),
    job("four", 50, 300, 16, "b"),
    job("five", 120, 60, 4),
    job("six", 125, 60, 4, "b"),
    job("seven", 400, 100, 24),
]


def by_daemons(config) -> dict[str, tuple[list[str], float]]:
    """Nodes of each job's pods that completed, and when the first was bound."""

    async def scenario(run: ClusterRun) -> dict[str, tuple[list[str], float]]:
        tasks = []
        for number, shard in enumerate(config.shards):
            options = AppOptions(
                config=config, clock=run.clock, rng=random.Random(number),
                kubeconfig=credentials_of(run.cluster), identity=f"d-{number}", inline=True,
                opened=sessions_to(run.cluster.in_process), shards=(shard.name,),
            )  # fmt: skip
            tasks.append(asyncio.create_task(App(options).run()))
        try:
            return await _jobs(run)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return simulate_cluster(scenario, options=SimulationOptions(daemons=0)).value


async def _jobs(run: ClusterRun) -> dict[str, tuple[list[str], float]]:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trace"}}
    run.client.create("namespaces", space)
    for obj in cluster():
        obj["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        run.client.create(KINDS[obj["kind"]], obj)
    await run.clock.sleep(SETTLED_S)
    start = run.clock.monotonic()
    for each in JOBS:
        await run.clock.sleep(start + each.submit_s - run.clock.monotonic())
        run.client.create("jobs.batch", job_manifest(each, JobShape()))
    await run.until(
        lambda: all(_complete(each) for each in run.client.list("jobs.batch")), within_s=2000
    )
    found: dict[str, list[tuple[str, float]]] = {}
    for pod in run.client.list("pods", "trace"):
        if pod["status"]["phase"] == "Succeeded":
            name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
            found.setdefault(name, []).append((pod["spec"]["nodeName"], _bound(pod) - start))
    return {
        name: (sorted(node for node, _ in seats), min(at for _, at in seats))
        for name, seats in found.items()
    }


def cluster() -> list[dict[str, Any]]:
    """Two racks of two nodes, and two queues of equal weight."""
    return [*equal_nodes(4, 8, per_rack=2), *queue_manifests({"a": 0, "b": 0})]


def _bound(pod: dict[str, Any]) -> float:
    return next(
        parse_time(each["lastTransitionTime"]) - EPOCH
        for each in pod["status"]["conditions"]
        if each["type"] == "PodScheduled"
    )


def _complete(obj: dict[str, Any]) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


@pytest.mark.parametrize("lends", [False, True])
def test_jobs_start_as_under_daemons_of_the_shards(lends: bool) -> None:
    """As many GPUs of each shard, moments within what daemons take to see the board."""
    # given jobs that wait, are passed on, and where nodes are lent one that no shard has room for
    config = in_racks(0, 1, lends=lends)
    jobs = JOBS if lends else JOBS[:-1]

    # when daemons and the simulator run them
    seats = by_daemons(config) if lends else None
    record = play(jobs, cluster(), config)

    # then all complete, each in one shard unless nodes were lent, and none twice
    assert not record.broken
    assert {each.key for each in record.jobs if each.ended is not None} == {
        f"trace/{each.name}" for each in jobs
    }
    if seats is None:
        assert all(len(shards_of(record, each.name)) == 1 for each in jobs)
        return
    assert len(shards_of(record, "seven")) == 2
    for each in jobs:
        nodes, at = seats[each.name]
        mine = sorted(
            pod.node
            for pod in record.pods
            if pod.job == f"trace/{each.name}" and pod.end == "Succeeded"
        )
        assert mine == nodes, each.name
        assert of(record, each.name).started == pytest.approx(at, abs=5), each.name


# -- what holds ---------------------------------------------------------------------------------
def test_a_capability_is_exceeded_at_no_moment() -> None:
    # given a queue that may hold 8 of 32 GPUs, and jobs that begin in both shards
    objects = cluster()
    for obj in objects:
        if obj["kind"] == "Queue" and obj["metadata"]["name"] == "a":
            obj["spec"]["capability"] = {"nvidia.com/gpu": "8"}
    jobs = [job(f"j{number}", number, 30, 4) for number in range(12)]

    # when they are played
    record = play(jobs, objects, in_racks(0, 1))

    # then all ran, in both, and never more than two at a time
    assert all(each.ended is not None for each in record.jobs)
    assert {shard for each in jobs for shard in shards_of(record, each.name)} == {0, 1}
    moves = sorted(
        move
        for pod in record.pods
        for move in ((pod.bound, 1, pod.gpus), (pod.ended, 0, -pod.gpus))
    )
    held = most = 0
    for _, _, gpus in moves:
        held += gpus
        most = max(most, held)
    assert most == 8000


def test_gangs_that_lack_room_do_not_pass_what_is_granted_to_and_fro() -> None:
    """Given a queue that may hold 24 GPUs, and in each shard of 16 gangs that need 24, then nothing starts, and no daemon follows the other at every look."""
    objects = cluster()
    for obj in objects:
        if obj["kind"] == "Queue" and obj["metadata"]["name"] == "a":
            obj["spec"]["capability"] = {"nvidia.com/gpu": "24"}
    jobs = [job(f"j{number}", number, 30, 24) for number in range(6)]

    # when an hour is played
    record = play(jobs, objects, in_racks(0, 1), until=3600.0)

    # then both held a session in seven seconds, where it was five a second
    assert not any(each.started for each in record.jobs)
    assert record.counters["sessions"] < 1200


@pytest.mark.parametrize("seed", [4, 29])
def test_what_a_gang_was_granted_is_kept_while_others_leave_for_it(seed: int) -> None:
    """Given two queues of which one has a capability, and jobs that take back what theirs is due, then nobody leaves for them in vain."""
    draw, objects = random.Random(seed), cluster()
    for obj in objects:
        if obj["kind"] == "Queue":
            obj["spec"]["deserved"] = {"nvidia.com/gpu": "16"}
            if obj["metadata"]["name"] == "b":
                obj["spec"]["capability"] = {"nvidia.com/gpu": "16"}
    jobs = [
        job(
            f"j{number}", 10 * number, draw.choice([600, 2000, 4000]),
            draw.choice([6, 8, 16, 24]), draw.choice("ab"),
        )
        for number in range(9)
    ]  # fmt: skip

    # when half an hour is played
    record = play(jobs, objects, in_racks(0, 1), until=1800.0)

    # then no job was evicted again and again, as two were every minute
    evictions = Counter(each.job for each in record.evictions)
    assert max(evictions.values(), default=0) <= 2


def test_who_is_too_large_for_every_shard_never_starts_and_is_told_so() -> None:
    # given a job of three nodes, and shards of two that lend none
    record = play([job("large", 1, 60, 24)], cluster(), in_racks(0, 1))

    # then it waits to the end, with the reason
    large = of(record, "large")
    assert large.started is None
    assert "gangs do not span shards" in large.reasons[-1].sentence


def test_equal_cases_give_equal_records_whatever_the_order_of_objects() -> None:
    config = in_racks(0, 1, lends=True)
    one = play(JOBS, cluster(), config)
    other = play(JOBS, cluster()[::-1], config)
    assert one == other


def test_what_runs_is_in_the_shard_in_which_it_runs() -> None:
    # given what became of jobs of which one is on a node that was lent for it
    first = play([job("large", 1, 5000, 24)], cluster(), in_racks(0, 1, lends=True), until=200.0)
    places = {pod.name: pod for pod in first.pods if pod.bound is not None}
    assert {int(pod.node.rpartition("-")[2]) // 2 for pod in places.values()} == {0, 1}
    objects = cluster()
    for pod in places.values():
        objects.append(running_pod(pod))

    # when that is where another simulation begins, and a job comes to each shard
    small = [job(f"s{number}", 5, 50, 8) for number in range(2)]
    record = play(small, objects, in_racks(0, 1, lends=True))

    # then nothing has a node twice, and the one node that is left is used by both
    assert not record.broken
    assert {of(record, each.name).end for each in small} == {"Succeeded"}


# -- by command ---------------------------------------------------------------------------------
def test_the_command_plays_shards_beside_one_daemon(tmp_path, capsys) -> None:
    # given a configuration with shards, of which one rack is left out
    file = tmp_path / "shards.yaml"
    rows = [
        f"- {{name: s{rack}, nodeSelector: {{matchLabels: {{gpusched.io/rack: rack-{rack:03d}}}}}}}"
        for rack in range(2)
    ]
    file.write_text("\n".join(["shards:", *rows]))
    (tmp_path / "one.yaml").write_text("{}")

    # when both are simulated on three racks
    status = main(
        ["simulate", "--generate", "philly", "--jobs", "30", "--nodes", "12x8/4", "-o", "json",
         "--config", f"one={tmp_path / 'one.yaml'}", "--config", f"shards={file}"]
    )  # fmt: skip

    # then the answer has both, and says how they were played and which nodes got nothing
    told = capsys.readouterr()
    assert status == 0
    assert {*json.loads(told.out)["statistics"][0]["values"]} == {"one", "shards"}
    assert "configuration shards: a daemon for each shard (s0, s1) is played" in told.err
    assert "node node-08 belongs to no shard" in told.err
    assert "(3 more do as well)" in told.err
