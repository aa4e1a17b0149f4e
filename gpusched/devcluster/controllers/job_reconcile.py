"""What a Job needs next, as a list of actions: pure, given the Job, its pods and the time.

    running --completions reached--> SuccessCriteriaMet --no pod left alive--> Complete
    running --limit or deadline----> FailureTarget ------no pod left alive--> Failed

Pods carry a finalizer until they are counted in the status, so that none is counted twice and
none goes uncounted; taking the finalizer off and writing the count happen in one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from gpusched.devcluster.controllers import job_pods
from gpusched.devcluster.controllers.job_pods import Obj
from gpusched.devcluster.controllers.timestamps import moment, stamp

BACKOFF_FIRST_S: Final = 10.0
BACKOFF_MAX_S: Final = 600.0
CREATE_BURST_MAX: Final = 500
"""Pods one turn makes; the next turn goes on, so that one huge Job does not hold up the rest."""

_COMPLETIONS_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_BACKOFF_EXCEEDED: Final = (
    "BackoffLimitExceeded",
    "Job has reached the specified backoff limit",
)
_DEADLINE_EXCEEDED: Final = (
    "DeadlineExceeded",
    "Job was active longer than specified deadline",
)


@attrs.frozen
class Backoff:
    """Failures in a row and when the last one was (epoch seconds)."""

    failures: int = 0
    last: float = 0.0

    def remaining(self, now: float, first_s: float) -> float:
        """Seconds until new pods may be made, not above 0 when at once."""
        if not self.failures:
            return 0.0
        wait: float = min(first_s * 2.0 ** min(self.failures - 1, 30), BACKOFF_MAX_S)
        return wait - (now - self.last)


@attrs.frozen
class CreatePod:
    """Create this pod."""

    pod: Obj


@attrs.frozen
class DeletePod:
    """Delete a pod; ``uncounted`` takes its finalizer off first, so that it is no failure."""

    pod: Obj
    uncounted: bool


@attrs.frozen
class Untrack:
    """Take the finalizer off a pod, which is counted by the status of the same turn."""

    pod: Obj


@attrs.frozen
class WriteStatus:
    """Replace the Job's status; pods that could not be made come off ``active`` first."""

    status: Obj


@attrs.frozen
class Record:
    """Record an event about the Job."""

    type: str
    reason: str
    message: str


@attrs.frozen
class DeleteJob:
    """The Job outlived its ttlSecondsAfterFinished."""


Action = CreatePod | DeletePod | Untrack | WriteStatus | Record | DeleteJob


@attrs.frozen
class Outcome:
    """Actions in order, the seconds after which to look again, and the back-off to remember."""

    actions: list[Action]
    again_s: float | None
    backoff: Backoff


def condition(status: Obj, kind: str) -> Obj | None:
    """The condition of that type when it is True."""
    for found in status.get("conditions") or ():
        if found["type"] == kind and found["status"] == "True":
            result: Obj = found
            return result
    return None


def finished(job: Obj) -> Obj | None:
    """The Complete or Failed condition of a Job that is over."""
    status = job.get("status") or {}
    return condition(status, "Complete") or condition(status, "Failed")


