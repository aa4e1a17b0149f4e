"""What happened in a run, as data: the one thing that expectations, tables and reports read.

Times are seconds since the run began, floats; a moment that never came is None. Amounts of GPU
are thousandths of one GPU, of CPU thousandths of one core, of memory MiB: whole numbers all.
Everything is sorted by time, then by name, and holds nothing that differs between equal runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from gpusched.base.classes import define, frozen


class LifeEnd(StrEnum):
    """How a pod or job came to its end."""

    NONE = ""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EVICTED = "Evicted"
    DELETED = "Deleted"


@frozen(kw_only=True)
class NodeSpan:
    """What a node offered for a while.

    Attributes:
        since, until: seconds; ``until`` is the end of the run where it stayed so.
        usable: it was ready and not cordoned.
    """

    since: float
    until: float
    gpus: int
    cpu: int
    memory: int
    usable: bool


@frozen(kw_only=True)
class NodeLife:
    """One node, from its coming to its end."""

    name: str
    labels: Mapping[str, str]
    spans: tuple[NodeSpan, ...]


@frozen(kw_only=True)
class PodLife:
    """One pod.

    Attributes:
        job: key of its ``JobLife``.
        gpus, cpu, memory: what it asks for.
        created, bound, running: moments.
        told: when it was told to go: an eviction, or its deletion.
        ended: when it gave its room back: it succeeded, failed, or was gone.
        gone: when the object left the API.
        node, slots: where it was bound; slots are numbers of GPUs in the node.
        end: how it ended.
        exit_code: of a failed container, 0 for none.
    """

    name: str
    namespace: str
    uid: str
    job: str
    queue: str
    gpus: int
    cpu: int
    memory: int
    created: float
    bound: float | None = None
    running: float | None = None
    told: float | None = None
    ended: float | None = None
    gone: float | None = None
    node: str = ""
    slots: tuple[int, ...] = ()
    end: LifeEnd = LifeEnd.NONE
    exit_code: int = 0


@frozen(kw_only=True)
class WaitReason:
    """Why a job waited from this moment on; an empty reason says that it waits no more."""

    at: float
    reason: str
    sentence: str


@frozen(kw_only=True)
class JobLife:
    """One workload: a Job, a PodGroup, a Deployment, or a pod that belongs to none of them.

    Attributes:
        key: ``namespace/name``; ``kind`` tells what it is.
        klass: label ``scenario.gpusched.io/class`` of it or of its pods, else the name of its
            PriorityClass, else its kind in lower case.
        size: pods that it wants; of a Job its parallelism, of a Deployment its replicas.
        min_member: so many of its pods must be bound at once before it counts as started; of a Job that may be
            started with less, the least with which it was.
        gpus: of all its ``size`` pods together.
        admitted: when it was let in by its queue; None where that is not told.
        started: first moment at which ``min_member`` of its pods were bound.
        ready: first moment at which ``min_member`` of its pods were running.
        ended: when it was complete, failed or deleted.
        end: SUCCEEDED when complete; NONE when it still lives.
        reasons: why it waited, in order of time.
        levels: of its placement at ``started``: level, then the number of domains it spans.
    """

    key: str
    kind: str
    uid: str
    queue: str
    klass: str
    priority: int
    size: int
    min_member: int
    gpus: int
    created: float
    admitted: float | None = None
    started: float | None = None
    ready: float | None = None
    ended: float | None = None
    end: LifeEnd = LifeEnd.NONE
    reasons: tuple[WaitReason, ...] = ()
    levels: tuple[tuple[str, int], ...] = ()


@define(slots=True, eq=False, kw_only=True)
class OpenJobLife:
    """A ``JobLife`` while it goes on: what becomes known of it as it happens."""

    uid: str
    queue: str = ""
    priority: int = 0
    size: int = 0
    min_member: int = 1
    gpus: int = 0
    created: float
    admitted: float | None = None
    started: float | None = None
    ready: float | None = None
    ended: float | None = None
    end: LifeEnd = LifeEnd.NONE
    reasons: list[WaitReason] = attrs.Factory(list)
    levels: tuple[tuple[str, int], ...] = ()

    def life_so_far(self, *, key: str, kind: str, queue: str, klass: str, size: int) -> JobLife:
        """The life as the record has it, with what its kind says of the job."""
        return JobLife(
            key=key,
            kind=kind,
            uid=self.uid,
            queue=queue,
            klass=klass,
            priority=self.priority,
            size=size,
            min_member=self.min_member,
            gpus=self.gpus,
            created=self.created,
            admitted=self.admitted,
            started=self.started,
            ready=self.ready,
            ended=self.ended,
            end=self.end,
            reasons=tuple(self.reasons),
            levels=self.levels,
        )


@frozen(kw_only=True)
class QueueMark:
    """What a queue was due and held from this moment on, GPUs in thousandths.

    Attributes:
        deserved, capability, guarantee: None where its spec does not limit GPUs.
        allocated, fair_share: as its status tells.
        closed: it takes no jobs.
    """

    at: float
    weight: int
    deserved: int | None
    capability: int | None
    guarantee: int | None
    allocated: int
    fair_share: int
    closed: bool = False


@frozen(kw_only=True)
class QueueLife:
    """One queue; ``parent`` is empty at the top."""

    name: str
    parent: str
    marks: tuple[QueueMark, ...]


@frozen(kw_only=True)
class EvictionRecord:
    """One pod was told to go by the scheduler.

    Attributes:
        why: reason of its condition DisruptionTarget, such as ``Reclaimed`` or ``Preempted``.
        sentence: for whom.
        lost: thousandths of GPU-seconds since it ran (or since its last checkpoint).
    """

    at: float
    pod: str
    job: str
    queue: str
    why: str
    sentence: str
    lost: int


@frozen(kw_only=True)
class KeptSpan:
    """Nodes that a Reservation kept from ``since`` until ``until``, seconds of the run."""

    name: str
    since: float
    until: float
    nodes: tuple[str, ...]


@frozen(kw_only=True)
class ToldStartRecord:
    """What a job was told of its start at some moment.

    Attributes:
        at: when it was told.
        start: expected; ``earliest`` and ``latest`` are its range, None where there was none.
        known_by: what that rested on, such as ``Announced``.
    """

    at: float
    start: float
    known_by: str
    earliest: float | None = None
    latest: float | None = None


@frozen(kw_only=True)
class StartRecord:
    """A start after a minute of waiting or more, beside what was told before; one wait, one record.

    Attributes:
        job: key of its ``JobLife``, or of the pod that waited.
        since, started: moments of the wait.
        first, half, last: told first, when half of the wait was over, and when a tenth of it was left;
            None where nothing was told.
        moves: changes of what it was told that count.
    """

    job: str
    queue: str
    since: float
    started: float
    first: ToldStartRecord | None = None
    half: ToldStartRecord | None = None
    last: ToldStartRecord | None = None
    moves: int = 0


@frozen(kw_only=True)
class ActDone:
    """Something that the timeline did; ``trouble`` says why it could not be done."""

    at: float
    sentence: str
    trouble: str = ""


@frozen(kw_only=True)
class BrokenInvariant:
    """An invariant that did not hold.

    Attributes:
        invariant: ``room``, ``slots``, ``gangs``, ``quota``, ``ours``, ``honest``, ``calm``.
    """

    at: float
    invariant: str
    sentence: str


REJECTED_TOLD: Final = 3
"""Objects that cannot be believed of which a record says why."""


@frozen(kw_only=True)
class RunRecord:
    """One run, whole.

    Attributes:
        name: of the scenario, or of the configuration where several are compared.
        ground: ``embedded``, ``cluster`` or ``simulated``.
        seconds: how long it lasted.
        epoch: wall time at its beginning, seconds since the Unix epoch.
        digest: of every write on an embedded cluster; equal runs have equal ones.
        counters: other numbers, by name: ``sessions``, ``writes``, ``restarts`` ...
        unfinished: why it was ended before its time; empty when it came to its end.
        rejected: why objects cannot be believed, the first few of them.
        step_s: seconds for which changes were gathered before they were decided about.
    """

    name: str
    ground: str
    seed: int
    seconds: float
    epoch: float
    nodes: tuple[NodeLife, ...] = ()
    pods: tuple[PodLife, ...] = ()
    jobs: tuple[JobLife, ...] = ()
    queues: tuple[QueueLife, ...] = ()
    evictions: tuple[EvictionRecord, ...] = ()
    kept: tuple[KeptSpan, ...] = ()
    starts: tuple[StartRecord, ...] = ()
    acts: tuple[ActDone, ...] = ()
    broken: tuple[BrokenInvariant, ...] = ()
    counters: Mapping[str, float] = attrs.Factory(dict)
    digest: str = ""
    unfinished: str = ""
    rejected: tuple[str, ...] = ()
    step_s: float = 0.0
