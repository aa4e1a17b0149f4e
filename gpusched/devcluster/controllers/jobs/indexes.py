"""Rules that a Job sets for single completion indexes: when one has failed, when some suffice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.jobs import pods as job_pods
from gpusched.devcluster.controllers.jobs.actions import PodBackoff
from gpusched.devcluster.controllers.jobs.pods import Obj

FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: how many pods of its index had failed before it."""
_DIGITS_MAX: Final = 9
FAILED_INDEXES: Final = ("FailedIndexes", "Job has failed indexes")
TOO_MANY_FAILED: Final = (
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
)


def failures_by_index(pod: Obj) -> int:
    """How many pods of the same index had failed before this one."""
    text = (pod["metadata"].get("annotations") or {}).get(FAILURES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else 0


def backoffs(pods: Iterable[Obj], now: float) -> dict[int, PodBackoff]:
    """Failures of each index so far, out of the failed pods that still exist."""
    found: dict[int, PodBackoff] = {}
    for pod in pods:
        if pod_state.pod_phase(pod) == "Failed" or (
            pod_state.is_deleting(pod) and pod_state.pod_phase(pod) != "Succeeded"
        ):
            index = job_pods.completion_index(pod)
            known = found.get(index, PodBackoff())
            found[index] = PodBackoff(
                max(known.failures, failures_by_index(pod) + 1),
                max(known.last, pod_state.ended_at(pod, now)),
            )
    return found


def success_rule(policy: Obj | None, succeeded: set[int], below: int) -> int | None:
    """The first rule of a successPolicy that the succeeded indexes meet; None when none is met."""
    for at, rule in enumerate((policy or {}).get("rules") or ()):
        named = rule.get("succeededIndexes")
        inside = succeeded if named is None else succeeded & job_pods.read_indexes(named, below)
        enough = rule.get("succeededCount")
        if enough is None and named is not None:
            enough = len(job_pods.read_indexes(named, below))
        if enough is not None and len(inside) >= enough:
            return at
    return None
