"""Asking when something would start, submitting it, and watching: the daemon on an embedded cluster, in virtual time.

Clusters are drawn from seeds. What runs ends when it announces that; what is asked about is one gang of a
random kind and shape.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.answer import SubmittedGang, answer_submission
from gpusched.advice.submission.manifests import read_manifests
from gpusched.advice.trial import TrialCluster
from gpusched.base.clock import LoopClock
from gpusched.config.model import DEFAULT
from gpusched.engine.simulation import StoppedClock
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.credentials import ApiAccess, GivenCredentials
from gpusched.io.recordings.snapshot_reader import take_snapshot
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.connections import MemoryNetwork
from gpusched.lab.virtual_time.loop import run_virtual
from tests.daemon.conftest import GROUPS, QUEUES, World

GPU: Final = "nvidia.com/gpu"
SOON_S: Final = 20.0
"""A start within so long is one that was now: pods are made, their Job is started, others are evicted."""
TOLERANCE_S: Final = 60.0
"""Of a start that is expected: pods take a moment to come, to start and to go."""
_WATCHED_S: Final = 4 * 3600.0
_NAME: Final = "asked"


@attrs.frozen(kw_only=True)
class KeptPromise:
    """What was promised, and what came.

    Attributes:
        promised: the answer.
        asked_at: seconds since the Unix epoch.
        started_at: the same, when it had its minimum; None for not within the time that was watched.
        domains: racks of the nodes that it got then.
    """

    seed: int
    promised: SubmittedGang
    asked_at: float
    started_at: float | None
    racks: tuple[str, ...]

    @property
    def fault(self) -> str:
        """What was not as promised; empty for nothing."""
        kind, took = self.promised.start.kind, self._took_s
        if self.promised.never or kind is StartKind.UNKNOWN:
            return "" if took is None else f"started after {took:.0f} s although nothing told when"
        if took is None:
            return f"promised {kind} and not started"
        if kind is StartKind.EXPECTED:
            late = took - (self.promised.start.at - self.asked_at)
            if abs(late) > TOLERANCE_S:
                return f"started {late:+.0f} s from the time that was expected"
        elif took > (SOON_S if kind is StartKind.NOW else TOLERANCE_S):
            return f"promised {kind} and started after {took:.0f} s"
        racks = dict(self.promised.domains).get("rack", ())
        if kind is StartKind.NOW and len(racks) != len(self.racks):
            return f"promised racks {racks} and got {self.racks}"
        return ""

    @property
    def _took_s(self) -> float | None:
        return None if self.started_at is None else self.started_at - self.asked_at


def keep_promise(seed: int) -> KeptPromise:
    """Draw a cluster and a submission, ask, submit and watch."""

    async def main(clock: LoopClock) -> KeptPromise:
        world = World(clock, Path(folder), over_http=False)
        try:
            found = await _asked_and_watched(world, seed)
            await world.end()
        finally:
            if world.cluster is not None:
                await world.cluster.close()
        return found

    with tempfile.TemporaryDirectory() as folder:
        return run_virtual(main, limit_s=12 * 3600.0, network=MemoryNetwork())


async def _asked_and_watched(world: World, seed: int) -> KeptPromise:
    draw = random.Random(seed)
    await world.start(nodes=0)
    for number in range(draw.choice([4, 6, 8])):
        world.node(f"node-{number}", **{"gpusched.io/rack": f"r{number // 2}"})
    for name, value in (("low", 10), ("high", 100)):
        world.client.create(
            "priorityclasses.scheduling.k8s.io",
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
             "metadata": {"name": name}, "value": value},
        )  # fmt: skip
    for name in ("a", "b"):
        spec: dict[str, Any] = {"deserved": {GPU: "16"}}
        if draw.random() < 0.3:
            spec["capability"] = {GPU: str(draw.choice([16, 24, 32]))}
        body = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
                "metadata": {"name": name}, "spec": spec}  # fmt: skip
        world.client.create(QUEUES, body)
    world.daemon()
    for number in range(draw.randint(2, 9)):
        for body in _gang(draw, f"there-{number}", draw.choice(["group", "group", "job"])):
            _create(world, body)
        await world.clock.sleep(draw.choice([1, 60, 300]))
    await world.clock.sleep(30)
    documents = _gang(draw, _NAME, draw.choice(["group", "job", "suspended"]))
    asked_at, promised = await _ask(world, documents)
    for body in documents:
        _create(world, body)
    pods = documents[-1]["spec"]["parallelism"]
    wanted = min(promised.min_member, pods)
    started_at, racks = None, ()
    while started_at is None and world.clock.now() < asked_at + _WATCHED_S:
        held = _held(world)
        if len(held) >= wanted:
            started_at = world.clock.now()
            racks = _racks(world, held)
        await world.clock.sleep(1 if world.clock.now() < asked_at + SOON_S else 5)
    return KeptPromise(
        seed=seed, promised=promised, asked_at=asked_at, started_at=started_at, racks=racks
    )


async def _ask(world: World, documents: list[dict[str, Any]]) -> tuple[float, SubmittedGang]:
    """The answer about documents, from what any client reads of the cluster."""
    access = ApiAccess(host=f"http://127.0.0.1:{world.port}", authorization=f"Bearer {world.token}")
    api = await ApiClient.connect(
        GivenCredentials(access), clock=world.clock, opened=sessions_to(world.cluster.in_process)
    )
    try:
        recording = await take_snapshot(api, now=world.clock.now())
    finally:
        await api.close()
    objects = [json.loads(line) for lines in recording.lines.values() for line in lines]
    now = world.clock.now()
    trial = TrialCluster(objects, DEFAULT, now=now, clock=StoppedClock())
    raw = "\n---\n".join(json.dumps(each) for each in documents).encode()
    answer = answer_submission(
        trial, read_manifests(raw, "asked"), namespace="default", better=False
    )
    assert not answer.refused, answer.refused
    (gang,) = answer.gangs
    return now, gang


def _gang(draw: random.Random, name: str, kind: str) -> list[dict[str, Any]]:
    """A PodGroup with a Job, a Job of one gang, or one that waits suspended in a queue."""
    pods, gpus = draw.choice([1, 2, 2, 3, 4]), draw.choice([2, 4, 8, 8])
    length, queue = f"{draw.choice([600, 1200, 1800, 3600, 7200])}s", draw.choice("ab")
    priority = draw.choice(["low", "low", "high"])
    topology = "rack" if draw.random() < 0.4 and pods <= 2 else ""
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
    notes = {"gpusched.io/run-for": length}
    template = {
        "metadata": {"annotations": notes, "labels": {}},
        "spec": {
            "schedulerName": "gpusched", "restartPolicy": "Never", "containers": [container],
            "priorityClassName": priority,
        },
    }  # fmt: skip
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {}, "annotations": {}},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }  # fmt: skip
    if kind == "group":
        template["metadata"]["labels"]["gpusched.io/pod-group"] = name
        spec = {
            "queue": queue, "minMember": pods, "priorityClassName": priority,
            "expectedDuration": length,
        }  # fmt: skip
        if topology:
            spec["topology"] = {"required": topology}
        group = {
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name}, "spec": spec,
        }  # fmt: skip
        return [group, job]
    wishes = {"gpusched.io/expected-duration": length, "gpusched.io/min-member": str(pods)}
    if topology:
        wishes["gpusched.io/topology-required"] = topology
    job["metadata"]["labels"] = {"gpusched.io/queue": queue}
    template["metadata"]["labels"] = {"gpusched.io/queue": queue}
    job["metadata"]["annotations"] = wishes
    notes |= wishes
    if kind == "suspended":
        job["spec"]["suspend"] = True
    return [job]


_RESOURCES: Final = {"PodGroup": GROUPS, "Job": "jobs.batch"}


def _create(world: World, body: dict[str, Any]) -> None:
    metadata = {**body["metadata"], "namespace": "default"}
    world.client.create(_RESOURCES[body["kind"]], {**body, "metadata": metadata})


def _held(world: World) -> list[dict[str, Any]]:
    """Pods of what was asked about that have a node."""
    return [pod for pod in world.bound() if pod["metadata"]["name"].startswith(f"{_NAME}-")]


def _racks(world: World, pods: list[dict[str, Any]]) -> tuple[str, ...]:
    nodes = {each["metadata"]["name"]: each for each in world.client.list("nodes")}
    return tuple(
        sorted(
            {
                nodes[pod["spec"]["nodeName"]]["metadata"]["labels"]["gpusched.io/rack"]
                for pod in pods
            }
        )
    )
