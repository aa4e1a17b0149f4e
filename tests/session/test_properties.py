"""What holds for every cluster: no overcommitment, all or nothing, the same plan on any road."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, settings
from hypothesis import given as forall
from hypothesis import strategies as st

from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import (
    ObjectKey,
    Owner,
    Rejected,
    RejectedPodUsage,
    ResourceVersion,
)
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, PodPhase
from gpusched.api.policy.kinds import Namespace, PriorityClass
from gpusched.api.queue.queue import Queue
from gpusched.arrays.columns import request_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.solver.process import SolverProcess
from gpusched.session.framework.accounts.queue_accounts import QueueAccounts
from gpusched.session.framework.pod_counts import PodCountCache, PodCounts
from gpusched.session.state.nodes.devices.device_cache import DeviceCache
from gpusched.session.state.nodes.devices.device_room import DeviceRoom
from gpusched.session.state.statement import Statement
from gpusched.testing import entities, invariants
from gpusched.testing.given import Given
from tests.populations import examples, one_of

pytestmark = pytest.mark.long

QUICK = settings(
    max_examples=examples(20, whole=60),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


WISHES = (
    NO_TOPOLOGY_REQUEST,
    NO_TOPOLOGY_REQUEST,
    TopologyRequest(required="rack"),
    TopologyRequest(preferred="rack"),
    TopologyRequest(required="block", preferred="rack"),
)


def _in_one_more(parts, draw):
    """Sub-groups of every third gang are in one around them, which needs one of them or both."""
    if not parts or draw % 3:
        return parts
    around = SubGroup("around", 0, WISHES[draw % len(WISHES)], min_sub_groups=1 + draw % 2)
    return [around, *(attrs.evolve(part, parent="around") for part in parts)]


@attrs.define
class _ClusterDraw:
    """A cluster being drawn from a seed; nothing of it is known before ``reveal``."""

    seed: int
    cluster: Given = attrs.Factory(Given)
    steps: list[Callable[[], object]] = attrs.Factory(list)
    rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def later(self, act, *args, **fields):
        """Note something that will become known."""
        self.steps.append(lambda: act(*args, **fields))

    def nodes(self) -> None:
        """Nodes of several sizes, some outside of racks, and pods of others on some of them."""
        rng = self.rng
        nodes = rng.randint(1, 6)
        for number in range(nodes):
            self.later(
                self.cluster.node,
                f"n{number}",
                gpus=rng.choice([0, 4, 8]),
                cpu=rng.choice([4000, 16000]),
                pods=rng.choice([3, 110]),
                labels={
                    "gpusched.io/block": f"b{number % 2}",
                    **rng.choice([{}, *[{"gpusched.io/rack": f"r{rack}"} for rack in range(3)]]),
                },
                layout=rng.choice([(), ((0, 1), (2, 3))]),
            )
        free = dict.fromkeys(range(nodes), 0)
        for number in range(rng.randint(0, 4)):
            where = rng.randrange(nodes)
            self.later(
                self.cluster.pod,
                f"used{number}",
                scheduler="other",
                node=f"n{where}",
                gpus=rng.choice([0, 1]),
                slots=rng.choice([0, 1 << free[where]]),
            )
            free[where] += 1

    def queues(self) -> None:
        """Two queues beside the default."""
        for name in ("a", "b"):
            self.later(self.cluster.queue, name, priority=self.rng.randint(0, 1))

    def gang(self, number: int) -> None:
        """A gang of one to six pods, with wishes for levels, roles and sub-groups now and then."""
        rng = self.rng
        count = rng.randint(1, 6)
        name = f"g{number}"
        parts = rng.choice([0, 0, 0, 2])
        self.later(
            self.cluster.group,
            name,
            min_member=rng.randint(1, count),
            queue=rng.choice(["a", "b", "default"]),
            created=entities.NOW - rng.randint(1, 3) * 60,
            topology=rng.choice(WISHES),
            roles=rng.choice([{}, {}, {"odd": 1}]),
            sub_groups=_in_one_more(
                [
                    SubGroup(f"p{part}", rng.randint(1, 2), rng.choice(WISHES))
                    for part in range(parts)
                ],
                self.seed + number,
            ),
        )
        for pod in range(count):
            self.later(
                self.cluster.pod,
                f"{name}-{pod}",
                group=name,
                rank=pod,
                priority=rng.choice([0, 0, 5]),
                gpus=rng.choice([0, 1, 2, 4]) if pod % 2 else 2,
                cpu=rng.choice([500, 3000]),
                role="odd" if pod % 2 else "even",
                sub_group=f"p{pod % parts}" if parts else "",
            )

    def reveal(self, order: int) -> Given:
        """The cluster, when all of it has become known in that order."""
        random.Random(order).shuffle(self.steps)
        for step in self.steps:
            step()
        return self.cluster


def cluster(seed: int, order: int = 0) -> Given:
    """Any cluster: nodes of several sizes, some used or outside of racks, gangs of several classes.

    Args:
        seed: gives the content.
        order: gives the order in which it becomes known.
    """
    draw = _ClusterDraw(seed)
    draw.nodes()
    draw.queues()
    for number in range(draw.rng.randint(1, 6)):
        draw.gang(number)
    return draw.reveal(order)


@QUICK
@forall(st.integers(0, 10**6))
def test_a_plan_never_overcommits_and_never_splits_a_gang(seed):
    """After all bindings were accepted the invariants hold, and again a session later."""
    c = cluster(seed)
    before = invariants.check(c.objects())
    for _ in range(2):
        plan = c.when.bound()
        for gang in plan.binds:
            assert gang.placed + len(gang.binds) >= gang.min_member
        assert invariants.check(c.objects()) == before
    assert c.when.one_session().binds == ()


@QUICK
@forall(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_order_in_which_things_become_known_does_not_matter(seed, order):
    """I12: the same objects give the same plan."""
    assert (
        cluster(seed).when.one_session().plan_id == cluster(seed, order).when.one_session().plan_id
    )


def _plan_ids() -> str:
    return " ".join(cluster(seed, seed).when.one_session().plan_id for seed in range(12))


def test_the_hash_seed_does_not_matter():
    """I12: another process with other hashes decides the same."""
    code = (
        f"import importlib.util as u; s = u.spec_from_file_location('p', {str(Path(__file__))!r}); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); print(m._plan_ids())"
    )
    here = _plan_ids()
    for seed in one_of(2, ("1", "2")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


def test_the_solvers_process_decides_the_same():
    """I12: searches in another process, with other hashes, give the same plans."""
    solver = SolverProcess(SystemClock(), Telemetry())
    solver.budget_s = 30.0
    try:
        for seed in one_of(3, range(40)):
            there = cluster(seed, 5)
            there.search = solver
            assert there.when.one_session().plan_id == cluster(seed).when.one_session().plan_id
            assert not there.then.faults()
    finally:
        solver.close()


@QUICK
@forall(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 5)), max_size=5),
    st.integers(1, 12),
    st.integers(0, 4),
    st.integers(1, 3),
)
@example([(8, 9, 5)], 2, 4, 1)
def test_pods_of_one_class_fit_exactly_when_counting_says_so(nodes, count, gpus, cpu):
    """Single-class gangs start if and only if the nodes hold them one after another."""
    c = Given()
    room = 0
    for number, (has_gpus, has_cpu, pods) in enumerate(nodes):
        c.node(f"n{number}", gpus=has_gpus, cpu=has_cpu * 1000, pods=pods)
        left = [has_gpus, has_cpu, pods]
        while left[0] >= gpus and left[1] >= cpu and left[2] >= 1:
            left = [left[0] - gpus, left[1] - cpu, left[2] - 1]
            room += 1
    c.gang("g", pods=count, gpus=gpus, cpu=cpu * 1000)
    assert bool(c.when.one_session().binds) == (room >= count)


@QUICK
@forall(st.integers(0, 10**6))
def test_rollback_is_identity(seed):
    """Whatever was tried, after rolling back to a checkpoint everything is as it was there."""
    rng = random.Random(seed)
    c = cluster(seed)
    c.node("spare", gpus=8, layout=((0, 2, 4, 6), (1, 3, 5, 7)))
    snapshot = c.cache.take_snapshot(0.0)
    node_usage = NodeUsage(snapshot.nodes)
    pod_counts = PodCounts(node_usage, snapshot.pods_by_node, PodCountCache())
    statement = Statement(
        node_usage,
        QueueAccounts(snapshot.queues),
        pod_counts,
        lambda: DeviceRoom(snapshot.devices, node_usage, DeviceCache()),
    )
    row = snapshot.nodes.row["spare"]
    marks = [(statement.checkpoint(), node_usage.used.copy(), list(node_usage.free_slots))]
    for number in range(4):
        spec = entities.pod_class(gpus=rng.randint(0, 2), cpu=rng.randint(0, 3000))
        statement.assign(
            entities.pod(f"p{number}", spec),
            row,
            request_vector(spec.requests, snapshot.nodes.columns),
        )
        marks.append((statement.checkpoint(), node_usage.used.copy(), list(node_usage.free_slots)))
    for mark, used, free in reversed(marks):
        statement.rollback(mark)
        assert np.array_equal(node_usage.used, used)
        assert node_usage.free_slots == free


# -- any road ------------------------------------------------------------------------------
class Road:
    """Random changes to a cache, and the objects as they are in the end."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cache = Cache(["gpusched"])
        self.version = 0
        self.end: dict[tuple[str, ObjectKey], object] = {}

    def step(self) -> None:
        """One change of one object."""
        rng = self.rng
        kind = rng.choice(["pod"] * 6 + ["node"] * 2 + ["group", "job", "namespace", "priority",
                                                        "queue"])  # fmt: skip
        name = "ns" if kind == "namespace" else f"{kind}{rng.randint(0, 3 if kind == 'pod' else 1)}"
        key = ObjectKey("ns" if kind in ("pod", "group", "job") else "", name)
        if rng.random() < 0.25:
            self.end.pop((kind, key), None)
            drop(self.cache, kind, key)
            return
        self.version += 1
        item = getattr(self, f"_{kind}")(key)
        if kind == "pod" and isinstance(item, entities.Pod):
            item = self._grown(item)
        self.end[kind, key] = item
        put(self.cache, kind, key, item)

    def _grown(self, pod):
        """What is bound stays bound there, and who is over stays over: as the API has it."""
        before = self.end.get(("pod", pod.key))
        if isinstance(before, entities.Pod) and before.uid == pod.uid:
            if before.node:
                pod = msgspec.structs.replace(pod, node=before.node, slots=before.slots)
            if before.finished:
                pod = msgspec.structs.replace(pod, phase=before.phase)
        return pod

    def _pod(self, key):
        rng = self.rng
        own = f"{key.name}-{rng.randint(0, 1)}"
        if rng.random() < 0.1:
            return Rejected(
                kind="Pod", key=key, uid=own, resource_version=ResourceVersion(str(self.version)),
                field="f", why="w",
                charge=charge_of(f"node{rng.randint(0, 1)}") if rng.random() < 0.5 else None,
            )  # fmt: skip
        bound = rng.random() < 0.4
        return entities.pod(
            key.name,
            entities.pod_class(gpus=rng.choice([0, 2])),
            namespace="ns",
            group=rng.choice(["", "", "group0", "group1"]),
            owner=rng.choice([None, Owner("Job", "job0", "job0-0"), Owner("Job", "job1", "x")]),
            scheduler="other" if own == "pod2-1" else "gpusched",
            queue=rng.choice(["", "queue0"]),
            node=f"node{rng.randint(0, 1)}" if bound else "",
            slots=rng.choice([0, 3]) if bound else 0,
            phase=rng.choice([PodPhase.PENDING, PodPhase.RUNNING, PodPhase.SUCCEEDED])
            if bound
            else PodPhase.PENDING,
            deleting=rng.random() < 0.2,
            gated=rng.random() < 0.2,
            priority=rng.randint(0, 2),
            version=str(self.version),
            own_uid=own,
        )

    def _node(self, key):
        rng = self.rng
        if rng.random() < 0.15:
            return Rejected(
                kind="Node", key=key, uid=key.name, resource_version=ResourceVersion("1"),
                field="f", why="w",
            )  # fmt: skip
        return entities.node(
            key.name,
            gpus=rng.choice([4, 8]),
            unschedulable=rng.random() < 0.3,
            version=str(self.version),
            own_uid=f"{key.name}-{rng.randint(0, 1)}",
        )

    def _group(self, key):
        rng = self.rng
        return entities.pod_group(
            key.name, namespace="ns", min_member=rng.randint(1, 3), queue=f"queue{rng.randint(0, 1)}",
            priority_class=rng.choice(["", "priority0"]), generation=self.version,
            deleting=rng.random() < 0.1,
        )  # fmt: skip

    def _job(self, key):
        rng = self.rng
        return Job(
            namespace="ns", name=key.name, uid=f"{key.name}-{rng.randint(0, 1)}",
            resource_version=ResourceVersion(str(self.version)), created=1.0,
            parallelism=rng.randint(1, 3), completions=rng.choice([None, 2, 3]), indexed=False,
            suspended=False, succeeded=rng.randint(0, 1), queue=rng.choice(["", "queue1"]),
            group="", hints=NO_GANG_ANNOTATIONS,
        )  # fmt: skip

    def _namespace(self, key):
        return Namespace(
            name="ns", uid="ns", resource_version=ResourceVersion(str(self.version)), labels={},
            queue=self.rng.choice(["", "queue0", "queue1"]),
        )  # fmt: skip

    def _priority(self, key):
        return PriorityClass(
            name=key.name, uid=key.name, resource_version=ResourceVersion(str(self.version)),
            value=self.rng.randint(0, 100), preemption_policy="",
        )  # fmt: skip

    def _queue(self, key):
        if self.rng.random() < 0.15:
            return Rejected(
                kind="Queue", key=key, uid=key.name, resource_version=ResourceVersion("1"),
                field="f", why="w",
            )  # fmt: skip
        return Queue(
            name=key.name, uid=key.name, resource_version=ResourceVersion(str(self.version)),
            generation=1, created=1.0, parent=self.rng.choice(["root", "queue0", "queue1"]),
        )  # fmt: skip


