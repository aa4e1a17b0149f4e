"""A small scriptable API server on loopback, and a collection to watch, in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
from aiohttp import web

from gpusched.base import limits
from gpusched.base.clock import LoopClock
from gpusched.io.client.api_client import ApiClient
from gpusched.io.watch.reflector import KindSpec, Reflector
from gpusched.lab.virtual_time.loop import run_virtual

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@attrs.define
class FakeServer:
    """Every request goes to ``handler``, which a test replaces at will; all are recorded."""

    clock: LoopClock
    kubeconfig: Path
    handler: Handler | None = None
    seen: list[tuple[float, str, str]] = attrs.Factory(list)
    headers: list[dict[str, str]] = attrs.Factory(list)
    port: int = 0
    _runner: web.AppRunner | None = None

    async def start(self) -> FakeServer:
        """Listen, on the same port as before if there was one."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, keepalive_timeout=1e6, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.kubeconfig.write_text(kubeconfig(self.port))
        return self

    async def stop(self) -> None:
        """Close the port and every connection."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def api(self, **kwargs) -> ApiClient:
        """A client of this server."""
        return await ApiClient.connect(str(self.kubeconfig), clock=self.clock, **kwargs)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((self.clock.monotonic(), request.method, str(request.rel_url)))
        self.headers.append(dict(request.headers))
        assert self.handler is not None
        return await self.handler(request)

    def count(self, fragment: str) -> int:
        """How many requests had ``fragment`` in their URL."""
        return sum(fragment in path for _, _, path in self.seen)


def kubeconfig(port: int, *, cluster: dict | None = None, user: dict | None = None) -> str:
    """A kubeconfig is YAML, hence also JSON."""
    server = {"server": f"http://127.0.0.1:{port}", **(cluster or {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


@pytest.fixture
def fake_server(tmp_path):
    """Make a ``FakeServer``; call it inside the virtual run."""

    def make(clock: LoopClock) -> FakeServer:
        return FakeServer(clock=clock, kubeconfig=tmp_path / "kubeconfig")

    return make


@pytest.fixture
def write_kubeconfig(tmp_path):
    """Write a kubeconfig file and give its path."""

    def write(port: int = 1, **parts) -> str:
        path = tmp_path / "written.kubeconfig"
        path.write_text(kubeconfig(port, **parts))
        return str(path)

    return write


@pytest.fixture(autouse=True)
def no_cluster_around(monkeypatch, tmp_path):
    """No test finds a cluster through the environment of whoever runs it."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def settle():
    """Let everything that is under way arrive, without moving virtual time on purpose."""

    async def wait() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    return wait


PATH = "/api/v1/pods"


@attrs.frozen
class Thing:
    """An item."""

    name: str
    version: int


@attrs.frozen
class Page:
    """One page."""

    items: tuple[Thing, ...]
    resource_version: str
    continue_token: str


@attrs.frozen
class Event:
    """One event."""

    type: str
    item: Thing | None = None
    resource_version: str = ""
    code: int = 0
    message: str = ""


class JsonCodec:
    """The least that a codec does."""

    def decode_page(self, body):
        """See ``Codec``."""
        page = json.loads(body)
        return Page(tuple(Thing(*item) for item in page["items"]), page["rv"], page["continue"])

    def decode_event(self, line):
        """See ``Codec``."""
        event = json.loads(line)
        if "name" in event:
            event["item"] = Thing(event.pop("name"), int(event["rv"]))
        event["resource_version"] = str(event.pop("rv", ""))
        return Event(**event)


class DictSink:
    """Holds what the reflector said."""

    def __init__(self):
        self.things: dict[str, int] = {}
        self.replaced = 0
        self.applied: list[tuple[str, str]] = []

    def replace(self, items):
        """See ``Sink``."""
        self.things = {item.name: item.version for item in items}
        self.replaced += 1

    def apply(self, event_type, item):
        """See ``Sink``."""
        self.applied.append((event_type, item.name))
        if event_type == "DELETED":
            self.things.pop(item.name, None)
        else:
            self.things[item.name] = item.version


class Counts:
    """Telemetry of a test."""

    def __init__(self):
        self.relists = 0
        self.reasons: Counter[str] = Counter()

    def relisted(self, resource):
        """See ``WatchTelemetry``."""
        self.relists += 1

    def watch_transition(self, resource, reason):
        """See ``WatchTelemetry``."""
        self.reasons[reason] += 1


