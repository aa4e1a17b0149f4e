"""Jobs whose controller has made no pods, or has yet to make them anew: they wait, and no gang stands for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.expected_pods import job_parallelism
from gpusched.cache.gangs.holds import HELD, hold_message
from gpusched.session.framework.reasons import Reason, pods_text
from gpusched.view.gang_views import time_text
from gpusched.view.model import WAITING, GangView, ViewName

_PAUSE_EACH: Final = 64


def podless_job_views(cache: Cache) -> Iterator[GangView | None]:
    """Jobs of ours without pods, by namespace and name; None now and then, so that others have a turn."""
    for number, key in enumerate(sorted(cache.families.resting_jobs)):
        if number % _PAUSE_EACH == 0:
            yield None
        job = cache.jobs.items.get(key)
        if job is not None and _waits_for_pods(job, cache):
            yield _job_view(job, cache)


def _waits_for_pods(job: Job, cache: Cache) -> bool:
    """Whether its own gang is to get pods: those of others join a PodGroup, or another controller's gang."""
    if job.finished or job.suspended or job.group or job.family is not None:
        return False
    if job_parallelism(job) < 1:
        return False
    if cache.families.has_members_elsewhere(job.uid):
        return False
    return not cache.families.is_active(GangKey("Job", *job.key))


def _job_view(job: Job, cache: Cache) -> GangView:
    namespace = cache.namespaces.items.get(ObjectKey("", job.namespace))
    priority = cache.priorities.items.get(ObjectKey("", job.priority_class))
    count = pods_text(job_parallelism(job))
    reason: str = Reason.NOT_ENOUGH_MEMBERS
    message = f"Job {job.name} has no pods: its controller is to make {count}"
    if job.hold:
        reason, message = HELD, hold_message("Job", job.name, job.hold)
    created = time_text(job.created)
    return GangView(
        metadata=ViewName(namespace=job.namespace, name=job.name, uid=job.uid),
        gang_kind="Job",
        queue=job.queue or (namespace.queue if namespace is not None else "") or DEFAULT_QUEUE,
        priority=priority.value if priority is not None else 0,
        state=WAITING,
        placed=0,
        waiting=0,
        min_member=job.gang_size,
        gpus="",
        created=created,
        since=created,
        reason=str(reason),
        message=message,
    )
