# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Jobs: defaults, the labels and selector of their own, what may change while suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster.field_errors import FieldError, invalid, not_supported, required
from gpusched.devcluster.meta import label_errors
from gpusched.devcluster.strategies import Strategy
from gpusched.devcluster.strategies.pod_defaults import default_template_spec
from gpusched.devcluster.strategies.pod_validation import spec_errors

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core

Obj = dict[str, Any]

_MODES: Final = ("NonIndexed", "Indexed")
_COUNTS: Final = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds")
_DIRECTIVES: Final = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


class JobStrategy(Strategy):
    """Everything special about jobs but their controller."""

    generation = True
    has_status = True

    def prepare_create(self, obj: Obj, core: Core) -> None:
        """Give the job its selector and its template the labels that the selector finds."""
        obj["status"] = {}
        spec = obj.setdefault("spec", {})
        template = spec.setdefault("template", {})
        meta = template.setdefault("metadata", {})
        if not spec.get("manualSelector"):
            uid, name = obj["metadata"]["uid"], obj["metadata"].get("name", "")
            labels = meta.setdefault("labels", {})
            for prefix in ("", "batch.kubernetes.io/"):
                labels[f"{prefix}controller-uid"] = uid
                labels[f"{prefix}job-name"] = name
            selector = spec.setdefault("selector", {})
            selector.setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = uid
            spec.setdefault("manualSelector", False)
        if not obj["metadata"].get("labels") and meta.get("labels"):
            obj["metadata"]["labels"] = dict(meta["labels"])

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
        replace = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
        spec.setdefault("podReplacementPolicy", replace)
        default_template_spec(spec.setdefault("template", {}).setdefault("spec", {}))

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check counts, mode and template."""
        spec = obj["spec"]
        errors = _count_errors(spec)
        if spec["completionMode"] not in _MODES:
            errors.append(not_supported("spec.completionMode", spec["completionMode"], _MODES))
        elif spec["completionMode"] == "Indexed" and spec.get("completions") is None:
            errors.append(required("spec.completions", "when completion mode is Indexed"))
        template = spec["template"]
        labels = (template.get("metadata") or {}).get("labels")
        errors += label_errors(labels, "spec.template.metadata.labels")
        errors += spec_errors(template["spec"], "spec.template.spec")
        policy = template["spec"].get("restartPolicy")
        if policy == "Always":
            errors.append(
                FieldError(
                    "Required value",
                    "spec.template.spec.restartPolicy",
                    'Required value: valid values: "OnFailure", "Never"',
                    "FieldValueRequired",
                )
            )
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse changes of what a running job is; scheduling directives follow suspension."""
        now, was = new["spec"], old["spec"]
        errors = _count_errors(now)
        if now.get("completions") != was.get("completions") and not _elastic(now, was):
            errors.append(_immutable("spec.completions", now.get("completions")))
        for key in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"):
            if now.get(key) != was.get(key):
                errors.append(_immutable(f"spec.{key}", now.get(key)))
        template, before = now["template"], was["template"]
        if _may_redirect(old):
            template = _with_directives(template, before)
        if template != before:
            errors.append(_immutable("spec.template", now["template"]))
        return errors


def _count_errors(spec: Obj) -> list[FieldError]:
    return [
        invalid(f"spec.{key}", spec[key], "must be greater than or equal to 0")
        for key in _COUNTS
        if spec.get(key) is not None and spec[key] < 0
    ]


def _immutable(field: str, value: Any) -> FieldError:
    return invalid(field, value, "field is immutable")


def _elastic(now: Obj, was: Obj) -> bool:
    """Tell whether an indexed job grows or shrinks as a whole."""
    return bool(
        now["completionMode"] == "Indexed"
        and was["completionMode"] == "Indexed"
        and now.get("completions") is not None
        and now.get("completions") == now.get("parallelism")
    )


def _may_redirect(old: Obj) -> bool:
    return bool(old["spec"].get("suspend") and not (old.get("status") or {}).get("startTime"))


def _with_directives(template: Obj, before: Obj) -> Obj:
    """Return the new template with the directives that may change taken from the old one."""
    spec = dict(template["spec"])
    for key in _DIRECTIVES:
        if key in before["spec"]:
            spec[key] = before["spec"][key]
        else:
            spec.pop(key, None)
    meta = dict(template.get("metadata") or {})
    for key in ("labels", "annotations"):
        old = (before.get("metadata") or {}).get(key)
        if old is not None:
            meta[key] = old
        else:
            meta.pop(key, None)
    return {**template, "metadata": meta, "spec": spec}
