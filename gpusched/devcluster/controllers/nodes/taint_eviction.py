"""Deletes pods that do not tolerate a NoExecute taint of their node, or tolerate it for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state


def tolerates(toleration: Obj, taint: Obj) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    if toleration["key"] != taint["key"]:
        return False
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")


def toleration_seconds(pod: Obj, taints: Sequence[Obj]) -> float | None:
    """Seconds a pod may stay under NoExecute taints; 0 when not at all, None for ever."""
    tolerations = pod["spec"].get("tolerations") or ()
    limits: list[float] = []
    for taint in taints:
        covering = [t for t in tolerations if tolerates(t, taint)]
        if not covering:
            return 0.0
        limits += [
            max(float(t["tolerationSeconds"]), 0.0)
            for t in covering
            if t.get("tolerationSeconds") is not None
        ]
    return min(limits, default=None)


def no_execute(node: Obj) -> list[Obj]:
    """The NoExecute taints of a node."""
    return [t for t in node["spec"].get("taints") or () if t["effect"] == "NoExecute"]


class TaintEvictionController:
    """Follows nodes and the pods bound to them.

    A deadline once set stands as long as the taints do: writes to the pod do not move it.

    Args:
        client: the cluster.
        clock: time of tolerations.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._tainted: dict[str, list[Obj]] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        self._homes: dict[str, str] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_nodes())
            group.create_task(self._watch_pods())
            group.create_task(serve_queue(self._queue, self.evict, name="taint evictions"))

    async def _watch_nodes(self) -> None:
        async for item in self._client.watch("nodes"):
            name: str = item.object["metadata"]["name"]
            taints = [] if item.type == "DELETED" else no_execute(item.object)
            if taints == self._tainted.get(name, []):
                continue
            self._tainted[name] = taints
            for uid in self._pods.get(name, {}):
                self._queue.remove(uid)
                self._consider(uid, name)

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        uid: str = item.object["metadata"]["uid"]
        node = (item.object.get("spec") or {}).get("nodeName")
        if item.type == "DELETED":
            self._queue.remove(uid)
            self._pods.get(self._homes.pop(uid, ""), {}).pop(uid, None)
        elif node:
            self._homes[uid] = node
            self._pods.setdefault(node, {})[uid] = item.object
            self._consider(uid, node)

    def _consider(self, uid: str, node: str) -> None:
        taints = self._tainted.get(node)
        pod = self._pods[node][uid]
        if (
            not taints
            or uid in self._queue
            or pod_state.is_deleting(pod)
            or pod_state.is_terminal(pod)
        ):
            return
        limit = toleration_seconds(pod, taints)
        if limit is not None:
            self._queue.add_after(uid, limit)

    def evict(self, uid: str) -> None:
        """Mark a pod as disrupted and delete it with its own grace."""
        pod = self._pods.get(self._homes.get(uid, ""), {}).get(uid)
        if pod is None:
            return
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        condition: dict[str, Any] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        try:
            self._client.patch(
                "pods",
                namespace,
                name,
                {"status": {"conditions": [condition]}},
                patch_type="strategic",
                subresource="status",
            )
            self._client.delete("pods", namespace, name, uid=metadata["uid"])
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone meanwhile
                raise
            return
        message = f"Marking for deletion Pod {namespace}/{name}"
        self._client.event(
            pod, "TaintManagerEviction", message, component="taint-eviction-controller"
        )
