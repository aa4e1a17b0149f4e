"""Claims and stops as data: what was kept in statements, in canonical order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from gpusched.api.gang.eviction_record import NO_CLAIMANT, NO_EVICTIONS, PastEviction
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.suspended_jobs import suspend_job
from gpusched.session.state.decided.eviction_chains import (
    EvictionGraph,
    count_eviction,
    recent_evictions,
)
from gpusched.session.state.decided.moved_gangs import make_move_record
from gpusched.session.state.decided.nominations import PreemptionDraft
from gpusched.session.state.decided.remade_gangs import remade_gang
from gpusched.session.state.plan import (
    Eviction,
    EvictionCount,
    GangStop,
    JobSuspendChange,
    MoveOrder,
    PreemptionPlan,
)
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation

_RecentOnDemand = Callable[[], EvictionGraph]


def preemption_plans(session: Session) -> tuple[PreemptionPlan, ...]:
    """Promises made in this session, sorted by gang."""
    nodes = session.snapshot.nodes.nodes
    recent = _recent_evictions_on_demand(session)
    return tuple(
        PreemptionPlan(
            gang=key,
            uid=draft.gang.uid,
            generation=draft.gang.generation,
            nominations=tuple(
                sorted((each.pod.key, each.pod.uid, nodes[each.row].name) for each in draft.places)
            ),
            stops=_stops_of_draft(session, draft, recent),
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
    recent = _recent_evictions_on_demand(session)
    return tuple(
        stop
        for _, draft in sorted(session.nominations.stops.items())
        for stop in _stops_of_draft(session, draft, recent)
    )


def _recent_evictions_on_demand(session: Session) -> _RecentOnDemand:
    """Evictions of all gangs of late; most sessions evict no gang, and never ask."""
    return lru_cache(maxsize=1)(lambda: recent_evictions(session.snapshot))


def _stops_of_draft(
    session: Session, draft: PreemptionDraft, recent: _RecentOnDemand
) -> tuple[GangStop, ...]:
    by_gang: dict[GangKey, tuple[Gang, list[EvictOperation]]] = {}
    for each in draft.evictions:
        by_gang.setdefault(each.gang.key, (each.gang, []))[1].append(each)
    return tuple(
        _stop_of_gang(session, gang, leaving, draft, recent)
        for _, (gang, leaving) in sorted(by_gang.items())
    )


def _stop_of_gang(
    session: Session,
    gang: Gang,
    leaving: Sequence[EvictOperation],
    draft: PreemptionDraft,
    recent: _RecentOnDemand,
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
    lost = sum(each.gpu_seconds for each in evictions)
    count = _count_stop(session, gang, leaving, draft, recent, gpu_seconds=lost)
    pause = _suspend_change(gang, leaving, draft, count)
    return GangStop(
        gang=gang.key,
        uid=gang.uid,
        generation=gang.generation,
        evictions=tuple(evictions),
        pause=pause,
        turn=draft.turn if pause is None and has_record_object(gang) else None,
        keeps_minimum=_keeps_minimum(gang, len(leaving)),
        count=count,
    )


def _count_stop(
    session: Session,
    gang: Gang,
    leaving: Sequence[EvictOperation],
    draft: PreemptionDraft,
    recent: _RecentOnDemand,
    *,
    gpu_seconds: int,
) -> EvictionCount | None:
    """How it stands among evictions before; None where the gang goes on, or has no object for a record."""
    window_s, now = session.snapshot.limits.eviction_window_s, session.snapshot.now
    if not window_s or gang.key.kind == "Pod" or not has_record_object(gang):
        return None
    gone = session.nominations.evicted | {each.member.pod.uid for each in leaving}
    left = remade_gang(gang, [each for each in gang.placed if each.pod.uid in gone])
    if left.placed and not left.missing_members:
        return None
    claims = draft.gang.key != gang.key
    eviction = PastEviction(
        at=float(int(now)),
        action=draft.action,
        reason=draft.reason,
        claimant=draft.gang.uid if claims else NO_CLAIMANT,
        claimant_name=f"{draft.gang.key.kind} {draft.gang.key}" if claims else "",
        gpu_seconds=gpu_seconds,
    )
    placed_at = max(each.member.pod.scheduled for each in leaving)
    return count_eviction(gang, eviction, recent(), placed_at=placed_at, window_s=window_s)


def _keeps_minimum(gang: Gang, leaving: int) -> bool:
    """Whether a group of Kubernetes, of no tree, has its ``minCount`` without those that leave."""
    native = gang.pod_group is not None and gang.pod_group.native is not None
    return native and not gang.tree and gang.ready_members - leaving >= gang.min_member


def has_record_object(gang: Gang) -> bool:
    """Whether there is an object of the gang on which its turns and evictions can be written."""
    if gang.pod_group is not None:
        return not gang.pod_group.source
    return gang.job is not None


def _suspend_change(
    gang: Gang,
    leaving: Sequence[EvictOperation],
    draft: PreemptionDraft,
    count: EvictionCount | None,
) -> JobSuspendChange | None:
    """A Job that we would start again, and that ends as a whole, is paused rather than shot."""
    job = gang.job
    if job is None or not is_suspended_to_evict(gang) or len(leaving) < len(gang.placed):
        return None
    return suspend_job(
        job,
        reason=draft.reason,
        message=draft.message,
        action=draft.action,
        turn=draft.turn,
        evictions=count.record if count is not None else NO_EVICTIONS,
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