@attrs.define
class _Turn:
    """One look at one Job: collects what is to be done."""

    job: Obj
    pods: Sequence[Obj]
    now: float
    backoff: Backoff
    backoff_first_s: float
    actions: list[Action] = attrs.field(factory=list)
    again: list[float] = attrs.field(factory=list)
    status: Obj = attrs.field(factory=dict)
    succeeded: int = 0
    indexes: set[int] = attrs.field(factory=set)
    failed: int = 0
    newly_failed: int = 0

    @property
    def spec(self) -> Obj:
        spec: Obj = self.job["spec"]
        return spec

    @property
    def completions(self) -> int | None:
        found: int | None = self.spec.get("completions")
        return found

    @property
    def indexed(self) -> bool:
        return self.spec.get("completionMode") == "Indexed"

    @property
    def only_failed_replaced(self) -> bool:
        return self.spec.get("podReplacementPolicy") == "Failed"

    def event(self, reason: str, message: str, type_: str = "Normal") -> None:
        self.actions.append(Record(type_, reason, message))

    # -- counting ----------------------------------------------------------------------------

    def count(self) -> None:
        """Take finished pods into the counts and their finalizers off."""
        before = self.job.get("status") or {}
        self.failed = before.get("failed", 0)
        self.succeeded = before.get("succeeded", 0)
        if self.indexed:
            below = self.completions or 0
            self.indexes = job_pods.read_indexes(before.get("completedIndexes", ""), below)
        failing = condition(before, "FailureTarget") is not None
        succeeding = condition(before, "SuccessCriteriaMet") is not None
        for pod in self.pods:
            if job_pods.tracked(pod) and (failing or succeeding or self._over(pod)):
                self._count_one(pod, all_fail=not succeeding)
                self.actions.append(Untrack(pod))
        if self.indexed:
            self.succeeded = len(self.indexes)

    def _over(self, pod: Obj) -> bool:
        if job_pods.terminal(pod):
            return True
        return job_pods.deleting(pod) and not self.only_failed_replaced

    def _count_one(self, pod: Obj, *, all_fail: bool) -> None:
        index = job_pods.completion_index(pod)
        counts = not self.indexed or 0 <= index < (self.completions or 0)
        if job_pods.phase(pod) == "Succeeded":
            self.backoff = Backoff()
            if self.indexed and counts:
                self.indexes.add(index)
            elif not self.indexed:
                self.succeeded += 1
        elif counts and (all_fail or job_pods.phase(pod) == "Failed"):
            self.failed += 1
            self.newly_failed += 1
            ended = job_pods.ended_at(pod, self.now)
            self.backoff = Backoff(self.backoff.failures + 1, max(self.backoff.last, ended))

    # -- conditions --------------------------------------------------------------------------

    def set_condition(self, kind: str, status: str, why: tuple[str, str]) -> None:
        """Set a condition; one that already says so stays as it is."""
        reason, message = why
        conditions: list[Obj] = self.status.setdefault("conditions", [])
        fresh: Obj = {
            "type": kind,
            "status": status,
            "lastProbeTime": stamp(self.now),
            "lastTransitionTime": stamp(self.now),
            "reason": reason,
            "message": message,
        }
        for at, found in enumerate(conditions):
            if found["type"] == kind:
                if found["status"] != status:
                    conditions[at] = fresh
                return
        conditions.append(fresh)

    def failure(self, active: Sequence[Obj]) -> tuple[str, str] | None:
        """Why the Job has failed, None when it has not."""
        before = self.job.get("status") or {}
        target = condition(before, "FailureTarget")
        if target is not None:
            return target["reason"], target["message"]
        limit = self.spec.get("backoffLimit", 6)
        if self.newly_failed and self.failed > limit:
            return _BACKOFF_EXCEEDED
        if self.spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            restarted = job_pods.restarts(active)
            if restarted and restarted >= limit:
                return _BACKOFF_EXCEEDED
        return _DEADLINE_EXCEEDED if self._deadline_over() else None

    def _deadline_over(self) -> bool:
        seconds = self.spec.get("activeDeadlineSeconds")
        started = (self.job.get("status") or {}).get("startTime")
        if seconds is None or self.spec.get("suspend"):
            return False
        left = seconds - (self.now - moment(started)) if started else seconds
        if left > 0:
            self.again.append(left)
        return bool(left <= 0)

    # -- pods --------------------------------------------------------------------------------

    def wanted(self, active: int) -> int:
        """How many pods should be alive."""
        parallelism: int = self.spec.get("parallelism", 1)
        if self.completions is None:
            return min(active, parallelism) if self.succeeded else parallelism
        return max(min(self.completions - self.succeeded, parallelism), 0)

    def manage(self, active: list[Obj], terminating: int) -> int:
        """Make or delete pods; returns how many will be alive."""
        if self.spec.get("suspend"):
            return len(active) - self._delete(active)
        want = self.wanted(len(active))
        surplus, kept = self._surplus(active)
        if len(kept) > want:
            surplus += job_pods.dispensable_first(kept)[: len(kept) - want]
        alive = len(active) - self._delete(surplus)
        missing = want - alive - (terminating if self.only_failed_replaced else 0)
        if missing <= 0:
            return alive
        wait = self.backoff.remaining(self.now, self.backoff_first_s)
        if wait > 0:
            self.again.append(wait)
            return alive
        count = min(missing, CREATE_BURST_MAX)
        if count < missing:
            self.again.append(0.0)
        return alive + self._create(count)

    def _delete(self, pods: Sequence[Obj]) -> int:
        for pod in pods:
            self.actions.append(DeletePod(pod, uncounted=True))
            self.event("SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        return len(pods)

    def _surplus(self, active: list[Obj]) -> tuple[list[Obj], list[Obj]]:
        """Pods whose index is out of range, done or doubled, and the others."""
        if not self.indexed:
            return [], active
        surplus: list[Obj] = []
        kept: dict[int, Obj] = {}
        for pod in reversed(job_pods.dispensable_first(active)):
            index = job_pods.completion_index(pod)
            inside = 0 <= index < (self.completions or 0) and index not in self.indexes
            if inside and index not in kept:
                kept[index] = pod
            else:
                surplus.append(pod)
        return surplus, list(kept.values())

    def _create(self, count: int) -> int:
        if not self.indexed:
            self.actions += [CreatePod(job_pods.new_pod(self.job, None)) for _ in range(count)]
            return count
        dead = job_pods.terminal if self.only_failed_replaced else _not_active
        taken = {job_pods.completion_index(pod) for pod in self.pods if not dead(pod)}
        free = [
            index
            for index in range(self.completions or 0)
            if index not in taken and index not in self.indexes
        ][:count]
        self.actions += [CreatePod(job_pods.new_pod(self.job, index)) for index in free]
        return len(free)


def _not_active(pod: Obj) -> bool:
    return not job_pods.active(pod)


def reconcile(
    job: Obj,
    pods: Sequence[Obj],
    *,
    now: float,
    backoff: Backoff = Backoff(),
    backoff_first_s: float = BACKOFF_FIRST_S,
) -> Outcome:
    """What to do about a Job.

    Args:
        job: the Job as stored.
        pods: every pod it controls, also those being deleted.
        now: epoch seconds.
        backoff: what the last turn handed back.
        backoff_first_s: wait after the first failure; doubles with each further one.
    """
    turn = _Turn(job, pods, now, backoff, backoff_first_s)
    if "deletionTimestamp" in job["metadata"] or finished(job) is not None:
        turn.actions += [Untrack(pod) for pod in pods if job_pods.tracked(pod)]
        _expire(turn)
    else:
        _advance(turn)
    return Outcome(turn.actions, min(turn.again, default=None), turn.backoff)


def _expire(turn: _Turn) -> None:
    over = finished(turn.job)
    ttl = turn.spec.get("ttlSecondsAfterFinished")
    if over is None or ttl is None or "deletionTimestamp" in turn.job["metadata"]:
        return
    left = moment(over["lastTransitionTime"]) + ttl - turn.now
    if left > 0:
        turn.again.append(left)
    else:
        turn.actions.append(DeleteJob())


def _advance(turn: _Turn) -> None:
    before: Obj = turn.job.get("status") or {}
    turn.status = {"conditions": [dict(item) for item in before.get("conditions") or ()]}
    started = before.get("startTime")
    if started is None and not turn.spec.get("suspend"):
        started = stamp(turn.now)
    turn.count()
    active = [pod for pod in turn.pods if job_pods.active(pod)]
    terminating = sum(job_pods.deleting(p) and not job_pods.terminal(p) for p in turn.pods)
    failure = turn.failure(active)
    if failure is not None:
        alive = _end(turn, active, terminating, kind="Failed", why=failure)
    elif condition(before, "SuccessCriteriaMet") is not None:
        alive = _end(turn, active, terminating, kind="Complete", why=_COMPLETIONS_REACHED)
    else:
        alive = turn.manage(active, terminating)
        if _complete(turn, alive):
            turn.set_condition("SuccessCriteriaMet", "True", _COMPLETIONS_REACHED)
        else:
            started = _suspension(turn, started)
    _write(turn, active, alive=alive, started=started, terminating=terminating)


def _complete(turn: _Turn, alive: int) -> bool:
    if alive:
        return False
    if turn.completions is None:
        return turn.succeeded > 0
    return turn.succeeded >= turn.completions


def _end(
    turn: _Turn, active: list[Obj], terminating: int, *, kind: str, why: tuple[str, str]
) -> int:
    """Delete what is alive; say the final word once nothing is. Returns how many are alive."""
    first = "FailureTarget" if kind == "Failed" else "SuccessCriteriaMet"
    known = condition(turn.job.get("status") or {}, first) is not None
    turn.set_condition(first, "True", why)
    turn.actions += [DeletePod(pod, uncounted=False) for pod in active]
    if known and not active and not terminating:
        turn.set_condition(kind, "True", why)
        if kind == "Complete":
            turn.status["completionTime"] = stamp(turn.now)
            turn.event("Completed", "Job completed")
        else:
            turn.event(why[0], why[1], "Warning")
    return 0


def _suspension(turn: _Turn, started: str | None) -> str | None:
    """Keep the Suspended condition; returns the start time, which a suspended Job loses."""
    was = condition(turn.status, "Suspended") is not None
    if turn.spec.get("suspend"):
        turn.set_condition("Suspended", "True", ("JobSuspended", "Job suspended"))
        if not was:
            turn.event("Suspended", "Job suspended")
        return None
    if was:
        turn.set_condition("Suspended", "False", ("JobResumed", "Job resumed"))
        turn.event("Resumed", "Job resumed")
        return stamp(turn.now)
    return started


def _write(
    turn: _Turn, active: Sequence[Obj], *, alive: int, started: str | None, terminating: int
) -> None:
    status: dict[str, Any] = dict(turn.status)
    if not status["conditions"]:
        del status["conditions"]
    if started is not None:
        status["startTime"] = started
    gone = {id(a.pod) for a in turn.actions if isinstance(a, DeletePod)}
    counts = {"active": alive, "succeeded": turn.succeeded, "failed": turn.failed}
    status.update({key: count for key, count in counts.items() if count})
    if turn.indexed and turn.indexes:
        status["completedIndexes"] = job_pods.write_indexes(turn.indexes)
    status["ready"] = sum(job_pods.ready(pod) for pod in active if id(pod) not in gone)
    status["terminating"] = terminating
    status["uncountedTerminatedPods"] = {}
    turn.actions.append(WriteStatus(status))
