"""Which running gangs can be moved: all their members are made again, and the move can be recorded."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.session.admission.queue_gate import queue_admission
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.preemption_plans import is_suspended_to_evict
from gpusched.session.state.session import Session


def is_complete_and_movable(session: Session, gang: Gang, recent: AbstractSet[GangKey]) -> bool:
    """Whether a gang runs complete, a controller makes its pods again, and its move can be recorded.

    Args:
        session: in which it would be moved.
        gang: that runs.
        recent: gangs that were moved of late, which are left where they are.
    """
    own_group = gang.pod_group is not None and not gang.pod_group.source
    own_job = gang.pod_group is None and gang.job is not None and gang.key.kind == "Job"
    at = float(int(session.snapshot.now))
    warning = gang.eviction_warning
    comes_back = (
        warning is None or is_suspended_to_evict(gang) or len(gang.placed) <= warning.survives
    )
    return (
        (own_group or own_job)
        and comes_back
        and gang.key not in recent
        and not session.nominations.has_nomination(gang)
        and gang.key not in session.nominations.stops
        and not (gang.pod_sets or gang.gated or gang.leaving)
        and gang.ready_members >= gang.min_member
        and all(
            each.confirmed
            and each.pod.pod_class.share is None  # what a share frees no model says
            and each.pod.owner is not None
            and each.pod.created < at
            and each.pod.uid not in session.nominations.evicted
            and session.class_info(each.pod.pod_class).request.share is None
            for each in gang.placed
        )
    )


def may_start_again(session: Session, gang: Gang) -> bool:
    """Whether its queue, limits and budgets let a gang start anew, once its members have left by a statement.

    Args:
        session: in which it would be moved.
        gang: as it waits for its new places.
    """
    if queue_admission(session, gang).refuses:
        return False
    return not first_refusal(session.hooks.quota_checks, gang).refuses
