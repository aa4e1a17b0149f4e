"""Refusals that are kept from attempt to attempt, in a session and from one session to the next.

A gang of equal members is refused where the nodes have room for too few of them. What it is told then follows from
how many fit each node and from what full nodes lack, and from nothing else. So it is refused again, in the same
words, as long as both stay on every node: only nodes whose use changed since are looked at. Where they do not stay, but
nodes have room for too few all the same, it is refused in new words, without another attempt.

Kept is nothing that rests on more: members of several kinds, topologies, rules between pods, devices, shares of
GPUs, NUMA nodes, nodes that are spared or closed, filters that failed or that tell more than their reason. All of
it is forgotten when a node, a filter or the effort of searches is another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from itertools import compress, count
from operator import ne
from typing import Final

import numpy as np

from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import (
    Bools,
    Ints,
    NodeColumns,
    RequestVector,
    how_many_fit,
    rows_with_any,
)
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.equivalence_cache import equivalence_class_of
from gpusched.session.allocate.node_sets import ALL_NODES, Unschedulable
from gpusched.session.allocate.refusals.unschedulable import explain_shortage
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.equivalence import EquivalenceClass
from gpusched.session.state.nodes.class_info import PodClassInfo
from gpusched.session.state.session import Session

KEPT_NUMBERS_MAX: Final = 2**22
"""Nodes times refusals that are kept: sixteen megabytes."""
_MEMBERS_MAX: Final = 255
_RESOURCES_MAX: Final = 15
"""Both so that the state of a node is one number of 32 bits."""
_FEW_NODES: Final = 4
"""So many are looked at without arrays."""
_REFUSED: Final = -(2**31)
"""State of nodes that filters refuse: whatever is free there."""

ClassKey = tuple[EquivalenceClass, bool]
"""Equal gangs, and whether policies want them compact."""


@define(eq=False)
class _KeptRefusal:
    """What equal gangs were told, and what it rests on.

    Attributes:
        units: of work that the attempt was charged for.
        request: of one member.
        most: members of the gang.
        counted: whether it was told by counting alone that nodes have room for too few.
        gpus: that one member requests.
        states: of all nodes, int32, shape (nodes,); see ``_node_states``.
        seen: the moment at which the nodes had these, as ``KeptRefusals`` counts.
    """

    refusal: Unschedulable
    units: int
    request: RequestVector
    most: int
    counted: bool
    gpus: int
    states: Ints
    seen: int


class KeptRefusals:
    """Refusals by equivalence class, for one session after another under one configuration."""

    def __init__(self) -> None:
        self._by_class: OrderedDict[ClassKey, _KeptRefusal] = OrderedDict()
        self._rests_on: tuple[Hashable, ...] = ()
        self._nodes: NodeColumns | None = None
        self._moment = 0
        self._last_changed: Ints = np.zeros(0, dtype=np.int64)
        """The moment at which the use of each node may have changed last, shape (nodes,)."""
        self._touched: list[int] = []
        """Nodes that this session touched, in order; of the first of them it is known."""
        self._known_touched = 0

    def find(self, session: Session, gang: Gang) -> Unschedulable | None:
        """What gangs that are refused alike are told; None where nothing is kept of them.

        Where they are told something their tenant is charged for the attempt that is saved.
        """
        key = _class_key(session, gang) if self._by_class else None
        if key is None:
            return None
        self._follow(session)
        kept = self._by_class.get(key)
        if kept is None:
            return None
        if not self._holds(session, kept) and not self._is_told_anew(session, gang, kept):
            return None
        self._by_class.move_to_end(key)
        session.work_budget.spend_units(kept.units)
        return kept.refusal

    def tells(self, session: Session, gang: Gang) -> bool:
        """Whether anything is kept of gangs like this one, whether or not it still holds."""
        key = _class_key(session, gang) if self._by_class else None
        return key is not None and key in self._by_class

    def keep(self, session: Session, gang: Gang, refusal: Unschedulable, *, units: int) -> None:
        """Keep why a gang was refused just now, if that follows from the room on nodes.

        Args:
            session: in which it was.
            gang: that was refused.
            refusal: what it is told.
            units: of work that the attempt was charged for.
        """
        key = _class_key(session, gang)
        if key is None:
            return
        self._follow(session)
        pod_set = gang.pod_sets[0]
        if refusal.reason not in _ROOM or session.hooks.faults:
            return
        info = session.class_info(pod_set.pod_class)
        if info.class_fit.has_caps or _tells_more(session, info):
            return
        most, gpus = len(pod_set.pods), pod_set.pod_class.gpus
        left = session.cluster_map.pods_by_free_slots(gpus) if gpus else None
        fits = np.minimum(info.class_fit.fits, most)
        places = fits if left is None else np.minimum(fits, left)
        if int(places.sum()) >= gang.members_at_start:
            return  # something else was in the way
        self._note_touched()
        states = _node_states(session, info.request, most, gpus, None)
        states[~info.class_fit.allowed] = _REFUSED
        counted = (
            int(fits.sum()) < gang.members_at_start and _told_by_counting(session, gang) == refusal
        )
        self._by_class[key] = _KeptRefusal(
            refusal, units, info.request, most, counted, gpus, states, self._moment
        )
        self._by_class.move_to_end(key)
        if len(self._by_class) * len(states) > KEPT_NUMBERS_MAX:
            self._by_class.popitem(last=False)

    def _follow(self, session: Session) -> None:
        """Take in what changed since the session before, when this is another."""
        usage = session.node_usage
        if self._touched is usage.touched_rows:
            return
        before, nodes = self._nodes, usage.nodes
        rests_on = (
            nodes.epoch, session.effort, session.snapshot.gpu_resources,
            tuple((each.plugin, each.reason, each.reads) for each in session.hooks.filters),
        )  # fmt: skip
        if before is None or rests_on != self._rests_on or not _same_nodes(before, nodes):
            self._by_class.clear()
            self._last_changed = np.zeros(len(nodes), dtype=np.int64)
        else:
            # What the session before did may not have come about: then nodes are again what they were.
            self._moment += 1
            self._last_changed[self._touched] = self._moment
            self._last_changed[_rows_used_otherwise(before, nodes)] = self._moment
        self._nodes, self._rests_on = nodes, rests_on
        self._touched, self._known_touched = usage.touched_rows, 0

    def _note_touched(self) -> None:
        """Take in what this session touched since the last look."""
        if self._known_touched < len(self._touched):
            self._moment += 1
            self._last_changed[self._touched[self._known_touched :]] = self._moment
            self._known_touched = len(self._touched)

    def _holds(self, session: Session, kept: _KeptRefusal) -> bool:
        """Whether every node is to these gangs what it was."""
        self._note_touched()
        rows = np.flatnonzero((self._last_changed > kept.seen) & (kept.states != _REFUSED))
        if len(rows):
            states = _node_states(session, kept.request, kept.most, kept.gpus, rows)
            if not np.array_equal(states, kept.states[rows]):
                return False
        kept.seen = self._moment
        return True

    def _is_told_anew(self, session: Session, gang: Gang, kept: _KeptRefusal) -> bool:
        """Take in what nodes are now to gangs that still find room for too few; whether they do."""
        if not kept.counted:
            return False
        class_fit = session.class_info(gang.pod_sets[0].pod_class).class_fit
        if class_fit.count_fitting(most=kept.most) >= gang.members_at_start:
            return False
        refusal = _told_by_counting(session, gang)
        if refusal.reason not in _ROOM:
            return False
        rows = np.flatnonzero((self._last_changed > kept.seen) & (kept.states != _REFUSED))
        kept.states[rows] = _node_states(session, kept.request, kept.most, kept.gpus, rows)
        kept.refusal, kept.seen = refusal, self._moment
        return True


def rows_with_room(session: Session, gang: Gang) -> Bools | None:
    """Nodes that have room for a member, shape (nodes,), of a gang that is sure to find a place among them.

    None where that is not sure, as nodes may have room for too few, or room alone does not say it.
    """
    if gang.suspended or _class_key(session, gang) is None:
        return None
    pod_class, most = gang.pod_sets[0].pod_class, len(gang.pod_sets[0].pods)
    class_fit, gpus = session.class_info(pod_class).class_fit, pod_class.gpus
    if class_fit.has_caps:
        return None
    fits = np.minimum(class_fit.fits, most)
    left = session.cluster_map.pods_by_free_slots(gpus) if gpus else None
    if left is not None:
        fits = np.minimum(fits, left)
    return fits > 0 if int(fits.sum()) >= gang.members_at_start else None


def _told_by_counting(session: Session, gang: Gang) -> Unschedulable:
    """What a gang of equal members is told for which nodes have room for too few."""
    pod_set = gang.pod_sets[0]
    count = gang.members_at_start
    return explain_shortage(session, pod_set, count, ALL_NODES, pod=pod_set.pods[0])


_ROOM: Final = (Reason.INSUFFICIENT_RESOURCES, Reason.NO_FEASIBLE_NODE)


def _class_key(session: Session, gang: Gang) -> ClassKey | None:
    if not _is_plain(gang) or session.class_infos.is_confined or session.node_usage.later:
        return None
    if session.hooks.faults or session.cluster_map.spared_rows(gang) is not None:
        return None
    kind = equivalence_class_of(session, gang)
    if kind is None:
        return None
    compact = gang.members_at_start > 1 and session.hooks.topology.wants_compact(gang)
    if gang.members_at_start > 1 and not compact:
        return None  # one by one: where the first of them go is a matter of scores
    return kind.timeless, compact


def _is_plain(gang: Gang) -> bool:
    """Whether its members are alike and ask for amounts on single nodes alone."""
    if len(gang.pod_sets) != 1 or gang.placed:
        return False
    if gang.expected_count and not gang.suspended:
        return False  # pods are on their way
    wish, pod_set = gang.topology, gang.pod_sets[0]
    return (
        0 < gang.members_at_start <= len(pod_set.pods) <= _MEMBERS_MAX
        and not (wish.required or wish.preferred or gang.sub_groups or gang.parent_groups)
        and not gang.min_roles
        and _asks_for_amounts(pod_set.pod_class)
    )


def _asks_for_amounts(pod_class: PodClass) -> bool:
    return (
        not pod_class.unsupported
        and not pod_class.claims
        and pod_class.share is None
        and len(pod_class.requests.items) <= _RESOURCES_MAX
    )


def _tells_more(session: Session, info: PodClassInfo) -> bool:
    """Whether a filter that refuses some node says more about it than its reason."""
    filters, refused = session.class_infos.refusal_causes(info)
    return any(
        (each.detail is not None or each.failed) and rows.any()
        for each, rows in zip(filters, refused, strict=True)
    )


def _same_nodes(one: NodeColumns, other: NodeColumns) -> bool:
    return (
        (one.generation is other.generation or np.array_equal(one.generation, other.generation))
        and (
            one.allocatable is other.allocatable
            or np.array_equal(one.allocatable, other.allocatable)
        )
        and one.columns == other.columns
    )


def _rows_used_otherwise(one: NodeColumns, other: NodeColumns) -> list[int]:
    """Nodes of which other amounts or other slots are used."""
    rows: list[int] = []
    if one.used is not other.used:
        rows = rows_with_any(one.used != other.used).tolist()
    if one.free_slots is not other.free_slots:
        rows += compress(count(), map(ne, one.free_slots, other.free_slots))
    return rows


def _node_states(
    session: Session, request: RequestVector, most: int, gpus: int, rows: Ints | None
) -> Ints:
    """What nodes are to a class: how many of ``most`` members fit, or what is lacking; and what slots suffice for.

    Args:
        session: whose nodes they are.
        request: of one member.
        most: members that count.
        gpus: that one member requests.
        rows: of nodes that no filter refuses; None for all, of which those that are refused are to be marked.

    Returns:
        int32, shape (rows,).
    """
    chosen = None if rows is None else rows.tolist()
    if chosen is not None and len(chosen) <= _FEW_NODES:
        return _states_of_few(session, request, most, gpus, chosen)
    free = session.node_usage.free_amounts(
        slice(None) if chosen is None else chosen, request.columns
    )
    lacking = free < request.amounts
    bits = np.left_shift(1, np.arange(lacking.shape[1], dtype=np.int64))
    fits = np.minimum(how_many_fit(free, request.amounts), most)
    states = np.where(fits > 0, fits, -1 - lacking @ bits)
    left = session.cluster_map.pods_by_free_slots(gpus, chosen) if gpus else None
    if left is not None:
        states = states * (_MEMBERS_MAX + 1) + np.minimum(left, most)
    return states.astype(np.int32)


def _states_of_few(
    session: Session, request: RequestVector, most: int, gpus: int, rows: list[int]
) -> Ints:
    """The same of a few nodes, in plain ints: what changed since the session before is seldom more."""
    usage, asked = session.node_usage, request.amounts.tolist()
    left = session.cluster_map.pods_by_free_slots(gpus, rows) if gpus else None
    states: Ints = np.zeros(len(rows), dtype=np.int32)
    for place, row in enumerate(rows):
        free = usage.free_on(row, request.columns).tolist()
        state = min([most, *(have // ask for have, ask in zip(free, asked, strict=True))])
        if state <= 0:
            lacking = (have < ask for have, ask in zip(free, asked, strict=True))
            state = -1 - sum(1 << bit for bit, lacks in enumerate(lacking) if lacks)
        if left is not None:
            state = state * (_MEMBERS_MAX + 1) + min(int(left[place]), most)
        states[place] = state
    return states
