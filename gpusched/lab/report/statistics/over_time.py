"""What a run used, offered, owed and left waiting, over its time; GPUs are whole ones, floats.

Step functions, see ``Steps``: statistics integrate them, reports draw them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from gpusched.engine.run_record import JobLife, LifeEnd, PodLife, QueueMark, RunRecord
from gpusched.lab.report.statistics.steps import (
    Floats,
    StepFunction,
    combine_steps,
    steps_from_changes,
    steps_from_marks,
    steps_from_spans,
    sum_steps,
)

THOUSAND: Final = 1000.0
AT_ONCE_S: Final = 1.0
"""So long a gang takes to start that starts at once: it is decided about, and its bindings are written."""
UNITS: Final[Mapping[str, float]] = {"gpus": THOUSAND, "cpu": THOUSAND, "memory": 1024.0}
"""Resource to how much of a record's amounts is one GPU, one core, one GiB."""


def pods_of(record: RunRecord) -> dict[str, list[PodLife]]:
    """Key of a job to its pods, in the order of the record."""
    found: dict[str, list[PodLife]] = defaultdict(list)
    for pod in record.pods:
        found[pod.job].append(pod)
    return found


def held_span(pod: PodLife, record: RunRecord) -> tuple[float, float] | None:
    """From when to when a pod held its room; None where it never did."""
    if pod.bound is None:
        return None
    return pod.bound, record.seconds if pod.ended is None else pod.ended


def used_amounts(
    record: RunRecord, resource: str = "gpus", *, queue: str | None = None
) -> StepFunction:
    """What bound pods hold.

    Args:
        record: the run.
        resource: ``gpus``, ``cpu`` (cores) or ``memory`` (GiB).
        queue: of this one only; None for all.
    """
    pieces = [
        (*span, getattr(pod, resource) / UNITS[resource])
        for pod in record.pods
        if (queue is None or pod.queue == queue) and (span := held_span(pod, record)) is not None
    ]
    return steps_from_spans(pieces, record.seconds)


def used_amounts_by_queue(record: RunRecord, resource: str = "gpus") -> dict[str, StepFunction]:
    """The same for each queue of which a pod was ever bound, by name."""
    pieces: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for pod in record.pods:
        if (span := held_span(pod, record)) is not None:
            pieces[pod.queue].append((*span, getattr(pod, resource) / UNITS[resource]))
    return {name: steps_from_spans(pieces[name], record.seconds) for name in sorted(pieces)}


def offered_amounts(record: RunRecord, resource: str = "gpus") -> StepFunction:
    """What nodes offer that are ready and not cordoned."""
    pieces = [
        (span.since, span.until, getattr(span, resource) / UNITS[resource])
        for node in record.nodes
        for span in node.spans
        if span.usable
    ]
    return steps_from_spans(pieces, record.seconds)


def pods_needed(job: JobLife) -> int:
    """So many pods at once are enough for it."""
    return max(1, job.min_member)


def bound_count(pods: Sequence[PodLife], record: RunRecord) -> StepFunction:
    """How many of these pods count as there: bound and not told to go, or succeeded."""
    pieces = []
    for pod in pods:
        if pod.bound is None:
            continue
        leaves = record.seconds if pod.end is LifeEnd.SUCCEEDED else leave_time(pod, record)
        pieces.append((pod.bound, leaves, 1.0))
    return steps_from_spans(pieces, record.seconds)


def leave_time(pod: PodLife, record: RunRecord) -> float:
    """When a pod ended or was told to go, whichever came first; the end of the run for neither."""
    return min(
        record.seconds if pod.ended is None else pod.ended,
        record.seconds if pod.told is None else pod.told,
    )


def wait_spans(
    job: JobLife, pods: Sequence[PodLife], record: RunRecord
) -> list[tuple[float, float]]:
    """Spans in which a job lived and had fewer pods bound than it needs."""
    until = record.seconds if job.ended is None else min(job.ended, record.seconds)
    if until <= job.created or not job.size:
        return []
    # One job has few pods, a run has thousands of jobs: plain numbers are faster here than arrays.
    turns: dict[float, int] = {}
    for pod in pods:
        if pod.bound is None:
            continue
        leaves = record.seconds if pod.end is LifeEnd.SUCCEEDED else leave_time(pod, record)
        if leaves > pod.bound:
            turns[pod.bound] = turns.get(pod.bound, 0) + 1
            turns[leaves] = turns.get(leaves, 0) - 1
    count, need = 0, pods_needed(job)
    since: float | None = job.created
    found = []
    for at in sorted(turns):
        if at >= until:
            break
        count += turns[at]
        if count < need:
            since = max(at, job.created) if since is None else since
        elif since is not None:
            found.append((since, at))
            since = None
    if since is not None:
        found.append((since, until))
    return [(since, end) for since, end in found if end > since]


def waiting_jobs(
    record: RunRecord, jobs: Sequence[JobLife] | None = None, *, longer_s: float = 0.0
) -> StepFunction:
    """How many jobs are in a wait that lasts for more than so many seconds."""
    return _waiting(record, jobs, lambda _: 1.0, longer_s=longer_s)


def pending_gpus(record: RunRecord, jobs: Sequence[JobLife] | None = None) -> StepFunction:
    """GPUs that waiting jobs ask for."""
    return _waiting(record, jobs, lambda job: job.gpus / THOUSAND)


