"""Objects that a session was looking at when something raised, read from the exception's stack.

Nothing is marked while all goes well, so that the good way costs nothing. The frames of a stack
say what functions were called with: gangs, queues, nodes and whatever else a snapshot holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, cast

from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.node.node import Node
from gpusched.api.pod.gang_membership import gang_key_of
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import DisruptionBudget, Topology
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, Placed, PodSet
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.proposal import Proposal

_FRAMES_MAX: Final = 64
"""Innermost frames that are read: deeper stacks are recursions, which repeat themselves."""
_INNERMOST: Final = 2
"""Frames of which packed arguments are read too: further out they are lists of bystanders."""
_ITEMS_MAX: Final = 8
"""Most arguments that are packed so."""
_OWN_PACKAGE: Final = "gpusched"


class SuspectKind(StrEnum):
    """Kinds of objects that can be set aside, each without the others."""

    GANG = "gang"
    MOVE = "move"
    QUEUE = "queue"
    NODE = "node"
    TOPOLOGY = "topology"
    RESERVATION = "reservation"
    BUDGET = "disruption budget"
    POD = "pod"
    """A pod on a node that is in no gang of the snapshot."""


class Suspect(NamedTuple):
    """One object of a snapshot. Of a record of a move ``key`` is its gang's."""

    what: SuspectKind
    key: GangKey

    def __str__(self) -> str:
        kind = (
            ""
            if self.what is not SuspectKind.GANG or self.key.kind == "Pod"
            else f"{self.key.kind} "
        )
        name = f"{self.key}" if self.key.namespace else self.key.name
        return f"{self.what} {kind}{name}"


def gang_suspect(key: GangKey) -> Suspect:
    """A gang, with all that belongs to it."""
    return Suspect(SuspectKind.GANG, key)


def queue_suspect(name: str) -> Suspect:
    """A queue, with all below it."""
    return Suspect(SuspectKind.QUEUE, GangKey("Queue", "", name))


def node_suspect(name: str) -> Suspect:
    """A node, with what it offers."""
    return Suspect(SuspectKind.NODE, GangKey("Node", "", name))


def topology_suspect(name: str) -> Suspect:
    """A Topology, with all its levels."""
    return Suspect(SuspectKind.TOPOLOGY, GangKey("Topology", "", name))


def reservation_suspect(name: str) -> Suspect:
    """A Reservation, with all its windows."""
    return Suspect(SuspectKind.RESERVATION, GangKey("Reservation", "", name))


def budget_suspect(budget: DisruptionBudget) -> Suspect:
    """A PodDisruptionBudget as a suspect."""
    key = GangKey("PodDisruptionBudget", budget.namespace, budget.name)
    return Suspect(SuspectKind.BUDGET, key)


def pod_suspect(pod: Pod) -> Suspect:
    """A pod that is not a member of any gang here."""
    return Suspect(SuspectKind.POD, GangKey("Pod", pod.namespace, pod.name))


@frozen(kw_only=True)
class SessionFault:
    """What was raised, without its stack, which would hold a session in memory.

    Attributes:
        kind: name of the exception's class.
        says: its text, one line, cut.
        stage: of the session: an action's name, ``open``, or a part of the plan.
        place: file and line of our code where it came from.
        suspects: objects in its frames, the innermost frame's first.
        story: the stack as text.
        loud: whether an invariant of the scheduler was broken.
        hook: of a policy that raised it, empty for other code.
        asked: objects that the hook was called with.
    """

    kind: str
    says: str
    stage: str
    place: str
    suspects: tuple[Suspect, ...]
    story: str
    loud: bool = False
    hook: str = ""
    asked: tuple[Suspect, ...] = ()

    @property
    def signature(self) -> tuple[str, str, str]:
        """Faults that have the same are taken for the same defect."""
        return (self.kind, self.stage, self.place)

    @property
    def message(self) -> str:
        """Class and text of the exception."""
        return f"{self.kind}: {self.says}" if self.says else self.kind


