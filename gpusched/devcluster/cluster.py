"""The embedded cluster as one object: build it, send it requests, close it, write its kubeconfig."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import yaml

from gpusched.base import installed_files
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock, SystemClock
from gpusched.devcluster.apimachinery.seeded_random import KeyedRandom
from gpusched.devcluster.apiserver.admission.policies import AdmissionPolicies
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.custom_kinds import CustomKindController
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.endpoints.dispatch import ResourceEndpoints
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.control.active_faults import ActiveFaults
from gpusched.devcluster.control.fault_rules import FaultRule
from gpusched.devcluster.control.restart import RestartableParts, Restarts
from gpusched.devcluster.controllers import manager
from gpusched.devcluster.controllers.bootstrap.initial_objects import (
    apply_files,
    create_initial_objects,
    create_stages,
    install_definitions,
)
from gpusched.devcluster.http.control_endpoints import ControlEndpoints
from gpusched.devcluster.http.faulty_client import FaultyClient
from gpusched.devcluster.http.handler_chain import HandlerChain
from gpusched.devcluster.http.in_process import InProcessTransport
from gpusched.devcluster.http.listener import Listener
from gpusched.devcluster.http.server import HostNames, HttpServer
from gpusched.devcluster.registry.builtin import builtin_strategies
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from gpusched.devcluster.registry.kinds import Registry, load_builtins, load_gangs
from gpusched.devcluster.storage.store import Store

CONTEXT: Final = "gpusched-devcluster"


def kubeconfig_text(url: str, token: str) -> str:
    """Return a kubeconfig with one cluster, one user and one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"},
            }
        ],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(config, sort_keys=False)


_FAKE_NODES: Final = Path(__file__).parent / "data" / "definitions"
"""Kinds that describe fake nodes and what they do; served only where nodes are fake."""
_LOG: Final = logging.getLogger("gpusched.devcluster")


@frozen(kw_only=True)
class ClusterOptions:
    """How to start.

    Attributes:
        port: TCP port on ``host``; 0 takes a free one.
        host: numeric address; on a loopback one requests need no token.
        host_names: names in Host headers that are taken beside loopback ones.
        token: bearer token that may do everything; random when empty.
        apply: files and folders of YAML applied before the cluster is ready.
        stages, controllers: whether fake nodes live and whether controllers act.
        stage_files: files and folders of Stages; empty for the project's own.
        definitions: folder of CustomResourceDefinitions; None for the project's own.
        records: whether plain writes are recorded in ``managedFields``, as a real server does. If
            not, only server-side apply is, to objects it made or took over; all else is the same
            for half the work and memory.
        gangs: what is served of Kubernetes' own gangs; nothing, as by a server's defaults. See
            ``registry.gangs.features``: ``all_gates("1.36")``, ``read_features``.
        faults: rules in force from the start; see ``control.fault_file.load_faults``.
    """

    port: int = 0
    host: str = "127.0.0.1"
    host_names: Sequence[str] = ()
    token: str = ""
    apply: Sequence[Path] = ()
    stages: bool = True
    controllers: bool = True
    stage_files: Sequence[Path] = ()
    definitions: Path | None = None
    seed: int = 1
    records: bool = True
    gangs: GangFeatures = OFF
    faults: Sequence[FaultRule] = ()
    clock: Clock = attrs.field(factory=SystemClock)


