"""What evictions mean for the Jobs of a gang, and what to do about a Job that has failed."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.base.classes import frozen


@frozen(slots=True)
class EvictionWarning:
    """That a Job would fail by the eviction of its pods, and what its author can do.

    Attributes:
        job, uid: which the evictions count against.
        survives: so many evictions fail none of its Jobs, as long as nothing failed before.
    """

    job: ObjectKey
    uid: UID
    message: str
    survives: int = 0


def eviction_warning(jobs: Sequence[Job], *, paused: bool, extras: bool) -> EvictionWarning | None:
    """What to tell the author of a gang whose pods may be evicted; None where its Jobs survive that.

    Args:
        jobs: of the gang's pods, sorted by key.
        paused: whether the gang is one Job that is suspended when all of it has to leave.
        extras: whether it has more pods than it needs, so that single ones may be evicted.
    """
    if paused and not extras:
        return None
    counted = [job for job in jobs if not job.ignores_evictions and not job.finished]
    if not counted:
        return None
    job, more = counted[0], len(counted) - 1
    which = f"Job {job.key}" + (f" and {more} other Job{'s' * (more != 1)} of it" if more else "")
    allowed = f"backoffLimit{'PerIndex' * job.limit_per_index} is {job.backoff_limit}"
    what = "a pod that is evicted by itself" if paused else "each pod that is evicted"
    advice = "let its podFailurePolicy ignore the condition DisruptionTarget"
    if len(jobs) == 1 and not job.queue and not job.controlled and not extras:
        advice = f"{advice}, or name its queue with the label gpusched.io/queue"
    return EvictionWarning(
        job.key,
        job.uid,
        f"{what} counts as a failure of {which}, whose {allowed}: {advice}",
        min(each.backoff_limit for each in counted),
    )


def failed_jobs_message(jobs: Sequence[Job]) -> str:
    """That no more pods come of a gang's Jobs, and what to do; empty while none has failed."""
    failed = [job for job in jobs if job.failed]
    if not failed:
        return ""
    job, more = failed[0], len(failed) - 1
    others = f", like {more} other Job{'s' * (more != 1)} of it" if more else ""
    return (
        f"Job {job.key} has failed{others} and makes no more pods ({job.failed}): delete it and "
        "create it again"
    )


def too_few_pods_message(jobs: Sequence[Job], *, made: int, needed: int) -> str:
    """That a gang's Jobs never make as many pods as it needs at once; empty where they may.

    Args:
        jobs: that make all its pods, at least one.
        made: pods that they make at a time.
        needed: at once.
    """
    if made >= needed:
        return ""
    others = len(jobs) - 1
    which = f"Job {jobs[0].key}" + (f" and {others} other{'s' * (others != 1)}" if others else "")
    verb = "make" if others else "makes"
    lower = f", or lower minMember to {made}" if made else ""
    return f"{which} {verb} {made} at a time: raise parallelism and completions{lower}"
