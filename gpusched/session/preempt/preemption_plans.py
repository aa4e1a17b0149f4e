"""Claims and stops as data: what was kept in statements, in canonical order."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.suspended_jobs import suspend_job
from gpusched.session.state.decided.moved_gangs import make_move_record
from gpusched.session.state.decided.nominations import PreemptionDraft
from gpusched.session.state.plan import (
    Eviction,
    GangStop,
    JobSuspendChange,
    MoveOrder,
    PreemptionPlan,
)
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation


def preemption_plans(session: Session) -> tuple[PreemptionPlan, ...]:
    """Promises made in this session, sorted by gang."""
    nodes = session.snapshot.nodes.nodes
    return tuple(
        PreemptionPlan(
            gang=key,
            uid=draft.gang.uid,
            generation=draft.gang.generation,
            nominations=tuple(
                sorted((each.pod.key, each.pod.uid, nodes[each.row].name) for each in draft.places)
            ),
            stops=_stops_of_draft(session, draft),
            action=draft.action,
            message=draft.message,
            moves=tuple(
                MoveOrder(
                    gang=each.gang.key,
                    uid=each.gang.uid,
                    move=make_move_record(each.places, session.snapshot),
                )
                for each in sorted(draft.moves, key=lambda each: each.gang.key)
            ),
        )
        for key, draft in sorted(session.nominations.plans.items())
        if not draft.gang.suspended  # it is started first; its pods then claim what they need
    )


def gang_stops(session: Session) -> tuple[GangStop, ...]:
    """Gangs stopped for their own sake, sorted."""
    return tuple(
        stop
        for _, draft in sorted(session.nominations.stops.items())
        for stop in _stops_of_draft(session, draft)
    )


def _stops_of_draft(session: Session, draft: PreemptionDraft) -> tuple[GangStop, ...]:
    by_gang: dict[GangKey, tuple[Gang, list[EvictOperation]]] = {}
    for each in draft.evictions:
        by_gang.setdefault(each.gang.key, (each.gang, []))[1].append(each)
    return tuple(
        _stop_of_gang(session, gang, leaving, draft)
        for _, (gang, leaving) in sorted(by_gang.items())
    )


def _stop_of_gang(
    session: Session, gang: Gang, leaving: Sequence[EvictOperation], draft: PreemptionDraft
) -> GangStop:
    evictions = [
        Eviction(
            key=each.member.pod.key,
            uid=each.member.pod.uid,
            gang=gang.key,
            queue=gang.queue,
            node=each.member.node,
            action=draft.action,
            reason=draft.reason,
            message=draft.message,
            gpu_seconds=lost_gpu_seconds(gang, each.member.pod.scheduled, session.snapshot.now)
            * each.member.pod.pod_class.gpu_thousandths
            // DEVICE,
        )
        for each in leaving
    ]
    evictions.sort(key=lambda each: (each.key, each.uid))
    pause = _suspend_change(gang, leaving, draft)
    return GangStop(
        gang=gang.key,
        uid=gang.uid,
        generation=gang.generation,
        evictions=tuple(evictions),
        pause=pause,
        turn=draft.turn if pause is None and keeps_turns(gang) else None,
        keeps_minimum=_keeps_minimum(gang, len(leaving)),
    )


def _keeps_minimum(gang: Gang, leaving: int) -> bool:
    """Whether a group of Kubernetes, of no tree, has its ``minCount`` without those that leave."""
    native = gang.pod_group is not None and gang.pod_group.native is not None
    return native and not gang.tree and gang.ready_members - leaving >= gang.min_member


def keeps_turns(gang: Gang) -> bool:
    """Whether there is an object of the gang on which its turns can be written."""
    if gang.pod_group is not None:
        return not gang.pod_group.source
    return gang.job is not None


def _suspend_change(
    gang: Gang, leaving: Sequence[EvictOperation], draft: PreemptionDraft
) -> JobSuspendChange | None:
    """A Job that we would start again, and that ends as a whole, is paused rather than shot."""
    job = gang.job
    if job is None or not is_suspended_to_evict(gang) or len(leaving) < len(gang.placed):
        return None
    return suspend_job(
        job, reason=draft.reason, message=draft.message, action=draft.action, turn=draft.turn
    )


def is_suspended_to_evict(gang: Gang) -> bool:
    """Whether the gang is a Job that is suspended when all of it has to leave."""
    return gang.job is not None and bool(gang.job.queue)


def lost_gpu_seconds(gang: Gang, since: float, now: float) -> int:
    """Seconds of work that one GPU of a member loses: since its start, or the last checkpoint.

    Args:
        gang: whose terms tell how often it saves its work.
        since: when the member got its place, seconds since the epoch; 0.0 for not yet.
        now: seconds since the epoch.
    """
    if not since or now <= since:
        return 0
    ran = int(now - since)
    every = gang.terms.checkpoint_ns // 10**9
    return ran % every if every else ran
