"""Recounts what a ResourceQuota's namespace uses, as objects come and go."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Final

from gpusched.clock import Clock
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.workqueue import WorkQueue, serve
from gpusched.devcluster.local_client import LocalClient, WatchItem
from gpusched.devcluster.strategies.quota_usage import add, pod_usage, used

_QUOTAS: Final = "resourcequotas"
_COUNTED: Final = {
    "configmaps": ("configmaps", "count/configmaps"),
    "jobs.batch": ("count/jobs.batch",),
    "secrets": ("secrets", "count/secrets"),
    "resourcequotas": ("resourcequotas", "count/resourcequotas"),
}
"""Kinds that only their number is limited of, with the names a quota may use for them."""
_GATHER_S: Final = 0.2
"""Changes within so long are counted together: a count reads a whole namespace."""


class QuotaController:
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
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_quotas())
            for resource in ("pods", *_COUNTED):
                group.create_task(self._watch(resource))
            group.create_task(serve(self._queue, self.sync, name="quota controller"))

    async def _watch_quotas(self) -> None:
        async for item in self._client.watch(_QUOTAS):
            metadata = item.object["metadata"]
            names = self._quotas.setdefault(metadata["namespace"], set())
            if item.type == "DELETED":
                names.discard(metadata["name"])
            else:
                names.add(metadata["name"])
                self._queue.soon((metadata["namespace"], metadata["name"]))

    async def _watch(self, resource: str) -> None:
        async for item in self._client.watch(resource):
            if _changes_usage(item):
                namespace = item.object["metadata"]["namespace"]
                for name in sorted(self._quotas.get(namespace, ())):
                    self._queue.by((namespace, name), _GATHER_S)

    def sync(self, key: tuple[str, str]) -> None:
        """Recount one quota and write its status when it changed."""
        namespace, name = key
        quota = self._client.get(_QUOTAS, namespace, name)
        if quota is None:
            return
        hard: dict[str, str] = quota["spec"].get("hard") or {}
        usage: dict[str, Fraction] = {}
        for pod in self._client.list("pods", namespace):
            add(usage, pod_usage(pod))
        for resource, names in _COUNTED.items():
            if hard.keys() & set(names):
                count = Fraction(len(self._client.list(resource, namespace)))
                usage.update(dict.fromkeys(names, count))
        fresh = {"hard": hard, "used": used(hard, usage)}
        if fresh != quota.get("status"):
            self._client.update(_QUOTAS, {**quota, "status": fresh}, "status")


def _changes_usage(item: WatchItem) -> bool:
    """Whether a change can alter a count: something came, went, or ended."""
    if item.type != "MODIFIED" or item.previous is None:
        return True
    return pod_state.terminal(item.object) != pod_state.terminal(item.previous)
