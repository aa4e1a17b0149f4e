"""Gangs found bound in part: when they are left, and when what we bound is taken back."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.base import limits
from gpusched.commit.recover import PartialGang, decide_recovery, plan_recoveries, recovery_due_at

T = 1_000_000.0
LATE = T + limits.GANG_RECOVERY_MAX_S


def partial(*bound, kind="PodGroup", need=4, pending=(T - 5,), started=False, name="g"):
    """Bound members as (plan, PodScheduled time)."""
    return PartialGang(
        key=GangKey(kind, "ns", name), uid=UID("u"), min_member=need, ever_started=started,
        bound=tuple(
            (ObjectKey("ns", f"p{i}"), UID(f"u{i}"), plan, at) for i, (plan, at) in enumerate(bound)
        ),
        pending_since=pending,
    )  # fmt: skip


def test_within_the_time_it_is_left_to_be_completed():
    """One second before the deadline nothing is undone; then it is, from the first binding."""
    gang = partial(("plan", T), ("plan", T + 100))
    assert recovery_due_at(gang) == LATE
    assert decide_recovery(gang, server_now=LATE - 1) is None
    undo = decide_recovery(gang, server_now=LATE)
    assert [uid for _, uid in undo.pods] == ["u0", "u1"]
    assert "only 2 of 4 members" in undo.message


def test_only_what_we_bound_is_evicted():
    """A member that somebody else bound is none of ours."""
    undo = decide_recovery(partial(("plan", T), ("", T)), server_now=LATE)
    assert [uid for _, uid in undo.pods] == ["u0"]
    assert decide_recovery(partial(("", T), ("", T)), server_now=LATE + 1e6) is None


@pytest.mark.parametrize("kind", ["PodGroup", "Job"])
def test_members_left_out_show_that_it_never_was_whole(kind):
    """One waits since before the last sibling was bound."""
    gang = partial(("plan", T), ("plan", T + 2), kind=kind, pending=(T + 1, T + 50))
    assert decide_recovery(gang, server_now=LATE) is not None


@pytest.mark.parametrize("kind", ["PodGroup", "Job"])
def test_replacements_show_that_it_was_whole(kind):
    """All that wait were created after the last sibling was bound: losses of a running gang."""
    gang = partial(("plan", T), ("plan", T + 2), kind=kind, pending=(T + 3, T + 50))
    assert decide_recovery(gang, server_now=LATE + 1e6) is None


def test_a_gang_that_started_is_never_undone():
    """Its status says that it once had its minimum."""
    gang = partial(("plan", T), pending=(T - 5,), started=True)
    assert decide_recovery(gang, server_now=LATE + 1e6) is None


@pytest.mark.parametrize(("kind", "undone"), [("PodGroup", True), ("Job", False)])
def test_without_waiting_members_only_a_status_can_tell(kind, undone):
    """A PodGroup's says it never started; a Job has none, and nothing is evicted on a guess."""
    gang = partial(("plan", T), kind=kind, pending=())
    assert (decide_recovery(gang, server_now=LATE) is not None) is undone


def test_whole_gangs_and_unknown_times_are_left():
    """Enough members, none, or no PodScheduled time to count from."""
    assert decide_recovery(partial(*[("plan", T)] * 4), server_now=LATE) is None
    assert decide_recovery(partial(), server_now=LATE) is None
    assert decide_recovery(partial(("plan", 0.0), pending=(0.0,)), server_now=LATE) is None


def test_the_order_of_the_gangs_does_not_matter():
    """The same undos in the same order, whatever order they were found in."""
    gangs = [partial(("plan", T), name=name) for name in "bac"]
    undos = plan_recoveries(gangs, server_now=LATE)
    assert undos == plan_recoveries(reversed(gangs), server_now=LATE)
    assert [undo.gang.name for undo in undos] == ["a", "b", "c"]
