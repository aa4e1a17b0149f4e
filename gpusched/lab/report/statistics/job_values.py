"""Values of single jobs: how long each waited, ran and held room for nothing.

What had not happened when the run or the job ended is counted up to that moment: a job that never
started has waited from its creation to the end. Leaving it out would praise who starves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from gpusched.engine.run_record import JobLife, PodLife, RunRecord
from gpusched.lab.report.statistics.over_time import (
    THOUSAND,
    bound_count,
    leave_time,
    pods_needed,
    pods_of,
)
from gpusched.lab.report.statistics.steps import combine_steps, steps_from_spans

Value = Callable[[JobLife, Sequence[PodLife], RunRecord], float | None]


def job_end(job: JobLife, record: RunRecord) -> float:
    """When a job ended, or the run where it did not."""
    return record.seconds if job.ended is None else job.ended


def _wait(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float:
    """Created, first moment with enough pods bound."""
    del pods
    return (job_end(job, record) if job.started is None else job.started) - job.created


def _admission(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float | None:
    """Created, admitted by its queue; none of a job that started and whose admission was not recorded."""
    if job.admitted is not None:
        return job.admitted - job.created
    return None if job.started is not None else _wait(job, pods, record)


def _first_pod_created(pods: Sequence[PodLife]) -> float | None:
    return min((pod.created for pod in pods), default=None)


def _held_back_seconds(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float:
    """Created, first pod made: a Job that its queue holds back has none until it is let go."""
    first = _first_pod_created(pods)
    return (job_end(job, record) if first is None else first) - job.created


def _latency(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float | None:
    """First pod made, enough pods bound; none of a job that never had a pod."""
    first = _first_pod_created(pods)
    return None if first is None else job.created + _wait(job, pods, record) - first


def _dispatch(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float:
    """Created, first pod bound."""
    first = min((pod.bound for pod in pods if pod.bound is not None), default=None)
    return (job_end(job, record) if first is None else first) - job.created


def _startup(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float | None:
    """Enough pods bound, enough running; none of a job that never started."""
    del pods
    if job.started is None:
        return None
    return (job_end(job, record) if job.ready is None else job.ready) - job.started


def _run(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float | None:
    """Started, ended; none of a job that never started."""
    del pods
    return None if job.started is None else job_end(job, record) - job.started


def _completion(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float | None:
    """Created, ended; none of Deployments, which do not end."""
    del pods
    return None if job.kind == "Deployment" else job_end(job, record) - job.created


def _service(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float | None:
    """First pod made, ended; none of a job that never had a pod, and of Deployments."""
    first = _first_pod_created(pods)
    return None if first is None or job.kind == "Deployment" else job_end(job, record) - first


def _idle(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float:
    """GPU-seconds held by bound pods while there were fewer of them than the job needs.

    Pods that succeeded count as there, pods that were told to go do not, nor does what they hold.
    Of jobs without GPUs it is core-seconds.
    """
    if pods_needed(job) == 1 or not pods:
        return 0.0
    count = bound_count(pods, record)
    if not (count.values[count.values > 0] < pods_needed(job)).any():
        return 0.0
    has_gpus = any(pod.gpus for pod in pods)
    holds = steps_from_spans(
        [
            (pod.bound, leave_time(pod, record), (pod.gpus if has_gpus else pod.cpu) / THOUSAND)
            for pod in pods
            if pod.bound is not None
        ],
        record.seconds,
    )
    until = job_end(job, record)
    lacking = combine_steps(
        [count, holds], lambda n, amount: np.where(n < pods_needed(job), amount, 0.0)
    )
    return lacking.between(0.0, until).integral


def longest_partial_wait(job: JobLife, pods: Sequence[PodLife], record: RunRecord) -> float:
    """The longest time, in seconds, for which some of its pods were bound, and fewer than it needs.

    Pods count as in ``idle``.
    """
    if pods_needed(job) == 1 or not pods:
        return 0.0
    count = bound_count(pods, record).between(0.0, job_end(job, record))
    longest = lasted = 0.0
    for number, length in zip(count.values.tolist(), count.lengths.tolist(), strict=True):
        lasted = lasted + length if 0 < number < pods_needed(job) else 0.0
        longest = max(longest, lasted)
    return longest


VALUES: Final[Mapping[str, Value]] = {
    "wait": _wait,
    "admission": _admission,
    "held": _held_back_seconds,
    "latency": _latency,
    "dispatch": _dispatch,
    "startup": _startup,
    "run": _run,
    "completion": _completion,
    "service": _service,
    "idle": _idle,
}


def job_values(
    record: RunRecord, name: str, jobs: Iterable[JobLife]
) -> list[tuple[JobLife, float]]:
    """A value of each job that has it, in their order. ``name`` is one of ``VALUES``."""
    pods = pods_of(record)
    rule = VALUES[name]
    found = ((job, rule(job, pods.get(job.key, ()), record)) for job in jobs)
    return [(job, value) for job, value in found if value is not None]
