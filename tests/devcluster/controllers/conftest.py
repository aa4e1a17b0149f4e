"""A cluster in this process for the controllers, in a time that the test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpusched.devcluster import cluster as app
from gpusched.devcluster.cluster import DevCluster
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures

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


class Cluster:
    """A running embedded cluster, with its clock."""

    def __init__(self, running: DevCluster, clock: ManualClock) -> None:
        self.running = running
        self.client = running.client
        self.clock = clock
        self.client.create(
            "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
        )

    @property
    def reasons(self) -> list[str]:
        """Reasons of the events in namespace n, as often as they happened, by name of the reason."""
        events = self.client.list("events", "n")
        return sorted(e["reason"] for e in events for _ in range(e["count"]))

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
    """Starts clusters; a fault of any controller fails the test."""
    running: list[DevCluster] = []

    async def one(
        *, stages: bool = False, stage_files: Sequence[Path] = (), gangs: GangFeatures = OFF
    ) -> Cluster:
        clock = ManualClock()
        options = app.ClusterOptions(
            clock=clock, stages=stages, stage_files=stage_files, gangs=gangs
        )
        running.append(await app.start(options))
        cluster = Cluster(running[-1], clock)
        await clock.settle()
        return cluster

    yield one
    for cluster in running:
        fault = asyncio.ensure_future(cluster.failed())
        await asyncio.sleep(0)
        if fault.done():
            raise fault.result()
        fault.cancel()
        await asyncio.gather(fault, return_exceptions=True)
        await cluster.close()
