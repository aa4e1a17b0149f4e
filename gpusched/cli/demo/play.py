"""The demo behind the scenes: an embedded cluster, the real daemon on it, and a user's files.

Everything goes over HTTP with a kubeconfig: the daemon has no other way in, nor has the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from gpusched.app import App, AppOptions
from gpusched.base import installed_files, limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ConfigError, GpuschedError
from gpusched.cli.demo.observer import DemoObserver
from gpusched.cli.demo.scene import ClusterScene, DemoOutcome, fuller_scene
from gpusched.cli.inspect.cluster_reader import Json, get_object, items_at, value_at
from gpusched.config.load import load_file
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.io.client.api_client import ApiClient, api_error
from gpusched.session.state.plan import Plan

_APPLY: Final = "application/apply-patch+yaml"
_LOOK_S: Final = 0.1
"""How often the moment is looked at: for the fullest one, and for the end."""
_SESSION_SECONDS: Final = re.compile(
    rb'^gpusched_cycle_duration_seconds_sum\{action="session"\} (\S+)$', re.MULTILINE
)


@frozen
class DemoStep:
    """What the user does: apply one file so many seconds after the beginning."""

    at_s: float
    file: Path


@frozen(kw_only=True)
class DemoOptions:
    """How one demo is run.

    Attributes:
        folder: an existing, private folder; the kubeconfig is written there.
        steps: in the order of their times.
        seconds: the longest time that gangs are waited for.
        inline: see ``AppOptions.inline``.
        seed: of the cluster's names and the daemon's jitter.
    """

    clock: Clock
    folder: Path
    steps: Sequence[DemoStep]
    seconds: float
    inline: bool = False
    seed: int = 1


def shipped_steps() -> tuple[DemoStep, ...]:
    """The demo's workload: 16 nodes in 2 racks, 3 queues, 11 gangs in three portions."""
    folder = installed_files.path("kwok-scenarios/first-gang")
    return (
        DemoStep(0.0, folder / "nodes.yaml"),
        DemoStep(0.0, folder / "queues.yaml"),
        DemoStep(2.0, folder / "jobs-1.yaml"),
        DemoStep(5.0, folder / "jobs-2.yaml"),
        DemoStep(8.0, folder / "jobs-3.yaml"),
    )


class DemoPlay:
    """A running demo; ``on_stage`` makes one."""

    def __init__(
        self,
        options: DemoOptions,
        *,
        cluster: DevCluster,
        app: App,
        api: ApiClient,
        kubeconfig: Path,
    ) -> None:
        self.options = options
        self.url = cluster.url
        self.kubeconfig = kubeconfig
        self.applied: list[str] = []
        """What the user did so far, a sentence each."""
        self.witness = DemoObserver(options.clock)
        self._api = api
        self._app = app
        self._ahead = list(options.steps)
        self._fullest = ClusterScene(at_s=0.0)
        self._session_s = 0.0
        app.on_plan.append(self._heard)
        self._daemon = asyncio.create_task(app.run(), name="demo daemon")
        self._parts: tuple[asyncio.Task[None], ...] = (
            self._daemon,
            asyncio.create_task(self._cluster(cluster), name="demo cluster"),
            asyncio.create_task(self.witness.run(api), name="demo witness"),
        )

    async def until_settled(self, stop: asyncio.Event) -> DemoOutcome:
        """Do the user's steps and wait until every gang that can has started, or time is up.

        Raises:
            GpuschedError: a part of the demo broke.
        """
        interrupted = not await self._unless_stopped(self._act(), stop)
        return DemoOutcome(
            fullest=self._fullest,
            last=self.witness.scene(),
            double=tuple(self.witness.double),
            bindings=self.witness.bindings,
            skipped=tuple(step.file.name for step in self._ahead),
            interrupted=interrupted,
        )

    async def until_stopped(self, stop: asyncio.Event) -> None:
        """Keep everything running.

        Raises:
            GpuschedError: a part of the demo broke.
        """
        await self._unless_stopped(asyncio.Event().wait(), stop)

    async def end(self) -> None:
        """End the daemon in order, then the rest.

        Raises:
            GpuschedError: the daemon ended because of a fault.
        """
        self._app.stop()
        await asyncio.wait([self._daemon])
        for part in self._parts:
            part.cancel()
        await asyncio.wait(self._parts)
        self._daemon.result()

    # -- acting ----------------------------------------------------------------------------
    async def _act(self) -> None:
        clock = self.options.clock
        steps = self._ahead
        while steps or not self.witness.scene().settled:
            if self.witness.elapsed() >= self.options.seconds:
                break
            while steps and self.witness.elapsed() >= steps[0].at_s:
                step = steps.pop(0)
                count = await apply_file(self._api, step.file)
                self.applied.append(f"kubectl apply -f {step.file.name}: {count} objects")
            self._fullest = fuller_scene(self._fullest, self.witness.scene())
            await clock.sleep(_LOOK_S)
        self._fullest = fuller_scene(self._fullest, self.witness.scene())

    async def _unless_stopped(
        self, doing: Coroutine[Any, Any, object], stop: asyncio.Event
    ) -> bool:
        """Whether the work was done before the end was asked for."""
        work = asyncio.create_task(doing, name="demo user")
        asked = asyncio.create_task(stop.wait(), name="demo end")
        await asyncio.wait({work, asked, *self._parts}, return_when=asyncio.FIRST_COMPLETED)
        finished = work.done()
        for task in (work, asked):
            task.cancel()
        await asyncio.wait({work, asked})
        for part in self._parts:
            if part.done():
                part.result()
                raise GpuschedError(f"the {part.get_name().removeprefix('demo ')} ended by itself")
        if finished:
            work.result()
        return finished

    def _heard(self, plan: Plan) -> None:
        """The daemon decided: its own metric says how long that took."""
        match = _SESSION_SECONDS.search(self._app.telemetry.render())
        total = float(match[1]) if match else self._session_s
        for gang in plan.binds:
            key = (gang.gang.kind, gang.gang.namespace, gang.gang.name)
            self.witness.decided_ms.setdefault(key, 1000 * (total - self._session_s))
        self._session_s = total

    async def _cluster(self, cluster: DevCluster) -> None:
        raise GpuschedError(f"a part of the embedded cluster stopped: {await cluster.failed()}")


