"""Which process may write, as a pure state machine: state and event in, state and effects out.

::

    STANDBY -> READING -> TAKING -> LEADING <-> RENEWING
       ^          |          |         |  ^        |
       +----------+----------+         v  |        v  conflict
                                    CHECKING <-----+
    LEADING -> RELEASING -> ENDED          (a leader that lost the lease goes to ENDED
                                            from wherever it is, and the process ends)

Two promises keep two daemons from writing at once. A leader's last call ends ``deadline_s``
after it *sent* its last successful renewal, measured on two clocks, one of which counts
suspended time. A standby takes over only when the record did not change for ``lease_s`` of
its own monotonic time; it never reads the timestamps in the record. Every write is a
compare-and-set by resourceVersion. Where the Lease is deleted, made anew or not, its last holder
may act for as long as before, and counts of changes of hands go on.
"""

from __future__ import annotations

import attrs

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import InvariantBroken
from gpusched.leader.lease_state import (
    IN_CALL,
    LEADER,
    CallLease,
    ClockReading,
    Effect,
    Event,
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
)

Step = tuple[LeaseState, tuple[Effect, ...]]


@frozen(kw_only=True)
class LeaseMachine:
    """The machine's constants and its ``advance_lease``.

    Attributes:
        identity: of this process alone, new at each start.
        create_if_missing: whether a missing Lease may be made; in a cluster the manifest does.
        patience_s: seconds for which a Lease that nobody holds is left to others.
    """

    identity: str
    timing: LeaseTiming
    create_if_missing: bool = False
    patience_s: float = 0.0

    def first_state(self, now: ClockReading) -> LeaseState:
        """The state of a process that just started."""
        return LeaseState(
            phase=LeasePhase.STANDBY, next_at=now.mono, others_until=now.mono + self.patience_s
        )

    def fence(self, state: LeaseState) -> str:
        """``identity/transitions``: orders writers, as every acquisition counts one up."""
        return f"{self.identity}/{state.transitions}"

    def may_act(self, state: LeaseState, now: ClockReading, needs_s: float) -> bool:
        """Whether a call that may last ``needs_s`` seconds can begin now."""
        return (
            state.phase in LEADER
            and not state.doubtful
            and state.valid_until.seconds_left(now) > needs_s
        )

    def advance_lease(self, state: LeaseState, event: Event) -> Step:
        """The one transition function; total but for events the shell must never send.

        Raises:
            InvariantBroken: an answer came although no call was under way.
        """
        if state.phase in LEADER and state.valid_until.seconds_left(event.at) <= 0:
            return self._lose_lease(
                state, f"the lease was not renewed within {self.timing.deadline_s:g} s"
            )
        state, effects = self._dispatch(state, event)
        if state.stopping and state.phase not in IN_CALL and state.phase is not LeasePhase.ENDED:
            state, more = self._stop(state, event.at)
            effects += more
        return state, effects

    def _dispatch(self, state: LeaseState, event: Event) -> Step:
        match event:
            case TimerFired():
                return self._on_tick(state, event.at)
            case StopRequested():
                return attrs.evolve(state, stopping=True), ()
            case LeaseDoubted():
                return self._on_doubted(state, event.at)
            case LeaseSeen():
                return self._on_seen(state, event)
            case LeaseWritten():
                return self._on_written(state, event)
            case LeaseRefused():
                return self._on_refused(state, event)
            case LeaseMissing():
                return self._on_missing(state, event)
            case LeaseCallFailed():
                return self._on_failed(state, event)

    # -- what the shell does on its own -----------------------------------------------------

    def _on_tick(self, state: LeaseState, at: ClockReading) -> Step:
        if state.phase not in {LeasePhase.STANDBY, LeasePhase.LEADING} or at.mono < state.next_at:
            return state, ()
        if state.phase is LeasePhase.STANDBY:
            return self._send_write(state, at, phase=LeasePhase.READING, op=LeaseOperation.READ)
        if state.read_first:
            return self._send_write(state, at, phase=LeasePhase.CHECKING, op=LeaseOperation.READ)
        return self._renew_lease(state, at)

    def _on_doubted(self, state: LeaseState, at: ClockReading) -> Step:
        if state.phase not in LEADER:
            return state, ()
        next_at = at.mono if state.phase is LeasePhase.LEADING else state.next_at
        return attrs.evolve(state, doubtful=True, next_at=next_at), ()

    def _stop(self, state: LeaseState, at: ClockReading) -> Step:
        if state.phase is LeasePhase.STANDBY:
            return attrs.evolve(state, phase=LeasePhase.ENDED, why="stopped"), ()
        assert state.record is not None
        state, effects = self._send_write(
            state, at, phase=LeasePhase.RELEASING, op=LeaseOperation.RELEASE, record=state.record
        )
        return state, (StepDown("stopped"), *effects)

    # -- answers ----------------------------------------------------------------------------

    def _on_seen(self, state: LeaseState, event: LeaseSeen) -> Step:
        record, at = event.record, event.at
        if state.phase is LeasePhase.CHECKING:
            if record.holder == self.identity and record.transitions == state.transitions:
                if not state.read_first and record == state.record:
                    # Refused although nobody wrote meanwhile: asking again at once is no use.
                    next_at = at.mono + self.timing.retry_s
                    state = attrs.evolve(
                        state, phase=LeasePhase.LEADING, read_first=True, next_at=next_at
                    )
                    return state, ()
                return self._renew_lease(attrs.evolve(state, record=record), at)
            return self._lose_lease(state, f'the lease is held by "{record.holder or "nobody"}"')
        if state.phase is not LeasePhase.READING:
            raise _impossible(state, event)
        if record != state.record:
            if record.holder == "" and _is_made_anew(state.record, record):
                state = self._note_lost_holder(state)
            state = attrs.evolve(state, record=record, unchanged_since=at.mono)
        free = record.holder in {"", self.identity}
        expires = max(
            state.others_until,
            state.unchanged_since + self.patience_s if free else self._expiry_of_holder(state),
        )
        highest = max(state.highest, record.transitions)
        state = attrs.evolve(state, highest=highest)
        if at.mono >= expires:
            state = attrs.evolve(state, transitions=highest + 1)
            return self._send_write(
                state, at, phase=LeasePhase.TAKING, op=LeaseOperation.TAKE, record=record
            )
        next_at = min(at.mono + self.timing.retry_s, expires)
        return attrs.evolve(state, phase=LeasePhase.STANDBY, next_at=next_at, why=""), ()

    def _on_written(self, state: LeaseState, event: LeaseWritten) -> Step:
        if state.phase is LeasePhase.RELEASING:
            return attrs.evolve(
                state, phase=LeasePhase.ENDED, record=event.record, why="released"
            ), ()
        if state.phase not in {LeasePhase.TAKING, LeasePhase.RENEWING}:
            raise _impossible(state, event)
        # Counted from when the request was sent: the server may have seen it that early.
        valid_until = state.called.seconds_later(self.timing.deadline_s)
        if valid_until.seconds_left(event.at) <= 0:  # a new lease that is over before it was known
            return self._retry_write(state, event.at, why="acquiring the lease took too long")
        began = state.phase is LeasePhase.TAKING
        state = attrs.evolve(
            state,
            phase=LeasePhase.LEADING,
            record=event.record,
            valid_until=valid_until,
            next_at=state.called.mono + self.timing.retry_s,
            read_first=False,
            doubtful=False,
            why="",
        )
        return state, (StartLeading(self.fence(state)),) if began else ()

    def _on_refused(self, state: LeaseState, event: LeaseRefused) -> Step:
        match state.phase:
            case LeasePhase.TAKING:
                return self._retry_write(
                    state, event.at, why="another process took the lease first"
                )
            case LeasePhase.RENEWING:
                state = attrs.evolve(state, doubtful=True, read_first=False)
                return self._send_write(
                    state, event.at, phase=LeasePhase.CHECKING, op=LeaseOperation.READ
                )
            case LeasePhase.RELEASING:
                return _not_released(state, "another process has it")
            case _:
                raise _impossible(state, event)

    def _on_missing(self, state: LeaseState, event: LeaseMissing) -> Step:
        match state.phase:
            case LeasePhase.READING | LeasePhase.TAKING:
                return self._make_lease(state, event)
            case LeasePhase.RENEWING | LeasePhase.CHECKING:
                return self._lose_lease(state, event.why)
            case LeasePhase.RELEASING:
                return _not_released(state, event.why)
            case _:
                raise _impossible(state, event)

    def _make_lease(self, state: LeaseState, event: LeaseMissing) -> Step:
        reading = state.phase is LeasePhase.READING
        state = attrs.evolve(self._note_lost_holder(state), record=None)
        if not (self.create_if_missing and reading):
            return self._retry_write(state, event.at, why=event.why)
        if event.at.mono < state.others_until:
            state, _ = self._retry_write(state, event.at, why="")  # whose own it is makes it
            return attrs.evolve(state, next_at=min(state.next_at, state.others_until)), ()
        state = attrs.evolve(state, transitions=max(state.highest, event.beginning) + 1)
        return self._send_write(state, event.at, phase=LeasePhase.TAKING, op=LeaseOperation.CREATE)

    def _note_lost_holder(self, state: LeaseState) -> LeaseState:
        """The state after the Lease as it was last seen is gone: its holder may still act."""
        if state.record is None or state.record.holder in {"", self.identity}:
            return state
        return attrs.evolve(
            state, others_until=max(state.others_until, self._expiry_of_holder(state))
        )

    def _expiry_of_holder(self, state: LeaseState) -> float:
        """Monotonic time from which the holder that was last seen acts no more."""
        # A holder configured with a longer lease believes in it for longer.
        held_s = state.record.duration_s if state.record is not None else 0.0
        patience = min(max(self.timing.lease_s, held_s), limits.LEASE_MAX_S)
        return state.unchanged_since + patience

    def _on_failed(self, state: LeaseState, event: LeaseCallFailed) -> Step:
        match state.phase:
            case LeasePhase.READING | LeasePhase.TAKING:
                return self._retry_write(state, event.at, why=event.why)
            case LeasePhase.RENEWING | LeasePhase.CHECKING:
                # The write may have been done, with a version that we do not know.
                next_at = max(event.at.mono, state.called.mono + self.timing.retry_s)
                state = attrs.evolve(
                    state, phase=LeasePhase.LEADING, read_first=True, next_at=next_at, why=event.why
                )
                return state, ()
            case LeasePhase.RELEASING:
                return _not_released(state, event.why)
            case _:
                raise _impossible(state, event)

    # -- parts ------------------------------------------------------------------------------

    def _renew_lease(self, state: LeaseState, at: ClockReading) -> Step:
        return self._send_write(
            state, at, phase=LeasePhase.RENEWING, op=LeaseOperation.RENEW, record=state.record
        )

    def _send_write(
        self,
        state: LeaseState,
        at: ClockReading,
        *,
        phase: LeasePhase,
        op: LeaseOperation,
        record: LeaseRecord | None = None,
    ) -> Step:
        timeout_s = self.timing.retry_s
        if phase in LEADER:  # cut off at the deadline, whatever the server does
            timeout_s = min(timeout_s, state.valid_until.seconds_left(at))
        call = CallLease(
            op=op,
            timeout_s=timeout_s,
            version=record.version if record is not None else "",
            transitions=state.transitions,
        )
        return attrs.evolve(state, phase=phase, called=at), (call,)

    def _retry_write(self, state: LeaseState, at: ClockReading, *, why: str) -> Step:
        next_at = max(at.mono, state.called.mono + self.timing.retry_s)
        return attrs.evolve(state, phase=LeasePhase.STANDBY, next_at=next_at, why=why), ()

    def _lose_lease(self, state: LeaseState, why: str) -> Step:
        return attrs.evolve(state, phase=LeasePhase.ENDED, why=why), (StepDown(why),)


def _is_made_anew(before: LeaseRecord | None, after: LeaseRecord) -> bool:
    """Whether a free Lease is not the one that its holder gave back: that keeps its count."""
    return before is not None and before.transitions != after.transitions


def _not_released(state: LeaseState, why: str) -> Step:
    """The successor then waits until the lease runs out: slower, never unsafe."""
    return attrs.evolve(state, phase=LeasePhase.ENDED, why=f"not released: {why}"), ()


def _impossible(state: LeaseState, event: Event) -> InvariantBroken:
    return InvariantBroken(f"lease: {event} in {state.phase.name}, state {state}")
