"""What the recorder keeps of each object while it lives: small, mutable, no object of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.base.classes import define
from gpusched.engine.run_record import (
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
from gpusched.lab.scenario.recorder.object_fields import PodGpuRequest

_STARTS_WITH: Final = {"preempted for": "Preempted", "reclaimed for": "Reclaimed",
                       "moved for": "Moved"}  # fmt: skip
_OTHERWISE: Final = "Stopped"


@define(slots=True, eq=False, kw_only=True)
class OpenWorkload(OpenJobLife):
    """A workload.

    Attributes:
        labelled: class that a label gives; ``grade`` is that of its PriorityClass.
        backing: UIDs of Jobs whose pods are this PodGroup's, and how each ended.
        pods: of it that live, by UID.
        bound, runs: how many are bound, and run; those that succeeded count on.
        alive, succeeded, evicted: how many are not over, ended well, and were told to go.
        held: nothing starts it: suspended, and no queue will.
        checkpoint_s: between checkpoints, for what an eviction loses; 0 for none.
    """

    key: str
    kind: str
    labelled: str = ""
    grade: str = ""
    asked: int = 1
    backing: dict[str, LifeEnd] = attrs.Factory(dict)
    pods: dict[str, OpenPod] = attrs.Factory(dict)
    bound: int = 0
    runs: int = 0
    alive: int = 0
    succeeded: int = 0
    evicted: int = 0
    live_gpus: int = 0
    suspended: bool = False
    held: bool = False
    ours: bool = True
    checkpoint_s: float = 0.0

    def say(self, at: float, reason: str, sentence: str) -> None:
        """Why it waits from now on; an empty reason: no more."""
        last = self.reasons[-1] if self.reasons else None
        if last is None:
            if reason:
                self.reasons.append(WaitReason(at=at, reason=reason, sentence=sentence))
        elif (last.reason, last.sentence) != (reason, sentence):
            self.reasons.append(WaitReason(at=at, reason=reason, sentence=sentence))

    def life(self) -> JobLife:
        """As the record has it."""
        return self.life_so_far(
            key=self.key,
            kind=self.kind,
            queue=self.queue or "default",
            klass=self.labelled or self.grade or self.kind.lower(),
            size=max(self.size, 1),
        )


@define(slots=True, eq=False, kw_only=True)
class OpenPod:
    """A pod.

    Attributes:
        endless: it runs until it is deleted.
        why: sentence by which the scheduler told it to go.
        counted: its eviction is in the books.
        ours: it asks for one of our schedulers, or holds GPUs.
    """

    name: str
    namespace: str
    uid: str
    work: OpenWorkload
    queue: str
    asked: PodGpuRequest
    created: float
    endless: bool
    ours: bool
    bound: float | None = None
    running: float | None = None
    told: float | None = None
    ended: float | None = None
    gone: float | None = None
    node: str = ""
    slots: tuple[int, ...] = ()
    gpus: int = 0
    end: LifeEnd = LifeEnd.NONE
    exit_code: int = 0
    why: str = ""
    counted: bool = False

    @property
    def holds(self) -> bool:
        """Whether it has a node and is not over."""
        return self.bound is not None and self.ended is None

    def reason(self) -> str:
        """In one word why the scheduler told it to go."""
        for words, reason in _STARTS_WITH.items():
            if self.why.startswith(words):
                return reason
        return _OTHERWISE

    def life(self) -> PodLife:
        """As the record has it."""
        return PodLife(
            name=self.name,
            namespace=self.namespace,
            uid=self.uid,
            job=self.work.key,
            queue=self.queue or self.work.queue or "default",
            gpus=self.gpus,
            cpu=self.asked.cpu,
            memory=self.asked.memory,
            created=self.created,
            bound=self.bound,
            running=self.running,
            told=self.told,
            ended=self.ended,
            gone=self.gone,
            node=self.node,
            slots=self.slots,
            end=self.end,
            exit_code=self.exit_code,
        )


@define(slots=True, eq=False)
class OpenNode:
    """A node. ``now`` is what it offers since ``since``; None when it is gone."""

    name: str
    labels: Mapping[str, str]
    since: float
    now: tuple[int, int, int, bool] | None
    spans: list[NodeSpan] = attrs.Factory(list)

    def offer(self, at: float, what: tuple[int, int, int, bool] | None) -> bool:
        """It offers something else from now on; whether that is so."""
        if what == self.now:
            return False
        self._close(at)
        self.since, self.now = at, what
        return True

    def life(self, end: float) -> NodeLife:
        """As the record has it, with the last span up to the end."""
        spans = list(self.spans)
        if self.now is not None and end > self.since:
            spans.append(_span(self.since, end, self.now))
        return NodeLife(name=self.name, labels=self.labels, spans=tuple(spans))

    def _close(self, at: float) -> None:
        if self.now is not None and at > self.since:
            self.spans.append(_span(self.since, at, self.now))


def _span(since: float, until: float, what: tuple[int, int, int, bool]) -> NodeSpan:
    gpus, cpu, memory, usable = what
    return NodeSpan(since=since, until=until, gpus=gpus, cpu=cpu, memory=memory, usable=usable)


@define(slots=True, eq=False)
class OpenQueue:
    """A queue whose life is being recorded."""

    name: str
    parent: str
    marks: list[QueueMark] = attrs.Factory(list)

    def mark(self, mark: QueueMark) -> None:
        """What holds from now on, where it is something else."""
        if self.marks and attrs.evolve(self.marks[-1], at=mark.at) == mark:
            return
        if self.marks and self.marks[-1].at == mark.at:
            self.marks.pop()
        self.marks.append(mark)

    def life(self) -> QueueLife:
        """As the record has it."""
        return QueueLife(name=self.name, parent=self.parent, marks=tuple(self.marks))


def domains_per_level(
    nodes: Sequence[Mapping[str, str]], levels: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[tuple[str, int], ...]:
    """How many domains of each level nodes are in; levels that some of them lack are left out.

    Args:
        nodes: labels of each, with its name under ``kubernetes.io/hostname``.
        levels: name, and the labels that tell its domains apart, its own last.
    """
    found = []
    for name, keys in levels:
        domains = {tuple(labels.get(key, "") for key in keys) for labels in nodes}
        if all(domain[-1] for domain in domains):
            found.append((name, len(domains)))
    return tuple(found)
