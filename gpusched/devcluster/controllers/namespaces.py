"""Empties a deleted namespace, then lets it go."""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.clock import Clock
from gpusched.devcluster.controllers.kinds_watch import AllKinds, namespaced_kinds
from gpusched.devcluster.controllers.namespace_conditions import conditions
from gpusched.devcluster.controllers.workqueue import WorkQueue, serve
from gpusched.devcluster.core import rfc3339
from gpusched.devcluster.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.status import StatusError

_FINALIZER: Final = "kubernetes"
_BEGIN_S: Final = 0.5
"""Clients get to see the namespace Terminating for so long at least, as on a real cluster."""
_SETTLE_S: Final = 0.5
"""A namespace is left alone so long, as real ones are (5 s): creates meet the 403 meanwhile."""


class NamespaceController:
    """Deletes the content of terminating namespaces and takes their finalizer off when empty.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._terminating: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(AllKinds(self._client, self._see).run())
            group.create_task(serve(self._queue, self.sync, name="namespace controller"))

    def _see(self, resource: str, item: WatchItem) -> None:
        metadata = item.object["metadata"]
        if resource == "namespaces":
            name: str = metadata["name"]
            if item.type == "DELETED":
                self._terminating.discard(name)
            elif "deletionTimestamp" in metadata:
                self._terminating.add(name)
                self._queue.by(name, _SETTLE_S)
        elif item.type == "DELETED" and metadata.get("namespace") in self._terminating:
            self._queue.soon(metadata["namespace"])

    def sync(self, name: str) -> None:
        """Delete what is left in one namespace; let the namespace go when nothing is."""
        namespace = self._client.get("namespaces", None, name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        left = {
            resource: remaining
            for resource in namespaced_kinds(self._client)
            if (remaining := self._clear(resource, name))
        }
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        if left:
            self._tell(namespace, left)
        if left or _FINALIZER not in finalizers:
            return
        kept = [finalizer for finalizer in finalizers if finalizer != _FINALIZER]
        current = {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}
        self._client.update("namespaces", current, "finalize")

    def _tell(self, namespace: Obj, left: dict[str, list[Obj]]) -> None:
        """Say in the namespace's conditions what keeps it."""
        fresh = {**namespace["status"]}
        fresh["conditions"] = conditions(left, fresh.get("conditions") or [], now=self._now())
        if fresh != namespace["status"]:
            current = {**namespace, "status": fresh}
            self._client.update("namespaces", current, "status")

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    def _clear(self, resource: str, namespace: str) -> list[Obj]:
        """Delete all objects of a kind; returns those that are still there."""
        for obj in self._client.list(resource, namespace):
            metadata = obj["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            try:
                self._client.delete(resource, namespace, metadata["name"], uid=metadata["uid"])
            except StatusError as refusal:
                if refusal.code not in {404, 409}:  # already gone
                    raise
        return self._client.list(resource, namespace)
