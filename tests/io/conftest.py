"""A small scriptable API server on loopback, for runs in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
from aiohttp import web

from gpusched.clock import LoopClock
from gpusched.io.api import Api

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

    async def api(self, **kwargs) -> Api:
        """A client of this server."""
        return await Api.connect(str(self.kubeconfig), clock=self.clock, **kwargs)

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
