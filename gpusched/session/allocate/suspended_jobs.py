"""Jobs that are submitted suspended: where they would run, and how they are started."""

from __future__ import annotations

import hashlib

import attrs
import msgspec

from gpusched.api.gang.eviction_record import (
    EVICTIONS,
    NO_EVICTIONS,
    GangEvictions,
    format_evictions,
)
from gpusched.api.gang.turn_record import TURN, TurnRecord, format_turn
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import format_time
from gpusched.api.pod.pod import PodClass
from gpusched.api.queue.queue import NodePool
from gpusched.base import limits
from gpusched.cache.gangs.expected_pods import job_parallelism
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason, pods_text, truncate_message
from gpusched.session.state.decided.placements import NodePoolVariant
from gpusched.session.state.plan import JobSuspendChange
from gpusched.session.state.session import Session

ADMITTED_ANNOTATION = "gpusched.io/admitted"
PARALLELISM_ANNOTATION = "gpusched.io/parallelism"
_REASON_KEPT_MAX = 700
"""Characters of why pods wait in a message that goes on after it."""


def node_pool_variants(session: Session, gang: Gang) -> list[NodePoolVariant]:
    """The gang in each pool of its queue, best first; only the gang when pools do not decide.

    Pods that exist have their node selectors already: pools decide for suspended Jobs alone.
    """
    queue = session.queue_of(gang)
    if not gang.suspended or queue is None or not queue.queue.node_pools:
        return [NodePoolVariant(gang)]
    return [_in_pool(gang, pool) for pool in queue.queue.node_pools]


def _in_pool(gang: Gang, pool: NodePool) -> NodePoolVariant:
    pod_sets = []
    for pod_set in gang.pod_sets:
        chosen = _with_node_selector(pod_set.pod_class, pool)
        pods = tuple(msgspec.structs.replace(pod, pod_class=chosen) for pod in pod_set.pods)
        pod_sets.append(attrs.evolve(pod_set, pod_class=chosen, pods=pods))
    return NodePoolVariant(
        attrs.evolve(gang, pod_sets=tuple(pod_sets)), pool.name, pool.node_selector
    )


def _with_node_selector(pod_class: PodClass, pool: NodePool) -> PodClass:
    selector = tuple(sorted({*pod_class.node_selector, *pool.node_selector}))
    if selector == pod_class.node_selector:
        return pod_class
    content = repr((pod_class.digest, selector)).encode()
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    return attrs.evolve(pod_class, node_selector=selector, digest=digest)


def job_suspend_changes(session: Session) -> tuple[JobSuspendChange, ...]:
    """Jobs that are started, because they got places or a claim to them, and those given back."""
    there, given = session.lines.by_key, {gang.key for gang, _ in session.placements.by_gang()}
    started = [
        _resume_job(session, there[key])
        for key in given.union(session.nominations.plans)
        if key in there and there[key].suspended  # gangs that run are moved, too
    ]
    back = [
        suspend_job(
            gang.job,
            reason=Reason.BACK_OFF,
            message=truncate_message(
                f"got no place for {pods_text(gang.missing_members)} within {session.snapshot.limits.admitted_timeout_s:g} s of its "
                f"start{_reason_of_pods(gang)}; it is suspended again for {limits.ADMIT_AGAIN_S:g} s"
            ),
            action="enqueue",
            keep_time=True,
        )
        for gang in session.outcomes.returned_jobs
        if gang.job is not None
    ]
    return tuple(sorted((*started, *back), key=lambda each: each.key))


def _reason_of_pods(gang: Gang) -> str:
    """Why its pods wait, as they were told last; in brackets, empty when none was told."""
    told = [pod.unschedulable for pod_set in gang.pod_sets for pod in pod_set.pods]
    return next((f" ({each[:_REASON_KEPT_MAX]})" for each in told if each), "")


def _resume_job(session: Session, gang: Gang) -> JobSuspendChange:
    job = gang.job
    assert job is not None
    variant = session.placements.variant(gang)
    count, wanted = len(session.placements.assigned(gang)), job_parallelism(job)
    notes = {ADMITTED_ANNOTATION: format_time(session.snapshot.now)}
    parallelism = None
    if job.min_parallelism and count:
        parallelism = count if count != job.parallelism else None
        notes[PARALLELISM_ANNOTATION] = str(wanted) if count < wanted else ""
    where = f" in node pool {variant.pool}" if variant.pool else ""
    return JobSuspendChange(
        key=job.key,
        uid=job.uid,
        suspend=False,
        reason=Reason.SCHEDULED,
        message=truncate_message(
            f"queue {gang.queue} has room for {pods_text(count or gang.min_member)} of "
            f"{wanted}{where}: the Job is started"
        ),
        action="enqueue",
        parallelism=parallelism,
        node_selector=variant.node_selector,
        annotations=tuple(sorted(notes.items())),
    )


def suspend_job(
    job: Job, *, reason: str, message: str, action: str, keep_time: bool = False,
    turn: TurnRecord | None = None, evictions: GangEvictions = NO_EVICTIONS,
) -> JobSuspendChange:  # fmt: skip
    """Suspend a Job, as large again as its author made it.

    Args:
        job: to be suspended.
        reason: one of the contract's.
        message: why, with numbers.
        action: that decided.
        keep_time: leave the time at which it was started, from which its back-off counts.
        turn: turns that it has had, where one is over; None leaves what is known of them.
        evictions: of its gang with this one; none leaves what is known of them.
    """
    notes = {} if keep_time or not job.admitted else {ADMITTED_ANNOTATION: ""}
    if job.full_parallelism:
        notes[PARALLELISM_ANNOTATION] = ""
    if turn is not None:
        notes[TURN] = format_turn(turn, seal="")  # sealed when it is written
    if evictions.past:
        notes[EVICTIONS] = format_evictions(evictions, seal="")
    return JobSuspendChange(
        key=job.key,
        uid=job.uid,
        suspend=True,
        reason=reason,
        message=message,
        action=action,
        parallelism=job.full_parallelism or None,
        annotations=tuple(sorted(notes.items())),
    )
