"""Gangs that are found bound in part, by us, perhaps before a restart: wait, or take back.

The API alone is read here: when a member was bound is its PodScheduled time, and now is the
server's clock, so neither a restart nor a clock that jumps gives a gang more time. A gang that
once had its minimum is left alone: what it lost since is a matter of policy.

Several such gangs may hold the rest of each other. After half of the time all but one are taken
back, so that this one has the other half to become whole with what they leave.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.session.state.plan import Undo


@frozen(slots=True, kw_only=True)
class PartialGang:
    """A gang with members bound, but fewer than it needs.

    Attributes:
        bound: key, UID, plan annotation (empty: not bound by us) and PodScheduled time.
        ever_started: whether its PodGroup's status says that it was whole; False for gangs
            that have no PodGroup.
        known_in_part: whether it is known not to have been whole, by its PodGroup's status or by
            what this process saw of it before.
        seems_lost: whether its members look like those of a gang that was whole and has lost others.
        priority: of the gang.

    Times are seconds since the epoch by the API server's clock, 0.0 for unknown.
    """

    key: GangKey
    uid: UID
    min_member: int
    bound: tuple[tuple[ObjectKey, UID, str, float], ...]
    ever_started: bool
    known_in_part: bool = False
    seems_lost: bool = False
    priority: int = 0


def recovery_due_at(gang: PartialGang) -> float | None:
    """When what we bound is to be taken back; None for never.

    Returns:
        Seconds since the epoch by the server's clock: the first of our bindings plus the
        recovery time.
    """
    ours = [scheduled for _, _, plan, scheduled in gang.bound if plan and scheduled]
    if not ours or len(gang.bound) >= gang.min_member or _was_whole(gang):
        return None
    return min(ours) + limits.GANG_RECOVERY_MAX_S


def decide_recovery(
    gang: PartialGang, *, server_now: float, rival: PartialGang | None = None
) -> Undo | None:
    """What to do about one gang now; None to leave it, so that it can still be completed.

    Args:
        gang: bound in part.
        server_now: seconds since the epoch by the API server's clock.
        rival: another gang bound in part that goes before it; None for none.
    """
    due = recovery_due_at(gang)
    patience_s = limits.GANG_RECOVERY_MAX_S
    if due is not None and rival is not None:
        patience_s /= 2
        due -= patience_s
    if due is None or server_now < due:
        return None
    ours = tuple(sorted((key, uid) for key, uid, plan, _ in gang.bound if plan))
    goal = f"{rival.key} can start first" if rival else "the gang can start as a whole"
    message = (
        f"only {len(gang.bound)} of {gang.min_member} members could be bound within "
        f"{patience_s:g} s; {len(ours)} of them are evicted so that {goal}"
    )
    return Undo(gang=gang.key, pods=ours, message=message)


def plan_recoveries(gangs: Iterable[PartialGang], *, server_now: float) -> tuple[Undo, ...]:
    """What to take back of all gangs, in order of their keys."""
    partial = [gang for gang in gangs if recovery_due_at(gang) is not None]
    first = min(partial, key=_repair_order, default=None)
    undos = (
        decide_recovery(gang, server_now=server_now, rival=None if gang is first else first)
        for gang in partial
    )
    return tuple(sorted((u for u in undos if u is not None), key=lambda undo: undo.gang))


def _repair_order(gang: PartialGang) -> tuple[int, float, GangKey]:
    """The highest priority first, then the gang that lacks the smallest part, then by key."""
    return -gang.priority, -len(gang.bound) / gang.min_member, gang.key


def _was_whole(gang: PartialGang) -> bool:
    """Whether there is a sign that the gang once had all its members bound.

    Replacements look the same of members that a gang has lost and of members that were never bound:
    what was seen in part before has lost none.
    """
    if gang.ever_started:
        return True
    return gang.seems_lost and not gang.known_in_part
