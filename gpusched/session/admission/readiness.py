"""Readiness: admitted gangs whose members exist and whose policies let them be placed."""

from __future__ import annotations

from gpusched.api.pod.pod import PodClass
from gpusched.cache.gangs.gang import Gang
from gpusched.session.admission.admission_age import lacks_pods
from gpusched.session.admission.queue_gate import queue_admission
from gpusched.session.framework.reasons import Reason, not_enough_members_message
from gpusched.session.framework.verdict import ALLOW, first_refusal
from gpusched.session.state.session import Session


def gangs_to_place(session: Session) -> list[Gang]:
    """Gangs with waiting members that may be placed now, sorted by key; the others are refused.

    Where no action has admitted gangs before, their queues do here.
    """
    admitted, found = session.outcomes.admitted_keys, []
    checks = session.hooks.ready_checks
    last: PodClass | None = None
    concerned = True
    for gang in session.pending_gangs:
        pod_sets = gang.pod_sets
        if len(pod_sets) == 1 and gang.pending >= gang.min_member and gang.key in admitted:
            pod_class = pod_sets[0].pod_class
            if pod_class is not last:  # thousands that follow each other have the same
                last, concerned = pod_class, any(each.concerns_class(pod_class) for each in checks)
            if not concerned:
                found.append(gang)
                continue
        if gang.key not in admitted and not _is_admitted_now(session, gang):
            continue
        if _may_be_placed(session, gang):
            found.append(gang)
    return found


def _is_admitted_now(session: Session, gang: Gang) -> bool:
    if session.outcomes.has_admission(gang):
        return False
    return session.outcomes.admit(gang, queue_admission(session, gang))


def _may_be_placed(session: Session, gang: Gang) -> bool:
    if gang.pending < gang.min_member and lacks_pods(gang):
        session.outcomes.refuse(
            gang,
            Reason.NOT_ENOUGH_MEMBERS,
            not_enough_members_message(
                gang.min_member,
                have=gang.ready_members + gang.pending,
                gated=gang.gated,
                gates=gang.gates,
                leaving=gang.leaving,
            ),
        )
        return False
    verdict = first_refusal(session.hooks.ready_checks, gang)
    if verdict is ALLOW:
        return True
    if verdict.refuses:
        session.outcomes.refuse(gang, verdict.reason, verdict.message)
    return not verdict.refuses


def may_start_later(session: Session, gang: Gang) -> bool:
    """Whether a gang waits for places for its minimum, whatever room there is; nothing is refused."""
    if not gang.pending or not (gang.missing_members or not gang.placed) or lacks_pods(gang):
        return False
    if session.nominations.has_nomination(gang):
        return False  # its room is held for it already
    if session.outcomes.has_admission(gang):
        admitted = session.outcomes.is_admitted(gang)
    else:
        admitted = not queue_admission(session, gang).refuses
    return admitted and not first_refusal(session.hooks.ready_checks, gang).refuses
