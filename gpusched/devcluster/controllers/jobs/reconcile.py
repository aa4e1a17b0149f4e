"""What a Job needs next, as a list of actions: pure, given the Job, its pods and the time.

    running --completions reached--> SuccessCriteriaMet --no pod left alive--> Complete
    running --limit or deadline----> FailureTarget ------no pod left alive--> Failed

Pods carry a finalizer until they are counted in the status, so that none is counted twice and
none goes uncounted; taking the finalizer off and writing the count happen in one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery.times import parse_time, rfc3339
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.jobs import indexes
from gpusched.devcluster.controllers.jobs import pods as job_pods
from gpusched.devcluster.controllers.jobs.actions import (
    BACKOFF_FIRST_S,
    Action,
    DeleteJob,
    DeletePod,
    PodBackoff,
    RemoveTrackingFinalizer,
    WriteStatus,
)
from gpusched.devcluster.controllers.jobs.pods import Obj
from gpusched.devcluster.controllers.jobs.sync import JobSync, true_condition

_COMPLETIONS_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_OURS: Final = "kubernetes.io/job-controller"
"""``spec.managedBy`` of the Jobs that this controller runs, when it is set at all."""
_NO_FAILURES: Final = PodBackoff()


@frozen
class ReconcileResult:
    """Actions in order, the seconds after which to look again, and the back-off to remember."""

    actions: list[Action]
    again_s: float | None
    backoff: PodBackoff


def finished_condition(job: Obj) -> Obj | None:
    """The Complete or Failed condition of a Job that is over."""
    status = job.get("status") or {}
    return true_condition(status, "Complete") or true_condition(status, "Failed")


def is_running(job: Obj) -> bool:
    """Whether a Job is this controller's, not deleted and not over."""
    ours = job["spec"].get("managedBy", _OURS) == _OURS
    return ours and "deletionTimestamp" not in job["metadata"] and finished_condition(job) is None


def reconcile_job(
    job: Obj,
    pods: Sequence[Obj],
    *,
    now: float,
    backoff: PodBackoff = _NO_FAILURES,
    backoff_first_s: float = BACKOFF_FIRST_S,
) -> ReconcileResult:
    """What to do about a Job.

    Args:
        job: the Job as stored.
        pods: every pod it controls, also those being deleted.
        now: epoch seconds.
        backoff: what the last turn handed back.
        backoff_first_s: wait after the first failure; doubles with each further one.
    """
    turn = JobSync(job, pods, now, backoff, backoff_first_s)
    if job["spec"].get("managedBy", _OURS) != _OURS:
        return ReconcileResult([], None, backoff)
    if "deletionTimestamp" in job["metadata"] or finished_condition(job) is not None:
        turn.actions += [RemoveTrackingFinalizer(pod) for pod in pods if job_pods.is_tracked(pod)]
        _expire(turn)
    else:
        _advance(turn)
    return ReconcileResult(turn.actions, min(turn.again, default=None), turn.backoff)


def _expire(turn: JobSync) -> None:
    over = finished_condition(turn.job)
    ttl = turn.spec.get("ttlSecondsAfterFinished")
    if over is None or ttl is None or "deletionTimestamp" in turn.job["metadata"]:
        return
    since = over.get("lastTransitionTime")  # a client that wrote the condition may have left it out
    left = (parse_time(since) if since else turn.now) + ttl - turn.now
    if left > 0:
        turn.again.append(left)
    else:
        turn.actions.append(DeleteJob())


def _advance(turn: JobSync) -> None:
    before: Obj = turn.job.get("status") or {}
    turn.status = {"conditions": [dict(item) for item in before.get("conditions") or ()]}
    started = before.get("startTime")
    if started is None and not turn.spec.get("suspend"):
        started = rfc3339(turn.now)
    turn.count()
    active = [pod for pod in turn.pods if pod_state.is_active(pod)]
    terminating = sum(pod_state.is_deleting(p) and not pod_state.is_terminal(p) for p in turn.pods)
    failure = turn.failure(active)
    if failure is not None:
        alive = _end(turn, active, terminating, kind="Failed", why=failure)
    elif (success := _success(turn, before)) is not None:
        alive = _end(turn, active, terminating, kind="Complete", why=success)
    else:
        alive = turn.manage(active, terminating)
        if _complete(turn, alive):
            turn.set_condition("SuccessCriteriaMet", "True", _COMPLETIONS_REACHED)
        else:
            started = _suspension(turn, started)
    _write(turn, active, alive=alive, started=started, terminating=terminating)


def _success(turn: JobSync, before: Obj) -> tuple[str, str] | None:
    """Why the Job has succeeded although pods may still be alive, None when it has not."""
    met = true_condition(before, "SuccessCriteriaMet")
    if met is not None:
        return met.get("reason", ""), met.get("message", "")
    policy = turn.spec.get("successPolicy")
    rule = indexes.success_rule(policy, turn.indexes, turn.completions or 0)
    return None if rule is None else ("SuccessPolicy", f"Matched rules at index {rule}")


def _complete(turn: JobSync, alive: int) -> bool:
    if alive:
        return False
    if turn.completions is None:
        return turn.succeeded > 0
    return turn.succeeded >= turn.completions


def _end(
    turn: JobSync, active: list[Obj], terminating: int, *, kind: str, why: tuple[str, str]
) -> int:
    """Delete what is alive; say the final word once nothing is. Returns how many are alive."""
    first = "FailureTarget" if kind == "Failed" else "SuccessCriteriaMet"
    known = true_condition(turn.job.get("status") or {}, first) is not None
    turn.set_condition(first, "True", why)
    turn.actions += [DeletePod(pod, uncounted=False) for pod in active]
    if known and not active and not terminating:
        turn.set_condition(kind, "True", why)
        if kind == "Complete":
            turn.status["completionTime"] = rfc3339(turn.now)
            turn.event("Completed", "Job completed")
        else:
            turn.event(why[0], why[1], "Warning")
    return 0


def _suspension(turn: JobSync, started: str | None) -> str | None:
    """Keep the Suspended condition; returns the start time, which a suspended Job loses."""
    was = true_condition(turn.status, "Suspended") is not None
    if turn.spec.get("suspend"):
        turn.set_condition("Suspended", "True", ("JobSuspended", "Job suspended"))
        if not was:
            turn.event("Suspended", "Job suspended")
        return None
    if was:
        turn.set_condition("Suspended", "False", ("JobResumed", "Job resumed"))
        turn.event("Resumed", "Job resumed")
        return rfc3339(turn.now)
    return started


def _write(
    turn: JobSync, active: Sequence[Obj], *, alive: int, started: str | None, terminating: int
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
    if turn.limit_per_index is not None:
        status["failedIndexes"] = job_pods.write_indexes(turn.failed_indexes)
    status["ready"] = sum(pod_state.is_ready(pod) for pod in active if id(pod) not in gone)
    status["terminating"] = terminating
    status["uncountedTerminatedPods"] = {}
    turn.actions.append(WriteStatus(status))
