"""Watches every kind that can own or be owned, custom ones as they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.registry.kinds import Resource

_CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_UNOWNED: Final = frozenset({"events", "events.events.k8s.io"})
"""Kinds that are not watched: there are too many of them and nothing owns them."""

See = Callable[[str, WatchItem], None]


def builtin_kinds(client: LocalClient) -> list[Resource]:
    """Every built-in kind whose objects can come and go, once.

    In the order of discovery, where pods come before jobs: an owner is never deleted unseen.
    """
    return [r for r in client.builtins() if "delete" in r.verbs and r.qualified != _CRDS]


def namespaced_kinds(client: LocalClient) -> list[str]:
    """Every namespaced kind that is served now, built-in and custom."""
    customs = [
        _served(client, crd) for crd in client.list(_CRDS) if crd["spec"]["scope"] == "Namespaced"
    ]
    builtin = [r.qualified for r in builtin_kinds(client) if r.namespaced]
    return [*builtin, *filter(None, customs)]


def _served(client: LocalClient, crd: Obj) -> str | None:
    """The plural with its group of the kind a definition defines; None while it is not served."""
    spec = crd["spec"]
    for version in spec["versions"]:
        found = client.kind_of(f"{spec['group']}/{version['name']}", spec["names"]["kind"])
        if found is not None:
            return found.qualified
    return None


class AllKindsWatch:
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
        """Watch every kind until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in builtin_kinds(self._client):
                if resource.qualified not in _UNOWNED:
                    group.create_task(self._watch(resource.qualified))
            async for item in self._client.watch(_CRDS):
                self._follow(group, item)

    def _follow(self, group: asyncio.TaskGroup, item: WatchItem) -> None:
        name: str = item.object["metadata"]["name"]
        if item.type == "DELETED":
            task = self._customs.pop(name, None)
            if task is not None:
                task.cancel()
        elif name not in self._customs and _served(self._client, item.object):
            self._customs[name] = group.create_task(self._watch_custom(item.object))

    async def _watch(self, resource: str) -> None:
        await self._client.follow(resource, lambda item: self._see(resource, item))

    async def _watch_custom(self, crd: Obj) -> None:
        resource = _served(self._client, crd)
        if resource is not None:  # else it went away before this task began
            await self._watch(resource)
