"""Restores the service ``kubernetes``, by which pods reach the API server, when it is deleted."""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers.bootstrap.initial_objects import API_SERVICE

AGAIN_S: Final = 10.0
"""How often a real API server looks after its service."""


class KubernetesServiceController:
    """Recreates the service ``kubernetes`` some seconds after its deletion.

    Args:
        client: the cluster.
        clock: time until it is back.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[str] = WorkQueue(clock)

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(serve_queue(self._queue, self.sync, name="service kubernetes"))

    async def _watch(self) -> None:
        known = API_SERVICE["metadata"]
        self._queue.add_after(known["name"], AGAIN_S)  # it may be gone before the watch begins
        async for item in self._client.watch("services"):
            metadata = item.object["metadata"]
            same = all(metadata[key] == known[key] for key in ("name", "namespace"))
            if same and item.type == "DELETED":
                self._queue.add_after(metadata["name"], AGAIN_S)

    def sync(self, name: str) -> None:
        """Create the service unless it is there."""
        namespace = API_SERVICE["metadata"]["namespace"]
        if self._client.get("services", namespace, name) is None:
            self._client.create("services", API_SERVICE, namespace)
