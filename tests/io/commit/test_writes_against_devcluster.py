"""Every write we make, against the embedded API server: accepted, and read back as meant."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from gpusched import API_VERSION
from gpusched.api.gang.decode import POD_GROUPS
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.identity import GangKey, ObjectKey, Rejected
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.pod.decode import PODS
from gpusched.api.queue.decode import QUEUES
from gpusched.commit.model import CommitPhase
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.write.binder import Binder
from gpusched.io.write.status.status_writer import StatusWriter
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.session.state.plan import (
    GangBind,
    GangStatus,
    PendingReason,
    PodBind,
    QueueStatus,
    Undo,
)

PATHS = {
    "pods": "/api/v1/namespaces/default/pods",
    "podgroups": f"/apis/{API_VERSION}/namespaces/default/podgroups",
    "queues": f"/apis/{API_VERSION}/queues",
    "events": "/apis/events.k8s.io/v1/namespaces/default/events",
}
CODECS: dict[str, KindCodec] = {"pods": PODS, "podgroups": POD_GROUPS, "queues": QUEUES}


@attrs.define
class Shelf:
    """See ``status_writes.Shelf``."""

    items: dict = attrs.Factory(dict)


class ApiCache:
    """What the API shows, fetched on demand; the writer itself never waits for it."""

    def __init__(self, api):
        self.api = api
        self.pods = {}
        self.groups = Shelf()
        self.queues = Shelf()
        self.confirmed = set()

    def withdraw_nomination(self, uid, reason):
        """No pod here is promised room."""

    def find_pod(self, uid):
        """See ``StatusCache``."""
        return self.pods.get(uid)

    def confirm_binding(self, uid, node, slots, plan):
        """See ``CommitCache``."""
        self.confirmed.add(uid)

    def forget(self, uid):
        """See ``CommitCache``."""
        raise AssertionError(uid)

    def placement_error(self, node, node_uid):
        """See ``CommitCache``."""
        return ""

    async def fetch(self):
        """As after the watch has caught up."""
        found = {}
        for kind, codec in CODECS.items():
            answer = await self.api.request("GET", PATHS[kind], timeout_s=5)
            found[kind] = codec.decode_page(answer.body).items
        self.pods = {pod.uid: pod for pod in found["pods"]}
        self.groups.items = {group.key: group for group in found["podgroups"]}
        self.queues.items = {queue.key: queue for queue in found["queues"]}


@attrs.define
class Site:
    """A cluster with a PodGroup, two pods, a queue and a node."""

    cluster: object
    api: ApiClient
    cache: ApiCache
    binder: Binder
    status: StatusWriter
    settled: list
    clock: object

    async def rest(self):
        """Until the gang came to rest."""
        for _ in range(1000):
            if self.settled:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the gang never came to rest")

    def event_texts(self):
        """Type, reason, note and count of all events about PodGroups and pods."""
        return [
            (e["type"], e["reason"], e.get("message"), (e.get("series") or {}).get("count", 1))
            for e in self.cluster.client.list("events")
            if e["reportingComponent"] == "gpusched"
        ]

    def versions(self):
        """Of everything there is: shows whether anything was written."""
        return {
            (kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for kind in ("pods", "podgroups.scheduling.gpusched.io", "events")
            for obj in self.cluster.client.list(kind)
        }

    def writer(self, lease):
        """A new process's writer."""
        return StatusWriter(
            self.api, RateLimiter(self.clock), self.cache, lease=lease, clock=self.clock,
            telemetry=Telemetry(), on_fault=pytest.fail,
        )  # fmt: skip

    def gang_status(self, **more):
        """Of the PodGroup."""
        group = self.cache.groups.items[ObjectKey("default", "g")]
        ask = PendingReason(
            reason="InsufficientResources", message="needs 2 nodes with 8 free GPUs"
        )
        fields = {
            "gang": GangKey("PodGroup", "default", "g"), "uid": group.uid,
            "generation": group.generation, "queue": "default", "phase": "Inqueue",
            "admitted": PendingReason(reason="Admitted", message="admitted to queue default"),
            "is_admitted": True, "scheduled": ask, "is_scheduled": False,
            "waiting_pods": tuple((p.key, p.uid) for p in self.cache.pods.values()),
            "counts": (0, 0, 0, 0), "placement": (("rack", "r1"),),
        }  # fmt: skip
        return GangStatus(**{**fields, **more})


