"""The lease machine as tables: every phase meets every event."""

from __future__ import annotations

import itertools

import attrs
import pytest

from gpusched.base import limits
from gpusched.base.errors import ConfigError, InvariantBroken
from gpusched.leader.lease_machine import LeaseMachine
from gpusched.leader.lease_state import (
    IN_CALL,
    LEADER,
    CallLease,
    ClockReading,
    LeaseCallFailed,
    LeaseDoubted,
    LeaseMissing,
    LeaseOperation,
    LeasePhase,
    LeaseRecord,
    LeaseRefused,
    LeaseSeen,
    LeaseState,
    LeaseTiming,
    LeaseWritten,
    StartLeading,
    StepDown,
    StopRequested,
    TimerFired,
    check_timing,
)

TIMING = LeaseTiming()
LOGIC = LeaseMachine(identity="me", timing=TIMING)
MAKER = LeaseMachine(identity="me", timing=TIMING, create_if_missing=True)
NOW = ClockReading(1000.0, 5000.0)
OTHER = LeaseRecord(version="7", holder="other", transitions=3, duration_s=15.0)
FREE = attrs.evolve(OTHER, version="8", holder="")
OURS = LeaseRecord(version="9", holder="me", transitions=4, duration_s=15.0)


def state(phase: LeasePhase, **more) -> LeaseState:
    """A plausible state of each phase at NOW: calls were begun 1 s ago."""
    known = {
        "phase": phase,
        "next_at": NOW.mono,
        "read_first": phase is LeasePhase.CHECKING,
        "record": OURS if phase in LEADER or phase is LeasePhase.RELEASING else OTHER,
        "unchanged_since": NOW.mono - 5,
        "called": NOW.seconds_later(-1),
        "valid_until": NOW.seconds_later(6) if phase in LEADER else ClockReading(0, 0),
        "transitions": 4,
    }
    return LeaseState(**(known | more))


EVENTS = {
    "tick": TimerFired(NOW),
    "seen-ours": LeaseSeen(NOW, OURS),
    "seen-other": LeaseSeen(NOW, OTHER),
    "seen-free": LeaseSeen(NOW, FREE),
    "missing": LeaseMissing(NOW, "gone"),
    "written": LeaseWritten(NOW, attrs.evolve(OURS, version="10")),
    "refused": LeaseRefused(NOW),
    "failed": LeaseCallFailed(NOW, "hung"),
    "doubted": LeaseDoubted(NOW),
    "stop": StopRequested(NOW),
}
BUG = "bug"
# phase -> event -> (next phase, effects) ; effects by name, calls by operation
TABLE = {
    LeasePhase.STANDBY: {
        "tick": (LeasePhase.READING, ["READ"]),
        "seen-ours": BUG, "seen-other": BUG, "seen-free": BUG,
        "missing": BUG, "written": BUG, "refused": BUG, "failed": BUG,
        "doubted": (LeasePhase.STANDBY, []),
        "stop": (LeasePhase.ENDED, []),
    },
    LeasePhase.READING: {
        "tick": (LeasePhase.READING, []),
        "seen-ours": (LeasePhase.TAKING, ["TAKE"]),
        "seen-other": (LeasePhase.STANDBY, []),
        "seen-free": (LeasePhase.TAKING, ["TAKE"]),
        "missing": (LeasePhase.STANDBY, []),
        "written": BUG, "refused": BUG,
        "failed": (LeasePhase.STANDBY, []),
        "doubted": (LeasePhase.READING, []),
        "stop": (LeasePhase.READING, []),
    },
    LeasePhase.TAKING: {
        "tick": (LeasePhase.TAKING, []),
        "seen-ours": BUG, "seen-other": BUG, "seen-free": BUG,
        "missing": (LeasePhase.STANDBY, []),
        "written": (LeasePhase.LEADING, ["StartLeading"]),
        "refused": (LeasePhase.STANDBY, []),
        "failed": (LeasePhase.STANDBY, []),
        "doubted": (LeasePhase.TAKING, []),
        "stop": (LeasePhase.TAKING, []),
    },
    LeasePhase.LEADING: {
        "tick": (LeasePhase.RENEWING, ["RENEW"]),
        "seen-ours": BUG, "seen-other": BUG, "seen-free": BUG,
        "missing": BUG, "written": BUG, "refused": BUG, "failed": BUG,
        "doubted": (LeasePhase.LEADING, []),
        "stop": (LeasePhase.RELEASING, ["StepDown", "RELEASE"]),
    },
    LeasePhase.RENEWING: {
        "tick": (LeasePhase.RENEWING, []),
        "seen-ours": BUG, "seen-other": BUG, "seen-free": BUG,
        "missing": (LeasePhase.ENDED, ["StepDown"]),
        "written": (LeasePhase.LEADING, []),
        "refused": (LeasePhase.CHECKING, ["READ"]),
        "failed": (LeasePhase.LEADING, []),
        "doubted": (LeasePhase.RENEWING, []),
        "stop": (LeasePhase.RENEWING, []),
    },
    LeasePhase.CHECKING: {
        "tick": (LeasePhase.CHECKING, []),
        "seen-ours": (LeasePhase.RENEWING, ["RENEW"]),
        "seen-other": (LeasePhase.ENDED, ["StepDown"]),
        "seen-free": (LeasePhase.ENDED, ["StepDown"]),
        "missing": (LeasePhase.ENDED, ["StepDown"]),
        "written": BUG, "refused": BUG,
        "failed": (LeasePhase.LEADING, []),
        "doubted": (LeasePhase.CHECKING, []),
        "stop": (LeasePhase.CHECKING, []),
    },
    LeasePhase.RELEASING: {
        "tick": (LeasePhase.RELEASING, []),
        "seen-ours": BUG, "seen-other": BUG, "seen-free": BUG,
        "missing": (LeasePhase.ENDED, []),
        "written": (LeasePhase.ENDED, []),
        "refused": (LeasePhase.ENDED, []),
        "failed": (LeasePhase.ENDED, []),
        "doubted": (LeasePhase.RELEASING, []),
        "stop": (LeasePhase.RELEASING, []),
    },
    LeasePhase.ENDED: {
        "tick": (LeasePhase.ENDED, []),
        "seen-ours": BUG, "seen-other": BUG, "seen-free": BUG,
        "missing": BUG, "written": BUG, "refused": BUG, "failed": BUG,
        "doubted": (LeasePhase.ENDED, []),
        "stop": (LeasePhase.ENDED, []),
    },
}  # fmt: skip


