# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Replica sets and deployments: defaults, validation, and what counts as a new generation."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import key_errors, label_errors
from gpusched.devcluster.apimachinery.selector_validation import (
    invalid_selector,
    selector_errors,
    selects_all,
)
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.registry.pods.defaults import default_template_spec
from gpusched.devcluster.registry.pods.validation import spec_errors
from gpusched.devcluster.registry.strategy import ServerContext, Strategy
from gpusched.devcluster.registry.workloads.int_or_percent import (
    at_most_errors,
    int_or_percent_errors,
    value_as_number,
)

Obj = dict[str, Any]

_STRATEGIES: Final = ("Recreate", "RollingUpdate")
_NEGATIVE: Final = "must be greater than or equal to 0"
_REPLICA_COUNTS: Final = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
)
_DEPLOYMENT_COUNTS: Final = (
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "collisionCount",
)


class ReplicaSetStrategy(Strategy):
    """Replica sets: an immutable selector that matches the pods of the template."""

    generation = True
    has_status = True
    knows_all = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start with no replica counted."""
        obj["status"] = {"replicas": 0}

    def default(self, obj: Obj) -> None:
        """One replica, and a template that says everything."""
        spec = obj.setdefault("spec", {})
        drop_zeros(spec, ("minReadySeconds",))
        spec.setdefault("replicas", 1)
        default_pod_template(spec)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check counts, selector and template."""
        spec = obj["spec"]
        return [*count_errors(spec, ("replicas", "minReadySeconds"), "spec"), *_pod_errors(spec)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check as on creation; the selector is immutable."""
        return self.validate(new) + _immutable_selector_errors(new, old)

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec; the count of replicas is always printed."""
        super().prepare_status(new, old)
        new["status"] = {"replicas": 0, **without_zeros(new.get("status") or {})}

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check that no part is larger than the whole."""
        status = new["status"]
        errors = count_errors(status, _REPLICA_COUNTS, "status")
        return errors + _part_errors(status, ("fullyLabeledReplicas",))


class DeploymentStrategy(Strategy):
    """Deployments: replica sets with a way from one template to the next."""

    generation = True
    has_status = True
    knows_all = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start with nothing counted."""
        obj["status"] = {}

    def default(self, obj: Obj) -> None:
        """One replica, a quarter of surge and loss, ten old revisions, ten minutes to progress."""
        spec = obj.setdefault("spec", {})
        drop_zeros(spec, ("minReadySeconds", "paused"))
        spec.setdefault("replicas", 1)
        strategy = spec.get("strategy")
        if strategy is None:
            strategy = spec["strategy"] = {}
        drop_zeros(strategy, ())
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            drop_zeros(rolling, ())
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        default_pod_template(spec)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check counts, selector, template and strategy."""
        spec = obj["spec"]
        errors = count_errors(spec, ("replicas",), "spec") + _pod_errors(spec)
        errors += _strategy_errors(spec["strategy"], "spec.strategy")
        counts = ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
        errors += count_errors(spec, counts, "spec")
        deadline = spec["progressDeadlineSeconds"]
        if deadline <= spec.get("minReadySeconds", 0):
            why = "must be greater than minReadySeconds"
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, why))
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check as on creation; the selector is immutable."""
        return self.validate(new) + _immutable_selector_errors(new, old)

    def raises_generation(self, new: Obj, old: Obj) -> bool:
        """Count annotations too: replica sets carry them."""
        annotations = new["metadata"].get("annotations") or {}
        before = old["metadata"].get("annotations") or {}
        return super().raises_generation(new, old) or annotations != before

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep spec and labels; annotations may change, the revision is one."""
        super().prepare_status(new, old)
        if labels := old["metadata"].get("labels"):
            new["metadata"]["labels"] = labels
        else:
            new["metadata"].pop("labels", None)
        new["status"] = without_zeros(new.get("status") or {})

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check that no part is larger than the whole."""
        status = new["status"]
        errors = count_errors(status, _DEPLOYMENT_COUNTS, "status")
        errors += _part_errors(status, ("updatedReplicas",))
        collisions = status.get("collisionCount", 0)
        if collisions < (old.get("status") or {}).get("collisionCount", 0):
            errors.append(invalid("status.collisionCount", collisions, "cannot be decremented"))
        return errors


def drop_zeros(values: Obj, keys: tuple[str, ...]) -> None:
    """Drop what is not printed: nulls, and zeros of the named fields."""
    for key in [k for k, v in values.items() if v is None or (k in keys and not v)]:
        del values[key]


def without_zeros(status: Obj) -> Obj:
    """A status as it is printed: empty counts are left out, but those kept as pointers."""
    kept = {"terminatingReplicas", "collisionCount"}
    return {k: v for k, v in status.items() if v is not None and (v or k in kept)}


def default_pod_template(spec: Obj) -> None:
    """Fill in the template of pods in a spec."""
    template = spec.get("template")
    if template is None:
        template = spec["template"] = {}
    metadata = template.get("metadata")
    if metadata is None:
        metadata = template["metadata"] = {}
    drop_zeros(metadata, ("labels", "annotations", "finalizers", "ownerReferences"))
    if template.get("spec") is None:
        template["spec"] = {}
    default_template_spec(template["spec"])


def count_errors(values: Obj, keys: tuple[str, ...], at: str) -> list[FieldError]:
    """Check that counts are not negative."""
    return [
        invalid(f"{at}.{key}", values[key], _NEGATIVE)
        for key in keys
        if values.get(key) is not None and values[key] < 0
    ]


def _part_errors(status: Obj, parts: tuple[str, ...]) -> list[FieldError]:
    whole = status.get("replicas", 0)
    errors = [
        invalid(f"status.{key}", status[key], "cannot be greater than status.replicas")
        for key in (*parts, "readyReplicas", "availableReplicas")
        if status.get(key, 0) > whole
    ]
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        why = "cannot be greater than readyReplicas"
        errors.append(invalid("status.availableReplicas", available, why))
    return errors


def _pod_errors(spec: Obj) -> list[FieldError]:
    """Check the selector and the template it has to find."""
    selector, template = spec.get("selector"), spec["template"]
    errors: list[FieldError] = []
    unreadable: list[FieldError] = []
    if selector is None:
        errors.append(required("spec.selector"))
    else:
        unreadable = selector_errors(selector, "spec.selector")
        errors += unreadable
        if selects_all(selector):
            why = "empty selector is invalid for deployment"
            errors.append(invalid_selector("spec.selector", selector, why))
    if unreadable:
        return [*errors, invalid_selector("spec.selector", selector, "invalid label selector")]
    return errors + _template_errors(template, selector)


def _template_errors(template: Obj, selector: Obj | None) -> list[FieldError]:
    at, metadata, pod = "spec.template", template["metadata"], template["spec"]
    labels = metadata.get("labels")
    errors: list[FieldError] = []
    found = label_selector_matches(selector, labels or {})
    if not found and (selector is None or not selects_all(selector)):
        why = "`selector` does not match template `labels`"
        errors.append(invalid(f"{at}.metadata.labels", labels, why))
    errors += label_errors(labels, f"{at}.labels")
    for key in metadata.get("annotations") or ():
        errors += key_errors(key.lower(), f"{at}.annotations")
    errors += spec_errors(pod, f"{at}.spec")
    policy = pod.get("restartPolicy")
    if policy != "Always":
        errors.append(not_supported(f"{at}.spec.restartPolicy", policy, ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in ReplicaSet is not Supported"
        errors.append(forbidden(f"{at}.spec.activeDeadlineSeconds", why))
    return errors


def _strategy_errors(strategy: Obj, at: str) -> list[FieldError]:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is None:
            return []
        why = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden(f"{at}.rollingUpdate", why)]
    if kind != "RollingUpdate":
        shown = msgspec.json.encode({"Type": kind, "RollingUpdate": None}).decode()
        known = ", ".join(f'"{name}"' for name in _STRATEGIES)
        text = f"Unsupported value: {shown}: supported values: {known}"
        return [FieldError("Unsupported value", at, text, "FieldValueNotSupported")]
    assert rolling is not None, "it has a default"
    at = f"{at}.rollingUpdate"
    lost, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    errors = int_or_percent_errors(lost, f"{at}.maxUnavailable") + int_or_percent_errors(
        surge, f"{at}.maxSurge"
    )
    if value_as_number(lost) == 0 and value_as_number(surge) == 0:
        why = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(f"{at}.maxUnavailable", lost, why))
    return errors + at_most_errors(lost, f"{at}.maxUnavailable")


def _immutable_selector_errors(new: Obj, old: Obj) -> list[FieldError]:
    if new["spec"].get("selector") == old["spec"].get("selector"):
        return []
    return [invalid_selector("spec.selector", new["spec"].get("selector"), "field is immutable")]