@pytest.fixture
def site(tmp_path):
    """Run ``async def scenario(site)`` on a fresh cluster in virtual time."""

    def run(scenario, lease):
        async def main(clock):
            cluster = await start(ClusterOptions(clock=clock, stages=False, controllers=False))
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(cluster.kubeconfig_text)
            api = await ApiClient.connect(str(kubeconfig), clock=clock)
            cache, rate_limiter, telemetry, settled = (
                ApiCache(api),
                RateLimiter(clock),
                Telemetry(),
                [],
            )
            binder = Binder(
                api, rate_limiter, cache, lease, clock=clock, telemetry=telemetry,
                on_fault=pytest.fail, on_settled=settled.append,
            )  # fmt: skip
            status = StatusWriter(
                api, rate_limiter, cache, lease=lease, clock=clock, telemetry=telemetry,
                on_fault=pytest.fail,
            )  # fmt: skip
            made = Site(cluster, api, cache, binder, status, settled, clock)
            _populate(cluster.client)
            await cache.fetch()
            try:
                await scenario(made)
            finally:
                await binder.drain(1.0)
                await api.close()
                await cluster.close()

        run_virtual(main)

    return run


def _populate(client):
    metadata = {"name": "n1"}
    client.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    for kind, name in (("PodGroup", "g"), ("Queue", "q")):
        namespace = {"namespace": "default"} if kind == "PodGroup" else {}
        plural = f"{kind.lower()}s.scheduling.gpusched.io"
        client.create(
            plural,
            {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **namespace},
             "spec": {"minMember": 2} if kind == "PodGroup" else {}},
        )  # fmt: skip
    for name in ("a", "b"):
        container = {
            "name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }  # fmt: skip
        client.create(
            "pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
             "spec": {"schedulerName": "gpusched", "containers": [container]}},
        )  # fmt: skip


class Ours:
    """The lease is ours."""

    fence = "me/1"

    def may_act(self, now_mono, now_boot, needs_s):
        """See ``Lease``."""
        return True

    def doubt(self):
        """See ``Lease``."""
        raise AssertionError


def _bind(site):
    group = site.cache.groups.items[ObjectKey("default", "g")]
    binds = tuple(
        PodBind(
            key=pod.key, uid=pod.uid, node="n1", node_uid="nu", slots=1 << rank, rank=rank,
            requests=NOTHING,
        )
        for rank, pod in enumerate(site.cache.pods.values())
    )  # fmt: skip
    return GangBind(
        gang=GangKey("PodGroup", "default", "g"), uid=group.uid, generation=group.generation,
        queue="default", min_member=2, placed=0, binds=binds,
    )  # fmt: skip


def test_a_gang_from_waiting_to_bound_to_undone(site):
    """Conditions, pod conditions, bindings, events and evictions of one gang's life."""

    async def scenario(site):
        site.status.submit([site.gang_status()], [])
        assert await site.status.flush(10)
        await site.cache.fetch()
        group = site.cache.groups.items[ObjectKey("default", "g")]
        assert group.phase == "Inqueue"
        assert group.condition("Scheduled").reason == "InsufficientResources"
        assert group.condition("Scheduled").observed_generation == group.generation
        for pod in site.cache.pods.values():
            assert pod.unschedulable_reason == "Unschedulable"
            assert pod.unschedulable == "needs 2 nodes with 8 free GPUs"
        assert (
            site.event_texts()
            == [("Warning", "FailedScheduling", "needs 2 nodes with 8 free GPUs", 1)] * 3
        )  # on the group and on each pod
        site.binder.submit(_bind(site))
        await site.rest()
        assert site.settled[0].phase is CommitPhase.BOUND
        await site.cache.fetch()
        pods = sorted(site.cache.pods.values(), key=lambda pod: pod.name)
        assert [(p.node, p.slots, p.fence) for p in pods] == [("n1", 1, "me/1"), ("n1", 2, "me/1")]
        assert {p.plan for p in pods} == {_bind(site).plan_id}
        assert all(p.unschedulable_reason == "" and p.scheduled for p in pods)
        done = PendingReason(reason="Scheduled", message="2 of 2 pods needed have their place")
        site.status.submit(
            [site.gang_status(phase="Running", scheduled=done, is_scheduled=True, waiting_pods=(),
                              counts=(2, 0, 0, 0), placement=())],
            [],
        )  # fmt: skip
        assert await site.status.flush(10)
        assert ("Normal", "Scheduled", done.message, 1) in site.event_texts()
        raw = site.cluster.client.get("podgroups.scheduling.gpusched.io", "default", "g")
        assert raw["status"]["scheduled"] == 2
        assert "placement" not in raw["status"]
        site.binder.undo_partial(
            Undo(gang=("PodGroup", "default", "g"), message="too late",
                 pods=tuple((p.key, p.uid) for p in pods))
        )  # fmt: skip
        await asyncio.sleep(5)
        # There is no kubelet here to end them.
        left = site.cluster.client.list("pods")
        assert len(left) == 2
        assert all(pod["metadata"]["deletionTimestamp"] for pod in left)

    site(scenario, Ours())


