"""Gives every namespace its service account ``default``, and restores it when deleted."""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue

_ACCOUNTS: Final = "serviceaccounts"
_NAME: Final = "default"


class ServiceAccountController:
    """Makes the account that pods of a namespace have when they name none.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[str] = WorkQueue(clock)

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_namespaces())
            group.create_task(self._watch_accounts())
            group.create_task(serve_queue(self._queue, self.sync, name="service accounts"))

    async def _watch_namespaces(self) -> None:
        async for item in self._client.watch("namespaces"):
            if item.type != "DELETED":
                self._queue.add(item.object["metadata"]["name"])

    async def _watch_accounts(self) -> None:
        async for item in self._client.watch(_ACCOUNTS):
            metadata = item.object["metadata"]
            if item.type == "DELETED" and metadata["name"] == _NAME:
                self._queue.add(metadata["namespace"])

    def sync(self, namespace: str) -> None:
        """Create the account of one namespace unless it is there or the namespace is going."""
        found = self._client.get("namespaces", None, namespace)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        if self._client.get(_ACCOUNTS, namespace, _NAME) is None:
            self._client.create(_ACCOUNTS, {"metadata": {"name": _NAME}}, namespace)
