"""Admission: which gangs may ask for places. ``Pending`` becomes ``Inqueue``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.equivalence_cache import equivalence_class_of
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import ALLOW, Verdict, deny, first_refusal, wait
from gpusched.session.state.equivalence import EquivalenceClass
from gpusched.session.state.session import Session

_GAVE_BACK: Final = "was admitted and did not start"
"""How a gang is told that its admission was given back; it is told BackOff for other reasons too."""


@attrs.frozen
class Enqueue:
    """Admits a gang when its queue exists, is open to it, and every check agrees."""

    name: ClassVar[str] = "enqueue"

    def run(self, session: Session) -> None:
        """See the class. A gang that has places already stays admitted.

        Gangs are asked in the order of their turns, each with the room of those admitted before
        it counted as taken. Who only waits for quota stays ``Pending``, but may still be served:
        with room that preemption makes inside its own queue, say.
        """
        fresh = []
        for gang in session.gangs:
            session.hand(gang.key)
            verdict = queue_admission(session, gang)
            new = not gang.placed
            if new and not verdict.refuses and session.hooks.enqueue_checks:
                verdict = first_refusal(session.hooks.enqueue_checks, gang)
            moved = session.nominations.moved_places(gang)
            if new and not moved and not verdict.refuses:
                verdict = _check_admission_age(
                    session, gang
                )  # whose room is held elsewhere has its own time
            session.outcomes.admit(gang, verdict)
            nominated = session.nominations.places(gang)
            if new and not nominated and not moved and session.outcomes.is_admitted(gang):
                fresh.append(gang)
        _check_quota_in_order(session, fresh)


def _check_quota_in_order(session: Session, gangs: Sequence[Gang]) -> None:
    """Tell who must wait for quota, given what those before it in turn will take."""
    promised: list[tuple[tuple[str, ...], Resources]] = []
    if _quota_allows_all(session, gangs):
        return
    refused: dict[EquivalenceClass, tuple[tuple[int, bool], Verdict]] = {}
    """What the first of a kind was told: the same is true of the others until one is let in."""
    for gang in in_queue_order(session, gangs):
        kind = equivalence_class_of(session, gang)
        state = session.accounts.state()
        told = refused.get(kind) if kind is not None else None
        if told is None or told[0] != state:
            told = (state, first_refusal(session.hooks.reserve_checks, gang))
        verdict = told[1]
        if verdict.refuses:
            if kind is not None:
                refused[kind] = told
            session.outcomes.postpone_admission(gang, verdict)
            continue
        if holds_nothing(gang):
            continue
        entry = (session.path(gang), session.view.minimum(gang))
        session.accounts.nominate(*entry)
        promised.append(entry)
    for path, amounts in promised:
        session.accounts.nominate(path, amounts, times=-1)


def _quota_allows_all(session: Session, gangs: Sequence[Gang]) -> bool:
    """Whether nobody would have to wait if all the others were served: then no order matters."""
    kinds: dict[EquivalenceClass | GangKey, list[Gang]] = {}
    for gang in gangs:
        kinds.setdefault(equivalence_class_of(session, gang) or gang.key, []).append(gang)
    entries = [
        (session.path(alike[0]), session.view.minimum(alike[0]), len(alike))
        for alike in kinds.values()
    ]
    for path, amounts, count in entries:
        session.accounts.nominate(path, amounts, times=count)
    agreed = True
    for alike, (path, amounts, _) in zip(kinds.values(), entries, strict=True):
        session.accounts.nominate(path, amounts, times=-1)
        agreed = not first_refusal(session.hooks.reserve_checks, alike[0]).refuses
        session.accounts.nominate(path, amounts)
        if not agreed:
            break
    for path, amounts, count in entries:
        session.accounts.nominate(path, amounts, times=-count)
    return agreed


def _check_admission_age(session: Session, gang: Gang) -> Verdict:
    """Whether the gang used its admission in time; else it is given back for a while."""
    now = session.snapshot.now
    if gang.job is not None and gang.job.admitted:
        return _check_job_admission_age(session, gang, now - gang.job.admitted)
    group = gang.pod_group
    told = group.condition("Admitted") if group else None
    if group is None or told is None:
        return ALLOW
    if holds_nothing(gang) and not gang.terms.schedule_timeout_ns:
        return ALLOW  # there is nothing to give back
    age = now - told.transition
    if told.status == "True":
        limit = gang.terms.schedule_timeout_ns / 10**9
        if not limit and not gang.pending:
            limit = limits.ADMITTED_MAX_S
        if limit and age > limit and group.phase == "Inqueue":
            return _back_off(limit, again_s(gang, now))
    elif told.reason == Reason.BACK_OFF and told.message.startswith(_GAVE_BACK):
        pause_s = again_s(gang, told.transition)
        if age < pause_s:
            return _back_off(0, pause_s)
    return ALLOW


def lacks_pods(gang: Gang) -> bool:
    """Whether it could not start on an empty cluster: pods of its minimum do not exist, or are gated."""
    return gang.ready + gang.pending < gang.min_member


def holds_nothing(gang: Gang) -> bool:
    """Whether it keeps no quota from others though it is admitted.

    A group that lacks pods may be admitted, as some controllers make pods only then; it holds what its
    author says in minResources.
    """
    return lacks_pods(gang) and not (gang.pod_group is not None and gang.pod_group.min_resources)


def again_s(gang: Gang, returned_jobs: float) -> float:
    """How long it is not admitted again, from the moment at which its admission was given back.

    While its pods do not come that is about as long as it has existed by then, in steps that double; it
    needs no memory, so that a restart goes on with it.
    """
    if not lacks_pods(gang):
        return limits.ADMIT_AGAIN_S
    pause_s = limits.ADMIT_AGAIN_S
    while 2 * pause_s <= min(returned_jobs - gang.created, limits.ADMIT_AGAIN_MAX_S):
        pause_s *= 2
    return pause_s


def _check_job_admission_age(session: Session, gang: Gang, age: float) -> Verdict:
    if gang.suspended:
        again = limits.ADMITTED_MAX_S + limits.ADMIT_AGAIN_S
        pause_s = limits.ADMIT_AGAIN_S
        return _back_off(limits.ADMITTED_MAX_S, pause_s) if age < again else ALLOW
    if age > limits.ADMITTED_MAX_S and not gang.succeeded:
        session.outcomes.return_job(gang)
        return _back_off(limits.ADMITTED_MAX_S, limits.ADMIT_AGAIN_S)
    return ALLOW


def _back_off(limit: float, pause_s: float) -> Verdict:
    within = f" within {limit:g} s" if limit else ""
    return wait(
        Reason.BACK_OFF,
        _GAVE_BACK + "{within}; its room went back to its queue, and it is "
        "admitted again {pause:g} s later",
        within=within,
        pause=pause_s,
    )


@attrs.define
class _QueueVerdicts:
    """Answers of queues in one session, by queue, namespace and whether a gang is repaired."""

    known: dict[tuple[str, str, bool], Verdict] = attrs.Factory(dict)


def queue_admission(session: Session, gang: Gang) -> Verdict:
    """What the mechanism itself asks of a gang's queue, whatever policies say."""
    if gang.trouble[0]:
        return deny(gang.trouble[0], "{why}", why=gang.trouble[1])
    known = session.cycle_state.get_or_make(_QueueVerdicts, _QueueVerdicts).known
    key = (gang.queue, gang.key.namespace, bool(gang.placed and gang.need))
    verdict = known.get(key)
    if verdict is None:
        verdict = known[key] = _queue_verdict(session, gang, repairs=key[2])
    return verdict


