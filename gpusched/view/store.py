"""The view as the process that serves it keeps it: whole, by key, with what changed of late.

A revision is the number of a moment. Changes since a revision are told from a record of bounded
length; who asks for older ones reads everything again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from gpusched.base.classes import frozen
from gpusched.view.access import ViewAccess
from gpusched.view.frames import (
    DecisionMade,
    GangPut,
    NodePut,
    PartsGone,
    QueuePut,
    QueueTermsPut,
    ReservationsPut,
    TurnPut,
    ViewFrame,
    ViewHead,
    ViewMoment,
    ViewReset,
)
from gpusched.view.model import (
    WAITING,
    DecisionView,
    GangView,
    MemberView,
    NodeView,
    OrderView,
    QueueView,
)
from gpusched.view.order.waiting_line import WaitingLine, is_freeing_room
from gpusched.view.over_time.future import RoomView, SpanView

_MOMENTS_KEPT: Final = 512
_CHANGES_KEPT: Final = 50_000
DECISIONS_KEPT: Final = 1000
STORY_KEPT: Final = 50
"""Decisions about one gang that are kept while it is there."""


_NOTHING_GONE: Final = PartsGone()


@frozen(kw_only=True)
class ViewChanges:
    """What became another between two moments; ``whole`` means that everything did.

    Attributes:
        gangs, nodes, queues: keys of those that are new or another.
        gone: keys of gangs, nodes and queues that are there no more; of gangs with their namespace first.
        decisions: made meanwhile.
    """

    revision: int
    gangs: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    gone: PartsGone = _NOTHING_GONE
    decisions: tuple[DecisionView, ...] = ()
    whole: bool = False

    @property
    def size(self) -> int:
        """Number of keys in it."""
        lost = len(self.gone.gangs) + len(self.gone.nodes) + len(self.gone.queues)
        return len(self.gangs) + len(self.nodes) + len(self.queues) + len(self.decisions) + lost


class ViewStore:
    """Applies frames at each moment and answers questions about the last one.

    Attributes:
        head: about the daemon; None until it has said.
        revision: number of the last moment, 0 before the first.
        now: of that moment, seconds since the epoch.
    """

    def __init__(self) -> None:
        self.head: ViewHead | None = None
        self.revision = 0
        self.now = 0.0
        self.gangs: dict[str, GangView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.queues: dict[str, QueueView] = {}
        self.kept: tuple[SpanView, ...] = ()
        """Windows of Reservations."""
        self.decisions: deque[DecisionView] = deque(maxlen=DECISIONS_KEPT)
        self.line = WaitingLine()
        """The order of gangs that wait."""
        self._members: dict[str, tuple[MemberView, ...]] = {}
        self._rooms: dict[str, RoomView] = {}
        self._stories: dict[str, deque[DecisionView]] = {}
        self._pending: list[ViewFrame] = []
        self._record: deque[ViewChanges] = deque(maxlen=_MOMENTS_KEPT)
        self._recorded = 0
        self._gang_order: list[str] | None = None
        self._node_order: list[str] | None = None

    def take(self, frame: ViewFrame) -> ViewChanges | None:
        """Take a frame; what changed where it is a moment, else None."""
        if isinstance(frame, ViewHead):
            self.head = frame
            return None
        if not isinstance(frame, ViewMoment):
            self._pending.append(frame)
            return None
        self.now = frame.now
        if self.revision and not self._pending:
            return None
        self.revision += 1
        changes = self._apply(self._pending)
        self._pending = []
        self._keep(changes)
        return changes

    def _apply(self, frames: Iterable[ViewFrame]) -> ViewChanges:
        gangs: set[str] = set()
        nodes: set[str] = set()
        queues: set[str] = set()
        gone: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        decisions: list[DecisionView] = []
        whole = False
        for frame in frames:
            if isinstance(frame, GangPut):
                self._put_gang(frame)
                gangs.add(frame.view.key)
            elif isinstance(frame, NodePut):
                name = frame.view.metadata.name
                if name not in self.nodes:
                    self._node_order = None
                self.nodes[name] = frame.view
                nodes.add(name)
            elif isinstance(frame, QueuePut):
                self.queues[frame.view.metadata.name] = frame.view
                queues.add(frame.view.metadata.name)
            elif isinstance(frame, TurnPut | QueueTermsPut | ReservationsPut):
                self._put_beside_parts(frame)
            elif isinstance(frame, PartsGone):
                self._drop(frame, gone)
            elif isinstance(frame, DecisionMade):
                decisions.append(frame.view)
            elif isinstance(frame, ViewReset):
                self._forget()
                whole = True
        for decision in decisions:
            self._note(decision)
        return ViewChanges(
            revision=self.revision,
            gangs=frozenset(gangs & self.gangs.keys()),
            nodes=frozenset(nodes & self.nodes.keys()),
            queues=frozenset(queues & self.queues.keys()),
            gone=PartsGone(
                gangs=tuple(sorted(gone[0] - self.gangs.keys())),
                nodes=tuple(sorted(gone[1] - self.nodes.keys())),
                queues=tuple(sorted(gone[2] - self.queues.keys())),
            ),
            decisions=tuple(decisions),
            whole=whole,
        )

    def _put_beside_parts(self, frame: TurnPut | QueueTermsPut | ReservationsPut) -> None:
        """Take the order of gangs that wait, or the windows of Reservations: no changes are told of these."""
        if isinstance(frame, TurnPut):
            self.line.put(frame)
        elif isinstance(frame, QueueTermsPut):
            self.line.put_queue_terms(frame)
        else:
            self.kept = frame.spans

    def _put_gang(self, frame: GangPut) -> None:
        key = frame.view.key
        if key not in self.gangs:
            self._gang_order = None
        self.gangs[key] = frame.view
        self._members[key] = frame.members
        if frame.room is not None:
            self._rooms[key] = frame.room
        else:
            self._rooms.pop(key, None)

    def _drop(self, frame: PartsGone, gone: tuple[set[str], set[str], set[str]]) -> None:
        for key in frame.gangs:
            if self.gangs.pop(key, None) is not None:
                gone[0].add(key)
                self._gang_order = None
            self._members.pop(key, None)
            self._rooms.pop(key, None)
            self._stories.pop(key, None)
        self.line.drop((*frame.turns, *frame.gangs), frame.paths)
        for name in frame.nodes:
            if self.nodes.pop(name, None) is not None:
                gone[1].add(name)
                self._node_order = None
        for name in frame.queues:
            if self.queues.pop(name, None) is not None:
                gone[2].add(name)

    def _note(self, decision: DecisionView) -> None:
        self.decisions.append(decision)
        about = decision.gang
        key = f"{about.namespace}/{about.kind}/{about.name}"
        if key in self.gangs:
            self._stories.setdefault(key, deque(maxlen=STORY_KEPT)).append(decision)

    def _forget(self) -> None:
        self.gangs.clear()
        self.nodes.clear()
        self.queues.clear()
        self.kept = ()
        self.line = WaitingLine()
        self._members.clear()
        self._rooms.clear()
        self._stories.clear()
        self._gang_order = self._node_order = None

    def _keep(self, changes: ViewChanges) -> None:
        if len(self._record) == _MOMENTS_KEPT:
            self._recorded -= self._record[0].size
        self._record.append(changes)
        self._recorded += changes.size
        while self._recorded > _CHANGES_KEPT and self._record:
            self._recorded -= self._record.popleft().size

    # -- questions -------------------------------------------------------------------------
    def changes_since(self, revision: int) -> tuple[ViewChanges, ...] | None:
        """What changed after a revision, oldest first; None where that is not known any more."""
        if revision == self.revision:
            return ()
        if not self._record or not self._record[0].revision <= revision + 1 <= self.revision:
            return None
        found = tuple(each for each in self._record if each.revision > revision)
        return None if any(each.whole for each in found) else found

    def gang_page(
        self,
        access: ViewAccess,
        *,
        namespace: str = "",
        queue: str = "",
        state: str = "",
        after: str = "",
    ) -> Iterator[GangView]:
        """Gangs that a user may see, by key, those up to ``after`` left out."""
        order = self._gang_order
        if order is None:
            order = self._gang_order = sorted(self.gangs)
        for key in order[bisect_left(order, after + "\0") if after else 0 :]:
            gang = self.gangs[key]
            if (
                access.sees_gang(gang)
                and (not namespace or gang.metadata.namespace == namespace)
                and (not queue or gang.queue == queue)
                and (not state or gang.state == state)
            ):
                yield gang

    def count_evicted_again(self, access: ViewAccess, *, since: str) -> int:
        """Gangs that a user may see and that were evicted more than once since a time of the API."""
        return sum(
            sum(each.time >= since for each in gang.evictions) > 1 and access.sees_gang(gang)
            for gang in self.gangs.values()
            if gang.evictions
        )

    def waiting_gangs(
        self, access: ViewAccess, *, namespace: str = "", queue: str = ""
    ) -> list[GangView]:
        """Gangs that wait and that a user may see: those for which room is freed, then in the order of
        their turns, then those that are not in line.
        """
        waiting = {
            gang.key: gang
            for gang in self.gang_page(access, namespace=namespace, queue=queue, state=WAITING)
        }
        in_line = [key for key in self.line.keys(self.gangs) if key in waiting]
        others = sorted(waiting.keys() - set(in_line))
        first = [key for key in others if is_freeing_room(waiting[key])]
        last = [key for key in others if not is_freeing_room(waiting[key])]
        return [waiting[key] for key in (*first, *in_line, *last)]

    def order(self, gang: GangView, access: ViewAccess) -> OrderView | None:
        """Where a gang that waits is in the order of turns; None for one that does not wait."""
        return self.line.order(gang, self.gangs, access) if gang.state == WAITING else None

    def node_page(self, *, after: str = "") -> Iterator[NodeView]:
        """Nodes by name, those up to ``after`` left out."""
        order = self._node_order
        if order is None:
            order = self._node_order = sorted(self.nodes)
        for name in order[bisect_left(order, after + "\0") if after else 0 :]:
            yield self.nodes[name]

    def members(self, key: str) -> tuple[MemberView, ...]:
        """Pods of a gang."""
        return self._members.get(key, ())

    def room(self, key: str) -> RoomView | None:
        """Room that is kept for a gang; None for none."""
        return self._rooms.get(key)

    def story(self, key: str) -> tuple[DecisionView, ...]:
        """What was decided about a gang, oldest first."""
        return tuple(self._stories.get(key, ()))
