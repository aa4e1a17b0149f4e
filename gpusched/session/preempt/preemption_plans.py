"""Claims and stops as data: what was kept in statements, in canonical order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from gpusched.api.gang.eviction_record import NO_CLAIMANT, NO_EVICTIONS, PastEviction
from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.base.classes import frozen
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
_EvictedOnDemand = Callable[[], "_EvictedGangs"]
"""Asked for where an eviction is written on an object: lone pods have none."""


@frozen(eq=False)
class _EvictedGangs:
    """Gangs that this session leaves without their minimum.

    Attributes:
        ended_by: of each, the first draft, in the order of decisions, that does; those before it took
            what it had beside its minimum, and those after it what was left.
        gpu_seconds: work of each that is lost, by all drafts.
        recent: evictions of late, on demand: most sessions evict no gang, and never ask.
    """

    ended_by: Mapping[GangKey, PreemptionDraft]
    gpu_seconds: Mapping[GangKey, int]
    recent: _RecentOnDemand


def preemption_plans(session: Session) -> tuple[PreemptionPlan, ...]:
    """Promises made in this session, sorted by gang."""
    nodes = session.snapshot.nodes.nodes
    evicted = _evicted_on_demand(session)
    return tuple(
        PreemptionPlan(
            gang=key,
            uid=draft.gang.uid,
            generation=draft.gang.generation,
            nominations=tuple(
                sorted((each.pod.key, each.pod.uid, nodes[each.row].name) for each in draft.places)
            ),
            stops=_stops_of_draft(session, draft, evicted),
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
    if not session.nominations.stops:
        return ()
    evicted = _evicted_on_demand(session)
    return tuple(
        stop
        for _, draft in sorted(session.nominations.stops.items())
        for stop in _stops_of_draft(session, draft, evicted)
    )


def _evicted_on_demand(session: Session) -> _EvictedOnDemand:
    return lru_cache(maxsize=1)(lambda: _evicted_gangs(session))


def _evicted_gangs(session: Session) -> _EvictedGangs:
    ended_by: dict[GangKey, PreemptionDraft] = {}
    lost: dict[GangKey, int] = {}
    gone: set[UID] = set()
    for draft in (*session.nominations.plans.values(), *session.nominations.stops.values()):
        for each in draft.evictions:
            key = each.gang.key
            gone.add(each.member.pod.uid)
            lost[key] = lost.get(key, 0) + _lost_gpu_seconds(session, each)
        for key, gang in {each.gang.key: each.gang for each in draft.evictions}.items():
            if key not in ended_by and _ends_without(gang, gone):
                ended_by[key] = draft
    return _EvictedGangs(
        ended_by, lost, lru_cache(maxsize=1)(lambda: recent_evictions(session.snapshot))
    )


def _ends_without(gang: Gang, gone: AbstractSet[UID]) -> bool:
    """Whether a gang is left without its minimum by these members' leaving."""
    leaving = [each for each in gang.placed if each.pod.uid in gone]
    return len(leaving) == len(gang.placed) or bool(remade_gang(gang, leaving).missing_members)


def _lost_gpu_seconds(session: Session, each: EvictOperation) -> int:
    pod = each.member.pod
    lost = lost_gpu_seconds(each.gang, pod.scheduled, session.snapshot.now)
    return lost * pod.pod_class.gpu_thousandths // DEVICE


def _stops_of_draft(
    session: Session, draft: PreemptionDraft, evicted: _EvictedOnDemand
) -> tuple[GangStop, ...]:
    if len(draft.evictions) == 1:  # thousands of claims take a pod each
        return (_stop_of_gang(session, draft.evictions[0].gang, draft.evictions, draft, evicted),)
    by_gang: dict[GangKey, tuple[Gang, list[EvictOperation]]] = {}
    for each in draft.evictions:
        by_gang.setdefault(each.gang.key, (each.gang, []))[1].append(each)
    return tuple(
        _stop_of_gang(session, gang, leaving, draft, evicted)
        for _, (gang, leaving) in sorted(by_gang.items())
    )


def _stop_of_gang(
    session: Session,
    gang: Gang,
    leaving: Sequence[EvictOperation],
    draft: PreemptionDraft,
    evicted: _EvictedOnDemand,
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
            gpu_seconds=_lost_gpu_seconds(session, each),
        )
        for each in leaving
    ]
    evictions.sort(key=lambda each: (each.key, each.uid))
    count = _count_stop(session, gang, leaving, draft, evicted)
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
    evicted: _EvictedOnDemand,
) -> EvictionCount | None:
    """How it stands among evictions before; None where the gang goes on, or has no object for a record."""
    window_s, now = session.snapshot.limits.eviction_window_s, session.snapshot.now
    if not window_s or gang.key.kind == "Pod" or not has_record_object(gang):
        return None
    known = evicted()
    if known.ended_by.get(gang.key) is not draft:
        return None
    claims = draft.gang.key != gang.key
    eviction = PastEviction(
        at=float(int(now)),
        action=draft.action,
        reason=draft.reason,
        claimant=draft.gang.uid if claims else NO_CLAIMANT,
        claimant_name=f"{draft.gang.key.kind} {draft.gang.key}" if claims else "",
        gpu_seconds=known.gpu_seconds[gang.key],
    )
    placed_at = max(each.member.pod.scheduled for each in leaving)
    return count_eviction(gang, eviction, known.recent(), placed_at=placed_at, window_s=window_s)


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
