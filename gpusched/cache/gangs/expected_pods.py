"""Pods that a Job of ours will have and that do not exist yet: they are placed before they are born.

A Job that is submitted suspended, with a queue, waits in it as a gang whose pods are worked out
from its template. When its turn comes it is started, and until its pods appear their room is
held for them. Nothing of this is ever written as a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs

from gpusched.api.jobs.job import Job, JobTemplate
from gpusched.api.meta.identity import UID, Owner, ResourceVersion
from gpusched.api.pod.pod import SUCCEEDED, Pod
from gpusched.api.policy.kinds import PriorityClass
from gpusched.cache.gangs.gang import Gang, GangSpec

_MARK = "#"
"""In the UID of a pod that does not exist; no API server gives such a UID."""


def is_expected(pod: Pod) -> bool:
    """Whether the pod does not exist yet."""
    return is_expected_uid(pod.uid)


def is_expected_uid(uid: UID) -> bool:
    """The same by its UID."""
    return _MARK in uid


def expected_pod_uid(owner: UID, number: int) -> UID:
    """The UID of a pod that its owner, a Job or a gang, is still to get."""
    return UID(f"{owner}{_MARK}{number}")


def is_started_by_us(job: Job, schedulers: Collection[str]) -> bool:
    """Whether it is ours to start this Job, or we did and its pods may still be on their way."""
    template = job.template
    if template is None or not job.queue or template.scheduler not in schedulers or job.finished:
        return False
    return job.suspended or bool(job.admitted)


def is_started_job(gang: Gang) -> bool:
    """Whether we have started the gang's Job, and no pod of it has had a place since."""
    if gang.job is None or gang.suspended or gang.placed or gang.succeeded:
        return False
    left = [each.at for each in gang.evictions.past]
    if gang.turn is not None:
        left.append(gang.turn.ended)
    # All of them are whole seconds. Who suspends a Job takes its time of start off it, so that of two
    # equal ones the start is the later one.
    return bool(gang.job.admitted) and gang.job.admitted >= max(left, default=0.0)


def expected_pods_of(job: Job, pods: Sequence[Pod], named: PriorityClass | None) -> list[Pod]:
    """The pods that are still to come, in order of their index.

    Args:
        job: of which ``starts`` is true.
        pods: of the Job that exist; those that are on their way out are still to be replaced.
        named: the priority class that the template names, if it exists.
    """
    template = job.template
    assert template is not None
    alive = [pod for pod in pods if not pod.finished and not (pod.deleting and job.suspended)]
    wanted = job_parallelism(job)
    if job.completions is not None:  # its controller counts those that succeeded a moment later
        wanted = min(wanted, job.completions - sum(pod.phase is SUCCEEDED for pod in pods))
    taken = {pod.rank for pod in alive if pod.rank >= 0}
    free = [index for index in range(wanted + len(taken)) if index not in taken]
    missing = max(0, wanted - len(alive))
    return [_build_pod(job, template, index, named) for index in free[:missing]]


def job_parallelism(job: Job) -> int:
    """Pods that the Job runs at a time, as its author asked for."""
    parallelism = job.full_parallelism if job.suspended and job.full_parallelism else 0
    count = parallelism or job.parallelism
    if job.completions is not None:
        count = min(count, max(0, job.completions - job.succeeded))
    return count


def expects_pod(gang: Gang, pod: Pod) -> bool:
    """Whether a pod asks for what those ask that the gang's Job is to have, so that it takes their room and no more is left."""
    charged, priority = pod.pod_class.charged, pod.priority
    return bool(gang.expected_count) and any(
        each.priority == priority and is_expected(each)
        for pod_set in gang.pod_sets
        if pod_set.pod_class.charged == charged
        for each in pod_set.pods
    )


def without_overdue_pods(gang: Gang, is_after: Callable[[float], bool], timeout_s: float) -> Gang:
    """The gang without the pods that did not appear in time; itself when nothing is overdue.

    Args:
        gang: that may expect pods.
        is_after: whether a moment is over, seconds since the epoch.
        timeout_s: seconds from the start of a Job in which its pods are to appear.
    """
    if not gang.expected_count or gang.job is None or gang.suspended:
        return gang
    if not is_after(gang.job.admitted + timeout_s):
        return gang
    pod_sets = []
    for pod_set in gang.pod_sets:
        born = tuple(pod for pod in pod_set.pods if not is_expected(pod))
        if born:
            pod_sets.append(attrs.evolve(pod_set, pods=born))
    return attrs.evolve(gang, pod_sets=tuple(pod_sets), expected_count=0)


def with_started_minimum(origin: GangSpec, job: Job) -> GangSpec:
    """The gang's minimum when the Job is to be started: all of it, or what its author lets pass."""
    if not job.suspended:
        return origin
    least = job.min_parallelism or (
        job_parallelism(job) if origin.min_member > 1 and not origin.hints.min_member else 0
    )
    return attrs.evolve(origin, min_member=max(1, least or origin.min_member))


def _build_pod(job: Job, template: JobTemplate, index: int, named: PriorityClass | None) -> Pod:
    return Pod(
        namespace=job.namespace,
        name=f"{job.name}-{index}",
        uid=expected_pod_uid(job.uid, index),
        resource_version=ResourceVersion(""),
        created=job.created,
        labels=template.labels,
        owner=Owner("Job", job.name, job.uid),
        scheduler=template.scheduler,
        pod_class=template.pod_class,
        priority=named.value if named else 0,
        priority_class=template.priority_class,
        group=job.group,
        queue=job.queue,
        role=template.role,
        hints=job.hints,
        rank=index if job.indexed else -1,
        may_preempt=template.may_preempt and (named is None or named.preemption_policy != "Never"),
    )
