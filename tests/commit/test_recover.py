"""Gangs found bound in part: when they are left, and when what we bound is taken back."""

from __future__ import annotations

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.base import limits
from gpusched.commit.recover import PartialGang, decide_recovery, plan_recoveries, recovery_due_at

T = 1_000_000.0
LATE = T + limits.GANG_RECOVERY_MAX_S


def partial(*bound, kind="PodGroup", need=4, started=False, in_part=False, lost=False, name="g"):
    """Bound members as (plan, PodScheduled time)."""
    return PartialGang(
        key=GangKey(kind, "ns", name), uid=UID("u"), min_member=need, ever_started=started,
        known_in_part=in_part, seems_lost=lost,
        bound=tuple(
            (ObjectKey("ns", f"p{i}"), UID(f"u{i}"), plan, at) for i, (plan, at) in enumerate(bound)
        ),
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


def test_a_gang_that_once_was_whole_is_never_undone():
    """What it lost since is a matter of policy."""
    for how in ({"started": True}, {"lost": True}, {"started": True, "in_part": True}):
        assert decide_recovery(partial(("plan", T), **how), server_now=LATE + 1e6) is None


def test_a_gang_that_was_seen_in_part_has_lost_no_member():
    """Its replacements look like those of a gang that has; they replace what was never bound."""
    gang = partial(("plan", T), lost=True, in_part=True)
    assert decide_recovery(gang, server_now=LATE) is not None


def test_whole_gangs_and_unknown_times_are_left():
    """Enough members, none, or no PodScheduled time to count from."""
    assert decide_recovery(partial(*[("plan", T)] * 4), server_now=LATE) is None
    assert decide_recovery(partial(), server_now=LATE) is None
    assert decide_recovery(partial(("plan", 0.0)), server_now=LATE) is None


def test_the_order_of_the_gangs_does_not_matter():
    """The same undos in the same order, whatever order they were found in."""
    gangs = [partial(("plan", T), name=name) for name in "bac"]
    undos = plan_recoveries(gangs, server_now=LATE)
    assert undos == plan_recoveries(reversed(gangs), server_now=LATE)
    assert [undo.gang.name for undo in undos] == ["a", "b", "c"]