def _queue_verdict(session: Session, gang: Gang, *, repairs: bool) -> Verdict:
    """What the gang's queue says of all gangs of its namespace."""
    node = session.queue_of(gang)
    if node is None:
        known = list(session.snapshot.queues.queues)[:5]
        return deny(
            Reason.QUEUE_NOT_FOUND,
            "queue {name!r} does not exist; create it or name one of: {known}",
            name=gang.queue[:64],
            known=", ".join(known),
        )
    if node.trouble:
        return deny(Reason.QUEUE_STOPPED, "{why}", why=node.trouble)
    if not node.leaf:
        return deny(
            Reason.QUEUE_NOT_LEAF,
            "queue {name!r} has child queues; jobs go to leaves only",
            name=gang.queue,
        )
    for name in node.path:
        above = session.snapshot.queues.queues[name].queue
        if above.stop_policy != "None" and not (repairs and above.stop_policy == "Hold"):
            return deny(
                Reason.QUEUE_STOPPED,
                "queue {name!r} has stopPolicy {policy}: nothing new starts in it",
                name=name,
                policy=above.stop_policy,
            )
    namespace = session.snapshot.namespaces.get(gang.key.namespace)
    labels = namespace.labels if namespace else {}
    if not node.queue.namespaces.matches(labels):
        return deny(
            Reason.NAMESPACE_NOT_ALLOWED,
            "namespace {ns!r} is not selected by the namespaceSelector of queue {name!r}",
            ns=gang.key.namespace,
            name=gang.queue,
        )
    return ALLOW
