"""Runs Jobs: passes events to ``jobs.reconcile`` and carries its actions out."""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.jobs import pods
from gpusched.devcluster.controllers.jobs.actions import (
    BACKOFF_FIRST_S,
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    PodBackoff,
    RecordEvent,
    RemoveTrackingFinalizer,
    WriteStatus,
)
from gpusched.devcluster.controllers.jobs.gangs import JobGangs, with_group
from gpusched.devcluster.controllers.jobs.reconcile import is_running, reconcile_job
from gpusched.devcluster.controllers.owned_objects import watch_owners

_JOBS: Final = "jobs.batch"
_GATHER_S: Final = 0.2
"""Seconds in which changes of a Job's pods are counted together; a real cluster takes one."""


class JobController:
    """Keeps the pods of every Job as it wants them, and its status true.

    Its index of pods takes in its own writes at once, so a turn never acts on less than it did.

    Args:
        client: the cluster.
        clock: time of deadlines and back-off.
        backoff_first_s: wait before a first failed pod is replaced.
        gangs: finds or makes the group of a Job's pods; None for a server without gangs.
    """

    def __init__(
        self,
        client: LocalClient,
        clock: Clock,
        *,
        backoff_first_s: float = BACKOFF_FIRST_S,
        gangs: JobGangs | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._backoff_first_s = backoff_first_s
        self._gangs = gangs
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._names: dict[str, tuple[str, str]] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        self._backoffs: dict[str, PodBackoff] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                watch_owners(self._client, _JOBS, names=self._names, queue=self._queue)
            )
            group.create_task(self._watch_pods())
            group.create_task(serve_queue(self._queue, self.sync, name="job controller"))

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        for pod in (item.previous, item.object):
            owner = None if pod is None else pod_state.controller_of(pod)
            if owner is None or owner.get("kind") != "Job" or not owner.get("uid"):
                continue
            uid: str = owner["uid"]
            metadata = item.object["metadata"]
            self._names.setdefault(uid, (metadata["namespace"], owner.get("name", "")))
            if item.type == "DELETED" or pod is not item.object:
                self._pods.get(uid, {}).pop(metadata["uid"], None)
            else:
                self._index(uid, item.object)
            self._queue.add_after(uid, _GATHER_S)

    def _index(self, owner: str, pod: Obj) -> None:
        metadata = pod["metadata"]
        known = self._pods.setdefault(owner, {})
        have = known.get(metadata["uid"])
        version = int(metadata["resourceVersion"])
        if have is None or int(have["metadata"]["resourceVersion"]) < version:
            known[metadata["uid"]] = pod

    def sync(self, uid: str) -> None:
        """Look at one Job and do what it needs. Raises StatusError when a write is refused."""
        namespace, name = self._names[uid]
        job = self._client.get(_JOBS, namespace, name)
        if job is None or job["metadata"]["uid"] != uid:
            self._abandon(uid)
            return
        pods = list(self._pods.get(uid, {}).values())
        group = None
        if self._gangs is not None and is_running(job):
            group = self._gangs.group_of(job, pods)
        outcome = reconcile_job(
            job,
            pods,
            now=self._clock.now(),
            backoff=self._backoffs.get(uid, PodBackoff()),
            backoff_first_s=self._backoff_first_s,
        )
        self._backoffs[uid] = outcome.backoff
        refused: list[StatusError] = []
        for action in outcome.actions:
            self._carry_out(job, _with_group(action, group), refused)
        if outcome.again_s is not None:
            self._queue.add_after(uid, outcome.again_s)
        if refused:
            raise refused[0]

    def _abandon(self, uid: str) -> None:
        """Free the pods of a Job that is gone; the garbage collector deletes them."""
        for pod in list(self._pods.get(uid, {}).values()):
            if pods.is_tracked(pod):
                self._untrack(uid, pod)
        if not self._pods.get(uid):
            self._pods.pop(uid, None)
            self._names.pop(uid, None)
            self._backoffs.pop(uid, None)

    def _carry_out(self, job: Obj, action: Action, refused: list[StatusError]) -> None:
        metadata = job["metadata"]
        uid: str = metadata["uid"]
        if isinstance(action, CreatePod):
            self._create(job, action.pod, refused)
        elif isinstance(action, DeletePod):
            self._delete(uid, action)
        elif isinstance(action, RemoveTrackingFinalizer):
            self._untrack(uid, action.pod)
        elif isinstance(action, RecordEvent):
            self._event(job, action.reason, action.message, action.type)
        elif isinstance(action, WriteStatus):
            self._write(job, action.status, failed_creates=len(refused))
        else:
            assert isinstance(action, DeleteJob)
            self._client.delete(
                _JOBS,
                metadata["namespace"],
                metadata["name"],
                uid=uid,
                propagation="Foreground",
            )

    def _create(self, job: Obj, pod: Obj, refused: list[StatusError]) -> None:
        if refused:
            refused.append(refused[0])  # the same reason would refuse the others
            return
        try:
            made = self._client.create("pods", pod)
        except StatusError as refusal:
            refused.append(refusal)
            message = f"Error creating: {refusal.message}"
            self._event(job, "FailedCreate", message, "Warning")
            return
        self._index(job["metadata"]["uid"], made)
        message = f"Created pod: {made['metadata']['name']}"
        self._event(job, "SuccessfulCreate", message)

    def _event(self, job: Obj, reason: str, message: str, type_: str = "Normal") -> None:
        self._client.event(job, reason, message, type_, component="job-controller")

    def _write(self, job: Obj, status: Obj, *, failed_creates: int) -> None:
        if failed_creates:
            alive = status.get("active", 0) - failed_creates
            status = {key: value for key, value in status.items() if key != "active"}
            status.update({"active": alive} if alive > 0 else {})
        if status != (job.get("status") or {}):
            self._client.update(_JOBS, {**job, "status": status}, "status")

    def _delete(self, uid: str, action: DeletePod) -> None:
        metadata = action.pod["metadata"]
        if action.uncounted and pods.is_tracked(action.pod):
            self._untrack(uid, action.pod)
        try:
            self._client.delete(
                "pods", metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone, or another pod by that name
                raise
        self._reread(uid, action.pod)

    def _untrack(self, uid: str, pod: Obj) -> None:
        metadata = pod["metadata"]
        current = self._reread(uid, pod)
        if current is None or not pods.is_tracked(current):
            return
        kept = [f for f in current["metadata"]["finalizers"] if f != pods.TRACKING]
        self._client.patch(
            "pods",
            metadata["namespace"],
            metadata["name"],
            {"metadata": {"finalizers": kept or None}},
        )
        self._reread(uid, pod)

    def _reread(self, uid: str, pod: Obj) -> Obj | None:
        """The pod as it is stored now, which the index takes over; None when it is gone."""
        metadata = pod["metadata"]
        current = self._client.get("pods", metadata["namespace"], metadata["name"])
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            self._pods.get(uid, {}).pop(metadata["uid"], None)
            return None
        self._index(uid, current)
        return current


def _with_group(action: Action, group: Obj | None) -> Action:
    """The same action; a pod that it creates is a member of the Job's group."""
    if group is None or not isinstance(action, CreatePod):
        return action
    return CreatePod(with_group(action.pod, group))
