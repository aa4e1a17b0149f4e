"""Keeps as many nodes as each NodePool asks for: creates what is missing, deletes the rest.

Nodes that are there keep their shape when the template changes; scale down and up for new ones.
A pool's nodes go with it, by garbage collection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.stages.node_pools import (
    API_VERSION,
    KIND,
    POOL_LABEL,
    NodePoolError,
    nodes_of,
)

POOLS: Final = "nodepools.devcluster.gpusched.io"
_SYNCED: Final = "Synced"
CREATED_MAX: Final = 100
"""Nodes made before others get a turn: clients are not to wait for a thousand."""


class NodePoolController:
    """Follows pools and their nodes.

    Args:
        client: the cluster, which must serve NodePools.
        clock: time of conditions.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_pools())
            group.create_task(self._watch_nodes())
            group.create_task(serve_queue(self._queue, self.sync, name="node pools"))

    async def _watch_pools(self) -> None:
        async for item in self._client.watch(POOLS):
            if item.type != "DELETED":
                self._queue.add(item.object["metadata"]["name"])

    async def _watch_nodes(self) -> None:
        async for item in self._client.watch("nodes"):
            pool = (item.object["metadata"].get("labels") or {}).get(POOL_LABEL)
            if pool is not None and item.type != "MODIFIED":
                self._queue.add(pool)

    def sync(self, name: str) -> None:
        """Bring the nodes of one pool to their number and say in its status how it went."""
        pool = self._client.get(POOLS, None, name)
        if pool is None or "deletionTimestamp" in pool["metadata"]:
            return
        problem = ""
        try:
            want = {node["metadata"]["name"]: node for node in nodes_of(pool)}
        except NodePoolError as fault:
            problem = str(fault)
        else:
            problem = self._fill(pool, want)
        self._write_status(pool, problem)

    def _nodes(self, pool: str) -> list[Obj]:
        return self._client.list("nodes", label_selector=f"{POOL_LABEL}={pool}")

    def _fill(self, pool: Obj, want: dict[str, Obj]) -> str:
        """Create and delete; returns the first refusal as a sentence, empty when there is none."""
        have = {node["metadata"]["name"] for node in self._nodes(pool["metadata"]["name"])}
        owner = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": pool["metadata"]["name"],
            "uid": pool["metadata"]["uid"],
            "controller": True,
        }
        problem = ""
        for name in [name for name in want if name not in have][:CREATED_MAX]:
            node = want[name]
            owned = {**node, "metadata": {**node["metadata"], "ownerReferences": [owner]}}
            try:
                self._client.create("nodes", owned)
            except StatusError as refusal:
                problem = problem or refusal.message
        for name in sorted(have - want.keys()):
            try:
                self._client.delete("nodes", None, name)
            except StatusError as refusal:
                if refusal.code != 404:  # gone meanwhile
                    raise
        return problem

    def _write_status(self, pool: Obj, problem: str) -> None:
        status = pool.get("status") or {}
        before: Obj = next((c for c in status.get("conditions") or () if c["type"] == _SYNCED), {})
        name = pool["metadata"]["name"]
        count = len(self._nodes(name))
        full = count == pool["spec"]["replicas"]
        value = "True" if full and not problem else "False"
        reason = "Refused" if problem else "Filled" if full else "Filling"
        since = before.get("lastTransitionTime") if before.get("status") == value else None
        condition: dict[str, Any] = {
            "type": _SYNCED,
            "status": value,
            "reason": reason,
            "message": problem,
            "observedGeneration": pool["metadata"]["generation"],
            "lastTransitionTime": since or rfc3339(self._clock.now()),
        }
        patch = {"status": {"replicas": count, "conditions": [condition]}}
        self._client.patch(POOLS, None, name, patch, subresource="status")
        if problem and before.get("message") != problem:
            self._client.event(pool, "NodesRefused", problem, "Warning", component="node-pools")
