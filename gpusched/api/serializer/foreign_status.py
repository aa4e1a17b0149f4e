"""What other projects' groups and queues show of their state, in those projects' own words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpusched.api.foreign import kinds
from gpusched.api.foreign.native_groups import (
    INITIALLY_SCHEDULED,
    INVALID,
    SCHEDULED,
    TREE_INITIALLY_SCHEDULED,
)
from gpusched.api.gang.native_terms import COMPLETED, COMPOSITE, TOLD_AS
from gpusched.api.meta.identity import UID, format_time
from gpusched.api.serializer.patches import BY_SCHEDULER
from gpusched.api.serializer.requests import UNSCHEDULABLE, clip_text, merge_status
from gpusched.base.classes import frozen

Obj = dict[str, object]
SCHEDULER_ERROR: Final = "SchedulerError"


@frozen(slots=True, kw_only=True)
class GroupState:
    """Where a gang stands.

    Attributes:
        phase: in our words.
        is_scheduled, reason, message: the condition Scheduled.
        counts: scheduled, running, succeeded, failed.
        min_member: members that it needs.
        kind: of the object.
        api_version: group and version by which the object is written.
        generation: of the object; 0 where its kind has none.
        admitted, preempted: conditions of the same names as (holds, reason, message); None where
            nothing is to be said.
        has_members: whether as many members exist without a gate as it needs.
        never_started: whether no member has a node, and the object cannot be believed: what it
            says of a start nobody of us wrote.
    """

    phase: str
    is_scheduled: bool
    reason: str
    message: str
    counts: tuple[int, int, int, int]
    min_member: int
    kind: str = "PodGroup"
    api_version: str = ""
    generation: int = 0
    admitted: tuple[bool, str, str] | None = None
    preempted: tuple[bool, str, str] | None = None
    has_members: bool = True
    never_started: bool = False


_VOLCANO_REASONS: Final = {
    "InsufficientResources": "NotEnoughResources",
    "NotEnoughMembers": "NotEnoughTasks",
}


def foreign_group_status_patch(
    source: str, uid: UID, current: bytes, state: GroupState, *, now: float
) -> bytes | None:
    """A merge patch of a foreign PodGroup's status; None when it says so already.

    Args:
        source: project of its kind.
        uid: of the group.
        current: its status as last seen, JSON.
        state: where its gang stands.
        now: seconds since the epoch, the time of what changes.
    """
    write = _GROUPS.get(source)
    return write(uid, msgspec.json.decode(current), state, now) if write is not None else None


def _volcano(uid: UID, known: Obj, state: GroupState, now: float) -> bytes | None:
    """Phase and counts as ours; Unschedulable is true while Scheduled is not."""
    _, running, succeeded, failed = state.counts
    fields = {
        "phase": state.phase,
        "running": running or None,
        "succeeded": succeeded or None,
        "failed": failed or None,
    }
    reason = _VOLCANO_REASONS.get(state.reason, state.reason)
    conditions = _shown_conditions(known)
    waits = not state.is_scheduled
    if waits or any(each.get("type") == UNSCHEDULABLE for each in conditions):
        _set_condition(
            conditions, UNSCHEDULABLE, (waits, reason, state.message), now=now, transition=True
        )
    scheduled = (state.is_scheduled, reason, state.message)
    _set_condition(conditions, "Scheduled", scheduled, now=now, transition=True)
    return merge_status(uid, known, fields, conditions)


def _coscheduling(uid: UID, known: Obj, state: GroupState, now: float) -> bytes | None:
    """Its phases follow what runs, where ours follow what was decided."""
    scheduled, running, succeeded, failed = state.counts
    phase = {"Inqueue": "Pending", "Completed": "Finished"}.get(state.phase, state.phase)
    if state.phase == "Running" and running + succeeded < state.min_member:
        phase = "Scheduling"
    if failed and not (running or scheduled) and phase != "Finished":
        phase = "Failed"
    fields: Obj = {
        "phase": phase,
        "running": running or None,
        "succeeded": succeeded or None,
        "failed": failed or None,
    }
    if scheduled and not known.get("scheduleStartTime"):
        fields["scheduleStartTime"] = format_time(now)
    return merge_status(uid, known, fields, None)


def _native(uid: UID, known: Obj, state: GroupState, now: float) -> bytes | None:
    """Kubernetes' own condition, which is never taken back, and ours, which say how it stands now.

    It is taken back where it is forged: on a group that is refused and has no member on a node.

    As kube-scheduler does, its own says nothing while too few members exist; ours do.
    """
    conditions = _shown_conditions(known)
    own = SCHEDULED if state.api_version.endswith("/v1alpha2") else INITIALLY_SCHEDULED
    if state.kind == COMPOSITE:
        own = TREE_INITIALLY_SCHEDULED
    shown = {each.get("type"): each.get("status") for each in conditions}
    if state.never_started:
        says = (False, _waiting_reason(state), state.message)
        for kind in {SCHEDULED, INITIALLY_SCHEDULED, own} & shown.keys():
            _set_condition(conditions, kind, says, now=now, generation=state.generation)
        shown = dict.fromkeys(shown, "False")
    started = "True" in (shown.get(SCHEDULED), shown.get(INITIALLY_SCHEDULED), shown.get(own))
    if shown.get(own) != "True" and (started or state.has_members or own in shown):
        holds = started or state.is_scheduled
        says = (holds, "Scheduled" if holds else _waiting_reason(state), state.message)
        _set_condition(conditions, own, says, now=now, generation=state.generation)
    for kind, says in _own_words(state).items():
        _set_condition(conditions, TOLD_AS[kind], says, now=now, generation=state.generation)
    return merge_status(uid, known, {}, conditions)


def _waiting_reason(state: GroupState) -> str:
    """The reason of Kubernetes' own condition while it is False: one of a closed list."""
    if state.reason == SCHEDULER_ERROR:
        return SCHEDULER_ERROR
    if state.kind == COMPOSITE and state.reason == INVALID:
        return "Invalid"
    return UNSCHEDULABLE


