"""I19: nothing was started on nodes that an open window of a Reservation keeps for others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpusched.api.meta.identity import InvalidObject, format_time, parse_time
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.policy.reservation_decode import RESERVATIONS
from gpusched.base.errors import UndecodableObject
from gpusched.testing.invariants.model import (
    GROUP_LABEL,
    Finding,
    Obj,
    bound_node,
    holds_room,
    is_ours,
    label_value,
    object_name,
    scheduled_at,
)
from gpusched.testing.invariants.queues import queue_and_ancestors, queue_of

_ON_ITS_WAY_S: Final = 60.0
"""Seconds after a window opened, or its Reservation was made, in which a binding may have been on its way."""


def reservation_findings(
    pods: Sequence[Obj],
    reservations: Sequence[Obj],
    *,
    nodes: Sequence[Obj],
    queues: Sequence[Obj],
    groups: Sequence[Obj],
    jobs: Sequence[Obj],
    namespaces: Sequence[Obj],
    now: float,
) -> Iterator[Finding]:
    """I19 of the windows that are open now; what was there before one opened may stay.

    Args:
        pods: bound ones are looked at, if we bound them.
        reservations: those that cannot be read keep nothing.
        nodes: whose labels Reservations may name.
        queues: for whose gangs windows may be.
        groups: PodGroups, for the queues of pods.
        jobs: the same.
        namespaces: the same.
        now: seconds since the epoch.
    """
    tree = {str(each["metadata"]["name"]): each for each in queues}
    by_name = {object_name(each): each for each in groups}
    owners = {object_name(each): each for each in jobs}
    homes = {object_name(each): each for each in namespaces}
    labels = {object_name(each): each["metadata"].get("labels") or {} for each in nodes}
    mine = [pod for pod in pods if is_ours(pod) and holds_room(pod)]
    for item in reservations:
        read = _read(item)
        window = read.current_window(now) if read is not None else None
        if read is None or window is None or not window.is_active_at(now):
            continue
        since = max(window.begins, _made_at(item)) + _ON_ITS_WAY_S
        told: dict[tuple[str, str], Obj] = {}
        for pod in mine:
            if scheduled_at(pod) < since or not _keeps(read, bound_node(pod), labels):
                continue
            queue = queue_of(pod, by_name, owners, homes)
            if pod["metadata"].get("namespace", "") in read.namespaces or not set(
                read.queues
            ).isdisjoint((queue, *queue_and_ancestors(queue, tree))):
                continue
            told.setdefault(_gang(pod), pod)
        for (kind, name), pod in sorted(told.items()):
            yield Finding(
                invariant="I19",
                kind=kind,
                name=name,
                sentence=f"pod {object_name(pod)} was bound to node {bound_node(pod)} at "
                f"{format_time(int(scheduled_at(pod)))}, which Reservation {read.name} keeps for "
                f"others from {format_time(window.begins)} to {format_time(window.ends)}",
            )


def _gang(pod: Obj) -> tuple[str, str]:
    """Kind and name of what is told of: its PodGroup, or the pod alone."""
    group = label_value(pod, GROUP_LABEL)
    if group:
        return "PodGroup", f"{pod['metadata'].get('namespace', '')}/{group}"
    return "Pod", object_name(pod)


def _keeps(
    reservation: AdvanceReservation, node: str, labels: Mapping[str, Mapping[str, str]]
) -> bool:
    """Whether a node is one of those that it keeps; where it chooses, its status says which."""
    if reservation.node_count or reservation.resources.items:
        return node in reservation.chosen
    return node in labels and reservation.may_keep(node, labels[node])


def _read(item: Obj) -> AdvanceReservation | None:
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [item]}).encode()
    try:
        (read,) = RESERVATIONS.decode_page(body).items
    except UndecodableObject:
        return None
    return read if isinstance(read, AdvanceReservation) else None


def _made_at(item: Obj) -> float:
    """When it was made, seconds since the epoch; 0 where it is not said."""
    try:
        return parse_time(str(item["metadata"].get("creationTimestamp") or ""))
    except InvalidObject:
        return 0.0
