"""What a run used, offered, owed and left waiting, over its time; GPUs are whole ones, floats.

Step functions, see ``Steps``: statistics integrate them, reports draw them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from gpusched.report.record import End, JobLife, PodLife, QueueMark, Record
from gpusched.report.steps import Floats, Steps, changes, combined, marks, spans, total

THOUSAND: Final = 1000.0
UNITS: Final[Mapping[str, float]] = {"gpus": THOUSAND, "cpu": THOUSAND, "memory": 1024.0}
"""Resource to how much of a record's amounts is one GPU, one core, one GiB."""


def pods_of(record: Record) -> dict[str, list[PodLife]]:
    """Key of a job to its pods, in the order of the record."""
    found: dict[str, list[PodLife]] = defaultdict(list)
    for pod in record.pods:
        found[pod.job].append(pod)
    return found


def held(pod: PodLife, record: Record) -> tuple[float, float] | None:
    """From when to when a pod held its room; None where it never did."""
    if pod.bound is None:
        return None
    return pod.bound, record.seconds if pod.ended is None else pod.ended


def use(record: Record, resource: str = "gpus", *, queue: str | None = None) -> Steps:
    """What bound pods hold.

    Args:
        record: the run.
        resource: ``gpus``, ``cpu`` (cores) or ``memory`` (GiB).
        queue: of this one only; None for all.
    """
    pieces = [
        (*span, getattr(pod, resource) / UNITS[resource])
        for pod in record.pods
        if (queue is None or pod.queue == queue) and (span := held(pod, record)) is not None
    ]
    return spans(pieces, record.seconds)


def use_by_queue(record: Record, resource: str = "gpus") -> dict[str, Steps]:
    """The same for each queue of which a pod was ever bound, by name."""
    pieces: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for pod in record.pods:
        if (span := held(pod, record)) is not None:
            pieces[pod.queue].append((*span, getattr(pod, resource) / UNITS[resource]))
    return {name: spans(pieces[name], record.seconds) for name in sorted(pieces)}


def capacity(record: Record, resource: str = "gpus") -> Steps:
    """What nodes offer that are ready and not cordoned."""
    pieces = [
        (span.since, span.until, getattr(span, resource) / UNITS[resource])
        for node in record.nodes
        for span in node.spans
        if span.usable
    ]
    return spans(pieces, record.seconds)


def needs(job: JobLife) -> int:
    """So many pods at once are enough for it."""
    return max(1, job.min_member)


def bound_count(pods: Sequence[PodLife], record: Record) -> Steps:
    """How many of these pods count as there: bound and not told to go, or succeeded."""
    pieces = []
    for pod in pods:
        if pod.bound is None:
            continue
        leaves = record.seconds if pod.end is End.SUCCEEDED else leaving(pod, record)
        pieces.append((pod.bound, leaves, 1.0))
    return spans(pieces, record.seconds)


def leaving(pod: PodLife, record: Record) -> float:
    """When a pod ended or was told to go, whichever came first; the end of the run for neither."""
    return min(
        record.seconds if pod.ended is None else pod.ended,
        record.seconds if pod.told is None else pod.told,
    )


def waits(job: JobLife, pods: Sequence[PodLife], record: Record) -> list[tuple[float, float]]:
    """Spans in which a job lived and had fewer pods bound than it needs."""
    until = record.seconds if job.ended is None else min(job.ended, record.seconds)
    if until <= job.created or not job.size:
        return []
    # One job has few pods, a run has thousands of jobs: plain numbers are faster here than arrays.
    turns: dict[float, int] = {}
    for pod in pods:
        if pod.bound is None:
            continue
        leaves = record.seconds if pod.end is End.SUCCEEDED else leaving(pod, record)
        if leaves > pod.bound:
            turns[pod.bound] = turns.get(pod.bound, 0) + 1
            turns[leaves] = turns.get(leaves, 0) - 1
    count, need = 0, needs(job)
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


def waiting_jobs(record: Record, jobs: Sequence[JobLife] | None = None) -> Steps:
    """How many jobs wait."""
    return _waiting(record, jobs, lambda _: 1.0)


def pending(record: Record, jobs: Sequence[JobLife] | None = None) -> Steps:
    """GPUs that waiting jobs ask for."""
    return _waiting(record, jobs, lambda job: job.gpus / THOUSAND)


def _waiting(
    record: Record, jobs: Sequence[JobLife] | None, weight: Callable[[JobLife], float]
) -> Steps:
    pods = pods_of(record)
    pieces = [
        (since, until, weight(job))
        for job in (record.jobs if jobs is None else jobs)
        for since, until in waits(job, pods.get(job.key, ()), record)
    ]
    return spans(pieces, record.seconds)


