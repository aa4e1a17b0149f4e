"""The whole daemon on the embedded cluster over HTTP, in virtual time; it may die at any write."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
import yaml

from gpusched.app import App, AppOptions
from gpusched.base import errors, installed_files
from gpusched.base.clock import EPOCH, Clock, LoopClock
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT
from gpusched.devcluster import cluster as devcluster
from gpusched.io.client.api_client import ApiClient, ApiResponse
from gpusched.io.client.credentials import ApiAccess, GivenCredentials
from gpusched.io.client.transport import HttpTransport, over_http
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.io.history.played_starts import PlayStarts
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.connections import MemoryNetwork
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.lab.virtual_time.process_pause import PROGRAM, PausableLoop
from gpusched.testing import invariants
from gpusched.testing.invariants import Write

GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"
Obj = dict[str, Any]
POLICIES = bool(os.environ.get("GPUSCHED_TEST_POLICIES"))
"""Whether every test has the shipped policies, by hand; some forge what those refuse."""
_ADMIN = "t"
_SHIPPED = [
    installed_files.path("manifests") / name
    for name in ("namespace.yaml", "lease.yaml", "rbac.yaml", "rbac-adapters.yaml", "policies")
]
_running: ContextVar[Daemon | None] = ContextVar("daemon", default=None)


@attrs.define(eq=False)
class Daemon:
    """One process: an App, what it wrote, and when it is to die.

    Attributes:
        kill_at: dies at its so-many-th write, not counting the lease and its namespace; 0 for
            never.
        answered: dies after the write was done, else before it is sent.
        kill_on: only writes count whose path ends so.
        bindings: status of each answer to a binding.
        refused: requests that rights or a policy refused, but for the Lease's namespace.
        fault: what becomes of a request: ``lost``, ``unanswered``, ``slow``, a status, or empty.
    """

    app: App
    journal: list[Write]
    used: set[tuple[str, str]]
    kill_at: int = 0
    answered: bool = False
    kill_on: str = ""
    writes: int = 0
    dead: bool = False
    task: asyncio.Task[None] | None = None
    bindings: list[int] = attrs.Factory(list)
    refused: list[str] = attrs.Factory(list)
    fault: Callable[[str, str], str] = lambda _method, _path: ""

    def kill(self) -> None:
        """Like SIGKILL: nothing more is sent, nothing is tidied up."""
        self.dead = True
        assert self.task is not None
        self.task.cancel()

    async def stop(self) -> None:
        """Like SIGTERM."""
        self.app.stop()
        assert self.task is not None
        await self.task

    @property
    def leading(self) -> bool:
        """Whether it leads."""
        return self.app.leadership.leading and not self.dead


def current_daemon() -> Daemon | None:
    """The process in which this runs."""
    return _running.get()


def _silence(method: str, why: str) -> Exception:
    return errors.ClusterUnreachable(why) if method == "GET" else errors.OutcomeUnknown(why)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def spy(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """``Api.request`` that records writes and dies when told."""

    async def request(self: ApiClient, method: str, path: str, **how: Any) -> Any:
        daemon = _running.get()
        if daemon is None:
            return await original(self, method, path, **how)
        if daemon.dead:
            await _never()
        daemon.used.add((method, path))
        counts = method != "GET" and "/leases" not in path and path != "/api/v1/namespaces"
        hit = counts and path.endswith(daemon.kill_on)
        daemon.writes += hit
        mine = hit and daemon.writes == daemon.kill_at
        if mine and not daemon.answered:
            daemon.kill()
            await _never()
        fault = daemon.fault(method, path)
        if fault in {"lost", "slow"}:
            await daemon.app.options.clock.sleep(how["timeout_s"] * (0.3 if fault == "slow" else 1))
        if fault == "lost":
            raise _silence(method, f"{method} {path}: lost")
        if fault.isdigit():
            return ApiResponse(int(fault), {}, b'{"message": "made by the test"}')
        answer = await original(self, method, path, **how)
        if fault == "unanswered":
            raise _silence(method, f"{method} {path}: the answer was lost")
        if path.endswith("/binding"):
            daemon.bindings.append(answer.status)
        if answer.status in {401, 403, 422} and not path.startswith("/api/v1/namespaces/gpusched-"):
            daemon.refused.append(f"{method} {path}: {answer.body!r}")
        if counts and answer.ok:
            daemon.journal.append(Write(method, path, how.get("body") or b""))
        if mine:
            daemon.kill()
        if daemon.dead:
            await _never()
        return answer

    return request


def spy_stream(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Api.stream`` that records what is watched."""

    def stream(self: ApiClient, path: str, **how: Any) -> Any:
        daemon = _running.get()
        if daemon is not None:
            daemon.used.add(("WATCH", path))
        return original(self, path, **how)

    return stream


