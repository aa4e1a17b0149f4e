"""Watches StatefulSets and their pods, and gives each set its turn when something changed."""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.ownership import claim_objects
from gpusched.devcluster.controllers.owned_objects import PodIndex, watch_owners
from gpusched.devcluster.controllers.stateful_sets.pods import ordinal_of, revision_of
from gpusched.devcluster.controllers.stateful_sets.revisions import RevisionHistory
from gpusched.devcluster.controllers.stateful_sets.turn import StatefulSetTurn, complete_update

STATEFUL_SETS: Final = "statefulsets.apps"


class StatefulSetController:
    """Makes, deletes, adopts, updates and counts pods with stable names.

    Args:
        client: the cluster.
        clock: time of minReadySeconds.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._names: dict[str, tuple[str, str]] = {}
        self._pods = PodIndex("StatefulSet")
        self._history = RevisionHistory(client)

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                watch_owners(self._client, STATEFUL_SETS, names=self._names, queue=self._queue)
            )
            group.create_task(self._client.follow("pods", self._see_pod))
            group.create_task(serve_queue(self._queue, self.sync, name="stateful set controller"))

    def _see_pod(self, item: WatchItem) -> None:
        pod = item.object
        for uid in self._pods.see(item):
            self._queue.add(uid)
        labels = pod["metadata"].get("labels") or {}
        if item.type == "ADDED" and labels and pod_state.controller_of(pod) is None:
            for found in self._client.list(STATEFUL_SETS, pod["metadata"]["namespace"]):
                if label_selector_matches(found["spec"].get("selector"), labels):
                    self._queue.add(found["metadata"]["uid"])

    def sync(self, uid: str) -> None:
        """Look at one StatefulSet. Raises StatusError when a write is refused."""
        namespace, name = self._names.get(uid, ("", ""))
        owner = self._client.get(STATEFUL_SETS, namespace, name)
        if owner is None or owner["metadata"]["uid"] != uid:
            self._names.pop(uid, None)
            self._pods.forget(uid)
            return
        members = [
            pod
            for pod in (*self._pods.owned_by(uid), *self._pods.loose(namespace))
            if ordinal_of(owner, pod) >= 0
        ]
        pods, moved = claim_objects(self._client, owner, "pods", candidates=members)
        for pod in moved:
            self._pods.take(pod)
        known = self._history.of_set(owner)
        revisions = self._history.pair(owner, known)
        turn = StatefulSetTurn(
            client=self._client,
            owner=owner,
            pods=pods,
            revisions=revisions,
            now=self._clock.now(),
            changed=self._pods.take,
        )
        status = turn.status()
        try:
            if "deletionTimestamp" not in owner["metadata"]:
                turn.work(status)
        finally:
            self._write(owner, status)
        live = {r["metadata"]["name"] for r in (revisions.current, revisions.update)}
        live |= {revision_of(pod) for pod in pods}
        self._history.truncate(owner, self._history.of_set(owner), live)
        self._look_again(owner, pods)

    def _write(self, owner: Obj, status: Obj) -> None:
        complete_update(owner, status)
        status = {k: v for k, v in status.items() if v or k in _PRINTED}
        if status == owner.get("status"):
            return
        metadata = owner["metadata"]
        current = self._client.get(STATEFUL_SETS, metadata["namespace"], metadata["name"])
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return
        try:
            self._client.update(STATEFUL_SETS, {**current, "status": status}, "status")
        except StatusError as refusal:
            if refusal.code != 409:
                raise
            self._queue.add(metadata["uid"])

    def _look_again(self, owner: Obj, pods: list[Obj]) -> None:
        """Come back when a pod becomes available by waiting."""
        least = owner["spec"].get("minReadySeconds", 0)
        waits = (pod_state.available_in(pod, least, self._clock.now()) for pod in pods)
        if soonest := min((w for w in waits if w is not None and w > 0), default=None):
            self._queue.add_after(owner["metadata"]["uid"], soonest)


_PRINTED: Final = frozenset({"replicas", "availableReplicas", "collisionCount"})
"""Counts that are written even when they are zero."""
