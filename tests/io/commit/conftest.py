"""A scriptable API server that keeps pods, a cache and a lease, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
from aiohttp import web

from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import UID, GangKey, ObjectKey, ResourceVersion
from gpusched.api.meta.resources import NOTHING
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, Pod, PodClass, PodPhase
from gpusched.base.clock import LoopClock
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.write.binder import Binder, SettledGang
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.session.state.plan import GangBind, PodBind

Script = Callable[..., Awaitable[web.StreamResponse | None]]
PLAIN = PodClass(
    digest="d", requests=NOTHING, gpu="", gpus=0, node_selector=(), affinity=None,
    preferred=(), tolerations=(), unsupported="",
)  # fmt: skip


def make_pod(name, uid, version, **more):
    """A pending pod entity."""
    fields = {
        "namespace": "ns", "name": name, "uid": UID(uid), "resource_version": ResourceVersion(str(version)),
        "created": 0.0, "labels": {}, "owner": None, "scheduler": "gpusched", "pod_class": PLAIN,
        "priority": 0, "priority_class": "", "group": "", "queue": "", "role": "",
        "sub_group": "", "hints": NO_GANG_ANNOTATIONS, "rank": -1, "node": "", "phase": PodPhase.PENDING,
        "deleting": False, "gated": False, "scheduled": 0.0, "slots": 0, "plan": "", "fence": "",
        "unschedulable_reason": "", "unschedulable": "",
    }  # fmt: skip
    return Pod(**{**fields, **more})


def make_gang(names, kind="PodGroup", *, need=None, placed=0, generation=1, name="g"):
    """A gang of pods whose UID is ``u-NAME``, each with node ``n-NAME`` and two slots."""
    binds = tuple(
        PodBind(
            key=ObjectKey("ns", pod), uid=UID(f"u-{pod}"), node=f"n-{pod}",
            node_uid=UID(f"nu-{pod}"), slots=0b11, rank=index, requests=NOTHING,
        )
        for index, pod in enumerate(names)
    )  # fmt: skip
    return GangBind(
        gang=GangKey(kind, "ns", name), uid=UID(f"u-{name}"), generation=generation, queue="q",
        min_member=len(names) if need is None else need, placed=placed, binds=binds,
    )  # fmt: skip


def make_group(name="g", version="1", status=b"{}"):
    """A PodGroup as the watch shows it."""
    return PodGroup(
        namespace="ns", name=name, uid=UID(f"u-{name}"), resource_version=ResourceVersion(version),
        generation=1, created=0.0, queue="q", min_member=2, phase="Pending", status=status,
    )  # fmt: skip


def status(code, message="no", **more):
    """A Status body."""
    return web.json_response({"kind": "Status", "message": message, **more}, status=code)


@attrs.define
class Cluster:
    """Keeps pods and groups; ``scripts`` answers in place of the honest server.

    ``scripts[(method, path end)]`` is a list of coroutine functions; each is used once; one
    that returns None lets the honest answer through.
    """

    clock: LoopClock
    pods: dict[str, dict] = attrs.Factory(dict)
    groups: dict[str, dict] = attrs.Factory(dict)
    scripts: dict[tuple[str, str], list[Script]] = attrs.Factory(dict)
    seen: list[tuple[float, str, str, dict]] = attrs.Factory(list)
    on_bound: Callable[[str], None] = lambda _name: None
    evict_answers: dict[str, list[web.Response]] = attrs.Factory(dict)
    latency_s: float = 0.0
    writes: int = 0
    date: str = ""
    default: Callable[..., web.Response] | None = None

    def budget(self, name, times):
        """A disruption budget refuses to evict this pod so often."""
        details = {"causes": [{"reason": "DisruptionBudget", "message": "needs 1"}]}
        said = "Cannot evict pod as it would violate the pod's disruption budget."
        self.evict_answers[name] = [
            status(429, said, reason="TooManyRequests", details=details) for _ in range(times)
        ]

    def add(self, *names):
        """Pending pods."""
        for name in names:
            self.pods[name] = {
                "metadata": {"name": name, "namespace": "ns", "uid": f"u-{name}"},
                "spec": {},
            }

    def group(self, name="g", generation=1, **more):
        """A PodGroup."""
        self.groups[name] = {"metadata": {"uid": f"u-{name}", "generation": generation, **more}}

    def script(self, method, tail, *scripts):
        """Answer the next requests so."""
        self.scripts.setdefault((method, tail), []).extend(scripts)

    def calls(self, method, tail=""):
        """Times at which such a request came."""
        return [at for at, m, path, _ in self.seen if m == method and path.endswith(tail)]

    def bodies(self, method, tail=""):
        """Bodies of such requests."""
        return [body for _, m, path, body in self.seen if m == method and path.endswith(tail)]

    async def handle(self, request):
        """Any request."""
        body = json.loads(await request.read() or b"null")
        self.seen.append((self.clock.monotonic(), request.method, request.path, body))
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        for (method, tail), scripts in self.scripts.items():
            if method == request.method and request.path.endswith(tail) and scripts:
                answer = await scripts.pop(0)(self, request, body)
                if answer is not None:
                    return answer
        answer = (self.default or self.honest)(request, body)
        if self.date:
            answer.headers["Date"] = self.date
        return answer

    def honest(self, request, body):
        """As a real API server does, for the few paths there are."""
        parts = request.path.strip("/").split("/")
        if request.method == "GET":
            store = self.groups if "podgroups" in parts else self.pods
            found = store.get(parts[-1])
            return status(404) if found is None else web.json_response(found)
        self.writes += 1
        if parts[-1] == "binding":
            return self.bind(parts[-2], body)
        if parts[-1] == "eviction":
            return self.evict(parts[-2], body)
        return status(405)

    def bind(self, name, body):
        """A Binding."""
        pod = self.pods.get(name)
        if pod is None:
            return status(404)
        if pod["metadata"]["uid"] != body["metadata"]["uid"] or pod["spec"].get("nodeName"):
            return status(409, reason="Conflict")
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"]["annotations"] = body["metadata"]["annotations"]
        self.on_bound(name)
        return status(201)

    def evict(self, name, body):
        """An Eviction: the pod is gone at once."""
        answers = self.evict_answers.get(name)
        if answers:
            return answers.pop(0)
        pod = self.pods.get(name)
        if pod is None:
            return status(404)
        if pod["metadata"]["uid"] != body["deleteOptions"]["preconditions"]["uid"]:
            return status(409)
        del self.pods[name]
        return status(201)

    def bound(self):
        """Names of the pods that have a node."""
        return {name for name, pod in self.pods.items() if pod["spec"].get("nodeName")}


class Ledger:
    """The cache as a commit sees it; complains when told both of two things."""

    def __init__(self):
        self.pods: dict[str, Pod] = {}
        self.confirmed: dict[str, tuple] = {}
        self.forgotten: list[str] = []

    def withdraw_nomination(self, uid, reason):
        """No pod here is promised room."""

    def find_pod(self, uid):
        """See ``CommitCache``."""
        return self.pods.get(uid)

    def forget(self, uid):
        """See ``CommitCache``."""
        assert uid not in self.confirmed
        self.forgotten.append(uid)

    def confirm_binding(self, uid, node, slots, plan):
        """See ``CommitCache``."""
        assert uid not in self.forgotten
        assert uid not in self.confirmed
        self.confirmed[uid] = (node, slots, plan)

    def placement_error(self, node, node_uid):
        """See ``CommitCache``."""
        return ""


class FakeLease:
    """Ours until a test says otherwise."""

    def __init__(self):
        self.ours = True
        self.fence = "me/1"
        self.doubts = 0
        self.until = float("inf")

    def may_act(self, now_mono, now_boot, needs_s):
        """See ``Lease``."""
        return self.ours and now_mono + needs_s < self.until

    def doubt(self):
        """See ``Lease``."""
        self.doubts += 1


@attrs.define
class Given:
    """All that a scenario touches."""

    cluster: Cluster
    ledger: Ledger
    lease: FakeLease
    clock: LoopClock
    api: ApiClient
    rate_limiter: RateLimiter
    binder: Binder
    telemetry: Telemetry
    settled: list[SettledGang]
    faults: list[BaseException]

    def shown(self, name, **more):
        """The pod as a watch would show it now."""
        raw = self.cluster.pods[name]
        notes = raw["metadata"].get("annotations", {})
        fields = {
            "node": raw["spec"].get("nodeName", ""),
            "plan": notes.get("gpusched.io/plan", ""),
            "fence": notes.get("gpusched.io/fence", ""),
        }
        return make_pod(name, raw["metadata"]["uid"], 2, **{**fields, **more})

    async def until(self, done, limit_s=600.0):
        """Let time pass until ``done()``."""
        pause_s = 0.01
        async with asyncio.timeout(limit_s):
            while not done():
                await asyncio.sleep(pause_s)
                pause_s = min(1.0, pause_s * 1.1)

    async def rest(self, n=1):
        """Until so many gangs came to rest."""
        await self.until(lambda: len(self.settled) >= n)


def _kubeconfig(path: Path, port: int) -> str:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )  # fmt: skip
    return str(path)


@pytest.fixture(autouse=True)
def no_cluster_around(monkeypatch, tmp_path):
    """No test finds a cluster or a proxy through the environment."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def play(tmp_path):
    """Run ``async def scenario(given)``; at the end no fault may be left unexpected."""

    def run(scenario, *, faults=0):
        async def main(clock):
            cluster = Cluster(clock)
            app = web.Application()
            app.router.add_route("*", "/{tail:.*}", cluster.handle)
            runner = web.AppRunner(app, keepalive_timeout=1e6, shutdown_timeout=0.01)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            kubeconfig = _kubeconfig(tmp_path / "kubeconfig", runner.addresses[0][1])
            api = await ApiClient.connect(kubeconfig, clock=clock)
            ledger, lease, rate_limiter, telemetry = (
                Ledger(),
                FakeLease(),
                RateLimiter(clock),
                Telemetry(),
            )
            settled, broken = [], []
            binder = Binder(
                api, rate_limiter, ledger, lease, clock=clock, telemetry=telemetry,
                on_fault=broken.append, on_settled=settled.append,
            )  # fmt: skip
            given = Given(
                cluster, ledger, lease, clock, api, rate_limiter, binder, telemetry, settled, broken
            )
            try:
                result = await scenario(given)
                assert len(broken) == faults, broken
                return result
            finally:
                await binder.drain(0.0)
                await api.close()
                await runner.cleanup()
                telemetry.shutdown()

        return run_virtual(main)

    return run


@pytest.fixture
def gang():
    """Make a gang; see ``make_gang``."""
    return make_gang


@pytest.fixture
def pod():
    """Make a pod entity; see ``make_pod``."""
    return make_pod


@pytest.fixture
def group():
    """Make a PodGroup entity; see ``make_group``."""
    return make_group


@pytest.fixture
def says():
    """A script that answers so, after a while, having bound the pod or not."""

    def make(code, *, bind_first=False, after_s=0.0, **more):
        async def script(cluster, request, body):
            if bind_first:
                assert cluster.honest(request, body).status == 201
            if after_s:
                await asyncio.sleep(after_s)
            return status(code, **more)

        return script

    return make
