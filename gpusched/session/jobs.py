"""Jobs that are submitted suspended: where they would run, and how they are started."""

from __future__ import annotations

import hashlib

import attrs
import msgspec

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.cache.unborn import wanted_pods
from gpusched.objects.group import NodePool
from gpusched.objects.meta import format_time
from gpusched.objects.others import Job
from gpusched.objects.pod import PodClass
from gpusched.session.plan import JobSwitch
from gpusched.session.reasons import Reason, cut, members
from gpusched.session.session import Session
from gpusched.session.variant import Variant

ADMITTED = "gpusched.io/admitted"
PARALLELISM = "gpusched.io/parallelism"


def variants(session: Session, gang: Gang) -> list[Variant]:
    """The gang in each pool of its queue, best first; only the gang when pools do not decide.

    Pods that exist have their node selectors already: pools decide for suspended Jobs alone.
    """
    queue = session.queue_of(gang)
    if not gang.suspended or queue is None or not queue.queue.node_pools:
        return [Variant(gang)]
    return [_in_pool(gang, pool) for pool in queue.queue.node_pools]


def _in_pool(gang: Gang, pool: NodePool) -> Variant:
    tasks = []
    for task in gang.tasks:
        chosen = _selecting(task.pod_class, pool)
        pods = tuple(msgspec.structs.replace(pod, pod_class=chosen) for pod in task.pods)
        tasks.append(attrs.evolve(task, pod_class=chosen, pods=pods))
    return Variant(attrs.evolve(gang, tasks=tuple(tasks)), pool.name, pool.node_selector)


def _selecting(pod_class: PodClass, pool: NodePool) -> PodClass:
    selector = tuple(sorted({*pod_class.node_selector, *pool.node_selector}))
    if selector == pod_class.node_selector:
        return pod_class
    content = repr((pod_class.digest, selector)).encode()
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    return attrs.evolve(pod_class, node_selector=selector, digest=digest)


def switches(session: Session) -> tuple[JobSwitch, ...]:
    """Jobs that are started, because they got places or a claim to them, and those given back."""
    started = [
        _start(session, gang)
        for gang in session.gangs
        if gang.suspended and (session.kept(gang) or gang.key in session.claims)
    ]
    back = [
        pause(
            gang.job,
            reason=Reason.BACK_OFF,
            sentence=cut(
                f"got no place for {members(gang.need)} within {limits.ADMITTED_MAX_S:g} s of its "
                f"start; it is suspended again for {limits.ADMIT_AGAIN_S:g} s"
            ),
            action="enqueue",
            keep_time=True,
        )
        for gang in session.given_back
        if gang.job is not None
    ]
    return tuple(sorted((*started, *back), key=lambda each: each.key))


def _start(session: Session, gang: Gang) -> JobSwitch:
    job = gang.job
    assert job is not None
    variant = session.variants.get(gang.key, Variant(gang))
    count, wanted = len(session.kept(gang)), wanted_pods(job)
    notes = {ADMITTED: format_time(session.snapshot.now)}
    parallelism = None
    if job.min_parallelism and count:
        parallelism = count if count != job.parallelism else None
        notes[PARALLELISM] = str(wanted) if count < wanted else ""
    where = f" in node pool {variant.pool}" if variant.pool else ""
    return JobSwitch(
        key=job.key,
        uid=job.uid,
        suspend=False,
        reason=Reason.SCHEDULED,
        sentence=cut(
            f"queue {gang.queue} has room for {members(count or gang.min_member)} of "
            f"{wanted}{where}: the Job is started"
        ),
        action="enqueue",
        parallelism=parallelism,
        node_selector=variant.node_selector,
        annotations=tuple(sorted(notes.items())),
    )


def pause(
    job: Job, *, reason: str, sentence: str, action: str, keep_time: bool = False
) -> JobSwitch:
    """Suspend a Job, as large again as its author made it.

    Args:
        job: to be suspended.
        reason: one of the contract's.
        sentence: why, with numbers.
        action: who decided.
        keep_time: leave the time at which it was started, from which its back-off counts.
    """
    notes = {} if keep_time or not job.admitted else {ADMITTED: ""}
    if job.full_parallelism:
        notes[PARALLELISM] = ""
    return JobSwitch(
        key=job.key,
        uid=job.uid,
        suspend=True,
        reason=reason,
        sentence=sentence,
        action=action,
        parallelism=job.full_parallelism or None,
        annotations=tuple(sorted(notes.items())),
    )
