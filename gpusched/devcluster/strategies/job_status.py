"""What a job's status may say: counts that only grow, and ends that are final."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.field_errors import FieldError, invalid, invalid_unquoted, required
from gpusched.devcluster.strategies.job_validation import read_intervals

Obj = dict[str, Any]

_COUNTS: Final = ("active", "succeeded", "failed", "ready", "terminating")
_NON_NEGATIVE: Final = "must be greater than or equal to 0"
_CONDITIONS: Final = "status.conditions"


def status_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Errors of a job's changed status, in the order in which a real server finds them."""
    now, was = new.get("status") or {}, old.get("status") or {}
    return [
        *_count_errors(now),
        *_ending_errors(now, was),
        *_index_errors(now, new["spec"]),
        *_criteria_errors(now),
        *_lasting_errors(now, was),
    ]


def _true(status: Obj, kind: str) -> bool:
    return any(
        c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ()
    )


def _count_errors(now: Obj) -> Iterator[FieldError]:
    for key in _COUNTS:
        if (now.get(key) or 0) < 0:
            yield invalid(f"status.{key}", now[key], _NON_NEGATIVE)


def _ending_errors(now: Obj, was: Obj) -> Iterator[FieldError]:
    """What Complete and Failed need beside them, asked when they appear."""
    complete, failed = _true(now, "Complete"), _true(now, "Failed")
    if complete and failed and not (_true(was, "Complete") and _true(was, "Failed")):
        why = "cannot set Complete=True and Failed=true conditions"
        yield invalid_unquoted(_CONDITIONS, why)
    if complete and _true(now, "FailureTarget") and not _true(was, "FailureTarget"):
        why = "cannot set Complete=True and FailureTarget=true conditions"
        yield invalid_unquoted(_CONDITIONS, why)
    ended = now.get("completionTime")
    if ended and not complete and ended != was.get("completionTime"):
        why = "cannot set completionTime when there is no Complete=True condition"
        yield invalid("status.completionTime", ended, why)
    newly_complete = complete and not _true(was, "Complete")
    newly_failed = failed and not _true(was, "Failed")
    if newly_complete and not ended:
        why = "completionTime is required for Complete jobs"
        yield required("status.completionTime", why)
    if newly_failed and not _true(now, "FailureTarget"):
        why = "cannot set Failed=True condition without the FailureTarget=true condition"
        yield invalid_unquoted(_CONDITIONS, why)
    if newly_complete and not _true(now, "SuccessCriteriaMet"):
        why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        yield invalid_unquoted(_CONDITIONS, why)
    if not (newly_complete or newly_failed):
        return
    if now.get("active"):
        yield invalid("status.active", now["active"], "active>0 is invalid for finished job")
    if not now.get("startTime"):
        yield required("status.startTime", "startTime is required for finished job")


def _index_errors(now: Obj, spec: Obj) -> Iterator[FieldError]:
    completed, failed = now.get("completedIndexes") or "", now.get("failedIndexes")
    if spec.get("completions") is not None:
        for key, text in (("completedIndexes", completed), ("failedIndexes", failed or "")):
            _, problem = read_intervals(text, spec["completions"])
            if problem:
                yield invalid(f"status.{key}", text, f"error parsing {key}: {problem}")
    if completed and spec.get("completionMode") != "Indexed":
        why = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", completed, why)
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, why)
    ready, active = now.get("ready") or 0, now.get("active") or 0
    if ready > active:
        yield invalid("status.ready", ready, "cannot set more ready pods than active")


def _criteria_errors(now: Obj) -> Iterator[FieldError]:
    if not _true(now, "SuccessCriteriaMet"):
        return
    for other, text in (("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")):
        if _true(now, other):
            why = f"cannot set SuccessCriteriaMet=True and {text} conditions"
            yield invalid_unquoted(_CONDITIONS, why)


def _lasting_errors(now: Obj, was: Obj) -> Iterator[FieldError]:
    for kind in ("Failed", "Complete", "FailureTarget"):
        if _true(was, kind) and not _true(now, kind):
            why = f"cannot disable the terminal {kind}=True condition"
            yield invalid_unquoted(_CONDITIONS, why)
    # The count of successes may fall: an indexed job that shrinks forgets its last indexes.
    failed = now.get("failed") or 0
    if failed < (was.get("failed") or 0):
        yield invalid("status.failed", failed, "cannot decrease the failed counter")
    if _true(was, "SuccessCriteriaMet") and not _true(now, "SuccessCriteriaMet"):
        why = "cannot disable the SuccessCriteriaMet=True condition"
        yield invalid_unquoted(_CONDITIONS, why)