class World:
    """A cluster and any number of daemons, in the virtual time of one run."""

    def __init__(self, clock: LoopClock, folder: Path, *, over_http: bool = True) -> None:
        self.clock = clock
        self.over_http = over_http
        self._kubeconfig = folder / "kubeconfig"
        self.journal: list[Write] = []
        self.used: set[tuple[str, str]] = set()
        self.daemons: list[Daemon] = []
        self.cluster: Any = None
        self.check_journal = True
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """Clients of tenants, closed in the end."""
        self.token = _ADMIN
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    # -- cluster -----------------------------------------------------------------------------
    async def start(self, *, nodes: int = 2, policies: bool = POLICIES, **options: Any) -> None:
        """An embedded cluster with fake nodes of eight GPUs in rack r0.

        With ``policies`` it has those that are shipped, and daemons have the rights of their
        service account.
        """
        if policies:
            options["apply"] = [*options.get("apply", ()), *_SHIPPED]
        self.cluster = await devcluster.start(
            devcluster.ClusterOptions(clock=self.clock, port=self.port, token="t", **options)
        )
        if policies:
            self.token = await self._account_token()
        for number in range(nodes):
            self.node(f"node-{number}")

    async def _account_token(self) -> str:
        """A token of the daemons' service account, for longer than any test."""
        path = "/api/v1/namespaces/gpusched-system/serviceaccounts/gpusched/token"
        body = {"spec": {"expirationSeconds": 10**7}}
        async with (
            aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session,
            session.post(f"{self.cluster.url}{path}", json=body) as answer,
        ):
            made = await answer.json()
            return made["status"]["token"]

    @property
    def kubeconfig(self) -> Path:
        """A file for clients that are no daemons of this world."""
        if not self._kubeconfig.exists():
            self.write_kubeconfig()
        return self._kubeconfig

    def _credentials(self) -> str | GivenCredentials:
        """A kubeconfig where requests are HTTP; else what would be read from it."""
        if self.over_http:
            self.write_kubeconfig()
            return str(self._kubeconfig)
        host = f"http://127.0.0.1:{self.port}"
        return GivenCredentials(ApiAccess(host=host, authorization=f"Bearer {self.token}"))

    def write_kubeconfig(self) -> None:
        """Point to the cluster, be it there or not."""
        self._kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                    ],
                    "users": [{"name": "u", "user": {"token": self.token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

    async def unplug(self) -> None:
        """The API server is gone: nothing listens, every connection is closed."""
        await self.cluster._listener.drop(deaf=True)

    async def plug(self) -> None:
        """It is back, with all that it knew."""
        await self.cluster._listener.listen()

    @property
    def client(self) -> Any:
        """The cluster, in this process."""
        return self.cluster.client

    def node(self, name: str, gpus: int = 8, **labels: str) -> None:
        """A fake node."""
        amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
        self.client.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                    "labels": {"gpusched.io/rack": "r0", **labels},
                },
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )

    def group(
        self, name: str, *, queue: str = "default", annotations: Obj | None = None, **spec: Any
    ) -> Obj:
        """A PodGroup."""
        return self.client.create(
            GROUPS,
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "annotations": annotations or {},
                },
                "spec": {"queue": queue, **spec},
            },
        )

    def pod(self, name: str, *, gpus: int = 8, spec: Obj | None = None, **metadata: Any) -> Obj:
        """A pod of ours."""
        return self.client.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", **metadata},
                "spec": {**pod_spec(gpus), **(spec or {})},
            },
        )

    def job(
        self,
        name: str,
        count: int,
        *,
        gpus: int = 8,
        group: str = "",
        queue: str = "",
        run_for: str = "10h",
        **spec: Any,
    ) -> Obj:
        """A Job whose pods run for hours."""
        labels = {"gpusched.io/pod-group": group} if group else {}
        return self.client.create(
            "jobs.batch",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "labels": {"gpusched.io/queue": queue} if queue else {},
                },
                "spec": {
                    "parallelism": count,
                    "completions": count,
                    "template": {
                        "metadata": {
                            "labels": labels,
                            "annotations": {"gpusched.io/run-for": run_for},
                        },
                        "spec": pod_spec(gpus),
                    },
                    **spec,
                },
            },
        )

    def gang(self, name: str, count: int, *, gpus: int = 8, min_member: int = 0) -> None:
        """A PodGroup and a Job whose pods belong to it."""
        self.group(name, minMember=min_member or count)
        self.job(name, count, gpus=gpus, group=name)

    # -- daemons -----------------------------------------------------------------------------
    def daemon(
        self,
        *,
        config_file: str = "",
        identity: str = "",
        clock: Clock | None = None,
        history: HistoryOptions | None = None,
        shards: tuple[str, ...] = (),
        on_listed: Callable[[], None] = lambda: None,
        play_starts: PlayStarts | None = None,
        **death: Any,
    ) -> Daemon:
        """Start a daemon, which dies as ``Daemon`` says; each has its own jitter and identity.

        With a ``config_file`` it runs what that says, and watches it; it cares for these ``shards``.
        """
        number = len(self.daemons)
        options = AppOptions(
            config=load_file(config_file) if config_file else DEFAULT,
            config_file=config_file,
            clock=clock or self.clock,
            rng=random.Random(number),
            kubeconfig=self._credentials(),
            identity=identity or f"d-{number}",
            inline=True,
            history=history,
            opened=self._opened,
            shards=shards,
            on_listed=on_listed,
            play_starts=play_starts,
        )
        daemon = Daemon(App(options), self.journal, self.used, **death)
        self.daemons.append(daemon)

        async def run() -> None:
            _running.set(daemon)
            PROGRAM.set(daemon)
            await daemon.app.run()

        daemon.task = asyncio.create_task(run(), name=f"daemon {number}")
        return daemon

    def _opened(self, access: ApiAccess, connections: int) -> HttpTransport:
        """The daemons' way to the cluster."""
        if self.over_http or self.cluster is None:
            return over_http(access, connections)
        return sessions_to(self.cluster.in_process)(access, connections)

    def freeze_after(self, daemon: Daemon, steps: int, while_s: float) -> Callable[[], int]:
        """Stop a daemon after so many more of its callbacks, as SIGSTOP does, for so long.

        Returns:
            How many of its callbacks ran since, until it was frozen.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PausableLoop)
        count = 0

        def step(program: object) -> None:
            nonlocal count
            count += program is daemon
            if program is daemon and count == steps:
                loop.on_step = None
                loop.freeze(daemon)
                loop.call_later(while_s, loop.thaw, daemon, context=Context())

        loop.on_step = step
        return lambda: count

    # -- looking -----------------------------------------------------------------------------
    async def until(
        self, true: Callable[[], Any], within: float = 60.0, *, every: float = 0.1
    ) -> None:
        """Wait and look again, in virtual seconds; a daemon that broke fails the test at once."""
        end = self.clock.monotonic() + within
        while not true():
            for daemon in self.daemons:
                if daemon.task is not None and daemon.task.done() and not daemon.task.cancelled():
                    error = daemon.task.exception()
                    if error is not None:
                        raise error
            assert self.clock.monotonic() < end, f"not so within {within} s: {self.story()}"
            await self.clock.sleep(every)

    def story(self) -> str:
        """What a person would look at first."""
        pods = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in self.pods()}
        alive = [daemon for daemon in self.daemons if not daemon.dead]
        whys = [daemon.app.unready() or f"leading: {daemon.leading}" for daemon in alive]
        groups = {g["metadata"]["name"]: g.get("status") for g in self.groups()}
        return f"pods {pods}; daemons {whys}; groups {groups}"

    def pods(self, group: str = "") -> list[Obj]:
        """All pods, or those of a gang."""
        label = f"gpusched.io/pod-group={group}" if group else None
        return self.client.list("pods", "default", label)

    def names(self, resource: str) -> list[str]:
        """Names of all objects of a cluster-scoped kind."""
        return [each["metadata"]["name"] for each in self.client.list(resource)]

    def groups(self) -> list[Obj]:
        """All PodGroups."""
        if self.client.kind_of("scheduling.gpusched.io/v1alpha1", "PodGroup") is None:
            return []
        return self.client.list(GROUPS)

    def bound(self, group: str = "") -> list[Obj]:
        """Pods with a node."""
        return [pod for pod in self.pods(group) if pod["spec"].get("nodeName")]

    def running(self, group: str = "") -> list[Obj]:
        """Pods that run or have run: fake ones end soon."""
        over = ("Running", "Succeeded")
        return [pod for pod in self.pods(group) if pod["status"].get("phase") in over]

    def condition(self, group: str, kind: str = "Scheduled") -> Obj:
        """A condition of a PodGroup, empty when it is not there."""
        status = self.client.get(GROUPS, "default", group).get("status") or {}
        found = [c for c in status.get("conditions", ()) if c["type"] == kind]
        return found[0] if found else {}

    def told(self, pod: str) -> Obj:
        """The PodScheduled condition of a pod."""
        status = self.client.get("pods", "default", pod)["status"]
        found = [c for c in status.get("conditions", ()) if c["type"] == "PodScheduled"]
        return found[0] if found else {}

    def objects(self) -> dict[str, list[Obj]]:
        """What invariants are checked on."""
        return {
            "pods": self.client.list("pods"),
            "nodes": self.client.list("nodes"),
            "podgroups": [g for g in self.groups() if isinstance(g.get("spec"), dict)],
            "resourceclaims": self.client.list("resourceclaims.resource.k8s.io"),
            "resourceslices": self.client.list("resourceslices.resource.k8s.io"),
        }

    async def end(self) -> None:
        """Stop what runs; then the invariants must hold."""
        for daemon in self.daemons:
            if daemon.task is not None and not daemon.task.done():
                daemon.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await daemon.task
        if self.token != _ADMIN:
            assert [told for daemon in self.daemons for told in daemon.refused] == []
        wrong = invariants.check(self.objects(), now=self.clock.now())
        if self.check_journal:
            wrong += invariants.check_journal(self.journal)
        assert wrong == []


def pod_spec(gpus: int) -> Obj:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "schedulerName": "gpusched",
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
    }


@pytest.fixture
def spied(monkeypatch):
    """``Api.request`` knows which daemon calls it."""
    monkeypatch.setattr(ApiClient, "request", spy(ApiClient.request))
    monkeypatch.setattr(ApiClient, "stream", spy_stream(ApiClient.stream))


@pytest.fixture
def connections_matter() -> bool:
    """Whether daemons speak HTTP; folders about deaths, watches and reloads say yes.

    Elsewhere requests are handed over inside the loop, which takes a seventh less CPU time.
    """
    return False


@pytest.fixture
def play(spied, tmp_path, connections_matter):
    """Run a scenario in virtual time, and check the invariants in the end."""

    def run(
        scenario: Callable[[World], Awaitable[Any]],
        *,
        limit_s: float = 1200.0,
        freezing: bool = False,
        epoch: float = EPOCH,
    ) -> World:
        async def main(clock: LoopClock) -> World:
            world = World(clock, tmp_path, over_http=connections_matter or freezing)
            try:
                await scenario(world)
                await world.end()
            finally:
                for close in world.closing:
                    await close()
                if world.cluster is not None:
                    await world.cluster.close()
            return world

        factory = (lambda: PausableLoop(limit_s=limit_s)) if freezing else None
        network = MemoryNetwork()  # HTTP, in bytes that no kernel delays
        return run_virtual(
            main, limit_s=limit_s, epoch=epoch, network=network, loop_factory=factory
        )

    return run