def _own_words(state: GroupState) -> dict[str, tuple[bool, str, str]]:
    """Our conditions of a native group, by the type that they have on our own PodGroup."""
    completed = state.phase == COMPLETED
    reason = COMPLETED if completed else state.reason
    found = {"Scheduled": (state.is_scheduled or completed, reason, state.message)}
    if state.admitted is not None:
        found["Admitted"] = state.admitted
    if state.preempted is not None:
        holds, why, message = state.preempted
        found["Preempted"] = (holds, BY_SCHEDULER if holds else why, message)
    return found


_GROUPS: Final[Mapping[str, Callable[[UID, Obj, GroupState, float], bytes | None]]] = {
    kinds.VOLCANO: _volcano,
    kinds.COSCHEDULING: _coscheduling,
    kinds.NATIVE: _native,
}


def foreign_queue_status_patch(
    uid: UID, current: bytes, *, allocated: Mapping[str, str], counts: tuple[int, int, int]
) -> bytes | None:
    """A merge patch of a Volcano Queue's status; None when it says so already.

    Its state is opened here once; closing is left to Volcano's own controller, which alone
    knows of the command.

    Args:
        uid: of the queue.
        current: its status as last seen, JSON.
        allocated: what it holds, quantities by resource.
        counts: gangs pending, inqueue and running.
    """
    known = msgspec.json.decode(current)
    pending, inqueue, running = counts
    fields: Obj = {
        "allocated": allocated,
        "pending": pending or None,
        "inqueue": inqueue or None,
        "running": running or None,
    }
    if not known.get("state"):
        fields["state"] = "Open"
    return merge_status(uid, known, fields, None)


def _shown_conditions(known: Obj) -> list[Obj]:
    found = known.get("conditions")
    return [dict(each) for each in found] if isinstance(found, list) else []


def _set_condition(
    conditions: list[Obj],
    kind: str,
    says: tuple[bool, str, str],
    *,
    now: float,
    transition: bool = False,
    generation: int = 0,
) -> None:
    """Set one condition in place; its time stays while its status does."""
    holds, reason, message = says
    status, message = "True" if holds else "False", clip_text(message)
    old = next((each for each in conditions if each.get("type") == kind), None)
    since = old.get("lastTransitionTime") if old and old.get("status") == status else None
    made: Obj = {
        "type": kind,
        "status": status,
        "lastTransitionTime": since or format_time(now),
        "reason": reason,
        "message": message,
    }
    if generation:
        made["observedGeneration"] = generation
    if transition:
        content = f"{kind}/{status}/{reason}/{message}"
        made["transitionID"] = hashlib.sha256(content.encode()).hexdigest()[:12]
    if old is None:
        conditions.append(made)
    else:
        conditions[conditions.index(old)] = made
