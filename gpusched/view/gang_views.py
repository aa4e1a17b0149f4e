"""A gang as people see it: from the cache's gang and what the daemon, or the API, says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpusched.api.devices.slots import format_slots
from gpusched.api.gang.eviction_record import PastEviction
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import Rejected, format_time
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import Pod, PodPhase
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cache.gangs.holds import HELD
from gpusched.cache.snapshot import StartEstimate
from gpusched.session.framework.reasons import pods_text
from gpusched.session.state.plan import GangStatus
from gpusched.session.status.gang_status import reason_by_members, with_job_news
from gpusched.session.status.reserved.reserved_rooms import ReservedRoom
from gpusched.view.model import (
    ENDING,
    RUNNING,
    STARTING,
    WAITING,
    GangView,
    MemberView,
    OwnerView,
    PastEvictionView,
    ViewName,
)
from gpusched.view.over_time.future import RoomView

_MEMBERS_MAX: Final = 10_000
_NO_OWNERS: Final = frozenset({"Node"})


@frozen(kw_only=True)
class ToldGang:
    """What is said of a gang beside what its objects say.

    Attributes:
        reason, message: why it waits; empty where nothing is said.
        position: among those of its queue that wait, 0 for none.
        estimated_start: seconds since the epoch, 0.0 where it is not known.
        estimate: the same with its range and what it rests on, where that is told.
        estimate_change: why it is another than before.
    """

    reason: str = ""
    message: str = ""
    position: int = 0
    estimated_start: float = 0.0
    estimate: StartEstimate | None = None
    estimate_change: str = ""


NOTHING_TOLD: Final = ToldGang()


def told_by_status(status: GangStatus) -> ToldGang:
    """What a session said."""
    why = status.pending_reason
    if why is None and not status.is_scheduled:
        why = status.scheduled
    return ToldGang(
        reason=why.reason if why is not None else "",
        message=why.message if why is not None else "",
        position=status.queue_position,
        estimated_start=status.estimated_start,
        estimate=status.start_estimate,
        estimate_change=status.estimate_change,
    )


def gang_view(gang: Gang, told: ToldGang, *, gpu_type_of_node: Callable[[str], str]) -> GangView:
    """One gang.

    Args:
        gang: as the cache counts it.
        told: by the daemon.
        gpu_type_of_node: the product of a node's GPUs, by the node's name; empty for none.
    """
    running = bool(gang.placed) and not gang.missing_members
    waits = bool(gang.pod_sets or gang.gated or gang.lacks_pods)
    reason, message = _reason_to_wait(gang, told) if waits or gang.suspended else ("", "")
    nodes = tuple(sorted({member.node for member in gang.placed}))
    estimate = told.estimate if waits else None
    return GangView(
        metadata=ViewName(namespace=gang.key.namespace, name=gang.key.name, uid=gang.uid),
        gang_kind=gang.key.kind,
        owner=owner_view(gang),
        queue=gang.queue,
        priority=gang.priority,
        preemptible=bool(gang.terms.preemptible),
        state=_state(gang, running=running),
        placed=len(gang.placed),
        waiting=gang.pending + gang.gated,
        min_member=gang.min_member,
        gpus=gpus_text(gang.allocated.plus(gang.pending_requests)),
        gpu_type=",".join(sorted({gpu_type_of_node(name) for name in nodes} - {""})),
        position=told.position if waits else 0,
        created=time_text(gang.created),
        since=time_text(gang.started_at if running else gang.created),
        estimated_start_time=time_text(told.estimated_start) if waits else "",
        estimated_start_earliest=time_text(estimate.earliest) if estimate else "",
        estimated_start_latest=time_text(estimate.latest) if estimate else "",
        estimate_known_by=str(estimate.known_by) if estimate else "",
        estimate_change=told.estimate_change if waits else "",
        expected_end_time=time_text(gang.expected_end) if running else "",
        reason=reason,
        message=message,
        warning=gang.warning,
        nodes=nodes,
        user=gang.creator.user,
        evictions=tuple(_eviction_view(each) for each in gang.evictions.past),
    )


def _eviction_view(past: PastEviction) -> PastEvictionView:
    return PastEvictionView(
        time=time_text(past.at),
        action=past.action,
        reason=past.reason,
        claimant=past.claimant_name,
        gpu_seconds=past.gpu_seconds,
    )


def _reason_to_wait(gang: Gang, told: ToldGang) -> tuple[str, str]:
    """Why it waits: what is said of it, but what its objects say where that is newer, or all there is."""
    if gang.error[0] and (gang.error[0] == HELD or not told.reason):
        return gang.error
    if told.reason:
        return told.reason, told.message
    if gang.suspended:
        return "Suspended", "its Job is suspended until the gang is admitted"
    if awaits_pods(gang):
        count = pods_text(gang.expected_count)
        return (
            "NoPodsYet",
            f"its Job is started and its room is held; its controller has yet to make {count} of it",
        )
    lacks = reason_by_members(gang) if gang.missing_members else None
    if lacks is None:
        return "", ""
    lacks = with_job_news(gang, lacks)
    return lacks.reason, lacks.message


def awaits_pods(gang: Gang) -> bool:
    """Whether it is a Job that its queue has started and whose pods do not exist yet."""
    return bool(gang.expected_count) and not gang.suspended


def unreadable_pod_view(pod: Rejected) -> GangView:
    """A pod that cannot be believed: it waits, for itself, until it is mended."""
    created = time_text(pod.created)
    return GangView(
        metadata=ViewName(namespace=pod.key.namespace, name=pod.key.name, uid=pod.uid),
        gang_kind="Pod",
        queue="",
        priority=0,
        state=WAITING,
        placed=0,
        waiting=1,
        min_member=1,
        gpus="",
        created=created,
        since=created,
        reason="InvalidSpec",
        message=f"{pod.field}: {pod.why}",
    )


def member_views(gang: Gang) -> tuple[MemberView, ...]:
    """The pods of a gang by name, as many as anybody reads."""
    found = [_placed_view(member) for member in gang.placed]
    found += [_leaving_view(member) for member in gang.leaving_placed]
    found += _waiting_views(gang)
    return tuple(sorted(found[:_MEMBERS_MAX], key=lambda member: member.name))


def room_view(room: ReservedRoom | None) -> RoomView | None:
    """Room that a session keeps for a gang; None for none."""
    if room is None:
        return None
    return RoomView(nodes=room.nodes, begins=time_text(room.begins), ends=time_text(room.ends))


def gpus_text(amounts: Resources) -> str:
    """GPUs of all resources together, as a quantity; empty for none."""
    names = gpu_resources().names
    total = sum(amounts.get(name) for name in names)
    return format_quantity(total, resource=names[0]) if total and names else ""


def _state(gang: Gang, *, running: bool) -> str:
    if running:
        return RUNNING if gang.running else STARTING
    if gang.leaving and not gang.pod_sets and not gang.gated:
        return ENDING
    return WAITING


def owner_view(gang: Gang) -> OwnerView | None:
    """What made the pods, where that is not the gang's own object."""
    pod = _first_pod(gang)
    owner = pod.owner if pod is not None else None
    if owner is None or owner.kind in _NO_OWNERS:
        return None
    if (owner.kind, owner.name) == (gang.key.kind, gang.key.name):
        return None
    return OwnerView(kind=owner.kind, name=owner.name)


def _first_pod(gang: Gang) -> Pod | None:
    if gang.placed:
        return gang.placed[0].pod
    return next((pod for pod_set in gang.pod_sets for pod in pod_set.pods), None)


def _placed_view(member: Placed) -> MemberView:
    phase = "Running" if member.pod.phase is PodPhase.RUNNING else "Bound"
    return _member_view(member, phase)


def _leaving_view(member: Placed) -> MemberView:
    return _member_view(member, "Ending")


def _member_view(member: Placed, phase: str) -> MemberView:
    return MemberView(
        name=member.pod.name,
        node=member.node,
        slots=format_slots(member.slots),
        phase=phase,
        role=member.pod.role,
        sub_group=member.pod.sub_group,
    )


def _waiting_views(gang: Gang) -> Iterator[MemberView]:
    for pod_set in gang.pod_sets:
        for pod in pod_set.pods:
            yield MemberView(
                name=pod.name, phase="Waiting", role=pod_set.role, sub_group=pod_set.sub_group
            )


def time_text(seconds: float) -> str:
    """A time as the API writes it; empty for 0.0, which is none."""
    return format_time(seconds) if seconds else ""