def _waiting(
    record: RunRecord,
    jobs: Sequence[JobLife] | None,
    weight: Callable[[JobLife], float],
    *,
    longer_s: float = 0.0,
) -> StepFunction:
    pods = pods_of(record)
    pieces = [
        (since, until, weight(job))
        for job in (record.jobs if jobs is None else jobs)
        for since, until in wait_spans(job, pods.get(job.key, ()), record)
        if until - since > longer_s
    ]
    return steps_from_spans(pieces, record.seconds)


def leaf_queues(record: RunRecord) -> list[str]:
    """Names of queues without children, in the order of the record."""
    parents = {queue.parent for queue in record.queues}
    return [queue.name for queue in record.queues if queue.name not in parents]


def queue_mark_steps(
    record: RunRecord, queue: str, value: Callable[[QueueMark], float]
) -> StepFunction:
    """A number of a queue's marks over time."""
    found = next((each.marks for each in record.queues if each.name == queue), ())
    return steps_from_marks([(mark.at, value(mark)) for mark in found], record.seconds)


def fair_share(record: RunRecord) -> dict[str, StepFunction]:
    """GPUs due to each queue without children, as its status told."""
    return {
        name: queue_mark_steps(record, name, lambda mark: mark.fair_share / THOUSAND)
        for name in leaf_queues(record)
    }


def fragmentation_steps(record: RunRecord) -> tuple[StepFunction, StepFunction]:
    """GPUs that are free, and how many of them are of no use to the pods of this run.

    With p(s) the share of pods that ask for s whole GPUs, a node with f whole free GPUs has
    ``sum over s of p(s) (f - s floor(f / s))`` useless ones.

    Returns:
        Useless, free.
    """
    sizes, shares = _sizes(record)
    per_node: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for pod in record.pods:
        span = held_span(pod, record)
        if span is not None and pod.gpus:
            per_node[pod.node].append((*span, float(pod.gpus)))
    free, useless = [], []
    for node in record.nodes:
        offered = steps_from_spans(
            [(span.since, span.until, float(span.gpus)) for span in node.spans if span.usable],
            record.seconds,
        )
        if not offered.values.any():
            continue
        taken = steps_from_spans(per_node.get(node.name, ()), record.seconds)
        mine = combine_steps(
            [offered, taken],
            lambda gives, takes: np.maximum(np.floor((gives - takes) / THOUSAND), 0.0),
        )
        free.append(mine)
        lost = mine.values[:, None] - sizes * np.floor(mine.values[:, None] / sizes)
        useless.append(StepFunction(mine.times, lost @ shares, record.seconds))
    return sum_steps(useless, record.seconds), sum_steps(free, record.seconds)


def _sizes(record: RunRecord) -> tuple[Floats, Floats]:
    asked = [pod.gpus // 1000 for pod in record.pods if pod.gpus >= THOUSAND]
    sizes, counts = np.unique(np.array(asked or [1], dtype=np.float64), return_counts=True)
    return sizes, counts / counts.sum()


def eviction_steps(record: RunRecord) -> StepFunction:
    """How many there were so far."""
    moments = np.array([each.at for each in record.evictions], dtype=np.float64)
    return steps_from_changes(moments, np.ones(len(moments)), record.seconds)


def lost_gpu_hours(record: RunRecord) -> StepFunction:
    """GPU-hours that evictions cost so far."""
    moments = np.array([each.at for each in record.evictions], dtype=np.float64)
    hours = np.array([each.lost for each in record.evictions], dtype=np.float64) / 3.6e6
    return steps_from_changes(moments, hours, record.seconds)


def held_and_due_of_waiting(record: RunRecord) -> dict[str, tuple[StepFunction, StepFunction]]:
    """Of each queue, GPUs held and GPUs due at moments at which a job of it waited, 0 at others.

    A job that starts at once, within a second of when it was decided about, has waited for nobody.
    """
    due = fair_share(record)
    longer_s = AT_ONCE_S + record.step_s
    found = {}
    for name in due:
        mine = [job for job in record.jobs if job.queue == name and job.gpus]
        if not mine:
            continue
        wants = waiting_jobs(record, mine, longer_s=longer_s)
        masked = [
            combine_steps([part, wants], lambda value, on: np.where(on > 0, value, 0.0))
            for part in (used_amounts(record, queue=name), due[name])
        ]
        found[name] = (masked[0], masked[1])
    return found


def jain_index(record: RunRecord) -> StepFunction:
    """Jain's index of what queues had got by then over what they were due by then.

    Each queue counts as much as it was due; moments at which no job of it waited do not count.
    1 where all got the same part of what they were due, where none was due anything, and where jobs of one
    queue alone waited. What one was due over what all were where that one got all: 1/n of n that were due the same.
    """
    pairs = list(held_and_due_of_waiting(record).values())
    if not pairs:
        return StepFunction(np.zeros(1), np.ones(1), record.seconds)
    times = np.unique(np.concatenate([part.times for pair in pairs for part in pair]))
    times = np.append(times[times < record.seconds], record.seconds)
    got = np.array([_sums(pair[0], times) for pair in pairs])
    due = np.array([_sums(pair[1], times) for pair in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(due > 0, got * got / due, 0.0)
        owed = np.where(due > 0, got, 0.0).sum(axis=0)
        index = owed**2 / (due.sum(axis=0) * squares.sum(axis=0))
    return StepFunction(times, np.where(np.isfinite(index), index, 1.0), record.seconds)


def _sums(part: StepFunction, times: Floats) -> Floats:
    """The integral from 0 to each of these times, among which are all of the part's own."""
    lengths = np.diff(times, append=times[-1])
    return np.concatenate([[0.0], np.cumsum(part.at(times) * lengths)[:-1]])