class World:
    """A collection with a version and a history; watches are played as scripted.

    ``scripts`` holds one async function a watch, in order; when they run out a watch follows
    the history until its window is over.
    """

    def __init__(self, clock):
        self.clock = clock
        self.version = 100
        self.things: dict[str, int] = {}
        self.history: list[dict] = []
        self.scripts: list = []
        self.list_scripts: list = []
        self.changed = asyncio.Event()
        self.bookmark_every: float | None = None

    def put(self, name):
        """Create or change."""
        self.version += 1
        kind = "MODIFIED" if name in self.things else "ADDED"
        self.things[name] = self.version
        self._log({"type": kind, "name": name, "rv": self.version})

    def delete(self, name):
        """Remove."""
        self.version += 1
        del self.things[name]
        self._log({"type": "DELETED", "name": name, "rv": self.version})

    def _log(self, event):
        self.history.append(event)
        self.changed.set()
        self.changed = asyncio.Event()

    async def handler(self, request):
        """Answer a list or a watch."""
        assert request.path == PATH
        assert request.query["labelSelector"] == "x"
        if "watch" in request.query:
            answer = web.StreamResponse()
            script = self.scripts.pop(0) if self.scripts else self.follow
            return await script(request, answer) or answer
        if self.list_scripts:
            answer = await self.list_scripts.pop(0)(request)
            if answer is not None:
                return answer
        assert "resourceVersion" not in request.query
        return self.page(request)

    def page(self, request):
        """One page of what there is."""
        start = int(request.query.get("continue", 0))
        limit = int(request.query["limit"])
        names = sorted(self.things)
        more = str(start + limit) if start + limit < len(names) else ""
        items = [[n, self.things[n]] for n in names[start : start + limit]]
        return web.json_response({"items": items, "rv": str(self.version), "continue": more})

    async def follow(self, request, answer):
        """An honest watch."""
        assert request.query["allowWatchBookmarks"] == "true"
        window = float(request.query["timeoutSeconds"])
        assert limits.WATCH_WINDOW_MIN_S <= window <= limits.WATCH_WINDOW_MAX_S
        until = self.clock.monotonic() + window
        sent = int(request.query["resourceVersion"])
        await answer.prepare(request)
        while (left := until - self.clock.monotonic()) > 0:
            news = [e for e in self.history if e["rv"] > sent]
            for event in news:
                await answer.write(json.dumps(event).encode() + b"\n")
                sent = event["rv"]
            try:
                async with asyncio.timeout(min(left, self.bookmark_every or left)):
                    await self.changed.wait()
            except TimeoutError:
                if self.bookmark_every:
                    await answer.write(
                        json.dumps({"type": "BOOKMARK", "rv": sent}).encode() + b"\n"
                    )
        return answer


def _says(*events, then=None, status=None):
    """A watch that sends these events and ends, or goes on as ``then`` says."""

    async def script(request, answer):
        if status is not None:
            return web.Response(status=status, body=b'{"message":"no","code":%d}' % status)
        await answer.prepare(request)
        for event in events:
            line = event if isinstance(event, bytes) else json.dumps(event).encode()
            await answer.write(line + b"\n")
        if then is not None:
            await then(request)
        return answer

    return script


def _watches(server):
    return [(at, path) for at, _, path in server.seen if "watch=" in path]


@pytest.fixture
def says():
    """Make a watch that says this and ends."""
    return _says


@pytest.fixture
def watches():
    """When and how each watch was opened."""
    return _watches


@pytest.fixture
def play(fake_server):
    """Run a scenario ``async def scenario(world, reflector, sink, clock, server)``."""

    def run(scenario, *, path=PATH, name="pods"):
        async def main(clock):
            server = await fake_server(clock).start()
            world = World(clock)
            server.handler = world.handler
            api = await server.api()
            sink, counts = DictSink(), Counts()
            reflector = Reflector(
                api,
                KindSpec(name, path, {"labelSelector": "x"}),
                codec=JsonCodec(),
                sink=sink,
                clock=clock,
                rng=random.Random(7),
                telemetry=counts,
            )
            reflector.counts = counts
            world.things = {"a": 99, "b": 100}
            task = reflector.task = asyncio.create_task(reflector.run())
            try:
                return await scenario(world, reflector, sink, clock, server)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await api.close()
                await server.stop()

        return run_virtual(main)

    return run
