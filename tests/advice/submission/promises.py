"""Asking when something would start, submitting it, and watching: the daemon on an embedded cluster, in virtual time.

Clusters are drawn from seeds. What runs ends when it announces that; what is asked about is one gang of a
random kind and shape. Situations add what simple clusters lack; then nothing tells the answer the real run times but
what people announce.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.answer import SubmittedGang, answer_submission
from gpusched.advice.submission.manifests import read_manifests
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import format_time
from gpusched.base.clock import LoopClock
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT, Config
from gpusched.engine.schedulers.scheduler import StoppedClock
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.credentials import ApiAccess, GivenCredentials
from gpusched.io.leader.shard_board import find_board
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
_LEASES_S: Final = 40.0
"""After which daemons of shards have taken their Leases and counted everything."""
_RACKS_MAX: Final = 4
_NAME: Final = "asked"
_RUN_FOR: Final = "gpusched.io/run-for"
SITUATIONS: Final = (
    "elastic gangs", "terms of gangs", "four queues", "a tree of queues", "users", "budgets", "reservations",
    "cordons", "bare pods", "deadlines",
)  # fmt: skip
"""What clusters and gangs may have besides."""


def situations_of(seed: int) -> tuple[str, ...]:
    """One to three situations."""
    draw = random.Random(f"situations {seed}")
    return tuple(draw.sample(SITUATIONS, draw.choice([1, 2, 3])))


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


def keep_promise(
    seed: int, situations: Sequence[str] = (), *, shards: Sequence[str] = ()
) -> KeptPromise:
    """Draw a cluster and a submission, ask, submit and watch.

    Args:
        seed: of what is drawn.
        situations: what there is besides.
        shards: ``keep`` or ``lend`` for each of several daemons that divide the racks; none for one daemon.
    """

    async def main(clock: LoopClock) -> KeptPromise:
        world = World(clock, Path(folder), over_http=False)
        try:
            config_file = _config_of(Path(folder), shards)
            found = await _asked_and_watched(world, seed, situations, config_file)
            await world.end()
        finally:
            if world.cluster is not None:
                await world.cluster.close()
        return found

    with tempfile.TemporaryDirectory() as folder:
        return run_virtual(main, limit_s=12 * 3600.0, network=MemoryNetwork())


def _config_of(folder: Path, shards: Sequence[str]) -> str:
    """A file that divides racks between shards, in turn; none for one daemon."""
    if not shards:
        return ""
    rows = []
    for number, idle in enumerate(shards):
        racks = [f"r{rack}" for rack in range(number, _RACKS_MAX, len(shards))]
        those = {"key": "gpusched.io/rack", "operator": "In", "values": racks}
        selector = {"matchExpressions": [those]}
        rows.append({"name": f"s{number}", "idleNodes": idle, "nodeSelector": selector})
    file = folder / "gpusched.yaml"
    file.write_text(json.dumps({"shards": rows}))
    return str(file)


def _start_daemons(world: World, config_file: str) -> Config:
    """A daemon, or one for each shard; the configuration of all."""
    if not config_file:
        world.daemon()
        return DEFAULT
    config = load_file(config_file)
    for shard in config.shards:
        world.daemon(config_file=config_file, shards=(shard.name,))
    return config


async def _asked_and_watched(
    world: World, seed: int, situations: Sequence[str], config_file: str
) -> KeptPromise:
    draw = random.Random(seed)
    await world.start(nodes=0)
    nodes = draw.choice([4, 6, 8])
    for number in range(nodes):
        world.node(f"node-{number}", **{"gpusched.io/rack": f"r{number // 2}"})
    for name, value in (("low", 10), ("high", 100)):
        world.client.create(
            "priorityclasses.scheduling.k8s.io",
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
             "metadata": {"name": name}, "value": value},
        )  # fmt: skip
    for body in _queues(draw, nodes, situations):
        world.client.create(QUEUES, body)
    if "reservations" in situations:
        for body in _reservations(draw, nodes, world.clock.now()):
            world.client.create("reservations.scheduling.gpusched.io", body)
    config = _start_daemons(world, config_file)
    if config.shards:
        await world.clock.sleep(_LEASES_S)
    for number in range(draw.randint(2, 9)):
        name = f"there-{number}"
        kind = draw.choice(["group", "group", "job"])
        for body in _with_situations(draw, name, _gang(draw, name, kind), situations):
            _create(world, body)
        await world.clock.sleep(draw.choice([1, 60, 300]))
        if "cordons" in situations and draw.random() < 0.15:
            node = f"node-{draw.randrange(nodes)}"
            world.client.patch("nodes", None, node, {"spec": {"unschedulable": True}})
    await world.clock.sleep(30)
    documents = _gang(draw, _NAME, draw.choice(["group", "job", "suspended"]))
    documents = _with_situations(draw, _NAME, documents, situations)
    asked_at, promised = await _ask(world, documents, config, all_is_known=not situations)
    for body in documents:
        _create(world, body)
    wanted = min(promised.min_member, promised.pods)
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


async def _ask(
    world: World, documents: list[dict[str, Any]], config: Config, *, all_is_known: bool
) -> tuple[float, SubmittedGang]:
    """The answer about documents, from what any client reads of the cluster; real run times stand in no real one."""
    access = ApiAccess(host=f"http://127.0.0.1:{world.port}", authorization=f"Bearer {world.token}")
    api = await ApiClient.connect(
        GivenCredentials(access), clock=world.clock, opened=sessions_to(world.cluster.in_process)
    )
    try:
        recording = await take_snapshot(api, now=world.clock.now())
        board = await find_board(api, config.leader_election)
    finally:
        await api.close()
    objects = [json.loads(line) for lines in recording.lines.values() for line in lines]
    now = world.clock.now()
    if not all_is_known:
        objects, documents = _without_run_times(objects), _without_run_times(documents)
    trial = TrialCluster(objects, config, now=now, clock=StoppedClock(), board=board)
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


def _queues(draw: random.Random, nodes: int, situations: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Leaves that deserve some GPUs, under two departments where they make a tree."""
    is_tree = "a tree of queues" in situations
    for name in "xy" if is_tree else "":
        above: dict[str, Any] = {"deserved": {GPU: str(4 * nodes)}}
        if draw.random() < 0.4:
            above["capability"] = {GPU: str(4 * nodes + draw.choice([0, 8]))}
        yield _queue(name, above)
    for number, name in enumerate("abcd" if "four queues" in situations else "ab"):
        spec: dict[str, Any] = {"deserved": {GPU: "16"}}
        if draw.random() < 0.3:
            spec["capability"] = {GPU: str(draw.choice([16, 24, 32]))}
        if is_tree:
            spec["parent"] = "xy"[number % 2]
            rules = {
                "reclaimable": False, "guarantee": {"resource": {GPU: "8"}},
                "ordering": draw.choice(["Fifo", "StrictFifo", "FairShare"]),
                "minRuntime": draw.choice(["5m", "30m"]), "maxRuntime": draw.choice(["20m", "1h"]),
                "maxWait": draw.choice(["10m", "1h"]),
            }  # fmt: skip
            spec |= {rule: value for rule, value in rules.items() if draw.random() < 0.2}
        if "users" in situations:
            limits = [{"resources": {GPU: "8"}}, {"resources": {GPU: "16"}}, {"maxRunning": 1}]
            spec["userLimits"] = {"perUser": draw.choice(limits)}
        if "budgets" in situations:
            hours, period = str(draw.choice([1, 4, 8, 16, 24])), draw.choice(["1h", "2h", "3h"])
            spec["budget"] = {"gpuHours": hours, "period": period}
            if draw.random() < 0.3:
                spec["budget"]["onExhausted"] = "HoldAndDrain"
        yield _queue(name, spec)


