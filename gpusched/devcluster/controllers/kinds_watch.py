"""Watches every kind that can own or be owned, custom ones as they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gpusched.devcluster.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.status import StatusError

_CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
NAMESPACED: Final = (
    "configmaps",
    "events",
    "leases.coordination.k8s.io",
    "poddisruptionbudgets.policy",
    "pods",
    "jobs.batch",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
)
"""Built-in namespaced kinds; pods before jobs so that an owner is never deleted unseen."""
CLUSTER_SCOPED: Final = ("namespaces", "nodes", "priorityclasses.scheduling.k8s.io")
_UNOWNED: Final = frozenset({"events"})
"""Kinds that are not watched: there are too many of them and nothing owns them."""

See = Callable[[str, WatchItem], None]


def namespaced_kinds(client: LocalClient) -> list[str]:
    """Every namespaced kind that is served now, built-in and custom."""
    found = list(NAMESPACED)
    for crd in client.list(_CRDS):
        spec = crd["spec"]
        if spec["scope"] == "Namespaced" and _served(_conditions(crd)):
            found.append(f"{spec['names']['plural']}.{spec['group']}")
    return found


def resource_by_kind(client: LocalClient, api_version: str, kind: str) -> str | None:
    """The plural of a kind as an owner reference names it, None when it is not served."""
    group, slash, _ = api_version.partition("/")
    group = group if slash else ""
    for name in (*NAMESPACED, *CLUSTER_SCOPED):
        plural, _, its_group = name.partition(".")
        singular = "priorityclass" if plural == "priorityclasses" else plural.removesuffix("s")
        if its_group == group and singular == kind.lower():
            return name
    for crd in client.list(_CRDS):
        spec = crd["spec"]
        if spec["group"] == group and spec["names"]["kind"] == kind:
            return f"{spec['names']['plural']}.{group}"
    return None


def _conditions(crd: Obj) -> list[Obj]:
    return (crd.get("status") or {}).get("conditions") or []


def _served(conditions: list[Obj]) -> bool:
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


class AllKinds:
    """Calls ``see(resource, item)`` for every change of every watched object.

    Args:
        client: the cluster.
        see: takes the plural with its group, and the change.
    """

    def __init__(self, client: LocalClient, see: See) -> None:
        self._client = client
        self._see = see
        self._customs: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in (*CLUSTER_SCOPED, *NAMESPACED):
                if resource not in _UNOWNED:
                    group.create_task(self._watch(resource))
            async for item in self._client.watch(_CRDS):
                self._follow(group, item)

    def _follow(self, group: asyncio.TaskGroup, item: WatchItem) -> None:
        spec = item.object["spec"]
        resource = f"{spec['names']['plural']}.{spec['group']}"
        if item.type == "DELETED":
            task = self._customs.pop(resource, None)
            if task is not None:
                task.cancel()
        elif resource not in self._customs and _served(_conditions(item.object)):
            self._customs[resource] = group.create_task(self._watch_custom(resource))

    async def _watch(self, resource: str) -> None:
        async for item in self._client.watch(resource):
            self._see(resource, item)

    async def _watch_custom(self, resource: str) -> None:
        try:
            await self._watch(resource)
        except StatusError as refusal:
            if refusal.code != 404:  # the kind went away
                raise
            self._customs.pop(resource, None)