class SuspectIndex:
    """Finds the objects of one snapshot by what frames hold."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._gangs = {gang.key for gang in snapshot.gangs} | snapshot.placed_gangs.keys()
        self._gangs |= {key for key, _ in snapshot.move_records}
        self._moves = {id(move): key for key, move in snapshot.move_records}
        self._queues = snapshot.queues.queues
        self._nodes = snapshot.nodes.row
        self._topologies = {each.name for each in snapshot.topologies}
        self._members: dict[UID, GangKey] | None = None
        self._snapshot = snapshot

    def suspects_in_error(self, error: BaseException) -> tuple[Suspect, ...]:
        """Objects in the frames of an exception; the innermost frame's first, gangs before others."""
        found: dict[Suspect, None] = {}
        for depth, frame in enumerate(_frames(error)):
            values = _frame_values(frame, arguments=depth < _INNERMOST)
            found.update(dict.fromkeys(self.suspects_among(values)))
        return tuple(found)

    def suspects_among(self, values: Iterable[object]) -> tuple[Suspect, ...]:
        """The objects that some values are, or are about."""
        here: dict[Suspect, None] = {}
        for value in values:
            # What broke may break again when it is looked at.
            with suppress(Exception):
                here.update(dict.fromkeys(self._suspects_in_value(value)))
        return tuple(sorted(here, key=lambda each: _SUSPECT_RANK[each.what]))

    def _suspects_in_value(self, value: object) -> Iterator[Suspect]:
        if isinstance(value, str):
            yield from self._suspects_named(value)
        elif isinstance(value, Gang | GangKey):
            yield from self._gang(value if isinstance(value, GangKey) else value.key)
        elif isinstance(value, Pod | Placed):
            yield from self._pod(value if isinstance(value, Pod) else value.pod)
        elif isinstance(value, PodSet):
            yield from self._pod(value.pods[0]) if value.pods else ()
        elif isinstance(value, MoveRecord):
            if id(value) in self._moves:
                yield Suspect(SuspectKind.MOVE, self._moves[id(value)])
        elif isinstance(
            value, QueueNode | Queue | Node | Topology | AdvanceReservation | DisruptionBudget
        ):
            yield _object_suspect(value)
        elif isinstance(value, Proposal):
            for gang in (value.claimant, *(chunk.victim for chunk in value.chunks)):
                yield from self._gang(gang.key)
        else:
            # Drafts, infos, variants and the like are about one gang or one pod.
            for name in ("gang", "pod"):
                inner = _field(value, name)
                if isinstance(inner, Gang | GangKey | Pod):
                    yield from self._suspects_in_value(inner)

    def _suspects_named(self, name: str) -> Iterator[Suspect]:
        if name in self._queues:
            yield queue_suspect(name)
        if name in self._nodes:
            yield node_suspect(name)

    def _gang(self, key: GangKey) -> Iterator[Suspect]:
        if key in self._gangs:
            yield gang_suspect(key)

    def _pod(self, pod: Pod) -> Iterator[Suspect]:
        if self._members is None:
            gangs = {**{g.key: g for g in self._snapshot.gangs}, **self._snapshot.placed_gangs}
            self._members = {
                member.uid: gang.key for gang in gangs.values() for member in pods_of_gang(gang)
            }
        key = self._members.get(pod.uid)
        if key is None and gang_key_of(pod) in self._gangs:
            key = gang_key_of(pod)
        yield gang_suspect(key) if key is not None else pod_suspect(pod)


def pods_of_gang(gang: Gang) -> Iterator[Pod]:
    """Pods of a gang that wait or have a place."""
    for pod_set in gang.pod_sets:
        yield from pod_set.pods
    for member in (*gang.placed, *gang.leaving_placed):
        yield member.pod


def _object_suspect(
    value: QueueNode | Queue | Node | Topology | AdvanceReservation | DisruptionBudget,
) -> Suspect:
    if isinstance(value, QueueNode):
        return queue_suspect(value.queue.name)
    if isinstance(value, Queue):
        return queue_suspect(value.name)
    if isinstance(value, Node):
        return node_suspect(value.name)
    if isinstance(value, AdvanceReservation):
        return reservation_suspect(value.name)
    return topology_suspect(value.name) if isinstance(value, Topology) else budget_suspect(value)


_SUSPECT_RANK: Final = {
    SuspectKind.GANG: 0,
    SuspectKind.MOVE: 1,
    SuspectKind.POD: 2,
    SuspectKind.BUDGET: 3,
    SuspectKind.NODE: 4,
    SuspectKind.TOPOLOGY: 5,
    SuspectKind.RESERVATION: 6,
    SuspectKind.QUEUE: 7,
}


def _field(value: object, name: str) -> object:
    """A field of a value of ours; nothing is called that might raise again."""
    if not type(value).__module__.startswith(_OWN_PACKAGE):
        return None
    with suppress(AttributeError):
        return cast("object", object.__getattribute__(value, name))
    return None


def _frames(error: BaseException) -> list[FrameType]:
    """Frames of an exception, innermost first; frames of its cause come before its own."""
    frames: list[FrameType] = []
    cause = error.__cause__
    if cause is not None and cause is not error:
        frames += _frames_of_traceback(cause.__traceback__)
    return (frames + _frames_of_traceback(error.__traceback__))[:_FRAMES_MAX]


def _frames_of_traceback(stack: TracebackType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while stack is not None:
        frames.append(stack.tb_frame)
        stack = stack.tb_next
    return frames[::-1]


def _frame_values(frame: FrameType, *, arguments: bool) -> Iterator[Any]:
    for value in list(frame.f_locals.values()):
        yield value
        if arguments and isinstance(value, tuple | Mapping) and len(value) <= _ITEMS_MAX:
            yield from list(value.values()) if isinstance(value, Mapping) else value


def source_location(error: BaseException) -> str:
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
