"""Answers to gangs that wait: admission, reason, place in the queue and expected start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import NO_EXPECTED_STARTS, ExpectedStarts
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.framework.verdict import ALLOW, Verdict, error
from gpusched.session.state.order.waiting_turns import NO_ORDER, WaitingOrder
from gpusched.session.state.plan import PendingReason


class Outcomes:
    """Answers to the gangs of one session that are not given places.

    Args:
        stopped: keys of gangs that this session stops; their answer is why they are stopped.
    """

    def __init__(self, stopped: Collection[GangKey]) -> None:
        self._stopped = stopped
        self._refusals: dict[GangKey, PendingReason] = {}
        self._last_refusal: PendingReason | None = None
        self._admission: dict[GangKey, PendingReason] = {}
        self._admitted: set[GangKey] = set()
        self._positions: dict[GangKey, int] = {}
        self.expected_starts = NO_EXPECTED_STARTS
        """When gangs that wait are expected to start."""
        self._returned_jobs: list[Gang] = []
        self._untold_queues: dict[str, Exception] = {}
        self.waiting_order = NO_ORDER
        """Turns of the gangs that wait, with the keys by which they were sorted."""
        self.closed = ""
        """Why nothing may be placed in this session, as a policy could not open; empty if it may."""

    # -- reports -----------------------------------------------------------------------------
    def leave_untold(self, queue: str, error: Exception) -> None:
        """The status of a queue is left out of this session's plan, for what it raised."""
        self._untold_queues[queue] = error

    @property
    def untold_queues(self) -> dict[str, Exception]:
        """Exceptions for which statuses of queues are left out, by name of the queue."""
        return dict(self._untold_queues)

    # -- admission ---------------------------------------------------------------------------
    def close(self, message: str) -> None:
        """Refuse every gang of this session with this sentence."""
        self.closed = message

    def admit(self, gang: Gang, verdict: Verdict) -> bool:
        """Enter the answer on admission; a refused gang gets the same reason on both conditions.

        Returns:
            Whether the gang is admitted.
        """
        if self._stopped and gang.key in self._stopped:
            return False
        if self.closed:
            verdict = error(Reason.BACK_OFF, self.closed)
        if verdict is not ALLOW and verdict.refuses:
            self.postpone_admission(gang, verdict)
            self.refuse(gang, verdict.reason, verdict.message)
            return False
        self._admitted.add(gang.key)
        return True

    def admit_all(self, gangs: Iterable[Gang]) -> bool:
        """Admit gangs against which nothing speaks; False where the session stops gangs or is closed, and each is to be asked about."""
        if self._stopped or self.closed:
            return False
        self._admitted.update(gang.key for gang in gangs)
        return True

    def postpone_admission(self, gang: Gang, verdict: Verdict) -> None:
        """The gang's condition says that it is not admitted; it may be given places all the same."""
        self._admission[gang.key] = PendingReason(reason=verdict.reason, message=verdict.message)

    def is_admitted(self, gang: Gang) -> bool:
        """Whether the gang may be given places in this session."""
        return gang.key in self._admitted

    @property
    def admitted_keys(self) -> AbstractSet[GangKey]:
        """Keys of the gangs that may be given places in this session."""
        return self._admitted

    def admission(self, gang: Gang) -> PendingReason | None:
        """Why the gang is not admitted; None when it is, or was not checked."""
        return self._admission.get(gang.key) if self._admission else None

    def has_admission(self, gang: Gang) -> bool:
        """Whether this session has answered on the gang's admission."""
        return gang.key in self._admitted or gang.key in self._admission

    def return_job(self, gang: Gang) -> None:
        """The gang's Job was started and got no place: it is suspended again."""
        self._returned_jobs.append(gang)

    @property
    def returned_jobs(self) -> Sequence[Gang]:
        """Gangs whose Jobs are suspended again as they got no place in time."""
        return self._returned_jobs

    # -- why a gang waits --------------------------------------------------------------------
    def refuse(self, gang: Gang, reason: str, message: str) -> None:
        """The gang does not start in this session, and this is why."""
        last = self._last_refusal
        if last is None or last.message != message or last.reason != reason:
            last = self._last_refusal = PendingReason(reason=reason, message=message)
        self._refusals[gang.key] = last

    def refuse_all(self, gangs: Sequence[Gang], reason: str, message: str) -> None:
        """Some gangs, one at least, do not start in this session, all for one reason."""
        first = gangs[0]
        self.refuse(first, reason, message)
        self._refusals.update(
            dict.fromkeys([each.key for each in gangs], self._refusals[first.key])
        )

    def extend_refusal(self, gang: Gang, why: str) -> None:
        """Add words to the sentence with which the gang was refused."""
        known = self._refusals[gang.key]
        self._refusals[gang.key] = PendingReason(
            reason=known.reason, message=truncate_message(f"{known.message}; {why}")
        )

    def retract_refusal(self, gang: Gang) -> None:
        """The gang was refused and got places after all."""
        del self._refusals[gang.key]

    def refusal(self, gang: Gang) -> PendingReason | None:
        """Why the gang does not start in this session; None when nothing was said."""
        return self._refusals.get(gang.key)

    # -- when it will start ------------------------------------------------------------------
    def set_position(self, gang: Gang, position: int) -> None:
        """Enter the gang's place in its queue, from 1."""
        self._positions[gang.key] = position

    def position(self, gang: Gang) -> int:
        """Place of a waiting gang in its queue, from 1; 0 for none."""
        return self._positions.get(gang.key, 0)

    def set_waiting_order(self, order: WaitingOrder) -> None:
        """Enter the turns of the gangs that wait."""
        self.waiting_order = order

    def set_expected_starts(self, starts: ExpectedStarts) -> None:
        """Enter when gangs are expected to start."""
        self.expected_starts = starts

    def estimated_start(self, gang: Gang) -> float:
        """When a waiting gang is expected to start, seconds since the epoch; 0.0 for unknown."""
        estimate = self.expected_starts.estimates.get(gang.key)
        return estimate.start if estimate is not None else 0.0
