"""One sync of one Job: counts finished pods, finds those to create or delete. Pure.

The Job's podFailurePolicy decides what a failed pod means for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs

from gpusched.base.classes import define, frozen
from gpusched.devcluster.apimachinery.times import parse_time, rfc3339
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.jobs import indexes as job_indexes
from gpusched.devcluster.controllers.jobs import pods as job_pods
from gpusched.devcluster.controllers.jobs.actions import (
    Action,
    CreatePod,
    DeletePod,
    PodBackoff,
    RecordEvent,
    RemoveTrackingFinalizer,
)
from gpusched.devcluster.controllers.jobs.pods import Obj

Verdict = Literal["FailJob", "FailIndex", "Ignore", "Count"]


@frozen
class PodFailureVerdict:
    """The action of the podFailurePolicy for a failed pod, and the message of a Job that fails by it."""

    verdict: Verdict
    message: str = ""


_COUNT = PodFailureVerdict("Count")


def apply_failure_policy(policy: Obj | None, pod: Obj) -> PodFailureVerdict:
    """The first rule that fits a failed pod; without one it counts towards backoffLimit."""
    for index, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action")
        why = _by_exit_code(rule.get("onExitCodes"), pod)
        why = why or _by_condition(rule.get("onPodConditions") or (), pod)
        if why:
            if action not in {"FailJob", "FailIndex", "Ignore"}:
                return _COUNT
            return PodFailureVerdict(action, f"{why} matching {action} rule at index {index}")
    return _COUNT


def _by_exit_code(wanted: Obj | None, pod: Obj) -> str:
    if wanted is None:
        return ""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    for container in containers:
        if wanted.get("containerName") not in {None, container.get("name")}:
            continue
        ended = (container.get("state") or {}).get("terminated")
        code = (ended or {}).get("exitCode", 0)
        if code and (code in wanted.get("values", ())) == (wanted.get("operator") == "In"):
            place = f"{metadata['namespace']}/{metadata['name']}"
            name = container.get("name", "")
            return f"Container {name} for pod {place} failed with exit code {code}"
    return ""


def _by_condition(wanted: list[Obj] | tuple[Obj, ...], pod: Obj) -> str:
    metadata = pod["metadata"]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    have = {c.get("type"): c.get("status") for c in conditions}
    for pattern in wanted:
        if have.get(pattern.get("type")) == pattern.get("status", "True"):
            place = f"{metadata['namespace']}/{metadata['name']}"
            return f"Pod {place} has condition {pattern.get('type')}"
    return ""


CREATE_BURST_MAX: Final = 500
"""Pods one turn makes; the next turn goes on, so that one huge Job does not hold up the rest."""

_BACKOFF_EXCEEDED: Final = (
    "BackoffLimitExceeded",
    "Job has reached the specified backoff limit",
)
_DEADLINE_EXCEEDED: Final = (
    "DeadlineExceeded",
    "Job was active longer than specified deadline",
)


def true_condition(status: Obj, kind: str) -> Obj | None:
    """The condition of that type when it is True."""
    for found in status.get("conditions") or ():
        if found.get("type") == kind and found.get("status") == "True":
            result: Obj = found
            return result
    return None


@define
class JobSync:
    """One look at one Job: collects what is to be done."""

    job: Obj
    pods: Sequence[Obj]
    now: float
    backoff: PodBackoff
    backoff_first_s: float
    actions: list[Action] = attrs.field(factory=list)
    again: list[float] = attrs.field(factory=list)
    status: Obj = attrs.field(factory=dict)
    succeeded: int = 0
    indexes: set[int] = attrs.field(factory=set)
    failed: int = 0
    newly_failed: int = 0
    failed_indexes: set[int] = attrs.field(factory=set)
    forbidden: str = ""

    @property
    def spec(self) -> Obj:
        """Return the spec of the Job."""
        spec: Obj = self.job["spec"]
        return spec

    @property
    def completions(self) -> int | None:
        """How many pods have to succeed; None when one success ends the Job."""
        found: int | None = self.spec.get("completions")
        return found

    @property
    def indexed(self) -> bool:
        """Whether each pod has its own completion index."""
        return self.spec.get("completionMode") == "Indexed"

    @property
    def limit_per_index(self) -> int | None:
        """Failures each index may have; None when only their sum is limited."""
        found: int | None = self.spec.get("backoffLimitPerIndex") if self.indexed else None
        return found

    @property
    def only_failed_replaced(self) -> bool:
        """Whether a terminating pod is replaced only once it has failed (podReplacementPolicy)."""
        return self.spec.get("podReplacementPolicy") == "Failed"

    def event(self, reason: str, message: str, type_: str = "Normal") -> None:
        """Add an event about the Job."""
        self.actions.append(RecordEvent(type_, reason, message))

    # -- counting ----------------------------------------------------------------------------

    def count(self) -> None:
        """Take finished pods into the counts and their finalizers off."""
        before = self.job.get("status") or {}
        self.failed = before.get("failed", 0)
        self.succeeded = before.get("succeeded", 0)
        if self.indexed:
            below = self.completions or 0
            self.indexes = job_pods.read_indexes(before.get("completedIndexes", ""), below)
            failed = before.get("failedIndexes") or ""
            self.failed_indexes = job_pods.read_indexes(failed, below)
        failing = true_condition(before, "FailureTarget") is not None
        succeeding = true_condition(before, "SuccessCriteriaMet") is not None
        for pod in self.pods:
            if job_pods.is_tracked(pod) and (failing or succeeding or self._over(pod)):
                self._count_one(pod, all_fail=not succeeding)
                self.actions.append(RemoveTrackingFinalizer(pod))
        if self.indexed:
            self.succeeded = len(self.indexes)

    def _over(self, pod: Obj) -> bool:
        if pod_state.is_terminal(pod):
            return True
        return pod_state.is_deleting(pod) and not self.only_failed_replaced

    def _count_one(self, pod: Obj, *, all_fail: bool) -> None:
        index = job_pods.completion_index(pod)
        counts = not self.indexed or 0 <= index < (self.completions or 0)
        if pod_state.pod_phase(pod) == "Succeeded":
            self.backoff = PodBackoff()
            if self.indexed and counts:
                self.indexes.add(index)
            elif not self.indexed:
                self.succeeded += 1
        elif counts and (all_fail or pod_state.pod_phase(pod) == "Failed"):
            self._count_failure(pod, index)

    def _count_failure(self, pod: Obj, index: int) -> None:
        found = PodFailureVerdict("Count")
        if pod_state.pod_phase(pod) == "Failed":
            found = apply_failure_policy(self.spec.get("podFailurePolicy"), pod)
        if found.verdict == "Ignore":
            return
        if found.verdict == "FailJob":
            self.forbidden = self.forbidden or found.message
        self.failed += 1
        self.newly_failed += 1
        if self.limit_per_index is None:
            ended = pod_state.ended_at(pod, self.now)
            self.backoff = PodBackoff(self.backoff.failures + 1, max(self.backoff.last, ended))
        elif (
            found.verdict == "FailIndex"
            or job_indexes.failures_by_index(pod) >= self.limit_per_index
        ):
            self.failed_indexes.add(index)

    # -- conditions --------------------------------------------------------------------------

    def set_condition(self, kind: str, status: str, why: tuple[str, str]) -> None:
        """Set a condition; one that already says so stays as it is."""
        reason, message = why
        conditions: list[Obj] = self.status.setdefault("conditions", [])
        fresh: Obj = {
            "type": kind,
            "status": status,
            "lastProbeTime": rfc3339(self.now),
            "lastTransitionTime": rfc3339(self.now),
            "reason": reason,
            "message": message,
        }
        for at, found in enumerate(conditions):
            if found.get("type") == kind:
                if found.get("status") != status:
                    conditions[at] = fresh
                return
        conditions.append(fresh)

    def failure(self, active: Sequence[Obj]) -> tuple[str, str] | None:
        """Why the Job has failed, None when it has not."""
        before = self.job.get("status") or {}
        target = true_condition(before, "FailureTarget")
        if target is not None:
            return target.get("reason", ""), target.get("message", "")
        if self.forbidden:
            return "PodFailurePolicy", self.forbidden
        if self.failed_indexes and (why := self._index_failure(bool(active))):
            return why
        limit = self.spec.get("backoffLimit", 6)
        if self.newly_failed and self.failed > limit:
            return _BACKOFF_EXCEEDED
        if self.spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            restarted = pod_state.restart_count(active)
            if restarted and restarted >= limit:
                return _BACKOFF_EXCEEDED
        return _DEADLINE_EXCEEDED if self._deadline_over() else None

    def _index_failure(self, alive: bool) -> tuple[str, str] | None:
        most = self.spec.get("maxFailedIndexes")
        if most is not None and len(self.failed_indexes) > most:
            return job_indexes.TOO_MANY_FAILED
        left = (self.completions or 0) - self.succeeded - len(self.failed_indexes)
        return job_indexes.FAILED_INDEXES if left <= 0 and not alive else None

    def _deadline_over(self) -> bool:
        seconds = self.spec.get("activeDeadlineSeconds")
        started = (self.job.get("status") or {}).get("startTime")
        if seconds is None or self.spec.get("suspend"):
            return False
        left = seconds - (self.now - parse_time(started)) if started else seconds
        if left > 0:
            self.again.append(left)
        return bool(left <= 0)

    # -- pods --------------------------------------------------------------------------------

    def wanted(self, active: int) -> int:
        """How many pods should be alive."""
        parallelism: int = self.spec.get("parallelism", 1)
        if self.completions is None:
            return min(active, parallelism) if self.succeeded else parallelism
        left = self.completions - self.succeeded - len(self.failed_indexes - self.indexes)
        return max(min(left, parallelism), 0)

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
            inside = 0 <= index < (self.completions or 0) and index not in self._settled
            if inside and index not in kept:
                kept[index] = pod
            else:
                surplus.append(pod)
        return surplus, list(kept.values())

    @property
    def _settled(self) -> set[int]:
        return self.indexes | self.failed_indexes

    def _create(self, count: int) -> int:
        if not self.indexed:
            self.actions += [CreatePod(job_pods.new_pod(self.job, None)) for _ in range(count)]
            return count
        free = self._free_indexes()
        if self.limit_per_index is None:
            chosen = free[:count]
            self.actions += [CreatePod(job_pods.new_pod(self.job, index)) for index in chosen]
            return len(chosen)
        return self._create_per_index(free, count)

    def _free_indexes(self) -> list[int]:
        dead = pod_state.is_terminal if self.only_failed_replaced else _not_active
        taken = {job_pods.completion_index(pod) for pod in self.pods if not dead(pod)}
        taken |= self._settled
        return [index for index in range(self.completions or 0) if index not in taken]

    def _create_per_index(self, free: list[int], count: int) -> int:
        """Make pods of the indexes whose own back-off is over."""
        backoffs = job_indexes.backoffs(self.pods, self.now)
        made = 0
        for index in free:
            known = backoffs.get(index, PodBackoff())
            wait = known.remaining(self.now, self.backoff_first_s)
            if wait > 0:
                self.again.append(wait)
            elif made < count:
                pod = job_pods.new_pod(self.job, index)
                pod["metadata"]["annotations"][job_indexes.FAILURES] = str(known.failures)
                self.actions.append(CreatePod(pod))
                made += 1
        return made


def _not_active(pod: Obj) -> bool:
    return not pod_state.is_active(pod)