def leaves_of(record: Record) -> list[str]:
    """Names of queues without children, in the order of the record."""
    parents = {queue.parent for queue in record.queues}
    return [queue.name for queue in record.queues if queue.name not in parents]


def marked(record: Record, queue: str, value: Callable[[QueueMark], float]) -> Steps:
    """A number of a queue's marks over time."""
    found = next((each.marks for each in record.queues if each.name == queue), ())
    return marks([(mark.at, value(mark)) for mark in found], record.seconds)


def fair_share(record: Record) -> dict[str, Steps]:
    """GPUs due to each queue without children, as its status told."""
    return {
        name: marked(record, name, lambda mark: mark.fair_share / THOUSAND)
        for name in leaves_of(record)
    }


def fragmentation(record: Record) -> tuple[Steps, Steps]:
    """GPUs that are free, and how many of them are of no use to the pods of this run.

    With p(s) the share of pods that ask for s whole GPUs, a node with f whole free GPUs has
    ``sum over s of p(s) (f - s floor(f / s))`` useless ones.

    Returns:
        Useless, free.
    """
    sizes, shares = _sizes(record)
    per_node: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for pod in record.pods:
        span = held(pod, record)
        if span is not None and pod.gpus:
            per_node[pod.node].append((*span, float(pod.gpus)))
    free, useless = [], []
    for node in record.nodes:
        offered = spans(
            [(span.since, span.until, float(span.gpus)) for span in node.spans if span.usable],
            record.seconds,
        )
        if not offered.values.any():
            continue
        taken = spans(per_node.get(node.name, ()), record.seconds)
        mine = combined(
            [offered, taken],
            lambda gives, takes: np.maximum(np.floor((gives - takes) / THOUSAND), 0.0),
        )
        free.append(mine)
        lost = mine.values[:, None] - sizes * np.floor(mine.values[:, None] / sizes)
        useless.append(Steps(mine.times, lost @ shares, record.seconds))
    return total(useless, record.seconds), total(free, record.seconds)


def _sizes(record: Record) -> tuple[Floats, Floats]:
    asked = [pod.gpus // 1000 for pod in record.pods if pod.gpus >= THOUSAND]
    sizes, counts = np.unique(np.array(asked or [1], dtype=np.float64), return_counts=True)
    return sizes, counts / counts.sum()


def evictions(record: Record) -> Steps:
    """How many there were so far."""
    moments = np.array([each.at for each in record.evictions], dtype=np.float64)
    return changes(moments, np.ones(len(moments)), record.seconds)


def lost(record: Record) -> Steps:
    """GPU-hours that evictions cost so far."""
    moments = np.array([each.at for each in record.evictions], dtype=np.float64)
    hours = np.array([each.lost for each in record.evictions], dtype=np.float64) / 3.6e6
    return changes(moments, hours, record.seconds)


def wanting(record: Record) -> dict[str, tuple[Steps, Steps]]:
    """Of each queue, GPUs held and GPUs due at moments at which a job of it waited, 0 at others."""
    due = fair_share(record)
    found = {}
    for name in due:
        mine = [job for job in record.jobs if job.queue == name and job.gpus]
        if not mine:
            continue
        wants = waiting_jobs(record, mine)
        masked = [
            combined([part, wants], lambda value, on: np.where(on > 0, value, 0.0))
            for part in (use(record, queue=name), due[name])
        ]
        found[name] = (masked[0], masked[1])
    return found


def jain(record: Record) -> Steps:
    """Jain's index of what queues had got by then over what they were due by then.

    Each queue counts as much as it was due; moments at which no job of it waited do not count.
    1 where all got the same part of what they were due, and where nobody was due anything.
    """
    pairs = list(wanting(record).values())
    if not pairs:
        return Steps(np.zeros(1), np.ones(1), record.seconds)
    times = np.unique(np.concatenate([part.times for pair in pairs for part in pair]))
    times = np.append(times[times < record.seconds], record.seconds)
    got = np.array([_sums(pair[0], times) for pair in pairs])
    due = np.array([_sums(pair[1], times) for pair in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(due > 0, got * got / due, 0.0)
        owed = np.where(due > 0, got, 0.0).sum(axis=0)
        index = owed**2 / (due.sum(axis=0) * squares.sum(axis=0))
    return Steps(times, np.where(np.isfinite(index), index, 1.0), record.seconds)


def _sums(part: Steps, times: Floats) -> Floats:
    """The integral from 0 to each of these times, among which are all of the part's own."""
    lengths = np.diff(times, append=times[-1])
    return np.concatenate([[0.0], np.cumsum(part.at(times) * lengths)[:-1]])
