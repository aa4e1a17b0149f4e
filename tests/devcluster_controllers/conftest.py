"""A cluster in this process for the controllers, in a time that the test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from gpusched.devcluster import bodies  # noqa: F401
from gpusched.devcluster.api import Api
from gpusched.devcluster.builtin_strategies import builtin_strategy
from gpusched.devcluster.controllers import start_all
from gpusched.devcluster.core import Core
from gpusched.devcluster.deletion import DeleteOptions
from gpusched.devcluster.kinds import Registry, load_builtins
from gpusched.devcluster.listing import selector
from gpusched.devcluster.local_client import LocalClient, StatusError
from gpusched.devcluster.meta import copy_tree
from gpusched.devcluster.stages.model import Stage
from gpusched.devcluster.store import Store
from gpusched.devcluster.verbs import Options

START = 1_800_000_000.0
SETTLE_TURNS = 300
"""Turns of the loop after which nothing is under way any more: each event needs two or three."""


class ManualClock:
    """Stands still until ``advance`` moves it from sleeper to sleeper."""

    def __init__(self) -> None:
        self._at = 0.0
        self._sequence = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """See Clock."""
        return START + self._at

    def monotonic(self) -> float:
        """See Clock."""
        return self._at

    def boottime(self) -> float:
        """See Clock."""
        return self._at

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._sleepers, (self._at + seconds, self._sequence, future))
        await future

    async def settle(self) -> None:
        """Let everything happen that does not wait for time."""
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass, each sleeper waking at its moment."""
        end = self._at + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self._at = max(self._at, due)
                future.set_result(None)
                await self.settle()
        self._at = end
        await self.settle()


class _Verbs:
    """Stands in for the verbs of the in-process client."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.api = Api(core)
        self.events: list[tuple[str, str, str]] = []

    def local_get(self, resource: str, namespace: str | None, name: str) -> Any:
        try:
            return self.api.get(self.core.registry.named(resource), namespace or "", name).obj
        except StatusError as e:
            if e.code != 404:
                raise
            return None

    def local_list(self, resource, namespace, *, label_selector=None, field_selector=None):
        kind = self.core.registry.named(resource)
        match = selector(kind, label_selector or "", field_text=field_selector or "")
        found = self.core.store.collection(kind.storage).scan(namespace or "")
        return [s.obj for _, s in found if match is None or match(s.obj)]

    def local_create(self, resource, obj, namespace, *, dry_run):
        kind = self.core.registry.named(resource)
        place = obj["metadata"].get("namespace") or namespace or ""
        return self.api.create(kind, place, copy_tree(obj), options=Options()).obj

    def local_update(self, resource, obj, subresource):
        kind, meta = self.core.registry.named(resource), obj["metadata"]
        found, _ = self.api.replace(
            kind,
            meta.get("namespace", ""),
            meta["name"],
            body=copy_tree(obj),
            options=Options(),
            subresource=subresource or "",
        )
        return found.obj

    def local_patch(
        self, resource, namespace, name, patch, *, patch_type, subresource, field_manager
    ):
        found, _ = self.api.patch(
            self.core.registry.named(resource),
            namespace or "",
            name,
            patch=patch,
            patch_type=patch_type,
            options=Options(manager=field_manager or ""),
            subresource=subresource or "",
        )
        return found.obj

    def local_delete(self, resource, namespace, name, *, grace_s, uid, propagation):
        options = DeleteOptions(grace_s=grace_s, uid=uid or "", propagation=propagation or "")
        kind = self.core.registry.named(resource)
        return self.api.delete(kind, namespace or "", name, options=options)[0]

    def local_connect(self, resource, namespace, name, subresource, body):
        self.api.connect(namespace, name, subresource, body=body)

    async def local_watch(self, resource):
        collection = self.core.store.collection(self.core.registry.named(resource).storage)
        wake = asyncio.Event()
        stop = collection.listen(wake.set)
        try:
            position = collection.end
            for _, stored in list(collection.scan()):
                yield "ADDED", stored.obj, None
            while True:
                for change in collection.since(position, 500) or ():
                    position += 1
                    before = change.before.obj if change.before else None
                    yield change.type, change.after.obj, before
                wake.clear()
                await wake.wait()
        finally:
            stop()

    def local_event(self, involved, reason, message, type_):
        self.events.append((involved["metadata"]["name"], reason, message))


class Cluster:
    """Client, clock and events of one cluster."""

    def __init__(self, clock: ManualClock) -> None:
        registry = Registry()
        load_builtins(registry, builtin_strategy)
        core = Core(store=Store(), registry=registry, clock=clock, seed=1)
        self._verbs = _Verbs(core)
        self.client = LocalClient(self._verbs)
        self.clock = clock
        self.tasks: list[asyncio.Task[None]] = []
        for name in ("default", "n"):
            self.client.create(
                "namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            )

    @property
    def reasons(self) -> list[str]:
        """Reasons of all events so far."""
        return [reason for _, reason, _ in self._verbs.events]

    def node(self, name: str, **metadata: Any) -> None:
        """Create a fake node with eight GPUs."""
        annotations = {"kwok.x-k8s.io/node": "fake", **metadata.pop("annotations", {})}
        amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
        self.client.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "annotations": annotations, **metadata},
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )

    def pod(self, name: str, *, spec: dict[str, Any] | None = None, **metadata: Any) -> Any:
        """Create a pod in namespace n."""
        return self.client.create("pods", pod(name, spec=spec, **metadata))

    def job(self, name: str, *, template: dict[str, Any] | None = None, **spec: Any) -> Any:
        """Create a Job in namespace n."""
        pods = {
            "metadata": template or {},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }
        return self.client.create(
            "jobs.batch",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "n"},
                "spec": {"template": pods, **spec},
            },
        )

    def pods(self, **fields: str) -> list[Any]:
        """Pods of namespace n, by label."""
        text = ",".join(f"{key}={value}" for key, value in fields.items())
        return self.client.list("pods", "n", text or None)

    def bind_all(self, node: str) -> None:
        """Bind every unbound pod to a node."""
        for found in self.pods():
            if not found["spec"].get("nodeName") and "deletionTimestamp" not in found["metadata"]:
                self.client.bind("n", found["metadata"]["name"], node)


def pod(name: str, *, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A pod of namespace n with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], **(spec or {})},
    }


@pytest.fixture
async def start() -> AsyncIterator[Any]:
    """Starts clusters; all controllers stop with the test and their faults fail it."""
    tasks: list[asyncio.Task[None]] = []

    async def one(stages: Sequence[Stage] = ()) -> Cluster:
        cluster = Cluster(ManualClock())

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                start_all(
                    group,
                    cluster.client,
                    clock=cluster.clock,
                    rng=random.Random(1),
                    stages=stages,
                )

        tasks.append(asyncio.create_task(run()))
        await cluster.clock.settle()
        assert not tasks[-1].done(), tasks[-1].exception()
        return cluster

    yield one
    for task in tasks:
        failed = task.done()
        task.cancel()
        if failed:
            await task
        await asyncio.gather(task, return_exceptions=True)
