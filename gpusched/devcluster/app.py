"""The embedded cluster as one object: build it, talk to it, close it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from aiohttp import web

from gpusched import assets
from gpusched.clock import Clock, SystemClock
from gpusched.devcluster import controllers
from gpusched.devcluster.api import Api
from gpusched.devcluster.bootstrap import (
    apply_files,
    create_stages,
    fill,
    install_definitions,
)
from gpusched.devcluster.core import Core
from gpusched.devcluster.custom.install import Installer
from gpusched.devcluster.draws import KeyedRandom
from gpusched.devcluster.http.access import Access
from gpusched.devcluster.http.endpoints import Endpoints
from gpusched.devcluster.http.server import Server
from gpusched.devcluster.kinds import Registry, load_builtins
from gpusched.devcluster.kubeconfig import kubeconfig_text
from gpusched.devcluster.local_client import LocalClient
from gpusched.devcluster.store import Store
from gpusched.devcluster.strategies.builtin import builtin_strategy
from gpusched.errors import GpuschedError
from gpusched.limits import BODY_BYTES_MAX

_FAKE_NODES: Final = Path(__file__).parent / "data" / "definitions"
"""Kinds that describe fake nodes and what they do; served only where nodes are fake."""
_LOG: Final = logging.getLogger("gpusched.devcluster")


@attrs.frozen(kw_only=True)
class ClusterOptions:
    """How to start.

    Attributes:
        port: TCP port on ``host``; 0 takes a free one.
        host: numeric address; on a loopback one requests need no token.
        token: bearer token that may do everything; random when empty.
        apply: files and folders of YAML applied before the cluster is ready.
        stages, controllers: whether fake nodes live and whether controllers act.
        stage_files: files and folders of Stages; empty for the project's own.
        definitions: folder of CustomResourceDefinitions; None for the project's own.
    """

    port: int = 0
    host: str = "127.0.0.1"
    token: str = ""
    apply: Sequence[Path] = ()
    stages: bool = True
    controllers: bool = True
    stage_files: Sequence[Path] = ()
    definitions: Path | None = None
    seed: int = 1
    clock: Clock = attrs.field(factory=SystemClock)


class DevCluster:
    """A running embedded cluster.

    Attributes:
        url: where its API answers.
        token: the admin's bearer token.
        client: in-process access on the same core.
    """

    def __init__(self, *, url: str, token: str, client: LocalClient, core: Core) -> None:
        self.url = url
        self.token = token
        self.client = client
        self.core = core
        self._work: asyncio.Task[None] | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def kubeconfig_text(self) -> str:
        """A kubeconfig whose one context is this cluster."""
        return kubeconfig_text(self.url, self.token)

    def own(self, work: asyncio.Task[None], runner: web.ServerRunner) -> None:
        """Take charge of the background work and of the listening server."""
        self._work = work
        self._runner = runner

    async def failed(self) -> BaseException:
        """Wait until a controller stops, which it never does by itself; return its fault."""
        assert self._work is not None
        await asyncio.wait([self._work])
        fault = self._work.exception()
        assert fault is not None
        return fault

    async def close(self) -> None:
        """Stop listening, end every watch, stop the controllers."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
        if self._runner is not None:
            await self._runner.cleanup()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        _LOG.error("background work stopped", exc_info=fault)


def build_core(clock: Clock, seed: int) -> Core:
    """Build the core with every built-in kind, the bootstrap objects and an open watch window."""
    registry = Registry()
    load_builtins(registry, builtin_strategy)
    core = Core(store=Store(), registry=registry, clock=clock, seed=seed)
    fill(core)
    return core


async def start(options: ClusterOptions) -> DevCluster:
    """Start an embedded cluster in the running loop; it is ready when this returns.

    Raises:
        ConfigError: a definition or an object to apply is refused.
        OSError: the port cannot be listened on.
    """
    core = build_core(options.clock, options.seed)
    api = Api(core)
    client = LocalClient(api)
    installer = Installer(core)
    folder = options.definitions or assets.path("manifests") / "crds"
    install_definitions(client, folder)
    if options.stages:
        install_definitions(client, _FAKE_NODES)
    installer.sync()
    if options.stages:
        files = options.stage_files or [assets.path("kwok-scenarios") / "stages"]
        create_stages(client, files)
    core.store.open_window()
    token = options.token or secrets.token_hex(16)
    endpoints = Endpoints(api)
    local = ipaddress.ip_address(options.host).is_loopback
    server = Server(endpoints, Access(core, token, local=local), clock=options.clock)
    runner = web.ServerRunner(
        web.Server(
            server.handle,
            request_factory=_make_request,
            handler_cancellation=True,
            access_log=None,
        ),
        shutdown_timeout=0.5,
    )
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port, backlog=1024)
    await site.start()
    host, port = runner.addresses[0][:2]
    endpoints.address = f"{host}:{port}"
    cluster = DevCluster(url=f"http://{host}:{port}", token=token, client=client, core=core)
    work = asyncio.create_task(_background(client, installer, options), name="devcluster")
    work.add_done_callback(_report)
    cluster.own(work, runner)
    try:
        apply_files(client, options.apply, settle=installer.sync)
    except GpuschedError:
        await cluster.close()
        raise
    return cluster


async def _background(client: LocalClient, installer: Installer, options: ClusterOptions) -> None:
    """Run definitions, controllers and stages; the fault of one ends all, and is told."""
    async with asyncio.TaskGroup() as group:
        group.create_task(installer.run(), name="devcluster definitions")
        if options.controllers:
            controllers.start_all(
                group,
                client,
                clock=options.clock,
                rng=KeyedRandom(options.seed, "stages"),
                stages=options.stages,
            )


def _make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES_MAX
    )
