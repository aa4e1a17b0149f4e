"""One log line a decision: who started where, who waits and why, who leaves for whom and at what cost.

A gang that waits has a line when it begins to, and when its reason becomes another one; numbers in
the sentence change too often. Lines are bounded: so many a second, ten seconds' worth at once, and
a line that says how many were left out. What decides is not slowed by it: a session's lines are
made after its plan was carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpusched.api.meta.identity import GangKey, format_time
from gpusched.base.clock import Clock
from gpusched.io.observe.logs import Logger
from gpusched.session.framework.reasons import pods_text
from gpusched.session.state.plan import (
    Eviction,
    GangBind,
    GangStatus,
    GangStop,
    JobSuspendChange,
    Plan,
    PreemptionPlan,
)

_BURST_S: Final = 10
"""So many seconds' lines may come at once: a session decides about many gangs."""
_NODES_NAMED_MAX: Final = 8
_log = Logger(__name__)


class DecisionLine(NamedTuple):
    """A sentence, with facts by name; ``event`` is a word for its kind."""

    gang: GangKey
    event: str
    sentence: str
    facts: dict[str, object]


class DecisionLog:
    """See the module.

    Args:
        clock: time.
        lines_per_s: how many lines a second are written, 0 for none; asked each time.
        is_there: whether a gang has pods still; others are forgotten.

    Attributes:
        followers: told of each line, whatever level the log has.
    """

    def __init__(
        self,
        clock: Clock,
        lines_per_s: Callable[[], int],
        is_there: Callable[[GangKey], bool],
    ) -> None:
        self._clock = clock
        self._lines_per_s = lines_per_s
        self._is_there = is_there
        self._waiting: dict[GangKey, tuple[GangStatus, str]] = {}
        """Gangs that wait, each with its last status and the reason that was logged."""
        self._moved: dict[GangKey, str] = {}
        """Why estimates moved last, of gangs that wait."""
        self._allowance = 0.0
        self._allowed_at: float | None = None
        self._left_out = 0
        self.followers: list[Callable[[DecisionLine], None]] = []

    def decided(self, plan: Plan) -> None:
        """Write what a session decided; starts are written once they are bound."""
        if not self._is_on():
            self._waiting.clear()
            return
        for claim in plan.preemptions:
            if not claim.moves_itself:
                self._write(_claim_line(claim))
            for stop in filter(_has_evictions, claim.stops):
                claimant = None if claim.moves_itself else claim.gang
                self._write(_stop_line(stop, claimant=claimant))
        for stop in filter(_has_evictions, plan.stops):
            self._write(_stop_line(stop, claimant=None))
        for change in plan.job_changes:
            self._write(_job_line(change))
        for line in self._new_waits(plan.gangs):
            self._write(line)

    def estimates_moved(self, statuses: Sequence[GangStatus]) -> None:
        """Write whose expected start is another than the one told before, and why."""
        moved = {each.gang: each.estimate_change for each in statuses if each.estimate_change}
        for status in statuses:
            why = moved.get(status.gang, "")
            if why and why != self._moved.get(status.gang) and self._is_on():
                self._write(_move_line(status))
        self._moved = moved

    def bound(self, gang: GangBind) -> None:
        """Write that a gang's bindings were all accepted."""
        self._waiting.pop(gang.gang, None)
        if self._is_on():
            self._write(_start_line(gang))

    def _is_on(self) -> bool:
        return bool(self._lines_per_s()) and (_log.writes_info or bool(self.followers))

    def _new_waits(self, statuses: Sequence[GangStatus]) -> Iterator[DecisionLine]:
        """A line for each gang that begins to wait, or waits for another reason than before."""
        waiting = 0
        for status in statuses:
            known = self._waiting.get(status.gang)
            if status.is_scheduled or not _waits(status):
                self._waiting.pop(status.gang, None)
                continue
            waiting += 1
            if known is not None and known[0] is status:
                continue  # the same object as long as nothing of it changed
            reason = status.scheduled.reason
            self._waiting[status.gang] = (status, reason)
            if known is None or known[1] != reason:
                yield _wait_line(status)
        if waiting < len(self._waiting):  # some are on their way to their nodes, or gone
            told = {status.gang for status in statuses}
            for key in [key for key in self._waiting if key not in told]:
                if not self._is_there(key):
                    del self._waiting[key]

    def _write(self, line: DecisionLine) -> None:
        if not self._may_write():
            self._left_out += 1
            return
        if self._left_out:
            left, self._left_out = self._left_out, 0
            _log.info(
                "decisions were left out of the log", lines=left, lines_per_s=self._lines_per_s()
            )
        _log.info(line.sentence, **line.facts)
        for follower in self.followers:
            follower(line)

    def _may_write(self) -> bool:
        rate, now = self._lines_per_s(), self._clock.monotonic()
        most = float(rate * _BURST_S)
        since = now if self._allowed_at is None else self._allowed_at
        self._allowance = (
            most if self._allowed_at is None else min(most, self._allowance + (now - since) * rate)
        )
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _start_line(gang: GangBind) -> DecisionLine:
    verb = "grows" if gang.grows else "starts"
    count = len(gang.binds)
    facts: dict[str, object] = {
        "queue": gang.queue,
        "pods": count,
        "nodes": _nodes_text(Counter(bind.node for bind in gang.binds)),
    }
    if gang.left_waiting:
        facts["waiting"] = gang.left_waiting
    if gang.proof:
        facts["proof"] = gang.proof
    sentence = f"{_name(gang.gang)} {verb} with {pods_text(count)}"
    return DecisionLine(gang.gang, verb, sentence, {**facts, "plan": gang.plan_id})


