"""Who may write, as a pure state machine: state and event in, state and effects out.

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
compare-and-set by resourceVersion.
"""

from __future__ import annotations

import attrs

from gpusched import limits
from gpusched.errors import InvariantBroken
from gpusched.leader.lease_state import (
    IN_CALL,
    LEADER,
    Call,
    Doubted,
    Effect,
    Event,
    Failed,
    Lead,
    LeaseState,
    LeaseTiming,
    Missing,
    Moment,
    Op,
    Phase,
    Record,
    Refused,
    Seen,
    StepDown,
    Stop,
    Tick,
    Written,
)

Step = tuple[LeaseState, tuple[Effect, ...]]


@attrs.frozen(kw_only=True)
class LeaseLogic:
    """The machine's constants and its ``step``.

    Attributes:
        identity: of this process alone, new at each start.
        create_if_missing: whether a missing Lease may be made; in a cluster the manifest does.
    """

    identity: str
    timing: LeaseTiming
    create_if_missing: bool = False

    def first(self, now: Moment) -> LeaseState:
        """The state of a process that just started."""
        return LeaseState(phase=Phase.STANDBY, next_at=now.mono)

    def fence(self, state: LeaseState) -> str:
        """``identity/transitions``: orders writers, as every acquisition counts one up."""
        return f"{self.identity}/{state.transitions}"

    def may_act(self, state: LeaseState, now: Moment, needs_s: float) -> bool:
        """Whether a call that may last ``needs_s`` seconds can begin now."""
        return (
            state.phase in LEADER and not state.doubtful and state.valid_until.left(now) > needs_s
        )

    def step(self, state: LeaseState, event: Event) -> Step:
        """The one transition function; total but for events the shell must never send.

        Raises:
            InvariantBroken: an answer came although no call was under way.
        """
        if state.phase in LEADER and state.valid_until.left(event.at) <= 0:
            return self._lost(
                state, f"the lease was not renewed within {self.timing.deadline_s:g} s"
            )
        state, effects = self._dispatch(state, event)
        if state.stopping and state.phase not in IN_CALL and state.phase is not Phase.ENDED:
            state, more = self._stop(state, event.at)
            effects += more
        return state, effects

    def _dispatch(self, state: LeaseState, event: Event) -> Step:
        match event:
            case Tick():
                return self._tick(state, event.at)
            case Stop():
                return attrs.evolve(state, stopping=True), ()
            case Doubted():
                return self._doubted(state, event.at)
            case Seen():
                return self._seen(state, event)
            case Written():
                return self._written(state, event)
            case Refused():
                return self._refused(state, event)
            case Missing():
                return self._missing(state, event)
            case Failed():
                return self._failed(state, event)

    # -- what the shell does on its own -----------------------------------------------------

    def _tick(self, state: LeaseState, at: Moment) -> Step:
        if state.phase not in {Phase.STANDBY, Phase.LEADING} or at.mono < state.next_at:
            return state, ()
        if state.phase is Phase.STANDBY:
            return self._call(state, at, phase=Phase.READING, op=Op.READ)
        if state.read_first:
            return self._call(state, at, phase=Phase.CHECKING, op=Op.READ)
        return self._renew(state, at)

    def _doubted(self, state: LeaseState, at: Moment) -> Step:
        if state.phase not in LEADER:
            return state, ()
        next_at = at.mono if state.phase is Phase.LEADING else state.next_at
        return attrs.evolve(state, doubtful=True, next_at=next_at), ()

    def _stop(self, state: LeaseState, at: Moment) -> Step:
        if state.phase is Phase.STANDBY:
            return attrs.evolve(state, phase=Phase.ENDED, why="stopped"), ()
        assert state.record is not None
        state, effects = self._call(
            state, at, phase=Phase.RELEASING, op=Op.RELEASE, record=state.record
        )
        return state, (StepDown("stopped"), *effects)

    # -- answers ----------------------------------------------------------------------------

    def _seen(self, state: LeaseState, event: Seen) -> Step:
        record, at = event.record, event.at
        if state.phase is Phase.CHECKING:
            if record.holder == self.identity and record.transitions == state.transitions:
                return self._renew(attrs.evolve(state, record=record), at)
            return self._lost(state, f'the lease is held by "{record.holder or "nobody"}"')
        if state.phase is not Phase.READING:
            raise _impossible(state, event)
        if record != state.record:
            state = attrs.evolve(state, record=record, unchanged_since=at.mono)
        # A holder configured with a longer lease believes in it for longer.
        patience = min(max(self.timing.lease_s, record.duration_s), limits.LEASE_MAX_S)
        expires = state.unchanged_since + patience
        if record.holder in {"", self.identity} or at.mono >= expires:
            state = attrs.evolve(state, transitions=record.transitions + 1)
            return self._call(state, at, phase=Phase.TAKING, op=Op.TAKE, record=record)
        next_at = min(at.mono + self.timing.retry_s, expires)
        return attrs.evolve(state, phase=Phase.STANDBY, next_at=next_at, why=""), ()

    def _written(self, state: LeaseState, event: Written) -> Step:
        if state.phase is Phase.RELEASING:
            return attrs.evolve(state, phase=Phase.ENDED, record=event.record, why="released"), ()
        if state.phase not in {Phase.TAKING, Phase.RENEWING}:
            raise _impossible(state, event)
        # Counted from when the request was sent: the server may have seen it that early.
        valid_until = state.called.plus(self.timing.deadline_s)
        if valid_until.left(event.at) <= 0:  # a new lease that is over before it was known
            return self._retry(state, event.at, why="acquiring the lease took too long")
        began = state.phase is Phase.TAKING
        state = attrs.evolve(
            state,
            phase=Phase.LEADING,
            record=event.record,
            valid_until=valid_until,
            next_at=state.called.mono + self.timing.retry_s,
            read_first=False,
            doubtful=False,
            why="",
        )
        return state, (Lead(self.fence(state)),) if began else ()

    def _refused(self, state: LeaseState, event: Refused) -> Step:
        match state.phase:
            case Phase.TAKING:
                return self._retry(state, event.at, why="another process took the lease first")
            case Phase.RENEWING:
                state = attrs.evolve(state, doubtful=True)
                return self._call(state, event.at, phase=Phase.CHECKING, op=Op.READ)
            case Phase.RELEASING:
                return _not_released(state, "another process has it")
            case _:
                raise _impossible(state, event)

    def _missing(self, state: LeaseState, event: Missing) -> Step:
        match state.phase:
            case Phase.READING | Phase.TAKING:
                may_create = self.create_if_missing and state.phase is Phase.READING
                state = attrs.evolve(state, record=None)
                if may_create:
                    state = attrs.evolve(state, transitions=1)
                    return self._call(state, event.at, phase=Phase.TAKING, op=Op.CREATE)
                return self._retry(state, event.at, why=event.why)
            case Phase.RENEWING | Phase.CHECKING:
                return self._lost(state, event.why)
            case Phase.RELEASING:
                return _not_released(state, event.why)
            case _:
                raise _impossible(state, event)

    def _failed(self, state: LeaseState, event: Failed) -> Step:
        match state.phase:
            case Phase.READING | Phase.TAKING:
                return self._retry(state, event.at, why=event.why)
            case Phase.RENEWING | Phase.CHECKING:
                # The write may have been done, with a version that we do not know.
                next_at = max(event.at.mono, state.called.mono + self.timing.retry_s)
                state = attrs.evolve(
                    state, phase=Phase.LEADING, read_first=True, next_at=next_at, why=event.why
                )
                return state, ()
            case Phase.RELEASING:
                return _not_released(state, event.why)
            case _:
                raise _impossible(state, event)

    # -- parts ------------------------------------------------------------------------------

    def _renew(self, state: LeaseState, at: Moment) -> Step:
        return self._call(state, at, phase=Phase.RENEWING, op=Op.RENEW, record=state.record)

    def _call(
        self, state: LeaseState, at: Moment, *, phase: Phase, op: Op, record: Record | None = None
    ) -> Step:
        timeout_s = self.timing.retry_s
        if phase in LEADER:  # cut off at the deadline, whatever the server does
            timeout_s = min(timeout_s, state.valid_until.left(at))
        call = Call(
            op=op,
            timeout_s=timeout_s,
            version=record.version if record is not None else "",
            transitions=state.transitions,
        )
        return attrs.evolve(state, phase=phase, called=at), (call,)

    def _retry(self, state: LeaseState, at: Moment, *, why: str) -> Step:
        next_at = max(at.mono, state.called.mono + self.timing.retry_s)
        return attrs.evolve(state, phase=Phase.STANDBY, next_at=next_at, why=why), ()

    def _lost(self, state: LeaseState, why: str) -> Step:
        return attrs.evolve(state, phase=Phase.ENDED, why=why), (StepDown(why),)


def _not_released(state: LeaseState, why: str) -> Step:
    """The successor then waits until the lease runs out: slower, never unsafe."""
    return attrs.evolve(state, phase=Phase.ENDED, why=f"not released: {why}"), ()


def _impossible(state: LeaseState, event: Event) -> InvariantBroken:
    return InvariantBroken(f"lease: {event} in {state.phase.name}, state {state}")
