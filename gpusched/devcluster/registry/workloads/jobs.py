"""Jobs: defaults, generated labels and selector, what may change while suspended, and a status
whose counts only grow and whose final conditions stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    invalid,
    invalid_unquoted,
    required,
)
from gpusched.devcluster.registry.pods.defaults import default_template_spec
from gpusched.devcluster.registry.strategy import ServerContext, Strategy
from gpusched.devcluster.registry.workloads.job_validation import (
    job_errors,
    job_spec_errors,
    printed_policy,
    read_intervals,
)

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


# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it


_DIRECTIVES: Final = ("nodeSelector", "tolerations", "schedulingGates")
_SEALED: Final = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
_POLICIES: Final = frozenset({"podFailurePolicy", "successPolicy"})


class JobStrategy(Strategy):
    """Everything special about jobs but their controller."""

    generation = True
    has_status = True
    knows_all = True
    default_propagation = "Orphan"
    deletion_warning = (
        "child pods are preserved by default when jobs are deleted; set "
        "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress "
        "this warning"
    )

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Give the job its selector and its template the labels that the selector finds."""
        obj["status"] = {}
        spec = obj.setdefault("spec", {})
        template = spec.setdefault("template", {})
        meta = template.setdefault("metadata", {})
        labelled = bool(meta.get("labels"))
        if not spec.get("manualSelector"):
            uid, name = obj["metadata"]["uid"], obj["metadata"].get("name", "")
            labels = meta.setdefault("labels", {})
            for prefix in ("", "batch.kubernetes.io/"):
                labels.setdefault(f"{prefix}controller-uid", uid)
                labels.setdefault(f"{prefix}job-name", name)
            selector = spec.setdefault("selector", {})
            chosen = selector.setdefault("matchLabels", {})
            chosen.setdefault("batch.kubernetes.io/controller-uid", uid)
            spec.setdefault("manualSelector", False)
        if labelled:
            _copy_labels(obj)

    def default(self, obj: Obj) -> None:
        """Fill in what a Job means when it says nothing."""
        spec = obj["spec"]
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault(
            "backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1
        )
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        policy = spec.get("podFailurePolicy")
        replace = "TerminatingOrFailed" if policy is None else "Failed"
        spec.setdefault("podReplacementPolicy", replace)
        for rule in (policy or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                pattern["status"] = pattern.get("status") or "True"
        default_template_spec(spec.setdefault("template", {}).setdefault("spec", {}))

    def allocate(self, new: Obj, old: Obj | None, core: ServerContext) -> None:
        """Give a job without labels those of its template, as reading it from the store does."""
        _copy_labels(new)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new job."""
        return job_errors(obj)

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse changes of what a running job is; scheduling directives follow suspension."""
        now, was = new["spec"], old["spec"]
        if now == was:
            return []
        errors = [*job_spec_errors(now), *_completion_changes(now, was)]
        if now.get("selector") != was.get("selector"):
            errors.append(_immutable("spec.selector", now.get("selector")))
        template, before = now["template"], was["template"]
        if _may_redirect(old):
            # The server compares less of it then, and names what it compared.
            template = _with_directives(template, before)
            if template != before:
                errors.append(_immutable("spec.template.spec", now["template"]["spec"]))
        elif template != before:
            errors.append(_immutable("spec.template", now["template"]))
        for key in (*_SEALED, "successPolicy"):
            if now.get(key) != was.get(key):
                shown = printed_policy(now.get(key)) if key in _POLICIES else now.get(key)
                errors.append(_immutable(f"spec.{key}", shown))
        return errors

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change of the status."""
        return status_errors(new, old)


def _copy_labels(obj: Obj) -> None:
    labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def _immutable(field: str, value: Any) -> FieldError:
    return invalid(field, value, "field is immutable")


def _completion_changes(now: Obj, was: Obj) -> list[FieldError]:
    """An indexed job grows or shrinks only as a whole, any other not at all."""
    completions = now.get("completions")
    if completions == was.get("completions"):
        return []
    if now["completionMode"] != "Indexed":
        return [_immutable("spec.completions", completions)]
    if completions is None or completions == now.get("parallelism"):
        return []
    why = "can only be modified in tandem with spec.parallelism"
    return [invalid("spec.completions", completions, why)]


def _may_redirect(old: Obj) -> bool:
    """Tell whether a job is suspended, and none of its pods still runs."""
    status = old.get("status") or {}
    return bool(old["spec"].get("suspend")) and not status.get("active")


def _with_directives(template: Obj, before: Obj) -> Obj:
    """Return the new template with what may change taken from the old one."""
    spec, old_spec = dict(template["spec"]), before["spec"]
    for key in _DIRECTIVES:
        _take(spec, old_spec, key)
    affinity = {**(spec.get("affinity") or {})}
    _take(affinity, old_spec.get("affinity") or {}, "nodeAffinity")
    if affinity or old_spec.get("affinity"):
        spec["affinity"] = affinity
    else:
        spec.pop("affinity", None)
    for part in ("containers", "initContainers"):
        old = {c.get("name"): c for c in old_spec.get(part) or ()}
        if part in spec:
            spec[part] = [_with_resources(c, old.get(c.get("name"))) for c in spec[part]]
    meta = dict(template.get("metadata") or {})
    for key in ("labels", "annotations"):
        _take(meta, before.get("metadata") or {}, key)
    return {**template, "metadata": meta, "spec": spec}


def _with_resources(container: Obj, old: Obj | None) -> Obj:
    return container if old is None else {**container, "resources": old.get("resources", {})}


def _take(new: Obj, old: Obj, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)
