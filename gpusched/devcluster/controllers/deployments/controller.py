"""Runs Deployments: enqueues each for every change that may matter to it, and syncs it."""

from __future__ import annotations

import asyncio

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.ownership import claim_objects
from gpusched.devcluster.controllers.deployments.replica_sets import REPLICA_SETS
from gpusched.devcluster.controllers.deployments.sync import DEPLOYMENTS, DeploymentSync
from gpusched.devcluster.controllers.owned_objects import watch_owners


class DeploymentController:
    """Rolls templates out by way of replica sets.

    Args:
        client: the cluster.
        clock: time of conditions and of progressDeadlineSeconds.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._names: dict[str, tuple[str, str]] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                watch_owners(self._client, DEPLOYMENTS, names=self._names, queue=self._queue)
            )
            group.create_task(self._watch_sets())
            group.create_task(self._watch_pods())
            group.create_task(serve_queue(self._queue, self.sync, name="deployment controller"))

    async def _watch_sets(self) -> None:
        async for item in self._client.watch(REPLICA_SETS):
            self._see_set(item)

    def _see_set(self, item: WatchItem) -> None:
        for one in (item.previous, item.object):
            holder = None if one is None else pod_state.controller_of(one)
            if holder is not None and holder.get("kind") == "Deployment" and holder.get("uid"):
                self._queue.add(holder["uid"])
        if item.type != "DELETED" and pod_state.controller_of(item.object) is None:
            metadata = item.object["metadata"]
            for found in self._client.list(DEPLOYMENTS, metadata["namespace"]):
                selector = found["spec"].get("selector")
                if label_selector_matches(selector, metadata.get("labels") or {}):
                    self._queue.add(found["metadata"]["uid"])

    async def _watch_pods(self) -> None:
        """Recreate waits for the last old pod to go."""
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        if item.type != "DELETED":
            return
        holder = pod_state.controller_of(item.object)
        if holder is None or holder.get("kind") != "ReplicaSet":
            return
        namespace = item.object["metadata"]["namespace"]
        owner = self._client.get(REPLICA_SETS, namespace, holder.get("name", ""))
        above = None if owner is None else pod_state.controller_of(owner)
        if above is not None and above.get("uid") in self._names:
            self._queue.add(above["uid"])

    def sync(self, uid: str) -> None:
        """Look at one Deployment. Raises StatusError when a write is refused."""
        namespace, name = self._names.get(uid, ("", ""))
        found = self._client.get(DEPLOYMENTS, namespace, name)
        if found is None or found["metadata"]["uid"] != uid:
            self._names.pop(uid, None)
            return
        turn = DeploymentSync(self._client, found, self._claimed(found), now=self._clock.now())
        again = turn.run()
        if again is not None:
            self._queue.add_after(uid, again)

    def _claimed(self, deployment: Obj) -> list[Obj]:
        candidates = self._client.list(REPLICA_SETS, deployment["metadata"]["namespace"])
        owned, _moved = claim_objects(self._client, deployment, REPLICA_SETS, candidates=candidates)
        return owned
