"""One moment of the demo as plain data: what the views draw and what the verdict reads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from gpusched.base.classes import frozen

NEVER: Final = "NoFeasibleNode"
"""The reason of a gang that no node could take even if it were empty."""


class GangPhase(StrEnum):
    """Where a gang stands, read off its pods."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@frozen(kw_only=True)
class GangScene:
    """One gang.

    Attributes:
        kind: PodGroup, Job or Pod: what the gang was made of.
        min_member: pods that start together.
        members: pods seen of it.
        held: pods that have a node and have not ended.
        started: pods that ever had a node.
        nodes: on which its started pods are or were.
        gpus: of one pod.
        reason, sentence: why it waits, in the daemon's words; empty when nothing was said.
        waited_s: from its first sight to its minimum being bound; so far, while it waits.
        whole_s: when its minimum was bound, None before.
        spread_ms: from the first binding of its minimum to the last.
        decided_ms: the session that placed it took so long; None when not known.
        early: a member ran before the minimum was bound, and not all of it was decided together:
            while a plan is written its first members may run already, on a busy machine.
    """

    kind: str
    namespace: str
    name: str
    queue: str
    stand: GangPhase
    min_member: int
    members: int
    held: int
    started: int
    nodes: int
    gpus: int
    reason: str = ""
    sentence: str = ""
    waited_s: float = 0.0
    whole_s: float | None = None
    spread_ms: float = 0.0
    decided_ms: float | None = None
    early: bool = False

    @property
    def title(self) -> str:
        """The name, with its namespace where that is not the usual one."""
        return self.name if self.namespace == "default" else f"{self.namespace}/{self.name}"

    @property
    def never(self) -> bool:
        """Whether the daemon says that it can not start in this cluster."""
        return self.whole_s is None and self.reason == NEVER


@frozen(kw_only=True)
class NodeScene:
    """One node: holder of each GPU slot, as an index into the gangs; None: free."""

    name: str
    rack: str
    slots: tuple[int | None, ...]


@frozen(kw_only=True)
class QueueScene:
    """One queue: GPUs in use, gangs that run and gangs that wait."""

    name: str
    gpus: int
    running: int
    waiting: int


@frozen(kw_only=True)
class ClusterScene:
    """The moment.

    Attributes:
        at_s: seconds since the demo began.
        gangs: in the order in which they were first seen, so an index names one for good.
        nodes: by rack, then name.
    """

    at_s: float
    gangs: tuple[GangScene, ...] = ()
    queues: tuple[QueueScene, ...] = ()
    nodes: tuple[NodeScene, ...] = ()

    @property
    def gpus(self) -> int:
        """GPU slots of the cluster."""
        return sum(len(node.slots) for node in self.nodes)

    @property
    def used(self) -> int:
        """GPU slots that are held."""
        return sum(slot is not None for node in self.nodes for slot in node.slots)

    @property
    def waiting(self) -> tuple[GangScene, ...]:
        """Gangs that have not started."""
        return tuple(gang for gang in self.gangs if gang.stand is GangPhase.WAITING)

    @property
    def settled(self) -> bool:
        """Whether every gang has started, or is said never to."""
        return bool(self.gangs) and all(
            gang.whole_s is not None or gang.never for gang in self.gangs
        )


@frozen(kw_only=True)
class DemoOutcome:
    """What came of a demo.

    Attributes:
        fullest: the moment with most GPUs in use; of equals, the one with most gangs waiting.
        last: the moment at the end.
        double: bindings that took a GPU slot which another pod held, one sentence each.
        bindings: pods that were seen bound.
        skipped: files for which there was no time.
        interrupted: ended by a signal.
    """

    fullest: ClusterScene
    last: ClusterScene
    double: tuple[str, ...] = ()
    bindings: int = 0
    skipped: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def faults(self) -> tuple[str, ...]:
        """What went wrong, a sentence each; empty when the demo kept its promise."""
        found = list(self.double)
        found += [f"there was no time to apply {name}" for name in self.skipped]
        if not self.last.gangs:
            found.append("no gang was seen at all")
        for gang in self.last.gangs:
            if 0 < gang.started < gang.min_member or gang.early:
                found.append(
                    f"{gang.title} started in part: {gang.started} of the {gang.min_member} pods "
                    "it needs together were bound" + (" when one of them ran" if gang.early else "")
                )
            elif gang.whole_s is None and not gang.never:
                why = gang.sentence or "nothing was said about it"
                found.append(f"{gang.title} had not started after {self.last.at_s:.0f} s: {why}")
        return tuple(found)


def fuller_scene(known: ClusterScene, new: ClusterScene) -> ClusterScene:
    """The moment worth a picture: more GPUs in use, then more gangs waiting."""
    return max(known, new, key=lambda scene: (scene.used, len(scene.waiting)))


def queue_scenes(
    names: Sequence[str], gangs: Sequence[GangScene], nodes: Sequence[NodeScene]
) -> tuple[QueueScene, ...]:
    """The queues that exist or that a gang names, in that order."""
    gpus = dict.fromkeys((*names, *sorted({gang.queue for gang in gangs})), 0)
    for node in nodes:
        for holder in node.slots:
            if holder is not None:
                gpus[gangs[holder].queue] += 1
    return tuple(
        QueueScene(
            name=name,
            gpus=count,
            running=sum(g.queue == name and g.stand is GangPhase.RUNNING for g in gangs),
            waiting=sum(g.queue == name and g.stand is GangPhase.WAITING for g in gangs),
        )
        for name, count in gpus.items()
    )
