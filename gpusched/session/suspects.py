"""Which objects a session had in hand when something raised: read from the stack of the exception.

Nothing is marked while all goes well, so that the good way costs nothing. The frames of a stack
tell what functions were called with: gangs, queues, nodes and whatever else a snapshot holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, cast

import attrs

from gpusched.cache.families import key_of
from gpusched.cache.gangs import Gang, Placed, Task
from gpusched.cache.queues import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.objects.group import Queue, Topology
from gpusched.objects.meta import UID, GangKey
from gpusched.objects.move import Move
from gpusched.objects.node import Node
from gpusched.objects.others import DisruptionBudget
from gpusched.objects.pod import Pod

_FRAMES_MAX: Final = 64
"""Innermost frames that are read: deeper stacks are recursions, which repeat themselves."""
_INNERMOST: Final = 2
"""Frames of which packed arguments are read too: further out they are lists of bystanders."""
_ITEMS_MAX: Final = 8
"""Most arguments that are packed so."""
_OURS: Final = "gpusched"


class What(StrEnum):
    """Kinds of objects that can be set aside, each without the others."""

    GANG = "gang"
    MOVE = "move"
    QUEUE = "queue"
    NODE = "node"
    TOPOLOGY = "topology"
    BUDGET = "disruption budget"
    POD = "pod"
    """A pod that sits on a node and is in no gang of the snapshot."""


class Suspect(NamedTuple):
    """One object of a snapshot. Of a record of a move ``key`` is its gang's."""

    what: What
    key: GangKey

    def __str__(self) -> str:
        kind = "" if self.what is not What.GANG or self.key.kind == "Pod" else f"{self.key.kind} "
        name = f"{self.key}" if self.key.namespace else self.key.name
        return f"{self.what} {kind}{name}"


def of_gang(key: GangKey) -> Suspect:
    """A gang, with all that is told of it."""
    return Suspect(What.GANG, key)


def of_queue(name: str) -> Suspect:
    """A queue, with all below it."""
    return Suspect(What.QUEUE, GangKey("Queue", "", name))


def of_node(name: str) -> Suspect:
    """A node, with what it offers."""
    return Suspect(What.NODE, GangKey("Node", "", name))


def of_topology(name: str) -> Suspect:
    """A Topology, with all its levels."""
    return Suspect(What.TOPOLOGY, GangKey("Topology", "", name))


def of_budget(budget: DisruptionBudget) -> Suspect:
    """A PodDisruptionBudget."""
    key = GangKey("PodDisruptionBudget", budget.namespace, budget.name)
    return Suspect(What.BUDGET, key)


def of_pod(pod: Pod) -> Suspect:
    """A pod that is not a member of any gang here."""
    return Suspect(What.POD, GangKey("Pod", pod.namespace, pod.name))


@attrs.frozen(kw_only=True)
class Fault:
    """What was raised, told without its stack, which would keep a session in memory.

    Attributes:
        kind: name of the exception's class.
        says: its text, one line, cut.
        stage: of the session: an action's name, ``open``, or a part of the plan.
        place: file and line of our code where it came from.
        suspects: what was in hand, what the innermost frames held first.
        story: the stack as text.
        loud: whether our own bookkeeping contradicted itself.
    """

    kind: str
    says: str
    stage: str
    place: str
    suspects: tuple[Suspect, ...]
    story: str
    loud: bool = False

    @property
    def signature(self) -> tuple[str, str, str]:
        """Faults that have the same are taken for the same defect."""
        return (self.kind, self.stage, self.place)

    @property
    def sentence(self) -> str:
        """Class and text of the exception."""
        return f"{self.kind}: {self.says}" if self.says else self.kind


