"""Where every gang and queue stands after the actions: honest, and with a current reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

import attrs

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.cache.unborn import is_unborn
from gpusched.objects.meta import UID, ObjectKey
from gpusched.session.broken import STARTED
from gpusched.session.plan import Ask, GangStatus
from gpusched.session.proven import OPTIMAL
from gpusched.session.reasons import Reason, cut, members, not_enough_members
from gpusched.session.session import Session
from gpusched.session.wanting import short_of_role

ADMITTED = "Admitted"
"""The reason of the condition of the same name when it is true."""
_DOMAINS_NAMED_MAX: Final = 4
_NO_QUEUE: Final = "other"
"""Stands in metrics for queues that do not exist: their names are whatever a tenant writes."""


def gang_statuses(session: Session) -> tuple[GangStatus, ...]:
    """The status of every gang that is not on its way to its nodes.

    A gang whose bindings were decided now, or are not answered yet, is left as it was: it is
    scheduled when its members are bound, not when that was decided.
    """
    told = session.masks.told
    found = []
    for gang in session.gangs:
        session.hand(gang.key)
        if gang.placed:
            if session.kept(gang) or not all(member.confirmed for member in gang.placed):
                continue
        elif gang.done or session.kept(gang):
            continue
        if session.portion.is_put_off(gang) and gang.key not in session.asks:
            continue
        about = (
            session.admission.get(gang.key),
            session.asks.get(gang.key),
            session.positions.get(gang.key, 0),
            session.estimates.get(gang.key, 0.0),
        )
        # Who waits without a promise is told the same as long as this is the same.
        known = told.get(gang)
        if known is None or known[0] != about:
            known = (about, _status(session, gang))
            if not known[1].is_scheduled and gang.key not in session.promises:
                told.put(gang, known)
        found.append(known[1])
    found += islice(_left_out(session), limits.PUT_OFF_TOLD_MAX)
    return tuple(found)


def _left_out(session: Session) -> Iterator[GangStatus]:
    """Gangs that wait to be looked at and that nobody was told anything about for too long.

    All others keep what they were told last.
    """
    now = session.snapshot.now
    for gang in session.every_gang if session.portion.left_out else ():
        before = session.portion.left_out.get(gang.key)
        if before is None or now - gang.created < limits.PUT_OFF_TOLD_S or _was_told(gang):
            continue
        ask = Ask(reason=Reason.WAITING_FOR_TURN, sentence=_its_turn(gang, before))
        status = _status(session, gang)
        yield attrs.evolve(
            status,
            scheduled=ask,
            admitted=ask,
            is_admitted=False,
            phase="Pending",
            provisional=True,
        )


def _was_told(gang: Gang) -> bool:
    if gang.pod_group is not None and gang.pod_group.condition("Scheduled") is not None:
        return True
    return any(pod.unschedulable_reason for task in gang.tasks for pod in task.pods)


def _its_turn(gang: Gang, before: int) -> str:
    who = f"namespace {gang.key.namespace} in queue {gang.queue}"
    return cut(
        f"waits to be looked at: {before} gangs of {who} are before it, which has more waiting than "
        f"its share of a session"
    )


def _status(session: Session, gang: Gang) -> GangStatus:
    whole = bool(gang.placed or gang.credit) and not gang.need
    admission = session.admission.get(gang.key)
    ask = session.asks.get(gang.key)
    held = session.promises.get(gang.key, ())
    nodes = session.snapshot.nodes.nodes
    if whole:
        scheduled = Ask(reason=Reason.SCHEDULED, sentence=_running_sentence(gang))
        admission = None
    else:
        admission = admission and _with_remark(gang, admission)
        scheduled = _with_remark(gang, ask or _not_tried(gang))
    is_admitted = admission is None
    runs_again = _runs_again(gang) if whole else None
    waiting: list[tuple[ObjectKey, UID]] = []
    if not whole or ask is not None:
        waiting = [
            (pod.key, pod.uid) for task in gang.tasks for pod in task.pods if not is_unborn(pod)
        ]
    return GangStatus(
        gang=gang.key,
        uid=gang.uid,
        generation=gang.generation,
        queue=gang.queue,
        phase=_phase(gang, whole=whole, admitted=is_admitted),
        admitted=admission or Ask(reason=ADMITTED, sentence=_admitted_sentence(gang)),
        is_admitted=is_admitted,
        scheduled=scheduled,
        is_scheduled=whole,
        waiting=tuple(waiting),
        waiting_ask=ask if whole else None,
        counts=(len(gang.placed), gang.running, gang.succeeded, gang.failed),
        nominated=tuple(
            sorted((each.pod.uid, nodes[each.row].name) for each in held if not is_unborn(each.pod))
        ),
        preempted=runs_again,
        is_preempted=runs_again is None,
        queue_position=session.positions.get(gang.key, 0),
        estimated_start=session.estimates.get(gang.key, 0.0),
        placement=_placement(session, gang) if whole and gang.pod_group else (),
    )


def _runs_again(gang: Gang) -> Ask | None:
    """That a gang that was made to leave is complete again; None when there is no such news."""
    shown = gang.pod_group.condition("Preempted") if gang.pod_group else None
    if shown is None or shown.status != "True" or gang.pending or gang.gated or gang.leaving:
        return None
    return Ask(reason=Reason.SCHEDULED, sentence=f"runs again: {_running_sentence(gang)}")


def _placement(session: Session, gang: Gang) -> tuple[tuple[str, str], ...]:
    """The domains of each level that hold the placed members, widest level first.

    A level on which some of them are in no domain is left out; of many domains the number is told.
    """
    row_of = session.snapshot.nodes.row
    rows = [row_of[member.node] for member in gang.placed if member.node in row_of]
    if len(rows) < len(gang.placed) or not rows:
        return ()
    found = []
    for level in session.levels:
        domains = sorted({int(level.domain[row]) for row in rows})
        if domains[0] >= 0:
            named = ", ".join(level.names[domain] for domain in domains[:_DOMAINS_NAMED_MAX])
            more = len(domains) - _DOMAINS_NAMED_MAX
            found.append((level.name, f"{named} and {more} more" if more > 0 else named))
    return tuple(found)


def _has_admitted(gang: Gang) -> bool:
    """Whether a condition Admitted tells its author what to know: our own PodGroup has one."""
    return gang.pod_group is not None and not gang.pod_group.source


def _with_remark(gang: Gang, ask: Ask) -> Ask:
    """Why it waits, and what its author should know: a suspended Job has events for that alone."""
    if not gang.remark or not gang.suspended:
        return ask
    return attrs.evolve(ask, sentence=cut(f"{ask.sentence}; {gang.remark}"))


def _admitted_sentence(gang: Gang) -> str:
    text = f"admitted to queue {gang.queue}"
    return cut(f"{text}; {gang.remark}") if gang.remark else text


def _running_sentence(gang: Gang) -> str:
    text = f"{members(gang.ready)} placed, {gang.min_member} needed{_proof(gang)}"
    text = f"{text}; {gang.pending} more wait" if gang.pending else text
    return cut(f"{text}; {gang.remark}") if gang.remark and not _has_admitted(gang) else text


def _proof(gang: Gang) -> str:
    """What was proven of its places when it started; empty where nothing was, or they differ."""
    proofs = {member.pod.proof for member in gang.placed}
    proof = proofs.pop() if len(proofs) == 1 else ""
    if not proof:
        return ""
    return ", no more compact place existed" if proof == OPTIMAL else f", not proven best: {proof}"


def _not_tried(gang: Gang) -> Ask:
    have = gang.ready + gang.pending
    if gang.gated and have < gang.min_member and have + gang.gated >= gang.min_member:
        sentence = f"{members(gang.gated)} of {gang.min_member} needed are held by a gate"
        return Ask(reason=Reason.GATED, sentence=sentence)
    if have < gang.min_member:
        sentence = not_enough_members(
            gang.min_member, have=have, gated=gang.gated, leaving=gang.leaving
        )
        return Ask(reason=Reason.NOT_ENOUGH_MEMBERS, sentence=sentence)
    waiting = Counter(pod.role for task in gang.tasks for pod in task.pods)
    for role, missing in gang.missing_roles:
        if missing > waiting[role]:
            sentence = short_of_role(gang, role, missing - waiting[role])
            return Ask(reason=Reason.NOT_ENOUGH_MEMBERS, sentence=sentence)
    return Ask(reason=Reason.BACK_OFF, sentence="waits for its turn in a later cycle")


def _phase(gang: Gang, *, whole: bool, admitted: bool) -> str:
    group = gang.pod_group
    before = group.phase if group else ""
    if not gang.active and (before == "Completed" or (gang.succeeded >= gang.min_member)):
        return "Completed"
    if whole:
        return "Running"
    if before in STARTED and (gang.placed or gang.leaving):
        return "Unknown"
    return "Inqueue" if admitted else "Pending"


def unplaced(session: Session) -> dict[tuple[str, str], int]:
    """Numbers of waiting gangs by queue and reason, for the metric."""
    left_out = session.portion.left_out
    found: Counter[tuple[str, str]] = Counter()
    for gang in session.every_gang:
        if not gang.need:
            continue
        if gang.key in left_out:
            found[gang.queue, Reason.WAITING_FOR_TURN] += 1
        elif not gang.done and not session.kept(gang):
            reason = (session.asks.get(gang.key) or _not_tried(gang)).reason
            found[gang.queue, reason] += 1
    counts: dict[tuple[str, str], int] = {}
    for (queue, reason), number in found.items():
        known = session.snapshot.queues.get(queue) is not None
        key = (queue if known else _NO_QUEUE, reason)
        counts[key] = counts.get(key, 0) + number
    for queue, number in session.snapshot.idle.items():
        known = session.snapshot.queues.get(queue) is not None
        key = (queue if known else _NO_QUEUE, Reason.NOT_ENOUGH_MEMBERS)
        counts[key] = counts.get(key, 0) + number
    return counts