def _waits(status: GangStatus) -> bool:
    """Whether pods of it wait, be they made or, of a suspended Job, still to come."""
    to_come = status.gang.kind == "Job" and status.phase in {"Pending", "Inqueue"}
    return bool(status.waiting_pods) or to_come


def _wait_line(status: GangStatus) -> DecisionLine:
    facts: dict[str, object] = {"queue": status.queue, "reason": status.scheduled.reason}
    if status.waiting_pods:
        facts["pods"] = len(status.waiting_pods)
    if status.queue_position:
        facts["position"] = status.queue_position
    facts["why"] = status.scheduled.message
    return DecisionLine(status.gang, "waits", f"{_name(status.gang)} waits", facts)


def _move_line(status: GangStatus) -> DecisionLine:
    facts: dict[str, object] = {"queue": status.queue}
    if status.start_estimate is not None:
        facts["start"] = format_time(status.start_estimate.start)
    facts["why"] = status.estimate_change
    sentence = f"{_name(status.gang)} is expected at another time"
    return DecisionLine(status.gang, "expects", sentence, facts)


def _claim_line(claim: PreemptionPlan) -> DecisionLine:
    lost = sum(each.gpu_seconds for stop in claim.stops for each in stop.evictions)
    return DecisionLine(
        claim.gang,
        "claims",
        f"room for {pods_text(len(claim.nominations))} is held for {_name(claim.gang)}",
        {
            "by": claim.action,
            "nodes": _nodes_text(Counter(node for _, _, node in claim.nominations)),
            "victims": len(claim.stops),
            "lost_gpu_seconds": lost,
        },
    )


def _has_evictions(stop: GangStop) -> bool:
    return bool(stop.evictions)


def _stop_line(stop: GangStop, *, claimant: GangKey | None) -> DecisionLine:
    first: Eviction = stop.evictions[0]
    count = len(stop.evictions)
    repeats: dict[str, object] = {}
    if stop.count is not None and stop.count.times > 1:
        repeats["times"] = stop.count.times
    if stop.count is not None and stop.count.chain.length > 1:
        repeats["chain"] = stop.count.chain.length
        repeats["cycle"] = stop.count.chain.is_cycle
    whom = f" for {_name(claimant)}" if claimant is not None else ""
    return DecisionLine(
        stop.gang,
        "loses",
        f"{_name(stop.gang)} loses {pods_text(count)}{whom}",
        {
            "by": first.action,
            "reason": first.reason,
            "queue": first.queue,
            "nodes": _nodes_text(Counter(each.node for each in stop.evictions)),
            "lost_gpu_seconds": sum(each.gpu_seconds for each in stop.evictions),
            **repeats,
            "why": first.message,
        },
    )


def _job_line(change: JobSuspendChange) -> DecisionLine:
    verb = "is suspended" if change.suspend else "is resumed"
    return DecisionLine(
        GangKey("Job", *change.key),
        "suspends" if change.suspend else "resumes",
        f"Job {change.key} {verb}",
        {"by": change.action, "reason": change.reason, "why": change.message},
    )


def _name(gang: GangKey) -> str:
    return f"{gang.kind} {gang.namespace}/{gang.name}"


def _nodes_text(pods: Counter[str]) -> str:
    """``n0 (2), n1``: nodes with their pods, the first eight by name."""
    names = sorted(pods)
    told = [f"{name} ({pods[name]})" if pods[name] > 1 else name for name in names]
    more = len(names) - _NODES_NAMED_MAX
    return ", ".join(told[:_NODES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
