"""What becomes of pods and jobs in a simulated run: kept while it goes on, a ``Record`` at its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched.api.devices.gpu_types import FULL_SPEED
from gpusched.api.devices.slots import slot_numbers
from gpusched.api.meta.gpu_resources import SLICES_OF_A_GPU, gpu_resources
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.base.classes import define
from gpusched.engine.run_record import (
    EvictionRecord,
    JobLife,
    LifeEnd,
    NodeLife,
    NodeSpan,
    OpenJobLife,
    PodLife,
    QueueLife,
    QueueMark,
    WaitReason,
)

CLASS_LABEL: Final = "scenario.gpusched.io/class"
MIB: Final = 2**20
_REASONS_MAX: Final = 64
"""Changes of a job's reason that are kept."""
_NUMBERS: Final = re.compile(r"[0-9]+")

Identity = tuple[str, str, str]
"""Kind, namespace and name of a job."""


@define(eq=False, kw_only=True)
class LiveJob(OpenJobLife):
    """A job while the run goes on; see ``JobLife``."""

    identity: Identity
    klass: str
    live: dict[UID, LivePod] = attrs.Factory(dict)
    """Pods that exist and have not ended."""
    bound: int = 0
    running: int = 0
    succeeded: int = 0

    @property
    def key(self) -> str:
        """As in a record."""
        return f"{self.identity[1]}/{self.identity[2]}"

    def tell(self, at: float, reason: str, sentence: str) -> None:
        """Why it waits from now on; other numbers in the same words are no news."""
        last = self.reasons[-1] if self.reasons else None
        if last is None and not reason:
            return
        if last is not None and last.reason == reason and _words(last.sentence, sentence):
            return
        if len(self.reasons) < _REASONS_MAX or not reason:
            self.reasons.append(WaitReason(at=at, reason=reason, sentence=sentence))

    def life(self) -> JobLife:
        """As it is in the record."""
        return self.life_so_far(
            key=self.key, kind=self.identity[0], queue=self.queue, klass=self.klass, size=self.size
        )