def names(effects) -> list[str]:
    return [e.op.name if isinstance(e, CallLease) else type(e).__name__ for e in effects]


def test_the_table_is_complete():
    """Every phase has a row and every row every event."""
    assert set(TABLE) == set(LeasePhase)
    assert all(set(row) == set(EVENTS) for row in TABLE.values())


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(LeasePhase, EVENTS)))
def test_every_phase_meets_every_event(phase, event):
    """Next phase and effects are as the table says; what cannot be raises with the story."""
    expected = TABLE[phase][event]
    if expected == BUG:
        with pytest.raises(InvariantBroken, match=phase.name):
            LOGIC.advance_lease(state(phase), EVENTS[event])
        return
    after, effects = LOGIC.advance_lease(state(phase), EVENTS[event])
    assert (after.phase, names(effects)) == expected


@pytest.mark.parametrize(
    ("phase", "event"), list(itertools.product(sorted(LEADER, key=str), EVENTS))
)
@pytest.mark.parametrize("clock", ["mono", "boot"])
def test_past_the_deadline_every_event_ends_the_leadership(phase, event, clock):
    """Whatever arrives at or after ``valid_until``, by either clock, we step down."""
    late = attrs.evolve(NOW.seconds_later(60), **{clock: getattr(NOW, clock)})
    before = state(phase, valid_until=late)
    after, effects = LOGIC.advance_lease(before, EVENTS[event])
    assert (after.phase, names(effects)) == (LeasePhase.ENDED, ["StepDown"])
    assert after.why == "the lease was not renewed within 10 s"


@pytest.mark.parametrize("phase", sorted(IN_CALL - {LeasePhase.RELEASING}, key=str))
def test_a_stop_during_a_call_counts_when_it_ends(phase):
    """Stopping waits for the answer, then ends at once; a leader releases."""
    waiting, effects = LOGIC.advance_lease(state(phase), StopRequested(NOW))
    assert effects == ()
    answer = EVENTS["failed"]
    after, effects = LOGIC.advance_lease(waiting, answer)
    if phase in LEADER:
        assert (after.phase, names(effects)) == (LeasePhase.RELEASING, ["StepDown", "RELEASE"])
    else:
        assert (after.phase, after.why) == (LeasePhase.ENDED, "stopped")