def _queue(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip


def _reservations(draw: random.Random, nodes: int, now: float) -> Iterator[dict[str, Any]]:
    """One or two, of a rack each, that begin within the next hours."""
    for number in range(draw.choice([1, 2])):
        spec: dict[str, Any] = {
            "purpose": draw.choice(["Maintenance", "Reserved"]),
            "from": format_time(now + draw.choice([300, 1200, 3600, 5400])),
            "duration": draw.choice(["10m", "1h", "2h"]),
            "nodeSelector": {"gpusched.io/rack": f"r{draw.randrange(nodes // 2)}"},
        }
        if spec["purpose"] == "Reserved" and draw.random() < 0.7:
            spec["queues"] = [draw.choice("ab")]
        if draw.random() < 0.3:
            spec["atStart"] = "Leave"
        yield {
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Reservation",
            "metadata": {"name": f"window-{number}"}, "spec": spec,
        }  # fmt: skip


def _with_situations(
    draw: random.Random, name: str, documents: list[dict[str, Any]], situations: Sequence[str]
) -> list[dict[str, Any]]:
    """A gang's manifests with what situations add to them."""
    if not situations:
        return documents
    job, group = documents[-1], documents[0] if len(documents) > 1 else None
    template = job["spec"]["template"]
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job["spec"]["podFailurePolicy"] = {"rules": [ignored]}
    if "four queues" in situations:
        queue = draw.choice("abcd")
        if group is not None:
            group["spec"]["queue"] = queue
        else:
            for metadata in (job["metadata"], template["metadata"]):
                metadata["labels"]["gpusched.io/queue"] = queue
    if "users" in situations:
        for metadata in ((group or job)["metadata"], template["metadata"]):
            metadata.setdefault("annotations", {})["gpusched.io/user"] = "ab"[len(name) % 2]
    if group is not None:
        return _with_group_situations(draw, name, group, job, situations)
    if "deadlines" in situations and name != _NAME:
        job["spec"]["activeDeadlineSeconds"] = int(
            template["metadata"]["annotations"][_RUN_FOR][:-1]
        )
        for metadata in (job["metadata"], template["metadata"]):
            metadata["annotations"].pop("gpusched.io/expected-duration")
        template["metadata"]["annotations"][_RUN_FOR] = "100h"
    return documents


def _with_group_situations(
    draw: random.Random,
    name: str,
    group: dict[str, Any],
    job: dict[str, Any],
    situations: Sequence[str],
) -> list[dict[str, Any]]:
    pods, template = job["spec"]["parallelism"], job["spec"]["template"]
    if "elastic gangs" in situations and draw.random() < 0.5:
        group["spec"]["minMember"] = max(1, pods // 2)
        pods += draw.choice([1, 2, 3])
        job["spec"]["parallelism"] = job["spec"]["completions"] = pods
    if "terms of gangs" in situations:
        terms = {"preemptible": False, "minRuntime": draw.choice(["5m", "30m", "2h"])}
        group["spec"] |= {term: value for term, value in terms.items() if draw.random() < 0.3}
    if "bare pods" not in situations:
        return [group, job]
    numbered = [{**template["metadata"], "name": f"{name}-{each}"} for each in range(pods)]
    return [
        group,
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": each, "spec": template["spec"]}
            for each in numbered
        ),
    ]


def _without_run_times(objects: Any) -> Any:
    """The same manifests without the annotation that tells fake nodes how long to run a pod."""
    if isinstance(objects, dict):
        return {
            name: _without_run_times(each) for name, each in objects.items() if name != _RUN_FOR
        }
    return [_without_run_times(each) for each in objects] if isinstance(objects, list) else objects


_RESOURCES: Final = {"PodGroup": GROUPS, "Job": "jobs.batch", "Pod": "pods"}


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
