"""Admission is given back in time: quota of a gang that does not start is not kept for ever."""

from __future__ import annotations

from typing import Final

from gpusched.api.gang.pod_group import PodGroup
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import ALLOW, Verdict, wait
from gpusched.session.state.session import Session

_GAVE_BACK: Final = "was admitted and did not start"
"""Begins the message of an admission that was given back; BackOff is used for other causes too."""
_REASON_KEPT_MAX: Final = 700
"""Characters of the reason before: what becomes of the admission follows it in the same message."""


def admission_age_verdict(session: Session, gang: Gang) -> Verdict:
    """Verdict on the time a gang has been admitted: what does not start in time gives its quota back."""
    snapshot = session.snapshot
    if gang.job is not None and gang.job.admitted:
        return _job_admission_age_verdict(session, gang, gang.job.admitted)
    group = gang.pod_group
    condition = group.our_condition("Admitted") if group else None
    if group is None or condition is None:
        return ALLOW
    if holds_nothing(gang) and not gang.terms.schedule_timeout_ns:
        return ALLOW  # there is nothing to give back
    since = condition.transition
    if condition.status == "True":
        limit = gang.terms.schedule_timeout_ns / 10**9
        if not limit and not gang.pending:
            limit = snapshot.limits.admitted_timeout_s
        if limit and group.phase == "Inqueue" and snapshot.is_after(since + limit):
            return _back_off(limit, admission_pause_s(gang, snapshot.now), _last_reason(group))
    elif (
        condition.reason == Reason.BACK_OFF
        and condition.message.startswith(_GAVE_BACK)
        and not snapshot.is_past(since + admission_pause_s(gang, since))
    ):
        return wait(Reason.BACK_OFF, "{told}", told=condition.message)
    return ALLOW


def _last_reason(group: PodGroup) -> str:
    """Why it did not start, as was true until its admission is given back; in brackets."""
    told = group.our_condition("Scheduled")
    if told is None or told.status == "True" or told.message.startswith(_GAVE_BACK):
        return ""
    return f" ({told.reason}: {told.message[:_REASON_KEPT_MAX]})"


def lacks_pods(gang: Gang) -> bool:
    """Whether pods of its minimum do not exist or are gated: an empty cluster would not start it."""
    return gang.ready_members + gang.pending < gang.min_member


def holds_nothing(gang: Gang) -> bool:
    """Whether the gang keeps no quota from others though it is admitted.

    A group that lacks pods may be admitted, as some controllers make pods only then; it holds what its
    author says in minResources.
    """
    return lacks_pods(gang) and not (gang.pod_group is not None and gang.pod_group.min_resources)


def admission_pause_s(gang: Gang, returned_at: float) -> float:
    """Seconds until a gang is admitted again, from the moment at which its admission was given back.

    While its pods do not come the pause is about as long as the gang has existed by then, in steps
    that double. It needs no memory, so that a restart goes on with it.
    """
    if not lacks_pods(gang):
        return limits.ADMIT_AGAIN_S
    pause_s = limits.ADMIT_AGAIN_S
    while 2 * pause_s <= min(returned_at - gang.created, limits.ADMIT_AGAIN_MAX_S):
        pause_s *= 2
    return pause_s


def _job_admission_age_verdict(session: Session, gang: Gang, admitted: float) -> Verdict:
    snapshot, timeout_s = session.snapshot, session.snapshot.limits.admitted_timeout_s
    over = admitted + timeout_s
    if gang.suspended:
        # One that is younger was suspended by somebody else: its time to start was not over.
        if snapshot.is_after(over) and not snapshot.is_past(over + limits.ADMIT_AGAIN_S):
            return _back_off(timeout_s, limits.ADMIT_AGAIN_S)
        return ALLOW
    if not gang.succeeded and snapshot.is_after(over):
        session.outcomes.return_job(gang)
        return _back_off(timeout_s, limits.ADMIT_AGAIN_S)
    return ALLOW


def _back_off(limit: float, pause_s: float, why: str = "") -> Verdict:
    within = f" within {limit:g} s" if limit else ""
    return wait(
        Reason.BACK_OFF,
        _GAVE_BACK + "{within}{why}; its room went back to its queue, and it is "
        "admitted again {pause:g} s later",
        within=within,
        why=why,
        pause=pause_s,
    )