class Index:
    """Finds the objects of one snapshot by what frames hold."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._gangs = {gang.key for gang in snapshot.gangs} | snapshot.active.keys()
        self._gangs |= {key for key, _ in snapshot.moves}
        self._moves = {id(move): key for key, move in snapshot.moves}
        self._queues = snapshot.queues.queues
        self._nodes = snapshot.nodes.row
        self._topologies = {each.name for each in snapshot.topologies}
        self._members: dict[UID, GangKey] | None = None
        self._snapshot = snapshot

    def suspects(self, error: BaseException) -> tuple[Suspect, ...]:
        """What was in hand; the innermost frame's first, gangs before what they are asked about."""
        found: dict[Suspect, None] = {}
        for depth, frame in enumerate(_frames(error)):
            values = _values(frame, arguments=depth < _INNERMOST)
            found.update(dict.fromkeys(self.among(values)))
        return tuple(found)

    def among(self, values: Iterable[object]) -> tuple[Suspect, ...]:
        """The objects that some values are, or are about."""
        here: dict[Suspect, None] = {}
        for value in values:
            # What broke may break again when it is looked at.
            with suppress(Exception):
                here.update(dict.fromkeys(self._of(value)))
        return tuple(sorted(here, key=lambda each: _RANK[each.what]))

    def _of(self, value: object) -> Iterator[Suspect]:
        if isinstance(value, str):
            yield from self._named(value)
        elif isinstance(value, Gang | GangKey):
            yield from self._gang(value if isinstance(value, GangKey) else value.key)
        elif isinstance(value, Pod | Placed):
            yield from self._pod(value if isinstance(value, Pod) else value.pod)
        elif isinstance(value, Task):
            yield from self._pod(value.pods[0]) if value.pods else ()
        elif isinstance(value, Move):
            if id(value) in self._moves:
                yield Suspect(What.MOVE, self._moves[id(value)])
        elif isinstance(value, QueueNode | Queue | Node | Topology | DisruptionBudget):
            yield _plain(value)
        else:
            # Drafts, seats, variants and the like are about one gang or one pod.
            for name in ("gang", "pod"):
                inner = _field(value, name)
                if isinstance(inner, Gang | GangKey | Pod):
                    yield from self._of(inner)

    def _named(self, name: str) -> Iterator[Suspect]:
        if name in self._queues:
            yield of_queue(name)
        if name in self._nodes:
            yield of_node(name)

    def _gang(self, key: GangKey) -> Iterator[Suspect]:
        if key in self._gangs:
            yield of_gang(key)

    def _pod(self, pod: Pod) -> Iterator[Suspect]:
        if self._members is None:
            gangs = {**{g.key: g for g in self._snapshot.gangs}, **self._snapshot.active}
            self._members = {
                member.uid: gang.key for gang in gangs.values() for member in members_of(gang)
            }
        key = self._members.get(pod.uid)
        if key is None and key_of(pod) in self._gangs:
            key = key_of(pod)
        yield of_gang(key) if key is not None else of_pod(pod)


def members_of(gang: Gang) -> Iterator[Pod]:
    """Its pods that wait, and those that have a place."""
    for task in gang.tasks:
        yield from task.pods
    for member in (*gang.placed, *gang.leaving_placed):
        yield member.pod


def _plain(value: QueueNode | Queue | Node | Topology | DisruptionBudget) -> Suspect:
    if isinstance(value, QueueNode):
        return of_queue(value.queue.name)
    if isinstance(value, Queue):
        return of_queue(value.name)
    if isinstance(value, Node):
        return of_node(value.name)
    return of_topology(value.name) if isinstance(value, Topology) else of_budget(value)


_RANK: Final = {
    What.GANG: 0,
    What.MOVE: 1,
    What.POD: 2,
    What.BUDGET: 3,
    What.NODE: 4,
    What.TOPOLOGY: 5,
    What.QUEUE: 6,
}


def _field(value: object, name: str) -> object:
    """A field of a value of ours; nothing is called that might raise again."""
    if not type(value).__module__.startswith(_OURS):
        return None
    with suppress(AttributeError):
        return cast("object", object.__getattribute__(value, name))
    return None


def _frames(error: BaseException) -> list[FrameType]:
    """Innermost first; those of what it was raised from come before its own."""
    frames: list[FrameType] = []
    cause = error.__cause__
    if cause is not None and cause is not error:
        frames += _of_stack(cause.__traceback__)
    return (frames + _of_stack(error.__traceback__))[:_FRAMES_MAX]


def _of_stack(stack: TracebackType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while stack is not None:
        frames.append(stack.tb_frame)
        stack = stack.tb_next
    return frames[::-1]


def _values(frame: FrameType, *, arguments: bool) -> Iterator[Any]:
    for value in list(frame.f_locals.values()):
        yield value
        if arguments and isinstance(value, tuple | Mapping) and len(value) <= _ITEMS_MAX:
            yield from list(value.values()) if isinstance(value, Mapping) else value


def place_of(error: BaseException) -> str:
    """File and line of our code where it was raised; the innermost line where none is ours."""
    innermost = ours = ""
    stack = error.__traceback__
    while stack is not None:
        code = stack.tb_frame.f_code
        innermost = f"{code.co_filename.rpartition('/')[2]}:{stack.tb_lineno}"
        module = str(stack.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(("gpusched.", "gpusched_plugins")):
            ours = f"{module}:{stack.tb_lineno}"
        stack = stack.tb_next
    return ours or innermost
