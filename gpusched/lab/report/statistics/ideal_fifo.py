"""The bound: an ideal first-in-first-out scheduler of gangs, over the jobs of a run.

It knows each job when it arrives and starts jobs strictly in that order, each at the first moment
at which all its pods fit, at once and with no overhead at all. A pod then holds its room for as
long as it did in the run, from its binding to its end: its own start and its own duration.

For jobs of equal pods whose nodes hold a whole number of them (a FIFO queue with so many servers),
starts are exact: no scheduler that keeps the order starts any job earlier. With pods of several
sizes, first-fit may miss a packing, and the bound is that of list scheduling with first-fit.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from gpusched.base.classes import frozen
from gpusched.engine.run_record import JobLife, LifeEnd, PodLife, RunRecord
from gpusched.lab.report.statistics.over_time import pods_needed, pods_of

Ints = npt.NDArray[np.int64]
SERVICES: Final = ("Deployment",)
"""Kinds that never end by themselves."""
_PLENTY: Final = 2**40
_ROUNDING_S: Final = 1e-6
"""Moments that are whole seconds stay so when an epoch is added to them."""


@frozen(kw_only=True)
class IdealGang:
    """One job of the bound.

    Attributes:
        key: its name.
        arrives: seconds.
        pods: ``(gpus, cpu, memory)`` and for how many seconds each pod holds its room.
    """

    key: str
    arrives: float
    pods: tuple[tuple[tuple[int, int, int], float], ...]


@frozen(kw_only=True)
class IdealJob:
    """When the ideal scheduler starts a job, and when its last pod ends."""

    key: str
    arrives: float
    start: float
    end: float

    @property
    def wait(self) -> float:
        """Seconds from arrival to start."""
        return self.start - self.arrives


class IdealUnknown(ValueError):
    """The bound cannot be told; ``str()`` says why."""


def ideal_schedule(
    record: RunRecord, *, jobs: Iterable[JobLife] | None = None
) -> tuple[IdealJob, ...]:
    """The bound of a run, in the order in which its jobs came.

    Args:
        record: the run. Jobs are those that can end, with the pods of their last attempt; what
            still ran at the end is taken to end then. Nodes offer what they offered at most.
        jobs: these only; None for all. The others are then not in the cluster at all.

    Raises:
        Unknown: a job never started, so that its length is unknown; or no node has room.
    """
    pods = pods_of(record)
    gangs = []
    given = record.jobs if jobs is None else tuple(jobs)
    for job in sorted(given, key=lambda job: _order(job, record.epoch)):
        if job.kind in SERVICES or not job.size:
            continue
        mine = last_attempt(job, pods.get(job.key, ()))
        if not mine or job.started is None:
            raise IdealUnknown(
                f"job {job.key} never started, so that how long it runs is not known"
            )
        gangs.append(
            IdealGang(
                key=job.key,
                arrives=job.created,
                pods=tuple(((p.gpus, p.cpu, p.memory), _holds(p, record)) for p in mine),
            )
        )
    shapes = [
        max((span.gpus, span.cpu, span.memory) for span in node.spans if span.usable)
        for node in record.nodes
        if any(span.usable for span in node.spans)
    ]
    return schedule_fifo(gangs, shapes)


def last_attempt(job: JobLife, pods: Sequence[PodLife]) -> list[PodLife]:
    """The pods that did the job's work: bound ones that were neither evicted nor deleted.

    Of more than it wants at once the ones that were bound last; where all were evicted or deleted,
    those that were bound last of them.
    """
    bound = [pod for pod in pods if pod.bound is not None]
    kept = [pod for pod in bound if pod.end not in (LifeEnd.EVICTED, LifeEnd.DELETED)] or bound
    kept.sort(key=lambda pod: (pod.bound or 0.0, pod.name))
    return kept[-max(job.size, pods_needed(job)) :]


def _holds(pod: PodLife, record: RunRecord) -> float:
    return (record.seconds if pod.ended is None else pod.ended) - (pod.bound or 0.0)


def _order(job: JobLife, epoch: float) -> tuple[int, float, str]:
    """By arrival in whole seconds, which is all that the API tells; within one as they started."""
    return math.floor(epoch + job.created + _ROUNDING_S), job.started or 0.0, job.key


def schedule_fifo(
    gangs: Sequence[IdealGang], nodes: Sequence[tuple[int, int, int]]
) -> tuple[IdealJob, ...]:
    """Start gangs in their order, each as soon as it is there and fits, none before one ahead.

    Args:
        gangs: in order of arrival.
        nodes: ``(gpus, cpu, memory)`` of each.

    Raises:
        Unknown: a gang does not even fit into the empty cluster.
    """
    free: Ints = np.array(nodes, dtype=np.int64).reshape(-1, 3)
    leaving: list[tuple[float, int, tuple[int, int, int]]] = []
    now, done = 0.0, []
    for gang in gangs:
        now = max(now, gang.arrives)
        classes = _classes(gang)
        while True:
            while leaving and leaving[0][0] <= now:
                _, node, size = heapq.heappop(leaving)
                free[node] += size
            places = _places(classes, free)
            if places is not None:
                break
            if not leaving:
                raise IdealUnknown(f"job {gang.key} does not fit even into the empty cluster")
            now = leaving[0][0]
        end = now
        for size, hold, node in places:
            free[node] -= size
            heapq.heappush(leaving, (now + hold, node, size))
            end = max(end, now + hold)
        done.append(IdealJob(key=gang.key, arrives=gang.arrives, start=now, end=end))
    return tuple(done)


_Classes = Mapping[tuple[int, int, int], Sequence[float]]


def _classes(gang: IdealGang) -> _Classes:
    """Sizes of pods, largest first, with how long each pod of that size holds its room."""
    found: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for size, hold in gang.pods:
        found[size].append(hold)
    return {size: found[size] for size in sorted(found, reverse=True)}


def _places(classes: _Classes, free: Ints) -> list[tuple[tuple[int, int, int], float, int]] | None:
    """First-fit of all pods of a gang; None where they do not all fit. ``free`` stays as it is."""
    left = free.copy() if len(classes) > 1 else free
    found = []
    for size, holds in classes.items():
        room = np.full(len(left), _PLENTY, dtype=np.int64)
        for column, amount in enumerate(size):
            if amount:
                room = np.minimum(room, left[:, column] // amount)
        before = np.cumsum(room) - room
        if not len(room) or before[-1] + room[-1] < len(holds):
            return None
        last = int(np.searchsorted(before, len(holds), side="left"))
        takes = np.minimum(room[:last], len(holds) - before[:last])
        rows = np.repeat(np.arange(last), takes).tolist()
        found += [(size, hold, node) for hold, node in zip(holds, rows, strict=True)]
        if len(classes) > 1:
            for node, count in Counter(rows).items():
                left[node] -= np.array(size, dtype=np.int64) * count
    return found
