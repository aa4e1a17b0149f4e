"""Claims and stops as data: what was kept in statements, in canonical order."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.cache.gangs import Gang
from gpusched.objects.meta import GangKey
from gpusched.objects.units import DEVICE
from gpusched.session.jobs import pause
from gpusched.session.moved import move_of
from gpusched.session.plan import Claim, Eviction, JobSwitch, MoveOrder, Stop
from gpusched.session.promises import ClaimDraft
from gpusched.session.session import Session
from gpusched.session.statement import Evict


def claims(session: Session) -> tuple[Claim, ...]:
    """Promises made in this session, sorted by gang."""
    nodes = session.snapshot.nodes.nodes
    return tuple(
        Claim(
            gang=key,
            uid=draft.gang.uid,
            generation=draft.gang.generation,
            nominations=tuple(
                sorted((each.pod.key, each.pod.uid, nodes[each.row].name) for each in draft.places)
            ),
            stops=_stops(session, draft),
            action=draft.action,
            sentence=draft.sentence,
            moves=tuple(
                MoveOrder(
                    gang=each.gang.key,
                    uid=each.gang.uid,
                    move=move_of(each.places, session.snapshot),
                )
                for each in sorted(draft.moves, key=lambda each: each.gang.key)
            ),
        )
        for key, draft in sorted(session.claims.items())
        if not draft.gang.suspended  # it is started first; its pods then claim what they need
    )


def stops(session: Session) -> tuple[Stop, ...]:
    """Gangs stopped for their own sake, sorted."""
    return tuple(
        stop for _, draft in sorted(session.stops.items()) for stop in _stops(session, draft)
    )


def _stops(session: Session, draft: ClaimDraft) -> tuple[Stop, ...]:
    by_gang: dict[GangKey, tuple[Gang, list[Evict]]] = {}
    for each in draft.evictions:
        by_gang.setdefault(each.gang.key, (each.gang, []))[1].append(each)
    return tuple(
        _stop(session, gang, leaving, draft) for _, (gang, leaving) in sorted(by_gang.items())
    )


def _stop(session: Session, gang: Gang, leaving: Sequence[Evict], draft: ClaimDraft) -> Stop:
    evictions = [
        Eviction(
            key=each.member.pod.key,
            uid=each.member.pod.uid,
            gang=gang.key,
            queue=gang.queue,
            node=each.member.node,
            action=draft.action,
            reason=draft.reason,
            sentence=draft.sentence,
            gpu_seconds=lost_gpu_seconds(gang, each.member.pod.scheduled, session.snapshot.now)
            * each.member.pod.pod_class.gpu_thousandths
            // DEVICE,
        )
        for each in leaving
    ]
    evictions.sort(key=lambda each: (each.key, each.uid))
    return Stop(
        gang=gang.key,
        uid=gang.uid,
        generation=gang.generation,
        evictions=tuple(evictions),
        pause=_pause(gang, leaving, draft),
    )


def _pause(gang: Gang, leaving: Sequence[Evict], draft: ClaimDraft) -> JobSwitch | None:
    """A Job that we would start again, and that ends as a whole, is paused rather than shot."""
    job = gang.job
    if job is None or not is_paused(gang) or len(leaving) < len(gang.placed):
        return None
    return pause(job, reason=draft.reason, sentence=draft.sentence, action=draft.action)


def is_paused(gang: Gang) -> bool:
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
