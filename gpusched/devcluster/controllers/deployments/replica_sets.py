"""Keeps as many pods of a template as each ReplicaSet wants, and counts them.

Writes take effect before they return and enter the index of pods at once, so a turn never acts
on less than the one before it did: no pod is created twice. Pods are ranked for deletion when a
set shrinks.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import parse_time, rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.ownership import claim_objects, reference_to
from gpusched.devcluster.controllers.owned_objects import PodIndex, watch_owners

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_COST_MAX: Final = 2**31
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_NANOSECONDS: Final = 1_000_000_000
_FOREVER: Final = 1 << 10

Rank = tuple[bool, int, bool, int, int, int, int, int, str]


def pods_to_delete(
    pods: Sequence[Obj], count: int, *, related: Sequence[Obj], now: float
) -> list[Obj]:
    """The pods that go when ``count`` have to.

    Unbound ones go first, then those that do not run, are not ready, cost less by annotation,
    share their node with more of their like, are ready for less long (ages compare by their
    power of two), restarted more often, are younger.

    Args:
        pods: active pods of the replica set.
        count: how many go.
        related: active pods of all replica sets with the same owner, these pods among them.
        now: epoch seconds.
    """
    crowds = Counter(str(p["spec"].get("nodeName") or "") for p in related)

    def rank(pod: Obj) -> Rank:
        node = str(pod["spec"].get("nodeName") or "")
        ready = pod_state.is_ready(pod)
        return (
            bool(node),
            _PHASES.get(pod_state.pod_phase(pod), 0),
            ready,
            _cost(pod),
            -crowds[node],
            _magnitude(pod_state.ready_since(pod), now) if ready else 0,
            -pod_state.restart_count([pod]),
            _magnitude(pod["metadata"].get("creationTimestamp"), now),
            pod["metadata"]["uid"],
        )

    return sorted(pods, key=rank)[:count]


def _cost(pod: Obj) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(_COST, "")
    if not _INTEGER.fullmatch(text):
        return 0
    cost = int(text)
    return cost if -_COST_MAX <= cost < _COST_MAX else 0


def _magnitude(since: str | None, now: float) -> int:
    """The power of two of an age; what does not tell its age counts as youngest."""
    if not since:
        return -_FOREVER
    age = (now - parse_time(since)) * _NANOSECONDS
    return int(math.log2(age)) if age > 0 else -1


REPLICA_SETS: Final = "replicasets.apps"
_GATHER_S: Final = 0.1
"""Seconds in which changes of pods are counted together: a count reads all pods of the set."""
_BURST: Final = 500
"""Pods made or deleted in one turn at most."""


class ReplicaSetController:
    """Makes, deletes, adopts and counts pods.

    Args:
        client: the cluster.
        clock: time of conditions and of minReadySeconds.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._names: dict[str, tuple[str, str]] = {}
        self._pods = PodIndex("ReplicaSet")

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                watch_owners(self._client, REPLICA_SETS, names=self._names, queue=self._queue)
            )
            group.create_task(self._watch_pods())
            group.create_task(serve_queue(self._queue, self.sync, name="replica set controller"))

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        pod = item.object
        for uid in self._pods.see(item):
            self._queue.add_after(uid, _GATHER_S)
        if item.type != "DELETED" and pod_state.controller_of(pod) is None:
            self._offer(pod, item.previous)

    def _offer(self, pod: Obj, previous: Obj | None) -> None:
        """Enqueue the sets that may adopt a pod without a controller."""
        keys = ("labels", "ownerReferences")
        if previous and all(pod["metadata"].get(k) == previous["metadata"].get(k) for k in keys):
            return
        labels = pod["metadata"].get("labels") or {}
        if not labels:
            return
        for found in self._client.list(REPLICA_SETS, pod["metadata"]["namespace"]):
            if label_selector_matches(found["spec"].get("selector"), labels):
                self._queue.add_after(found["metadata"]["uid"], _GATHER_S)

    def sync(self, uid: str) -> None:
        """Look at one ReplicaSet. Raises StatusError when a write is refused."""
        namespace, name = self._names.get(uid, ("", ""))
        found = self._client.get(REPLICA_SETS, namespace, name)
        if found is None or found["metadata"]["uid"] != uid:
            self._names.pop(uid, None)
            self._pods.forget(uid)
            return
        candidates = [*self._pods.owned_by(uid), *self._pods.loose(namespace)]
        active = [pod for pod in candidates if pod_state.is_active(pod)]
        pods, moved = claim_objects(self._client, found, "pods", candidates=active)
        for pod in moved:
            self._pods.take(pod)
        terminating = sum(
            pod_state.is_deleting(p) and not pod_state.is_terminal(p)
            for p in self._pods.owned_by(uid)
        )
        refusal: StatusError | None = None
        if "deletionTimestamp" not in found["metadata"]:
            refusal = self._manage(found, pods)
        self._count(found, pods, terminating=terminating, refusal=refusal)
        if refusal is not None:
            raise refusal

    def _manage(self, owner: Obj, pods: list[Obj]) -> StatusError | None:
        """Make or delete pods; return the first refusal."""
        surplus = len(pods) - owner["spec"]["replicas"]
        if abs(surplus) > _BURST:
            self._queue.add(owner["metadata"]["uid"])
        if surplus < 0:
            return self._create(owner, min(-surplus, _BURST))
        if surplus > 0:
            now = self._clock.now()
            related = self._related(owner)
            for pod in pods_to_delete(pods, min(surplus, _BURST), related=related, now=now):
                self._delete(owner, pod)
        return None

    def _related(self, owner: Obj) -> list[Obj]:
        """Active pods of all sets with the same controller."""
        holder = pod_state.controller_of(owner)
        uids = [owner["metadata"]["uid"]]
        if holder is not None:
            uids = [
                other["metadata"]["uid"]
                for other in self._client.list(REPLICA_SETS, owner["metadata"]["namespace"])
                if (pod_state.controller_of(other) or {}).get("uid") == holder.get("uid")
            ]
        return [pod for uid in uids for pod in self._pods.owned_by(uid) if pod_state.is_active(pod)]

    def _create(self, owner: Obj, count: int) -> StatusError | None:
        pod = new_pod(owner)
        for _ in range(count):
            try:
                made = self._client.create("pods", pod)
            except StatusError as refusal:
                causes = (refusal.body.get("details") or {}).get("causes") or ()
                if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
                    return None
                message = f"Error creating: {refusal.message}"
                self._event(owner, "FailedCreate", message, "Warning")
                return refusal
            self._pods.take(made)
            self._event(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return None

    def _delete(self, owner: Obj, pod: Obj) -> None:
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        try:
            self._client.delete("pods", namespace, name, uid=metadata["uid"])
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone, or another pod by that name
                raise
        else:
            self._event(owner, "SuccessfulDelete", f"Deleted pod: {name}")
        left = self._client.get("pods", namespace, name)
        if left is None or left["metadata"]["uid"] != metadata["uid"]:
            self._pods.drop(pod)
        else:
            self._pods.take(left)

    def _event(self, owner: Obj, reason: str, message: str, type_: str = "Normal") -> None:
        self._client.event(owner, reason, message, type_, component="replicaset-controller")

    def _count(
        self, owner: Obj, pods: list[Obj], *, terminating: int, refusal: StatusError | None
    ) -> None:
        now = self._clock.now()
        status, again = replica_set_status(
            owner, pods, terminating=terminating, refusal=refusal, now=now
        )
        if again is not None:
            self._queue.add_after(owner["metadata"]["uid"], again)
        if status != owner.get("status"):
            current = self._client.get(
                REPLICA_SETS, owner["metadata"]["namespace"], owner["metadata"]["name"]
            )
            assert current is not None, "nothing has run in between"
            self._client.update(REPLICA_SETS, {**current, "status": status}, "status")


def new_pod(owner: Obj) -> Obj:
    """The pod a ReplicaSet makes of its template; the server completes its name."""
    metadata, template = owner["metadata"], owner["spec"]["template"]
    given: Obj = template.get("metadata") or {}
    kept = {key: given[key] for key in ("labels", "annotations", "finalizers") if given.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            **kept,
            "ownerReferences": [reference_to(owner)],
        },
        "spec": template["spec"],
    }