@contextlib.asynccontextmanager
async def running_demo(options: DemoOptions) -> AsyncIterator[DemoPlay]:
    """Start cluster and daemon, and end both in order afterwards.

    Raises:
        GpuschedError: one of them cannot start.
    """
    clock = options.clock
    async with contextlib.AsyncExitStack() as stack:
        cluster = await start(ClusterOptions(clock=clock, seed=options.seed))
        stack.push_async_callback(cluster.close)
        kubeconfig = options.folder / "kubeconfig"
        _write_private(kubeconfig, cluster.kubeconfig_text)
        app = App(
            AppOptions(
                config=load_file(str(installed_files.path("conf/gpusched.yaml"))),
                clock=clock,
                rng=random.Random(options.seed),  # noqa: S311 - jitter, no secret
                kubeconfig=str(kubeconfig),
                identity="demo",
                listen=(("127.0.0.1", 0),),
                inline=options.inline,
            )
        )
        api = await ApiClient.connect(str(kubeconfig), clock=clock)
        stack.push_async_callback(api.close)
        play = DemoPlay(options, cluster=cluster, app=app, api=api, kubeconfig=kubeconfig)
        stack.push_async_callback(play.end)
        yield play


async def apply_file(api: ApiClient, file: Path) -> int:
    """Apply every object of a YAML file as ``kubectl apply --server-side`` does; their number.

    Raises:
        ConfigError: the file is no YAML of objects.
        GpuschedError: the server refused one, or is not there.
    """
    documents = _documents(file)
    for document in documents:
        name = value_at(document, "metadata", "name")
        if not name:
            raise ConfigError(f"{file} holds something that is no object with a name")
        answer = await api.request(
            "PATCH",
            f"{await _collection(api, document)}/{name}",
            query={"fieldManager": "gpusched-demo", "fieldValidation": "Strict"},
            body=json.dumps(document).encode(),
            content_type=_APPLY,
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if not answer.ok:
            raise api_error(answer, doing=f"apply {document.get('kind')} {name}", write=True)
    return len(documents)


def _documents(file: Path) -> list[Json]:
    try:
        return [item for item in yaml.safe_load_all(file.read_text("utf-8")) if item]
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


async def _collection(api: ApiClient, document: Json) -> str:
    """Where objects of this kind live, as the server's discovery says."""
    version, kind = str(document.get("apiVersion")), document.get("kind")
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    found = await get_object(api, base, what=f"the kinds of {version}")
    for resource in items_at(found, "resources"):
        if resource.get("kind") == kind and "/" not in str(resource.get("name")):
            space = value_at(document, "metadata", "namespace") or "default"
            scope = f"/namespaces/{space}" if resource.get("namespaced") else ""
            return f"{base}{scope}/{resource['name']}"
    raise ConfigError(f"this cluster serves no {kind} of {version}")


def _write_private(path: Path, text: str) -> None:
    """Readable by its owner alone: a kubeconfig carries the admin's token."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