class BackgroundWork:
    """Custom kinds, controllers and stages, which run beside the requests. They can be restarted."""

    def __init__(self, core: ServerState, options: ClusterOptions) -> None:
        self.core = core
        self.api = ResourceApi(core)
        self.client = LocalClient(self.api)
        self.installer = CustomKindController(core)
        self._options = options
        self._work: asyncio.Task[None] | None = None
        self._fault: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def define(self) -> None:
        """Install what a new cluster has besides built-ins, and let watches begin after it."""
        options = self._options
        folder = options.definitions or installed_files.path("manifests") / "crds"
        install_definitions(self.client, folder)
        if options.stages:
            install_definitions(self.client, _FAKE_NODES)
        self.installer.sync()
        if options.stages:
            files = options.stage_files or [installed_files.path("kwok-scenarios") / "stages"]
            create_stages(self.client, files)
        self.core.store.open_window()

    def restartable_parts(
        self, listener: Listener, handlers: HandlerChain, in_process: InProcessTransport
    ) -> RestartableParts:
        """Return what a restart needs of all this."""

        async def drop(deaf: bool) -> None:
            in_process.cut(deaf=deaf)
            await listener.drop(deaf)

        async def listen() -> None:
            await listener.listen()
            in_process.listen()

        def refill() -> None:
            create_initial_objects(self.core)
            self.define()

        def adopt() -> None:
            self.installer.reload()
            handlers.times.restart()

        return RestartableParts(
            drop=drop,
            listen=listen,
            stop=self.stop,
            start=self.start,
            refill=refill,
            adopt=adopt,
        )

    def start(self) -> None:
        """Begin in the background."""
        self._work = asyncio.create_task(self._run(), name="devcluster")
        self._work.add_done_callback(self._report)

    async def stop(self) -> None:
        """End, and wait for the end."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    async def failed(self) -> BaseException:
        """Wait for the first fault of anything here."""
        return await asyncio.shield(self._fault)

    def _report(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (fault := task.exception()) is None:
            return
        _LOG.error("background work stopped", exc_info=fault)
        if not self._fault.done():
            self._fault.set_result(fault)

    async def _run(self) -> None:
        """Run definitions, controllers and stages; the fault of one ends all, and is raised."""
        options = self._options
        async with asyncio.TaskGroup() as group:
            group.create_task(self.installer.run(), name="devcluster definitions")
            if options.controllers:
                manager.start_all(
                    group,
                    self.client,
                    clock=options.clock,
                    rng=KeyedRandom(options.seed, "stages"),
                    stages=options.stages,
                    gangs=options.gangs,
                )


class DevCluster:
    """A running embedded cluster.

    Attributes:
        url: where its API answers.
        token: the admin's bearer token.
        client: in-process access on the same core.
        in_process: the API for programs in the same loop, as HTTP serves it.
    """

    def __init__(
        self,
        *,
        url: str,
        token: str,
        listener: Listener,
        background: BackgroundWork,
        handlers: HandlerChain,
        restarts: Restarts,
        in_process: InProcessTransport,
    ) -> None:
        self.url = url
        self.token = token
        self.client = background.client
        self.core = background.core
        self.handlers = handlers
        self.restarts = restarts
        self.in_process = in_process
        self._listener = listener
        self._background = background

    @property
    def kubeconfig_text(self) -> str:
        """A kubeconfig whose one context is this cluster."""
        return kubeconfig_text(self.url, self.token)

    @property
    def faults(self) -> ActiveFaults:
        """The fault rules in force."""
        return self.handlers.faults

    @property
    def api(self) -> ResourceApi:
        """The verbs, for callers in this process that choose their own options."""
        return self._background.api

    def sync(self) -> None:
        """Serve what definitions that were just written define, before the next request."""
        self._background.installer.sync()

    def client_as(self, user: str, *, agent: str = "") -> FaultyClient:
        """Return in-process access that fault rules strike as they strike HTTP."""
        return FaultyClient(self._background.api, self.handlers, user=user, agent=agent)

    async def failed(self) -> BaseException:
        """Wait until a controller stops, which it never does by itself; return its fault."""
        return await self._background.failed()

    async def close(self) -> None:
        """Stop listening, end every watch, stop the controllers."""
        await self.restarts.close()
        await self._background.stop()
        await self.in_process.close()
        await self._listener.close()


def build_core(clock: Clock, seed: int, gangs: GangFeatures = OFF) -> ServerState:
    """Build the core with every built-in kind, the bootstrap objects and an open watch window."""
    registry = Registry()
    load_builtins(registry, builtin_strategies(gangs), editions=gangs.editions)
    load_gangs(registry, gangs)
    core = ServerState(store=Store(), registry=registry, clock=clock, seed=seed, gangs=gangs)
    core.policies = AdmissionPolicies(core)
    create_initial_objects(core)
    return core


async def start(options: ClusterOptions) -> DevCluster:
    """Start an embedded cluster in the running loop; it is ready when this returns.

    Raises:
        ConfigError: a definition or an object to apply is refused.
        OSError: the port cannot be listened on, or a file to apply cannot be read.
    """
    core = build_core(options.clock, options.seed, options.gangs)
    core.records = options.records
    background = BackgroundWork(core, options)
    background.define()
    token = options.token or secrets.token_hex(16)
    endpoints = ResourceEndpoints(background.api)
    handlers = HandlerChain(core, endpoints, ActiveFaults(options.seed, options.faults))
    local = ipaddress.ip_address(options.host).is_loopback
    access = RequestAccess(core, token, local=local)
    names = HostNames.from_options(options.host, options.host_names)
    server = HttpServer(handlers, access=access, clock=options.clock, names=names)
    listener = Listener(server.handle, host=options.host, port=options.port)
    in_process = InProcessTransport(handlers, access=access, clock=options.clock)
    restarts = Restarts(core, background.restartable_parts(listener, handlers, in_process))
    server.control = ControlEndpoints(options.clock, handlers, restarts)
    address, port = await listener.open()
    endpoints.address = f"{address}:{port}"
    cluster = DevCluster(
        url=f"http://{address}:{port}",
        token=token,
        listener=listener,
        background=background,
        handlers=handlers,
        restarts=restarts,
        in_process=in_process,
    )
    background.start()
    try:
        apply_files(background.client, options.apply, settle=background.installer.sync)
    except BaseException:
        await cluster.close()
        raise
    return cluster
