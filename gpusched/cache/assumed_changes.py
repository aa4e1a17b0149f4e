"""What was decided and is on its way, entered before the watch shows it.

A mark is applied to whatever the watch shows of a pod or Job, and goes when that is shown, when
it has become impossible, or when whoever made it says that it failed. What is shown is thus a
function of the API's state and of the marks, not of the order in which news arrived.
"""

from __future__ import annotations

import attrs
import msgspec

from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, ObjectKey, Rejected
from gpusched.api.pod.pod import NOMINATED, Pod, PodClass
from gpusched.base.classes import define, frozen


@frozen(slots=True)
class Nomination:
    """A promise that is being written on a waiting pod.

    Attributes:
        node: by name.
        reason, message: of the pod's PodScheduled condition; by the reason it is known.
        since: seconds since the epoch.
    """

    node: str
    reason: str
    message: str
    since: float


@frozen(slots=True)
class Withdrawal:
    """A promise of a waiting pod that holds no more, until the API shows it without.

    Attributes:
        node: that was promised, by name.
        since: of the promise, seconds since the epoch.
        reason: of the pod's PodScheduled condition, which replaces that of the promise.
        unseen: whether the promise itself is still being written.
    """

    node: str
    since: float
    reason: str
    unseen: bool


@define(slots=True, eq=False)
class _AssumedPod:
    """Marks of one pod, and what the API shows of it."""

    seen: Pod
    leaving: bool = False
    nomination: Nomination | None = None
    withdrawn: Withdrawal | None = None


class AssumedChanges:
    """Changes that were decided and that the watch has not shown yet."""

    def __init__(self) -> None:
        self._pods: dict[UID, _AssumedPod] = {}
        self._jobs: dict[ObjectKey, tuple[Job, Job]] = {}
        """What the API shows of a Job, and what it will be."""

    # -- marks -----------------------------------------------------------------------------
    def assume_leaving(self, pod: Pod) -> Pod:
        """The pod is to go; what is to be shown of it now."""
        self._pods.setdefault(pod.uid, _AssumedPod(pod)).leaving = True
        return self._show_marks(pod.uid, pod)

    def assume_staying(self, pod: Pod) -> Pod:
        """It does not go after all."""
        marked = self._pods.get(pod.uid)
        if marked is not None:
            marked.leaving = False
        return self._show_marks(pod.uid, pod)

    def is_leaving(self, uid: UID) -> bool:
        """Whether the pod is to go and the API does not show that it is being deleted."""
        marked = self._pods.get(uid)
        return marked is not None and marked.leaving

    def assume_nomination(self, pod: Pod, nomination: Nomination | None) -> Pod:
        """It is promised room; None: that failed."""
        marked = self._pods.get(pod.uid)
        if nomination is not None:
            marked = self._pods.setdefault(pod.uid, _AssumedPod(pod))
        if marked is not None:
            marked.nomination = nomination
            if nomination is not None or (marked.withdrawn and marked.withdrawn.unseen):
                marked.withdrawn = None
        return self._show_marks(pod.uid, pod)

    def withdraw_nomination(self, pod: Pod, reason: str) -> Pod:
        """It is promised no room any more, for this reason; that is written later."""
        marked = self._pods.setdefault(pod.uid, _AssumedPod(pod))
        marked.withdrawn = Withdrawal(
            pod.nominated, pod.unschedulable_since, reason, unseen=marked.nomination is not None
        )
        marked.nomination = None
        return self._show_marks(pod.uid, pod)

    def assume_switch(self, job: Job, becomes: Job | None) -> Job:
        """It is being paused or started; None: that failed."""
        seen = self._jobs.pop(job.key, (job, job))[0]
        if becomes is None or becomes.suspended == seen.suspended:
            return seen
        shown = attrs.evolve(
            seen,
            suspended=becomes.suspended,
            admitted=becomes.admitted,
            parallelism=becomes.parallelism,
            turn=becomes.turn,
            evictions=becomes.evictions,
        )
        self._jobs[job.key] = (seen, shown)
        return shown

    def set_charge(self, uid: UID, pod_class: PodClass) -> None:
        """Queues are charged otherwise for the pod."""
        marked = self._pods.get(uid)
        if marked is not None:
            marked.seen = msgspec.structs.replace(marked.seen, pod_class=pod_class)

    # -- what the watch shows --------------------------------------------------------------
    def show_pod(self, pod: Pod) -> Pod:
        """The pod as the watch has it, with the marks that are still due."""
        marked = self._pods.get(pod.uid)
        if marked is None:
            return pod
        marked.seen = pod
        return self._show_marks(pod.uid, pod)

    def show_job(self, key: ObjectKey, item: Job | Rejected) -> Job | Rejected:
        """The same for a Job."""
        known = self._jobs.pop(key, None)
        if known is None or isinstance(item, Rejected) or item.uid != known[0].uid:
            return item
        return self.assume_switch(item, known[1])

    def drop_pod(self, uid: UID) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    def drop_job(self, key: ObjectKey) -> None:
        """The Job is gone."""
        self._jobs.pop(key, None)

    def _show_marks(self, uid: UID, pod: Pod) -> Pod:
        marked = self._pods.get(uid)
        if marked is None:
            return pod
        seen = marked.seen
        marked.leaving &= bool(seen.node) and not (seen.deleting or seen.finished)
        promise = marked.nomination
        if promise is not None and (_shows_nomination(seen, promise) or _nomination_is_over(seen)):
            promise = marked.nomination = None
        withdrawn = marked.withdrawn = _withdrawal_in_force(seen, marked.withdrawn)
        if not marked.leaving and promise is None and withdrawn is None:
            del self._pods[uid]
            return seen
        if promise is not None:
            return msgspec.structs.replace(
                seen,
                nominated=promise.node,
                unschedulable_reason=promise.reason,
                unschedulable=promise.message,
                unschedulable_since=promise.since,
            )
        if marked.leaving:
            return msgspec.structs.replace(seen, deleting=True)
        if withdrawn is None or withdrawn.unseen:
            return seen
        return msgspec.structs.replace(seen, unschedulable_reason=withdrawn.reason)


def _shows_nomination(seen: Pod, promise: Nomination) -> bool:
    """Whether the API shows the promise; it has whole seconds only."""
    return (
        seen.nominated == promise.node
        and seen.unschedulable_reason == promise.reason
        and seen.unschedulable_since >= int(promise.since)
    )


def _withdrawal_in_force(seen: Pod, withdrawn: Withdrawal | None) -> Withdrawal | None:
    """The withdrawal as long as the API shows that very promise, or is yet to show it."""
    if withdrawn is None or _nomination_is_over(seen):
        return None
    promised = seen.nominated == withdrawn.node and seen.unschedulable_reason == NOMINATED
    if withdrawn.unseen:
        if promised and seen.unschedulable_since >= int(withdrawn.since):
            return attrs.evolve(withdrawn, since=seen.unschedulable_since, unseen=False)
        return withdrawn
    return withdrawn if promised and seen.unschedulable_since == withdrawn.since else None


def _nomination_is_over(seen: Pod) -> bool:
    return bool(seen.node) or seen.deleting or seen.finished
