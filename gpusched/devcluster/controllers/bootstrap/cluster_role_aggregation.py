"""Fills ClusterRoles that are unions of others, as their aggregation rule selects them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.json_values import json_equal
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue

Obj = dict[str, Any]

_ROLES: Final = "clusterroles.rbac.authorization.k8s.io"


class ClusterRoleAggregationController:
    """Keeps ``rules`` of every ClusterRole that has an ``aggregationRule``.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._unions: dict[str, None] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(serve_queue(self._queue, self.sync, name="role aggregation"))

    async def _watch(self) -> None:
        async for item in self._client.watch(_ROLES):
            name = item.object["metadata"]["name"]
            if item.type == "DELETED" or not item.object.get("aggregationRule"):
                self._unions.pop(name, None)
            else:
                self._unions[name] = None
            for union in self._unions:
                self._queue.add(union)

    def sync(self, name: str) -> None:
        """Write the union of the rules when it differs."""
        role = self._client.get(_ROLES, None, name)
        if role is None or not role.get("aggregationRule"):
            return
        rules = self._union(role)
        if not json_equal(rules, role.get("rules") or []):
            self._client.update(_ROLES, {**role, "rules": rules})

    def _union(self, role: Obj) -> list[Obj]:
        rules: list[Obj] = []
        for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
            for other in self._client.list(_ROLES):
                meta = other["metadata"]
                if meta["name"] == role["metadata"]["name"]:
                    continue
                if not label_selector_matches(selector, meta.get("labels") or {}):
                    continue
                # Few rules each, and equal ones are common: a set would need hashable rules.
                rules.extend(r for r in other.get("rules") or () if r not in rules)
        return rules