def replica_set_status(
    owner: Obj, pods: list[Obj], *, terminating: int, refusal: StatusError | None, now: float
) -> tuple[Obj, float | None]:
    """The status of a ReplicaSet.

    Args:
        owner: as stored.
        pods: its active pods, before this turn made or deleted any.
        terminating: its pods that are being deleted.
        refusal: why pods could not be made or deleted.
        now: epoch seconds.

    Returns:
        The status, and the seconds until a pod becomes available by waiting (None: never).
    """
    spec, before = owner["spec"], owner.get("status") or {}
    labels = ((spec["template"].get("metadata") or {}).get("labels") or {}).items()
    waits = [pod_state.available_in(pod, spec.get("minReadySeconds", 0), now) for pod in pods]
    status: Obj = {"replicas": len(pods)}
    counts = {
        "fullyLabeledReplicas": sum(
            labels <= (pod["metadata"].get("labels") or {}).items() for pod in pods
        ),
        "readyReplicas": sum(pod_state.is_ready(pod) for pod in pods),
        "availableReplicas": sum(wait is not None and wait <= 0 for wait in waits),
    }
    status.update({key: number for key, number in counts.items() if number})
    status["terminatingReplicas"] = terminating
    if generation := owner["metadata"].get("generation"):
        status["observedGeneration"] = generation
    conditions = list(before.get("conditions") or ())
    failed = any(c["type"] == "ReplicaFailure" for c in conditions)
    if refusal is not None and not failed:
        less = len(pods) < spec["replicas"]
        conditions.append(
            {
                "type": "ReplicaFailure",
                "status": "True",
                "lastTransitionTime": rfc3339(now),
                "reason": "FailedCreate" if less else "FailedDelete",
                "message": refusal.message,
            }
        )
    elif refusal is None and failed:
        conditions = [c for c in conditions if c["type"] != "ReplicaFailure"]
    if conditions:
        status["conditions"] = conditions
    return status, min((w for w in waits if w is not None and w > 0), default=None)
