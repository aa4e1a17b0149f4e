"""Recounts what a ResourceQuota's namespace uses, as objects come and go."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apiserver.client.all_kinds_watch import AllKindsWatch, namespaced_kinds
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.registry.policy.quota_usage import (
    add_amounts,
    counted_storage,
    is_counted_amount,
    object_usage,
    pod_usage,
    printed_usage,
    quota_covers,
)

_QUOTAS: Final = "resourcequotas"
_GATHER_S: Final = 0.2
"""Seconds in which changes are counted together: a count reads a whole namespace."""


class ResourceQuotaController:
    """Keeps ``status.hard`` and ``status.used`` of every quota.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(clock)
        self._quotas: dict[str, set[str]] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_quotas())
            group.create_task(AllKindsWatch(self._client, self._see).run())
            group.create_task(serve_queue(self._queue, self.sync, name="quota controller"))

    async def _watch_quotas(self) -> None:
        async for item in self._client.watch(_QUOTAS):
            metadata = item.object["metadata"]
            names = self._quotas.setdefault(metadata["namespace"], set())
            if item.type == "DELETED":
                names.discard(metadata["name"])
            else:
                names.add(metadata["name"])
                self._queue.add((metadata["namespace"], metadata["name"]))

    def _see(self, _resource: str, item: WatchItem) -> None:
        names = self._quotas.get(item.object["metadata"].get("namespace", ""))
        if names and _changes_usage(item):
            namespace = item.object["metadata"]["namespace"]
            for name in sorted(names):
                self._queue.add_after((namespace, name), _GATHER_S)

    def sync(self, key: tuple[str, str]) -> None:
        """Recount one quota and write its status when it changed."""
        namespace, name = key
        quota = self._client.get(_QUOTAS, namespace, name)
        if quota is None:
            return
        hard: dict[str, str] = quota["spec"].get("hard") or {}
        usage: dict[str, Fraction] = {}
        for pod in self._client.list("pods", namespace):
            if quota_covers(quota, pod):
                add_amounts(usage, pod_usage(pod))
        known = {name for name in hard if is_counted_amount(name)} | self._count(quota, usage)
        fresh = {"hard": hard, "used": printed_usage(known, usage)}
        if fresh != quota.get("status"):
            self._client.update(_QUOTAS, {**quota, "status": fresh}, "status")

    def _count(self, quota: Obj, usage: dict[str, Fraction]) -> set[str]:
        """Count objects other than pods into ``usage``; returns the names that are counted."""
        hard = quota["spec"].get("hard") or {}
        storages = {name: counted_storage(name) for name in hard}
        served = {*namespaced_kinds(self._client)} if any(storages.values()) else set()
        known = {name for name, storage in storages.items() if storage in served}
        if not quota_covers(quota, None):
            return {"count/pods"} & known
        for storage in sorted({storages[name] or "" for name in known} - {"pods"}):
            for obj in self._client.list(storage, quota["metadata"]["namespace"]):
                add_amounts(usage, object_usage(storage, obj))
        return known


def _changes_usage(item: WatchItem) -> bool:
    """Whether a change can alter a count: something came, went, or ended."""
    if item.type != "MODIFIED" or item.previous is None:
        return True
    return pod_state.is_terminal(item.object) != pod_state.is_terminal(item.previous)