def charge_of(node):
    """What a pod on this node takes although it cannot be believed."""
    return RejectedPodUsage(node, Resources.of({"nvidia.com/gpu": 1000, "pods": 1}))


def put(cache, kind, key, item):
    """An object appears or changes."""
    if kind in ("pod", "node"):
        {"pod": cache.put_pod, "node": cache.put_node}[kind](item)
    elif kind == "namespace":
        cache.put_namespace(ObjectKey("", "ns"), item)
    else:
        getattr(cache, f"put_{kind}")(key, item)


def drop(cache, kind, key):
    """An object goes."""
    if kind == "node":
        cache.drop_node(key.name)
    elif kind == "namespace":
        cache.drop_namespace(ObjectKey("", "ns"))
    else:
        getattr(cache, f"drop_{kind}")(key)


def content(snapshot):
    """Everything in a snapshot that a decision may depend on."""
    nodes = snapshot.nodes
    gangs = {}
    for gang in snapshot.gangs:
        fields = {
            field.name: getattr(gang, field.name)
            for field in attrs.fields(type(gang))
            if field.name not in ("pod_sets", "placed", "pod_group")
        }
        fields["tasks"] = [
            (task.role, task.pod_class.digest, [(pod.uid, pod.resource_version) for pod in task.pods])
            for task in gang.pod_sets
        ]  # fmt: skip
        fields["placed"] = [(each.pod.uid, each.node, each.confirmed) for each in gang.placed]
        gangs[gang.key] = fields
    return {
        # A heartbeat leaves the row as it is: its version alone is another.
        "nodes": [
            attrs.astuple(attrs.evolve(node, resource_version=""), recurse=False)
            for node in nodes.nodes
        ],
        "columns": nodes.columns,
        "used": nodes.used.tolist(),
        "allocatable": nodes.allocatable.tolist(),
        "slots": nodes.free_slots,
        "queues": {
            name: (node.path, node.leaf, node.error, node.allocated)
            for name, node in snapshot.queues.queues.items()
        },
        "running": dict(snapshot.running_gangs),
    }, gangs


