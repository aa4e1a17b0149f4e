"""What changed of the view since it was looked at last: one frame for each part that is another.

Gangs, queues and rows of nodes that did not change are the same objects in each snapshot and
plan, so that looking costs a comparison by identity each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from gpusched.api.devices.gpu_types import gpu_type_of
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import GangKey, Rejected
from gpusched.arrays.columns import NodeColumns
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cache.nodes.pods_by_node import NodePods
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.plugin import Plugin
from gpusched.session.state.order.waiting_turns import NO_ORDER, WaitingOrder
from gpusched.session.state.plan import GangStatus, Plan, QueueStatus
from gpusched.session.status.reserved.reserved_rooms import ReservedRoom
from gpusched.topology.levels import TopologyLevel
from gpusched.view.frames import (
    GangPut,
    NodePut,
    PartsGone,
    QueuePut,
    ReservationsPut,
    ViewFrame,
    ViewMoment,
)
from gpusched.view.gang_views import (
    NOTHING_TOLD,
    awaits_pods,
    gang_view,
    member_views,
    room_view,
    told_by_status,
    unreadable_pod_view,
)
from gpusched.view.model import GangView, NodeView
from gpusched.view.node_views import node_view
from gpusched.view.order.order_follower import OrderFollower
from gpusched.view.order.order_terms import name_of_gang
from gpusched.view.over_time.future import SpanView
from gpusched.view.over_time.reservation_spans import reservation_spans
from gpusched.view.queue_views import queue_view


@frozen(kw_only=True)
class SeenSession:
    """What one session saw and said.

    Attributes:
        levels: of the topology, widest first.
        unreadable: pods of ours that cannot be believed and wait.
        order: turns of the gangs that wait.
        reserved: room that is kept for some of them.
        plugins: of the policy in force, which say what their keys mean.
        podless: Jobs that wait for their pods, and None now and then; read with the changes.
        is_there: whether a gang has members that are not done; asked while the changes are read.
    """

    snapshot: Snapshot
    plan: Plan
    levels: Sequence[TopologyLevel] = ()
    unreadable: Sequence[Rejected] = ()
    order: WaitingOrder = NO_ORDER
    reserved: Sequence[ReservedRoom] = ()
    plugins: Sequence[Plugin] = ()
    podless: Callable[[], Iterable[GangView | None]] = tuple
    is_there: Callable[[GangKey], bool] = lambda _: True


class ViewFollower:
    """Remembers what it showed; ``changes`` tells what is another now."""

    def __init__(self) -> None:
        self._gangs: dict[GangKey, tuple[Gang, GangStatus | None]] = {}
        self._rooms: dict[GangKey, ReservedRoom] = {}
        self._others: dict[GangKey, GangView] = {}
        self._queues: dict[str, QueueStatus] = {}
        self._nodes: dict[str, NodeView] = {}
        self._columns: NodeColumns | None = None
        self._pods: NodePods | None = None
        self._levels: Sequence[TopologyLevel] = ()
        self._kept: tuple[SpanView, ...] = ()
        self._residents: dict[str, dict[GangKey, tuple[tuple[Gang, Placed], ...]]] = {}
        self.order = OrderFollower()
        """Of the gangs that wait."""

    def changes(self, seen: SeenSession) -> Iterator[ViewFrame | None]:
        """Frames that make what was shown before what is seen now.

        Yields None now and then where there is nothing to tell yet, so that whoever reads can
        do something else in between.
        """
        changed_nodes: set[str] = set()
        for number, frame in enumerate(self._gang_changes(seen, changed_nodes)):
            if frame is not None or number % 64 == 0:
                yield frame
        yield from self._other_changes(seen)
        yield from self._node_changes(seen, changed_nodes)
        yield from self._queue_changes(seen)
        yield from self._reservation_changes(seen)
        yield from self.order.changes(seen.order, seen.plugins, self._gangs)
        yield ViewMoment(now=seen.snapshot.now)

    # -- gangs -----------------------------------------------------------------------------
    def _gang_changes(
        self, seen: SeenSession, changed_nodes: set[str]
    ) -> Iterator[ViewFrame | None]:
        snapshot = seen.snapshot
        told = {status.gang: status for status in seen.plan.gangs}
        rooms = {room.gang: room for room in seen.reserved}
        present = {gang.key: gang for gang in snapshot.gangs if gang.active or gang.lacks_pods}
        shown = {gang.key for gang in snapshot.gangs}
        present.update(snapshot.placed_gangs)
        types = _gpu_types(snapshot.nodes)
        for key in sorted(present):
            gang = present[key]
            known = self._gangs.get(key)
            before = known[1] if known is not None and not awaits_pods(gang) else None
            status = told.get(key, before)
            room = rooms.get(key)
            if (
                known is not None
                and known[0] is gang
                and known[1] is status
                and self._rooms.get(key) == room
            ):
                yield None
                continue
            self._gangs[key] = (gang, status)
            self._move_residents(known[0] if known is not None else None, gang, changed_nodes)
            what = told_by_status(status) if status is not None else NOTHING_TOLD
            view = gang_view(gang, what, gpu_type_of_node=types)
            yield GangPut(view=view, members=member_views(gang), room=room_view(room))
        self._rooms = rooms
        gone = [
            key
            for key in sorted(self._gangs.keys() - present.keys())
            if key in shown or not seen.is_there(key)
        ]
        for key in gone:
            self._move_residents(self._gangs.pop(key)[0], None, changed_nodes)
        if gone:
            yield PartsGone(gangs=tuple(name_of_gang(key) for key in gone))

    def _move_residents(self, before: Gang | None, now: Gang | None, changed: set[str]) -> None:
        """Note on which nodes a gang's members are, and which nodes that concerns."""
        if before is not None:
            for node in {member.node for member in before.placed}:
                self._residents.get(node, {}).pop(before.key, None)
                changed.add(node)
        if now is None:
            return
        by_node: dict[str, list[tuple[Gang, Placed]]] = {}
        for member in now.placed:
            by_node.setdefault(member.node, []).append((now, member))
        for node, members in by_node.items():
            self._residents.setdefault(node, {})[now.key] = tuple(members)
            changed.add(node)

    def _other_changes(self, seen: SeenSession) -> Iterator[ViewFrame | None]:
        """Pods that cannot be believed, and what else waits and is no gang."""
        found = {GangKey("Pod", *each.key): unreadable_pod_view(each) for each in seen.unreadable}
        for view in seen.podless():
            if view is None:
                yield None
                continue
            found[GangKey(view.gang_kind, view.metadata.namespace, view.metadata.name)] = view
        for key in sorted(found):
            if self._others.get(key) != found[key] and key not in self._gangs:
                yield GangPut(view=found[key], members=())
        gone = sorted(self._others.keys() - found.keys() - self._gangs.keys())
        self._others = {key: view for key, view in found.items() if key not in self._gangs}
        if gone:
            yield PartsGone(gangs=tuple(name_of_gang(key) for key in gone))

    # -- nodes -----------------------------------------------------------------------------
    def _node_changes(self, seen: SeenSession, changed: set[str]) -> Iterator[ViewFrame | None]:
        nodes, pods = seen.snapshot.nodes, seen.snapshot.pods_by_node
        rows = self._changed_rows(nodes, pods, seen.levels)
        rows |= {nodes.row[name] for name in changed if name in nodes.row}
        self._columns, self._pods, self._levels = nodes, pods, seen.levels
        for row in sorted(rows):
            name = nodes.nodes[row].name
            residents = self._residents.get(name, {})
            view = node_view(
                nodes,
                row,
                pods=len(pods.pods[row]) if row < len(pods.pods) else 0,
                residents=[each for key in sorted(residents) for each in residents[key]],
                levels=seen.levels,
            )
            if self._nodes.get(name) == view:
                yield None
                continue
            self._nodes[name] = view
            yield NodePut(view=view)
        gone = sorted(self._nodes.keys() - nodes.row.keys())
        for name in gone:
            del self._nodes[name]
            self._residents.pop(name, None)
        if gone:
            yield PartsGone(nodes=tuple(gone))

    def _changed_rows(
        self, nodes: NodeColumns, pods: NodePods, levels: Sequence[TopologyLevel]
    ) -> set[int]:
        before, pods_before = self._columns, self._pods
        if (
            before is None
            or pods_before is None
            or before.epoch != nodes.epoch
            or before.used.shape != nodes.used.shape
            or pods_before.generation.shape != pods.generation.shape
            or not _same_levels(levels, self._levels)
        ):
            return set(range(len(nodes)))
        if before is nodes and pods_before is pods:
            return set()
        another = (before.generation != nodes.generation) | (
            pods_before.generation != pods.generation
        )
        another |= (before.used != nodes.used).any(axis=1)
        rows = set(np.flatnonzero(another).tolist())
        if before.free_slots is not nodes.free_slots:
            pairs = enumerate(zip(before.free_slots, nodes.free_slots, strict=True))
            rows |= {row for row, (one, other) in pairs if one != other}
        if before.shared is not nodes.shared:
            both = before.shared.keys() | nodes.shared.keys()
            rows |= {row for row in both if before.shared.get(row) != nodes.shared.get(row)}
        return rows

    # -- queues ----------------------------------------------------------------------------
    def _queue_changes(self, seen: SeenSession) -> Iterator[ViewFrame]:
        told = {status.name: status for status in seen.plan.queues}
        tree = seen.snapshot.queues
        for name in sorted(told):
            if self._queues.get(name) != told[name]:
                self._queues[name] = told[name]
                yield QueuePut(view=queue_view(told[name], tree))
        gone = sorted(name for name in self._queues if tree.get(name) is None and name not in told)
        for name in gone:
            del self._queues[name]
        if gone:
            yield PartsGone(queues=tuple(gone))

    def _reservation_changes(self, seen: SeenSession) -> Iterator[ViewFrame]:
        snapshot = seen.snapshot
        kept = reservation_spans(snapshot.reservations, seen.plan.reservations, snapshot.now)
        if kept != self._kept:
            self._kept = kept
            yield ReservationsPut(spans=kept)


def _gpu_types(nodes: NodeColumns) -> Callable[[str], str]:
    """The product of a node's GPUs by its name, looked up once a node."""
    found: dict[str, str] = {}
    rows: Mapping[str, int] = nodes.row

    def product(name: str) -> str:
        if name not in found:
            row = rows.get(name)
            node = nodes.nodes[row] if row is not None else None
            found[name] = "" if node is None else gpu_type_of(node.labels, gpu_resources())
        return found[name]

    return product


def _same_levels(one: Sequence[TopologyLevel], other: Sequence[TopologyLevel]) -> bool:
    if one is other:
        return True
    return len(one) == len(other) and all(
        (a.name, a.names) == (b.name, b.names) and np.array_equal(a.domain, b.domain)
        for a, b in zip(one, other, strict=True)
    )