@define(eq=False, kw_only=True)
class LivePod:
    """A pod while the run goes on; see ``PodLife``.

    Attributes:
        run_s: seconds that it runs before it succeeds; None when until it is told to go.
        done_s: of these, seconds that a predecessor had saved when it left.
        before_s: of these, seconds that it ran before the simulation began.
        stop_s: seconds from being told to go to its end.
        checkpoint_s: it saves its work so often; 0 when never.
        speeds: types of GPUs and speeds in thousandths; empty where all are equally fast.
        speed: of its gang where it runs, in thousandths.
        kept_s: seconds of work that it had saved when it was told to go.
        owner: kind, name and UID of its controller; empty texts for none.
        again: its manifest where its controller makes it anew; None where a Job or nothing does.
    """

    key: ObjectKey
    uid: UID
    job: LiveJob
    rank: int
    queue: str
    gpus: int
    cpu: int
    memory: int
    created: float
    run_s: float | None
    done_s: float
    start_s: float
    stop_s: float
    checkpoint_s: float
    speeds: tuple[tuple[str, int], ...] = ()
    speed: int = FULL_SPEED
    before_s: float = 0.0
    owner: tuple[str, str, str] = ("", "", "")
    again: Mapping[str, Any] | None = None
    bound: float | None = None
    running: float | None = None
    told: float | None = None
    ended: float | None = None
    gone: float | None = None
    node: str = ""
    slots: int = 0
    end: LifeEnd = LifeEnd.NONE
    kept_s: float = 0.0

    def work_at(self, now: float) -> tuple[float, float]:
        """Seconds of work, at speed 1, done and saved, those of predecessors included."""
        ran = now - self.running if self.running is not None else 0.0
        done = self.done_s + self.before_s + ran * self.speed / FULL_SPEED
        every = self.checkpoint_s
        return done, max(self.done_s, done // every * every if every else 0.0)

    def life(self) -> PodLife:
        """As it is in the record."""
        return PodLife(
            name=self.key.name,
            namespace=self.key.namespace,
            uid=self.uid,
            job=self.job.key,
            queue=self.queue,
            gpus=self.gpus,
            cpu=self.cpu,
            memory=self.memory,
            created=self.created,
            bound=self.bound,
            running=self.running,
            told=self.told,
            ended=self.ended,
            gone=self.gone,
            node=self.node,
            slots=slot_numbers(self.slots),
            end=self.end,
        )


def _words(one: str, other: str) -> bool:
    return one == other or _NUMBERS.sub("0", one) == _NUMBERS.sub("0", other)


def gpus_of(amounts: Resources) -> int:
    """Thousandths of GPUs among amounts of resources; of parts that the hardware makes, too."""
    gpus = gpu_resources()
    return sum(
        amount if name in gpus.whole else amount * 1000 * gpus.sevenths(name) // SLICES_OF_A_GPU
        for name, amount in amounts.items
        if name in gpus.whole or gpus.sevenths(name)
    )


def gpus_of_class(pod_class: PodClass) -> int:
    """Thousandths of GPUs that one pod asks for."""
    if gpu_resources().sevenths(pod_class.gpu):
        return gpus_of(pod_class.requests)
    return pod_class.gpu_thousandths


class LifeRecords:
    """All jobs, pods and queues of a run."""

    def __init__(self) -> None:
        self.jobs: dict[Identity, LiveJob] = {}
        self.past_jobs: list[LiveJob] = []
        """Those whose name was given to another since."""
        self.pods: dict[UID, LivePod] = {}
        self.evictions: list[EvictionRecord] = []
        self.node_changes = NodeChanges()
        self._marks: dict[str, list[QueueMark]] = {}
        self._parents: dict[str, str] = {}

    def enter(self, job: LiveJob) -> None:
        """Take a new job into the records."""
        before = self.jobs.get(job.identity)
        if before is not None:
            self.past_jobs.append(before)
        self.jobs[job.identity] = job

    def mark(self, name: str, parent: str, mark: QueueMark) -> None:
        """How a queue stands; noted when it is news."""
        self._parents[name] = parent
        marks = self._marks.setdefault(name, [])
        if marks and attrs.evolve(marks[-1], at=mark.at) == mark:
            return
        if marks and marks[-1].at == mark.at:
            marks.pop()
        marks.append(mark)

    def last_mark(self, name: str) -> QueueMark | None:
        """How a queue stands by what is known now; None for one that was never marked."""
        marks = self._marks.get(name)
        return marks[-1] if marks else None

    def released(self, name: str, gpus: int, *, at: float) -> None:
        """A pod of a queue gave back its GPUs: the queue holds less, and so do those above it.

        Each of them once: queues that are each other's parents stand in a ring.
        """
        line: list[str] = []
        while gpus and name in self._marks and name not in line:
            last = self._marks[name][-1]
            held = max(0, last.allocated - gpus)
            self.mark(name, self._parents[name], attrs.evolve(last, at=at, allocated=held))
            line.append(name)
            name = self._parents[name]

    # -- record ------------------------------------------------------------------------------
    def job_lives(self) -> tuple[JobLife, ...]:
        """By time of creation, then key."""
        every = [each.life() for each in (*self.past_jobs, *self.jobs.values())]
        return tuple(sorted(every, key=lambda each: (each.created, each.key)))

    def pod_lives(self) -> tuple[PodLife, ...]:
        """By time of creation, then name."""
        every = [each.life() for each in self.pods.values()]
        return tuple(sorted(every, key=lambda each: (each.created, each.namespace, each.name)))

    def queue_lives(self) -> tuple[QueueLife, ...]:
        """Lives of the queues, by name."""
        return tuple(
            QueueLife(name=name, parent=self._parents[name], marks=tuple(marks))
            for name, marks in sorted(self._marks.items())
        )


class NodeChanges:
    """What became of nodes that were changed while the run went on."""

    def __init__(self) -> None:
        self._first: dict[str, Node] = {}
        self._later: dict[str, list[tuple[float, Node | None]]] = {}

    def begin(self, nodes: Sequence[Node]) -> None:
        """Nodes that are there from the beginning."""
        self._first = {node.name: node for node in nodes}

    def note(self, name: str, node: Node | None, *, at: float) -> None:
        """A node as it is from this moment on; None when it is gone."""
        self._later.setdefault(name, []).append((at, node))

    def lives(self, *, seconds: float) -> tuple[NodeLife, ...]:
        """Of every node that was ever there, by name."""
        lives = []
        for name in sorted({*self._first, *self._later}):
            marks = [(0.0, self._first.get(name)), *self._later.get(name, ())]
            ends = [at for at, _ in marks[1:]] + [seconds]
            spans = [
                _node_span(node, since, until)
                for (since, node), until in zip(marks, ends, strict=True)
                if node is not None and (until > since or not self._later.get(name))
            ]
            last = next((node for _, node in reversed(marks) if node is not None), None)
            if last is not None and spans:
                lives.append(NodeLife(name=name, labels=dict(last.labels), spans=tuple(spans)))
        return tuple(lives)


def _node_span(node: Node, since: float, until: float) -> NodeSpan:
    offers: Mapping[str, int] = dict(node.allocatable.items)
    return NodeSpan(
        since=since,
        until=until,
        gpus=gpus_of(node.allocatable),
        cpu=offers.get("cpu", 0),
        memory=offers.get("memory", 0) // MIB,
        usable=not node.unschedulable and not node.not_ready,
    )


def amounts_of(pod: Pod) -> tuple[int, int, int]:
    """Thousandths of GPUs and of cores, and MiB, that a pod asks for."""
    asks = dict(pod.pod_class.requests.items)
    return gpus_of_class(pod.pod_class), asks.get("cpu", 0), asks.get("memory", 0) // MIB