def test_stop_while_taking_gives_back_what_was_just_taken():
    """An acquisition that succeeds after the stop is released without a moment of use."""
    waiting, _ = LOGIC.advance_lease(state(LeasePhase.TAKING), StopRequested(NOW))
    after, effects = LOGIC.advance_lease(waiting, EVENTS["written"])
    assert (after.phase, names(effects)) == (
        LeasePhase.RELEASING,
        ["StartLeading", "StepDown", "RELEASE"],
    )
    assert not LOGIC.may_act(after, NOW, 0.0)


@pytest.mark.parametrize(
    ("unchanged_s", "held_for_s", "takes"),
    [(14.9, 15, False), (15.0, 15, True), (5.0, 1, False), (15.0, 40, False), (40.0, 40, True),
     (299.0, 10**9, False), (limits.LEASE_MAX_S, 10**9, True)],
)  # fmt: skip
def test_takeover_needs_an_unchanged_record(unchanged_s, held_for_s, takes):
    """Only our own time since the record changed counts, the longer duration, up to a cap."""
    record = attrs.evolve(OTHER, duration_s=float(held_for_s))
    before = state(LeasePhase.READING, record=record, unchanged_since=NOW.mono - unchanged_s)
    after, effects = LOGIC.advance_lease(before, LeaseSeen(NOW, record))
    assert (after.phase is LeasePhase.TAKING) == takes
    if takes:
        assert effects == (
            CallLease(op=LeaseOperation.TAKE, timeout_s=2.0, version="7", transitions=4),
        )


def test_any_change_of_the_record_restarts_the_wait():
    """A renewal seen, even by the version alone, gives its holder a whole lease again."""
    before = state(LeasePhase.READING, unchanged_since=NOW.mono - 100)
    after, effects = LOGIC.advance_lease(before, LeaseSeen(NOW, attrs.evolve(OTHER, version="8")))
    assert (after.phase, effects, after.unchanged_since) == (LeasePhase.STANDBY, (), NOW.mono)


def test_a_read_is_due_when_the_lease_runs_out():
    """The next look is after the retry period, or earlier if the record expires earlier."""
    before = state(LeasePhase.READING, unchanged_since=NOW.mono - 14.5)
    after, _ = LOGIC.advance_lease(before, LeaseSeen(NOW, OTHER))
    assert after.next_at == NOW.mono + 0.5


def test_validity_counts_from_when_the_renewal_was_sent():
    """An answer that took long does not lengthen the leadership."""
    sent = NOW.seconds_later(-1.5)
    after, _ = LOGIC.advance_lease(state(LeasePhase.RENEWING, called=sent), EVENTS["written"])
    assert after.valid_until == sent.seconds_later(10)
    assert after.next_at == sent.mono + 2


def test_an_acquisition_that_took_too_long_is_none():
    """An answer that arrives after the validity it brings leaves us standing by."""
    before = state(LeasePhase.TAKING, called=NOW.seconds_later(-10))
    after, effects = LOGIC.advance_lease(before, EVENTS["written"])
    assert (after.phase, effects) == (LeasePhase.STANDBY, ())


def test_every_acquisition_counts_one_up():
    """Taking over, taking a free lease and making one all move the fence."""
    for record, number in ((OTHER, 4), (FREE, 4), (attrs.evolve(FREE, transitions=0), 1)):
        before = state(LeasePhase.READING, record=record, unchanged_since=0.0)
        taking, effects = LOGIC.advance_lease(before, LeaseSeen(NOW, record))
        assert effects[0].transitions == number
        leading, effects = LOGIC.advance_lease(taking, LeaseWritten(NOW, OURS))
        assert effects == (StartLeading(f"me/{number}"),)
        assert LOGIC.fence(leading) == f"me/{number}"


