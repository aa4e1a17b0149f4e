"""Empties a deleted namespace, then lets it go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.client.all_kinds_watch import AllKindsWatch, namespaced_kinds
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue

_FINE = (
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


def deletion_conditions(
    left: Mapping[str, Sequence[Obj]], before: Sequence[Obj], *, now: str
) -> list[Obj]:
    """The conditions of a namespace.

    Args:
        left: remaining objects by plural with group.
        before: conditions so far; those that say the same keep their time.
        now: time of those that changed.
    """
    wanted = [(kind, "False", reason, message) for kind, reason, message in _FINE]
    wanted += [_content(left), _finalizers(left)]
    known = {condition.get("type"): condition for condition in before}
    made: list[Obj] = []
    for kind, status, reason, message in wanted:
        old = known.get(kind) or {}
        same = old.get("status") == status
        made.append(
            {
                "type": kind,
                "status": status,
                "lastTransitionTime": old.get("lastTransitionTime") if same else now,
                "reason": reason,
                "message": message,
            }
        )
    return made


def _content(left: Mapping[str, Sequence[Obj]]) -> tuple[str, str, str, str]:
    kind = "NamespaceContentRemaining"
    parts = sorted(
        f"{name if '.' in name else name + '.'} has {len(objects)} resource instances"
        for name, objects in left.items()
    )
    if not parts:
        return kind, "False", "ContentRemoved", "All content successfully removed"
    return kind, "True", "SomeResourcesRemain", f"Some resources are remaining: {', '.join(parts)}"


def _finalizers(left: Mapping[str, Sequence[Obj]]) -> tuple[str, str, str, str]:
    kind = "NamespaceFinalizersRemaining"
    counts: dict[str, int] = {}
    for objects in left.values():
        for obj in objects:
            for finalizer in obj["metadata"].get("finalizers") or ():
                counts[finalizer] = counts.get(finalizer, 0) + 1
    if not counts:
        why = "All content-preserving finalizers finished"
        return kind, "False", "ContentHasNoFinalizers", why
    parts = sorted(f"{name} in {count} resource instances" for name, count in counts.items())
    why = f"Some content in the namespace has finalizers remaining: {', '.join(parts)}"
    return kind, "True", "SomeFinalizersRemain", why


_FINALIZER: Final = "kubernetes"
_BEGIN_S: Final = 0.5
"""Least seconds for which clients see the namespace Terminating, as on a real cluster."""
_SETTLE_S: Final = 0.5
"""Seconds for which a namespace is left alone (5 on real clusters): creates get a 403 meanwhile."""


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
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(AllKindsWatch(self._client, self._see).run())
            group.create_task(serve_queue(self._queue, self.sync, name="namespace controller"))

    def _see(self, resource: str, item: WatchItem) -> None:
        metadata = item.object["metadata"]
        if resource == "namespaces":
            name: str = metadata["name"]
            if item.type == "DELETED":
                self._terminating.discard(name)
            elif "deletionTimestamp" in metadata:
                self._terminating.add(name)
                self._queue.add_after(name, _SETTLE_S)
        elif item.type == "DELETED" and metadata.get("namespace") in self._terminating:
            self._queue.add(metadata["namespace"])

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
            self._update_conditions(namespace, left)
        if left or _FINALIZER not in finalizers:
            return
        kept = [finalizer for finalizer in finalizers if finalizer != _FINALIZER]
        current = {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}
        self._client.update("namespaces", current, "finalize")

    def _update_conditions(self, namespace: Obj, left: dict[str, list[Obj]]) -> None:
        """Write the conditions of the namespace: what remains in it, and which finalizers."""
        fresh = {**namespace["status"]}
        fresh["conditions"] = deletion_conditions(
            left, fresh.get("conditions") or [], now=self._now()
        )
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
