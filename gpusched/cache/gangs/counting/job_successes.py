"""What the Jobs of a gang tell of members that succeeded: pods that are deleted count there still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpusched.api.jobs.job import Job
from gpusched.api.pod.pod import SUCCEEDED, Pod
from gpusched.base.classes import frozen


@frozen(slots=True)
class JobSuccesses:
    """Successes of a gang's Jobs beyond what its pods tell.

    Attributes:
        deleted: role, sub-group and number of members that succeeded and whose pods are deleted.
        of_going_on: members that succeeded of Jobs that go on, where a controller asks for less once they have
            finished; else 0.
    """

    deleted: tuple[tuple[str, str, int], ...] = ()
    of_going_on: int = 0

    @property
    def deleted_count(self) -> int:
        """Number of members that succeeded and whose pods are deleted."""
        return sum(count for _, _, count in self.deleted)

    def deleted_roles(self) -> list[str]:
        """The role of each of them."""
        return [role for role, _, count in self.deleted for _ in range(count)]

    def deleted_sub_groups(self) -> list[str]:
        """The sub-group of each of them."""
        return [sub_group for _, sub_group, count in self.deleted for _ in range(count)]


NO_SUCCESSES = JobSuccesses()


def jobs_of_this_run(jobs: Iterable[Job]) -> list[Job]:
    """The Jobs by which a gang runs now, sorted by key.

    A Job that was over when another one was made, which still makes pods, is of an earlier run: nothing of it counts for
    the next run of the same group, such as that of a CronJob.
    """
    known = sorted({job.key: job for job in jobs}.items())
    last = max((job.created for _, job in known if not job.finished), default=0.0)
    return [job for _, job in known if not (job.finished and job.ended and job.ended <= last)]


def without_earlier_runs(pods: Sequence[Pod], jobs: Iterable[Job]) -> Sequence[Pod]:
    """The members without those that ended in an earlier run.

    Args:
        pods: all members that exist.
        jobs: all Jobs that make them.
    """
    every = list(jobs)
    earlier = {job.uid for job in every} - {job.uid for job in jobs_of_this_run(every)}
    if not earlier:
        return pods
    return [
        pod
        for pod in pods
        if not (pod.finished and pod.owner is not None and pod.owner.uid in earlier)
    ]


def count_successes(
    jobs: Iterable[Job], pods: Sequence[Pod], *, by_group: bool, by_controller: bool
) -> JobSuccesses:
    """Count members that succeeded by what their Jobs say.

    A Job's controller counts a pod before it lets it go. Where the count comes before the news of its pods, those that
    run still are not counted twice: a Job makes no more pods than it has to complete.

    Args:
        jobs: of the gang.
        pods: members that exist, with those that are to come.
        by_group: whether each of their groups is a sub-group of the gang.
        by_controller: whether an object above the Jobs asks for less when one of them has finished.
    """
    there, succeeded = Counter[str](), Counter[str]()
    for pod in pods:
        if pod.owner is not None and pod.owner.kind == "Job":
            there[pod.owner.uid] += not pod.finished
            succeeded[pod.owner.uid] += pod.phase is SUCCEEDED
    deleted = Counter[tuple[str, str]]()
    going_on = 0
    for job in jobs:
        gone = job.succeeded - succeeded[job.uid]
        if job.completions is not None:
            gone = min(gone, job.completions - succeeded[job.uid] - there[job.uid])
        if gone > 0:
            deleted[job.role, job.group if by_group else job.sub_group] += gone
        if by_controller and not job.finished:
            going_on += succeeded[job.uid] + max(0, gone)
    if not deleted and not going_on:
        return NO_SUCCESSES
    return JobSuccesses(tuple((*key, deleted[key]) for key in sorted(deleted)), going_on)