def test_a_missing_lease_is_made_only_when_allowed():
    """Inside a cluster the manifest makes it; outside we may, with the first fence."""
    after, effects = LOGIC.advance_lease(state(LeasePhase.READING), EVENTS["missing"])
    assert (after.phase, after.why, effects) == (LeasePhase.STANDBY, "gone", ())
    after, effects = MAKER.advance_lease(state(LeasePhase.READING, record=None), EVENTS["missing"])
    assert effects == (CallLease(op=LeaseOperation.CREATE, timeout_s=2.0, transitions=1),)
    after, effects = MAKER.advance_lease(after, EVENTS["missing"])
    assert (after.phase, effects) == (LeasePhase.STANDBY, ())


@pytest.mark.parametrize("made", [True, False])
def test_the_holder_of_a_lease_that_was_deleted_may_act_as_long_as_before(made):
    """A person deletes it, and makes it again or not: nobody takes it while the last one may act."""
    missing = LeaseMissing(NOW, "gone", 100)
    waiting, effects = MAKER.advance_lease(
        state(LeasePhase.READING), missing
    )  # OTHER was seen 5 s ago
    assert (waiting.phase, effects, waiting.next_at) == (LeasePhase.STANDBY, (), NOW.mono + 1)
    anew = LeaseRecord(version="20", holder="", transitions=100, duration_s=0.0)

    def look(after_s: float) -> tuple[LeaseState, tuple[object, ...]]:
        at = NOW.seconds_later(after_s)
        reading = attrs.evolve(waiting, phase=LeasePhase.READING)
        event = LeaseSeen(at, anew) if made else LeaseMissing(at, "gone", 100)
        return MAKER.advance_lease(reading, event)

    assert look(9.9)[1] == ()
    op = LeaseOperation.TAKE if made else LeaseOperation.CREATE
    assert look(10.0)[1] == (
        CallLease(op=op, timeout_s=2.0, version="20" if made else "", transitions=101),
    )


def test_a_free_lease_with_another_count_is_one_that_was_made_anew():
    """The one that a leader gives back keeps its count: that one is taken at once."""
    anew = attrs.evolve(FREE, transitions=1)
    waiting, effects = LOGIC.advance_lease(
        state(LeasePhase.READING, highest=OTHER.transitions), LeaseSeen(NOW, anew)
    )
    assert (waiting.phase, effects) == (LeasePhase.STANDBY, ())
    _, effects = LOGIC.advance_lease(
        attrs.evolve(waiting, phase=LeasePhase.READING), LeaseSeen(NOW.seconds_later(10), anew)
    )
    assert effects == (
        CallLease(op=LeaseOperation.TAKE, timeout_s=2.0, version="8", transitions=4),
    )  # higher than every fence before


@pytest.mark.parametrize(
    ("mono", "boot", "needs_s", "may"),
    [(0, 0, 5.0, True), (0.9, 0.9, 5.0, True), (1, 0, 5.0, False), (0, 1, 5.0, False),
     (0, 5.9, 0.0, True), (0, 6, 0.0, False), (0, 86_400, 5.0, False)],
)  # fmt: skip
def test_to_act_the_call_must_end_within_the_validity(mono, boot, needs_s, may):
    """Both clocks must leave room for the whole call: a suspended process sees it at once."""
    at = ClockReading(NOW.mono + mono, NOW.boot + boot)
    for phase in LeasePhase:
        assert LOGIC.may_act(state(phase), at, needs_s) == (may and phase in LEADER)


def test_doubt_stops_writes_until_a_renewal_proves_the_lease():
    """A fenced write or a conflicting renewal: no more writes until the compare-and-set won."""
    doubted, _ = LOGIC.advance_lease(
        state(LeasePhase.LEADING, next_at=NOW.mono + 2), LeaseDoubted(NOW)
    )
    assert not LOGIC.may_act(doubted, NOW, 5.0)
    renewing, effects = LOGIC.advance_lease(doubted, TimerFired(NOW))
    assert names(effects) == ["RENEW"]
    proved, _ = LOGIC.advance_lease(renewing, EVENTS["written"])
    assert LOGIC.may_act(proved, NOW, 5.0)
    conflict, _ = LOGIC.advance_lease(state(LeasePhase.RENEWING), LeaseRefused(NOW))
    assert not LOGIC.may_act(conflict, NOW, 5.0)


