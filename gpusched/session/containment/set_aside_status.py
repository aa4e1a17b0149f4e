"""Statuses of objects that are set aside: made of plain fields, as little may raise here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.resources import NOTHING
from gpusched.api.pod.pod import Pod
from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.set_aside import Degraded, SetAside
from gpusched.session.containment.suspects import SuspectKind
from gpusched.session.framework.reasons import Reason, pods_text, truncate_message
from gpusched.session.state.plan import (
    GangStatus,
    PendingReason,
    QueueStatus,
    ReservationStatus,
    TopologyStatus,
)


def set_aside_gang_statuses(
    snapshot: Snapshot, aside: Sequence[SetAside]
) -> tuple[GangStatus, ...]:
    """The status of each gang that is left out itself, or with its queue."""
    gangs = {each.suspect.key: each for each in aside if each.suspect.what is SuspectKind.GANG}
    queues = {
        each.suspect.key.name: each for each in aside if each.suspect.what is SuspectKind.QUEUE
    }
    if not gangs and not queues:
        return ()
    return tuple(_gang_statuses_set_aside(snapshot, gangs, queues))


def undecided_gang_statuses(
    snapshot: Snapshot, degraded: Degraded, known: AbstractSet[GangKey]
) -> tuple[GangStatus, ...]:
    """Statuses of gangs that wait where nothing can be decided, without the known ones."""
    found = []
    message = f"nothing can be decided: {degraded.message}"
    for gang in snapshot.gangs:
        if gang.pod_sets and gang.key not in known:
            with suppress(Exception):
                found.append(error_gang_status(gang, message))
    return tuple(found)


def _gang_statuses_set_aside(
    snapshot: Snapshot, gangs: dict[GangKey, SetAside], queues: dict[str, SetAside]
) -> Iterator[GangStatus]:
    for gang in snapshot.gangs:
        entry = gangs.get(gang.key)
        if entry is None and queues:
            node = snapshot.queues.get(gang.queue)
            path = node.path if node is not None else (gang.queue,)
            entry = next((queues[name] for name in path if name in queues), None)
        if entry is not None and (gang.placed or gang.pod_sets or gang.gated or gang.leaving):
            # Its event says so at least.
            with suppress(Exception):
                yield error_gang_status(gang, entry.message)


def error_gang_status(gang: Gang, message: str) -> GangStatus:
    """Status of a gang that no session looks at."""
    missing = gang.min_member - len(gang.placed) - gang.succeeded_counted
    whole = bool(gang.placed) and missing <= 0 and all(each.confirmed for each in gang.placed)
    error = PendingReason(reason=Reason.SCHEDULER_ERROR, message=truncate_message(message))
    scheduled = error
    if whole:
        text = f"{pods_text(len(gang.placed))} placed, {gang.min_member} needed; {message}"
        scheduled = PendingReason(reason=Reason.SCHEDULED, message=truncate_message(text))
    group = gang.pod_group
    phase = group.phase if group is not None and group.phase else "Pending"
    return GangStatus(
        gang=gang.key,
        uid=gang.uid,
        generation=gang.generation,
        queue=gang.queue,
        phase="Running" if whole else phase,
        admitted=error,
        is_admitted=False,
        scheduled=scheduled,
        is_scheduled=whole,
        waiting_pods=tuple(
            (pod.key, pod.uid)
            for pod_set in gang.pod_sets
            for pod in pod_set.pods
            if not is_expected(pod)
        ),
        pending_reason=error if whole else None,
        counts=(len(gang.placed), gang.running, gang.succeeded, gang.failed),
    )


def uncounted_gang_status(
    key: GangKey, group: PodGroup | None, pods: Sequence[Pod], message: str
) -> GangStatus:
    """Status of a gang whose members cannot be counted, so that no session sees it."""
    error = PendingReason(reason=Reason.SCHEDULER_ERROR, message=truncate_message(message))
    return GangStatus(
        gang=key,
        uid=group.uid if group is not None else UID(""),
        generation=group.generation if group is not None else 0,
        queue=group.queue if group is not None else "",
        phase=(group.phase if group is not None else "") or "Pending",
        admitted=error,
        is_admitted=False,
        scheduled=error,
        is_scheduled=False,
        waiting_pods=tuple(
            (ObjectKey(pod.namespace, pod.name), pod.uid) for pod in pods if not pod.node
        ),
        pending_reason=None,
        counts=(sum(bool(pod.node) for pod in pods), 0, 0, 0),
    )


def set_aside_queue_statuses(
    snapshot: Snapshot, aside: Sequence[SetAside]
) -> tuple[QueueStatus, ...]:
    """The status of each queue that is left out itself."""
    found = []
    for each in aside:
        node = snapshot.queues.get(each.suspect.key.name)
        if each.suspect.what is SuspectKind.QUEUE and node is not None:
            with suppress(Exception):
                found.append(_queue_status(node, each.message))
    return tuple(found)


def set_aside_topology_statuses(
    snapshot: Snapshot, aside: Sequence[SetAside]
) -> tuple[TopologyStatus, ...]:
    """The status of each Topology that is left out."""
    queues = {
        each.suspect.key.name: each for each in aside if each.suspect.what is SuspectKind.TOPOLOGY
    }
    return tuple(
        TopologyStatus(
            name=each.name,
            uid=each.uid,
            generation=each.generation,
            is_ready=False,
            ready=PendingReason(
                reason=Reason.SCHEDULER_ERROR, message=truncate_message(queues[each.name].message)
            ),
        )
        for each in snapshot.topologies
        if each.name in queues
    )


def set_aside_reservation_statuses(
    snapshot: Snapshot, aside: Sequence[SetAside]
) -> tuple[ReservationStatus, ...]:
    """The status of each Reservation that is left out: it keeps nothing."""
    left_out = {
        each.suspect.key.name: each
        for each in aside
        if each.suspect.what is SuspectKind.RESERVATION
    }
    return tuple(
        ReservationStatus(
            name=each.name,
            uid=each.uid,
            generation=each.generation,
            phase="Invalid",
            begins=0,
            ends=0,
            nodes=(),
            in_the_way=0,
            is_ready=False,
            ready=PendingReason(
                reason=Reason.SCHEDULER_ERROR, message=truncate_message(left_out[each.name].message)
            ),
        )
        for each in snapshot.reservations
        if each.name in left_out
    )


def _queue_status(node: QueueNode, message: str) -> QueueStatus:
    return QueueStatus(
        name=node.queue.name,
        uid=node.queue.uid,
        generation=node.queue.generation,
        state="Open" if node.queue.stop_policy == "None" else "Closed",
        allocated=node.allocated,
        requested=node.allocated,
        borrowed=NOTHING,
        pending=0,
        inqueue=0,
        running=0,
        is_ready=False,
        ready=PendingReason(reason=Reason.SCHEDULER_ERROR, message=truncate_message(message)),
    )
