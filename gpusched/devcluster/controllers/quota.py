"""Recounts what a ResourceQuota's namespace uses, as objects come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from gpusched.clock import Clock
from gpusched.devcluster import quantities
from gpusched.devcluster.controllers import job_pods
from gpusched.devcluster.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.workqueue import WorkQueue, serve

_QUOTAS: Final = "resourcequotas"
_COUNTED: Final = {
    "configmaps": ("configmaps", "count/configmaps"),
    "jobs.batch": ("count/jobs.batch",),
    "secrets": ("secrets", "count/secrets"),
    "resourcequotas": ("resourcequotas", "count/resourcequotas"),
}
"""Kinds that only their number is limited of, with the names a quota may use for them."""
_PODS: Final = ("pods", "count/pods")
_BARE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})

_GATHER_S: Final = 0.2
"""Changes within so long are counted together: a count reads a whole namespace."""


def pod_usage(pod: Obj) -> dict[str, Fraction]:
    """What one pod uses, under the names a quota may use; a finished pod only counts as object."""
    usage = {"count/pods": Fraction(1)}
    if job_pods.terminal(pod):
        return usage
    usage["pods"] = Fraction(1)
    for field in ("requests", "limits"):
        for name, amount in _effective(pod["spec"], field).items():
            usage[f"{field}.{name}"] = amount
            if field == "requests" and name in _BARE:
                usage[name] = amount
    return usage


def _effective(spec: Obj, field: str) -> dict[str, Fraction]:
    """Containers together, or the largest need while init containers run; plus overhead."""
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, field))
    stays: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, field)
        if container.get("restartPolicy") == "Always":
            _add(stays, own)
            own = {}
        _raise(peak, _sum(stays, own))
    _add(total, stays)
    _raise(total, peak)
    overhead = {k: quantities.parse(v) for k, v in (spec.get("overhead") or {}).items()}
    _add(total, {k: v for k, v in overhead.items() if field == "requests" or k in total})
    return total


def _amounts(container: Obj, field: str) -> dict[str, Fraction]:
    named = (container.get("resources") or {}).get(field) or {}
    return {name: quantities.parse(amount) for name, amount in named.items()}


def _add(total: dict[str, Fraction], more: dict[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _sum(a: dict[str, Fraction], b: dict[str, Fraction]) -> dict[str, Fraction]:
    total = dict(a)
    _add(total, b)
    return total


def _raise(total: dict[str, Fraction], floor: dict[str, Fraction]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, amount), amount)


def used(hard: Iterable[str], usage: dict[str, Fraction]) -> dict[str, str]:
    """The amounts of the limited names, printed as the API does."""
    return {name: printed(usage.get(name, Fraction(0)), name) for name in sorted(hard)}


def printed(amount: Fraction, name: str) -> str:
    """An exact amount as a canonical quantity; memory in powers of 1024."""
    if name.endswith(("memory", "storage")) and amount.denominator == 1:
        return quantities.canonical(_binary(int(amount)))
    if amount.denominator == 1:
        return quantities.canonical(str(int(amount)))
    return quantities.canonical(f"{int(amount * 10**9)}n")


def _binary(amount: int) -> str:
    for suffix, power in (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount and amount % (1 << power) == 0:
            return f"{amount >> power}{suffix}"
    return str(amount)


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
            _add(usage, pod_usage(pod))
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
    return job_pods.terminal(item.object) != job_pods.terminal(item.previous)