def test_a_renewal_that_is_refused_for_no_reason_is_not_asked_for_in_a_circle():
    """The Lease is as it was: 409 again and again, from a proxy or an admission, is waited out."""
    at = NOW
    renewing = state(LeasePhase.RENEWING)
    asked = []
    for _ in range(20):
        checking, effects = LOGIC.advance_lease(renewing, LeaseRefused(at))
        assert names(effects) == ["READ"]
        waiting, effects = LOGIC.advance_lease(checking, LeaseSeen(at, OURS))
        assert (waiting.phase, effects) == (LeasePhase.LEADING, ())
        assert not LOGIC.may_act(waiting, at, 0.0)
        at = at.seconds_later(waiting.next_at - at.mono)
        asked.append(at.mono)
        checking, effects = LOGIC.advance_lease(waiting, TimerFired(at))
        if checking.phase is LeasePhase.ENDED:
            break
        renewing, effects = LOGIC.advance_lease(checking, LeaseSeen(at, OURS))
        assert names(effects) == ["RENEW"]
    assert checking.phase is LeasePhase.ENDED
    assert asked == [NOW.mono + TIMING.retry_s * count for count in range(1, len(asked) + 1)]


def test_after_a_failed_renewal_the_version_is_read_again():
    """A renewal without answer may have been done: read, then renew with what was found."""
    failed, _ = LOGIC.advance_lease(state(LeasePhase.RENEWING), EVENTS["failed"])
    assert failed.next_at == NOW.mono + 1
    assert LOGIC.may_act(failed, NOW, 5.0)
    checking, effects = LOGIC.advance_lease(failed, TimerFired(NOW.seconds_later(1)))
    assert names(effects) == ["READ"]
    newer = attrs.evolve(OURS, version="11")
    _, effects = LOGIC.advance_lease(checking, LeaseSeen(NOW.seconds_later(1), newer))
    assert (effects[0].op, effects[0].version) == (LeaseOperation.RENEW, "11")


def test_a_lease_taken_and_lost_in_between_is_not_ours():
    """Our identity with another count is somebody's garbage, and ends the leadership."""
    after, effects = LOGIC.advance_lease(
        state(LeasePhase.CHECKING), LeaseSeen(NOW, attrs.evolve(OURS, transitions=5))
    )
    assert (after.phase, names(effects)) == (LeasePhase.ENDED, ["StepDown"])


@pytest.mark.parametrize(("left_s", "timeout_s"), [(6.0, 2.0), (1.5, 1.5), (0.1, 0.1)])
def test_calls_of_a_leader_are_cut_off_at_the_deadline(left_s, timeout_s):
    """No renewal outlives the leadership it renews."""
    before = state(LeasePhase.LEADING, valid_until=NOW.seconds_later(left_s))
    _, effects = LOGIC.advance_lease(before, TimerFired(NOW))
    assert effects[0].timeout_s == pytest.approx(timeout_s)


def test_ticks_before_their_time_do_nothing():
    """The shell may wake too early."""
    for phase in (LeasePhase.STANDBY, LeasePhase.LEADING):
        before = state(phase, next_at=NOW.mono + 1)
        assert LOGIC.advance_lease(before, TimerFired(NOW)) == (before, ())


@pytest.mark.parametrize(
    ("timing", "says"),
    [
        (LeaseTiming(lease_s=10, deadline_s=10), "must be longer than renewDeadline"),
        (LeaseTiming(deadline_s=10, retry_s=9), "1.2 times retryPeriod"),
        (LeaseTiming(deadline_s=10, retry_s=2.5), "more than the 5s that a binding may take"),
        (LeaseTiming(retry_s=0), "retryPeriod"),
        (LeaseTiming(lease_s=10**6), "at most 300s"),
    ],
)
def test_durations_that_could_overlap_are_refused(timing, says):
    """At start, with one sentence that has the numbers."""
    with pytest.raises(ConfigError, match=says):
        check_timing(timing)
    check_timing(LeaseTiming())


def test_stepping_down_says_why():
    """The effect carries the sentence that the log shows."""
    _, effects = LOGIC.advance_lease(state(LeasePhase.CHECKING), LeaseSeen(NOW, OTHER))
    assert effects == (StepDown('the lease is held by "other"'),)
