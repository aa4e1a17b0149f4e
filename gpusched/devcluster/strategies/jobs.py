# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Jobs: defaults, the labels and selector of their own, what may change while suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster.field_errors import FieldError, invalid
from gpusched.devcluster.strategies import Strategy
from gpusched.devcluster.strategies.job_status import status_errors
from gpusched.devcluster.strategies.job_validation import (
    job_errors,
    job_spec_errors,
    printed_policy,
)
from gpusched.devcluster.strategies.pod_defaults import default_template_spec

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core

Obj = dict[str, Any]

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

    def prepare_create(self, obj: Obj, core: Core) -> None:
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

    def allocate(self, new: Obj, old: Obj | None, core: Core) -> None:
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