def test_a_restart_writes_nothing_twice(site):
    """A new process that says the same changes no object and tells no event."""

    async def scenario(site):
        queue = site.cache.queues.items[ObjectKey("", "q")]
        gpus = Resources.of({"nvidia.com/gpu": 8000, "cpu": 1500})
        told = QueueStatus(
            name="q", uid=queue.uid, generation=queue.generation, state="Open", allocated=gpus,
            requested=gpus, borrowed=NOTHING, pending=1, inqueue=0, running=2, is_ready=True,
            ready=PendingReason(reason="Ready", message="the queue takes jobs"),
        )  # fmt: skip
        site.status.submit([site.gang_status()], [told])
        await site.status.flush(10)
        await site.cache.fetch()
        raw = site.cluster.client.get("queues.scheduling.gpusched.io", None, "q")
        assert raw["status"]["allocated"] == {"nvidia.com/gpu": "8", "cpu": "1500m"}
        before = site.versions()
        requests = 0
        honest = site.api.request

        async def counted(*args, **kwargs):
            nonlocal requests
            requests += 1
            return await honest(*args, **kwargs)

        site.api.request = counted
        again = site.writer(Ours())
        again.submit([site.gang_status()], [told])
        await asyncio.sleep(100)
        assert await again.flush(10)
        assert requests == 0
        assert site.versions() == before

    site(scenario, Ours())


def test_what_is_no_longer_so_is_removed(site):
    """A placement that changes and a resource that is no longer held leave no trace."""

    async def scenario(site):
        for placement in ((("rack", "r1"), ("zone", "z")), (("rack", "r2"),)):
            site.status.submit([site.gang_status(placement=placement)], [])
            await site.status.flush(10)
            await site.cache.fetch()
        raw = site.cluster.client.get("podgroups.scheduling.gpusched.io", "default", "g")
        assert raw["status"]["placement"] == {"rack": "r2"}

    site(scenario, Ours())


def test_a_pod_bound_meanwhile_is_not_called_unschedulable(site):
    """Status that lost the race against a binding changes nothing."""

    async def scenario(site):
        site.status.submit([site.gang_status()], [])
        site.binder.submit(_bind(site))
        await site.rest()
        # The cache has not seen it yet: only the version in the patch can prevent it.
        assert await site.status.flush(10)
        await site.cache.fetch()
        assert all(pod.scheduled and not pod.unschedulable for pod in site.cache.pods.values())

    site(scenario, Ours())


def test_a_bad_queue_is_told_to_its_author(site):
    """Cluster-scoped objects get their events in the namespace default."""

    async def scenario(site):
        queue = site.cache.queues.items[ObjectKey("", "q")]
        bad = Rejected(
            kind="Queue", key=queue.key, uid=queue.uid, field="spec.weight", why="is \u00fc" * 600,
            resource_version=queue.resource_version, generation=1,
        )  # fmt: skip
        site.status.report_rejected(bad)
        site.status.report_rejected(bad)
        await site.status.flush(10)
        again = site.writer(Ours())
        again.report_rejected(bad)
        await again.flush(10)
        assert again.events.dropped == 0
        ((kind, reason, note, count),) = site.event_texts()
        assert (kind, reason, count) == ("Warning", "InvalidSpec", 1)
        assert len(note.encode()) <= 1024
        assert note.startswith("Queue q: spec.weight: is")

    site(scenario, Ours())
