"""Lets a deleted group of pods go once no pod that still works names it."""

from __future__ import annotations

import asyncio

from gpusched.base.clock import Clock
from gpusched.devcluster.apiserver.admission.gangs import POD_GROUPS, PROTECTION
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state

_Key = tuple[str, str]


class PodGroupProtectionController:
    """Takes the protecting finalizer off groups that are deleted and not in use.

    Its index holds the unfinished pods of each group, by namespace and group name.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[_Key] = WorkQueue(clock)
        self._members: dict[_Key, set[str]] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._client.follow("pods", self._see_pod))
            group.create_task(self._watch_groups())
            group.create_task(serve_queue(self._queue, self.sync, name="pod group protection"))

    async def _watch_groups(self) -> None:
        async for item in self._client.watch(POD_GROUPS):
            if item.type != "DELETED" and "deletionTimestamp" in item.object["metadata"]:
                meta = item.object["metadata"]
                self._queue.add((meta["namespace"], meta["name"]))

    def _see_pod(self, item: WatchItem) -> None:
        pod = item.object
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if not group:
            return
        key = (pod["metadata"]["namespace"], group)
        uid: str = pod["metadata"]["uid"]
        if item.type != "DELETED" and not pod_state.is_terminal(pod):
            self._members.setdefault(key, set()).add(uid)
            return
        members = self._members.get(key, set())
        members.discard(uid)
        if not members:
            self._members.pop(key, None)
            self._queue.add(key)

    def sync(self, key: _Key) -> None:
        """Look at one group. Raises StatusError when the write is refused."""
        group = self._client.get(POD_GROUPS, *key)
        if group is None or "deletionTimestamp" not in group["metadata"] or self._members.get(key):
            return
        meta: Obj = group["metadata"]
        finalizers = meta.get("finalizers") or ()
        if PROTECTION in finalizers:
            kept = [name for name in finalizers if name != PROTECTION]
            self._client.update(POD_GROUPS, {**group, "metadata": {**meta, "finalizers": kept}})