@pytest.mark.parametrize("seed", one_of(4, range(60)))
def test_any_road_leads_to_the_same_snapshot(seed):
    """I9, I16: what was seen on the way leaves no trace, and a restart changes nothing."""
    road = Road(seed)
    for _ in range(road.rng.randint(5, 60)):
        road.step()
        if road.rng.random() < 0.3:
            road.cache.take_snapshot(0.0)
        if road.rng.random() < 0.1:
            for pod in list(road.cache.pods.values())[:1]:
                if not pod.holds and not pod.finished:
                    road.cache.assume_binding(pod, "node0", 0b1000)
                    road.cache.take_snapshot(0.0)
                    road.cache.forget(pod.uid)
    fresh = Cache(["gpusched"])
    final = [(kind, key, item) for (kind, key), item in road.end.items()]
    road.rng.shuffle(final)
    for kind, key, item in final:
        put(fresh, kind, key, item)
    mine, gangs = content(road.cache.take_snapshot(0.0))
    snapshot = fresh.take_snapshot(0.0)
    waiting = {
        gang.key
        for gang in snapshot.gangs
        if gang.pending or (gang.missing_members and gang.active)
    }
    theirs, all_gangs = content(snapshot)
    assert mine == theirs
    for key, gang in gangs.items():
        assert gang == all_gangs[key]
    assert waiting <= gangs.keys()
