"""The vocabulary of leader election: durations, moments, states, events, effects."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError


@frozen(kw_only=True)
class LeaseTiming:
    """Durations in seconds; see ``check_timing`` for how they must relate."""

    lease_s: float = 15.0
    deadline_s: float = 10.0
    retry_s: float = 2.0


def check_timing(timing: LeaseTiming) -> None:
    """Refuse durations with which two leaders could overlap.

    Raises:
        ConfigError: one sentence with the numbers.
    """
    lease, deadline, retry = timing.lease_s, timing.deadline_s, timing.retry_s
    if not 0 < retry <= lease <= limits.LEASE_MAX_S:
        raise ConfigError(
            f"leaderElection: leaseDuration ({lease:g}s) must be at most"
            f" {limits.LEASE_MAX_S:g}s and retryPeriod ({retry:g}s) between 0 and it"
        )
    if not lease > deadline:
        raise ConfigError(
            f"leaderElection: leaseDuration ({lease:g}s) must be longer than"
            f" renewDeadline ({deadline:g}s)"
        )
    if not deadline > 1.2 * retry:
        raise ConfigError(
            f"leaderElection: renewDeadline ({deadline:g}s) must be longer than"
            f" 1.2 times retryPeriod ({retry:g}s)"
        )
    bind = limits.BIND_TIMEOUT_CLIENT_S
    if not bind < deadline - 2 * retry:
        raise ConfigError(
            f"leaderElection: renewDeadline ({deadline:g}s) less two retryPeriods ({retry:g}s)"
            f" must leave more than the {bind:g}s that a binding may take"
        )


@frozen
class ClockReading:
    """One moment on two clocks: ``boot`` goes on while the machine sleeps, ``mono`` does not."""

    mono: float
    boot: float

    def seconds_later(self, seconds: float) -> ClockReading:
        """So many seconds later on both."""
        return ClockReading(self.mono + seconds, self.boot + seconds)

    def seconds_left(self, now: ClockReading) -> float:
        """Seconds from ``now`` until this moment, by the clock that says less."""
        return min(self.mono - now.mono, self.boot - now.boot)


@frozen(kw_only=True)
class LeaseRecord:
    """What the Lease says. ``holder`` is empty when it was released."""

    version: str
    holder: str
    transitions: int
    duration_s: float


class LeasePhase(Enum):
    """Where we stand; in READING, TAKING, RENEWING, CHECKING, RELEASING a call is under way."""

    STANDBY = auto()
    READING = auto()
    TAKING = auto()
    LEADING = auto()
    RENEWING = auto()
    CHECKING = auto()
    RELEASING = auto()
    ENDED = auto()


LEADER: Final = frozenset({LeasePhase.LEADING, LeasePhase.RENEWING, LeasePhase.CHECKING})
IN_CALL: Final = frozenset(
    {
        LeasePhase.READING,
        LeasePhase.TAKING,
        LeasePhase.RENEWING,
        LeasePhase.CHECKING,
        LeasePhase.RELEASING,
    }
)


# -- events ---------------------------------------------------------------------------------
@frozen
class TimerFired:
    """The timer that the machine asked for has fired."""

    at: ClockReading


@frozen
class LeaseSeen:
    """A read found this."""

    at: ClockReading
    record: LeaseRecord


@frozen
class LeaseMissing:
    """There is no such Lease.

    Attributes:
        beginning: where the count of one begins that is made now.
    """

    at: ClockReading
    why: str
    beginning: int = 0


@frozen
class LeaseWritten:
    """Our write was accepted; the record is what it left."""

    at: ClockReading
    record: LeaseRecord


@frozen
class LeaseRefused:
    """Our write met another version than it expected."""

    at: ClockReading


@frozen
class LeaseCallFailed:
    """No verdict: the call may or may not have been done."""

    at: ClockReading
    why: str


@frozen
class LeaseDoubted:
    """Something suggests that we lead no longer, such as a fenced binding."""

    at: ClockReading


@frozen
class StopRequested:
    """The process is ending in order; everything else is done."""

    at: ClockReading


Event = (
    TimerFired
    | LeaseSeen
    | LeaseMissing
    | LeaseWritten
    | LeaseRefused
    | LeaseCallFailed
    | LeaseDoubted
    | StopRequested
)


# -- effects --------------------------------------------------------------------------------
class LeaseOperation(Enum):
    """What to ask of the API server."""

    READ = auto()
    CREATE = auto()
    TAKE = auto()
    RENEW = auto()
    RELEASE = auto()


@frozen(kw_only=True)
class CallLease:
    """Do this and answer with Seen, Missing, Written, Refused or Failed, in time."""

    op: LeaseOperation
    timeout_s: float
    version: str = ""
    transitions: int = 0


@frozen
class StartLeading:
    """We lead from now on; ``fence`` goes with every write."""

    fence: str


@frozen
class StepDown:
    """We lead no longer: nothing may be sent."""

    why: str


Effect = CallLease | StartLeading | StepDown


@frozen(kw_only=True)
class LeaseState:
    """Everything the machine knows.

    Attributes:
        record: as last seen; None when none was seen or it is missing.
        unchanged_since: monotonic time at which ``record`` was first seen.
        others_until: monotonic time until which the holder of a Lease that was deleted may act.
        highest: count of the changes of hands, the highest ever seen; no fence goes below it.
        called: when the last call was begun.
        valid_until: of our leadership; meaningful in leader phases.
        next_at: monotonic time at which a Tick has something to do.
        read_first: our version may be stale, so read before renewing.
        doubtful: we may not lead any more; do not act until renewed.
        why: latest trouble, or why it ended.
    """

    phase: LeasePhase
    next_at: float
    record: LeaseRecord | None = None
    unchanged_since: float = 0.0
    others_until: float = 0.0
    highest: int = 0
    called: ClockReading = ClockReading(0.0, 0.0)
    valid_until: ClockReading = ClockReading(0.0, 0.0)
    transitions: int = 0
    read_first: bool = False
    doubtful: bool = False
    stopping: bool = False
    why: str = ""
