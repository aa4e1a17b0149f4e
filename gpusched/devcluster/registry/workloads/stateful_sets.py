# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Stateful sets: defaults, validation, and the few fields that may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    invalid_structure,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import (
    annotation_errors,
    label_errors,
    name_errors,
)
from gpusched.devcluster.apimachinery.selector_validation import (
    invalid_selector,
    selector_errors,
    selects_all,
)
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.registry.pods.validation import spec_errors
from gpusched.devcluster.registry.strategy import ServerContext, Strategy
from gpusched.devcluster.registry.workloads.apps import (
    count_errors,
    default_pod_template,
    drop_zeros,
    without_zeros,
)

Obj = dict[str, Any]

_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_SEALED: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)
_POLICIES: Final = ("Retain", "Delete")
_MOMENTS: Final = ("whenDeleted", "whenScaled")
_COUNTS: Final = (
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "observedGeneration",
    "collisionCount",
)
_PARTS: Final = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
ClaimErrors = Callable[[Obj], list[FieldError]]


class StatefulSetStrategy(Strategy):
    """Sets of pods that keep their names and their claims.

    Args:
        claim_errors: checks a claim of a volume, telling errors by ``spec.`` and the field.
    """

    generation = True
    has_status = True
    knows_all = True
    label_name = True

    def __init__(self, claim_errors: ClaimErrors) -> None:
        self._claim_errors = claim_errors

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start with nothing counted."""
        obj["status"] = {"replicas": 0, "availableReplicas": 0}

    def default(self, obj: Obj) -> None:
        """Pods one after the other, updates from the last one down, claims that are kept."""
        spec = obj.setdefault("spec", {})
        drop_zeros(spec, ("minReadySeconds", "podManagementPolicy", "volumeClaimTemplates"))
        spec.setdefault("podManagementPolicy", "OrderedReady")
        update = dict(spec.get("updateStrategy") or {})
        if not update.get("type"):
            update["type"] = "RollingUpdate"
            update.setdefault("rollingUpdate", {})
        if update["type"] == "RollingUpdate" and update.get("rollingUpdate") is not None:
            update["rollingUpdate"] = {"partition": 0, **update["rollingUpdate"]}
        if update.get("rollingUpdate") is not None:
            rolling = update["rollingUpdate"]
            update["rollingUpdate"] = {k: v for k, v in rolling.items() if k != "maxUnavailable"}
        spec["updateStrategy"] = update
        kept = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        spec["persistentVolumeClaimRetentionPolicy"] = {
            key: kept.get(key) or "Retain" for key in _MOMENTS
        }
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        if claims := spec.get("volumeClaimTemplates"):
            spec["volumeClaimTemplates"] = [_claim_template(claim) for claim in claims]
        default_pod_template(spec)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new set."""
        return list(self._errors(obj["spec"], new=True))

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a changed set, of which most may not change."""
        errors = list(self._errors(new["spec"], new=False))
        keys = {*new["spec"], *old["spec"]} - set(_MUTABLE)
        if any(new["spec"].get(key) != old["spec"].get(key) for key in keys):
            errors.append(forbidden("spec", _SEALED))
        return errors

    def _errors(self, spec: Obj, *, new: bool) -> Iterator[FieldError]:
        policy = spec["podManagementPolicy"]
        if policy not in {"OrderedReady", "Parallel"}:
            why = "must be 'OrderedReady' or 'Parallel'"
            yield invalid("spec.podManagementPolicy", policy, why)
        yield from _update_errors(spec["updateStrategy"], "spec.updateStrategy")
        retention = spec["persistentVolumeClaimRetentionPolicy"]
        for key in _MOMENTS:
            if retention[key] not in _POLICIES:
                at = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
                yield not_supported(at, retention[key], _POLICIES)
        for i, claim in enumerate(spec.get("volumeClaimTemplates") or () if new else ()):
            for error in self._claim_errors(claim):
                at = f"spec.volumeClaimTemplates[{i}].{error.field}"
                yield FieldError(error.type, at, error.text, error.cause_reason)
        yield from count_errors(spec, ("replicas", "minReadySeconds"), "spec")
        yield from count_errors(spec.get("ordinals") or {}, ("start",), "spec.ordinals")
        if new and spec.get("serviceName"):
            yield from name_errors(spec["serviceName"], field="spec.serviceName", label=True)
        yield from _pod_errors(spec)

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec; two counts are always printed."""
        super().prepare_status(new, old)
        counts = without_zeros(new.get("status") or {})
        new["status"] = {"replicas": 0, "availableReplicas": 0, **counts}

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check that no part is larger than the whole."""
        status = new["status"]
        errors = count_errors(status, _COUNTS, "status")
        errors += [
            invalid(f"status.{key}", status[key], "cannot be greater than status.replicas")
            for key in _PARTS
            if status.get(key, 0) > status["replicas"]
        ]
        available = status["availableReplicas"]
        if available > status.get("readyReplicas", 0):
            why = "cannot be greater than status.readyReplicas"
            errors.append(invalid("status.availableReplicas", available, why))
        collisions = status.get("collisionCount", 0)
        if collisions < (old.get("status") or {}).get("collisionCount", 0):
            errors.append(invalid("status.collisionCount", collisions, "cannot be decremented"))
        return errors


def _claim_template(claim: Obj) -> Obj:
    """A template of a claim with all that is printed of it."""
    spec = {"volumeMode": "Filesystem", **(claim.get("spec") or {})}
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    metadata = {k: v for k, v in (claim.get("metadata") or {}).items() if v}
    return {**claim, **head, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _update_errors(update: Obj, at: str) -> Iterator[FieldError]:
    kind, rolling = update["type"], update.get("rollingUpdate")
    shown = None
    if rolling is not None:
        shown = {"Partition": rolling.get("partition"), "MaxUnavailable": None}
    if kind == "OnDelete":
        if rolling is not None:
            why = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid_structure(f"{at}.rollingUpdate", shown, why)
    elif kind != "RollingUpdate":
        why = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid_structure(at, {"Type": kind, "RollingUpdate": shown}, why)
    elif rolling is not None:
        yield from count_errors(rolling, ("partition",), f"{at}.rollingUpdate")


def _pod_errors(spec: Obj) -> Iterator[FieldError]:
    """Check the selector and the template it has to find."""
    selector, template = spec.get("selector"), spec["template"]
    unreadable: list[FieldError] = []
    if selector is None:
        yield required("spec.selector")
    else:
        unreadable = selector_errors(selector, "spec.selector")
        yield from unreadable
        if selects_all(selector):
            why = "empty selector is invalid for statefulset"
            yield invalid_selector("spec.selector", selector, why)
    if unreadable:
        yield invalid_selector("spec.selector", selector, "")
    else:
        yield from _template_errors(spec, template, selector)
    at, policy = "spec.template.spec", template["spec"].get("restartPolicy")
    if policy != "Always":
        yield not_supported(f"{at}.restartPolicy", policy, ("Always",))
    if template["spec"].get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in StatefulSet is not Supported"
        yield forbidden(f"{at}.activeDeadlineSeconds", why)


def _template_errors(spec: Obj, template: Obj, selector: Obj | None) -> Iterator[FieldError]:
    """Check a template; the controller chooses host name and subdomain, and adds claims."""
    at, metadata = "spec.template", template["metadata"]
    labels = metadata.get("labels")
    found = label_selector_matches(selector, labels or {})
    if not found and (selector is None or not selects_all(selector)):
        why = "`selector` does not match template `labels`"
        yield invalid(f"{at}.metadata.labels", labels, why)
    pod = {k: v for k, v in template["spec"].items() if k not in {"hostname", "subdomain"}}
    names = [claim["metadata"].get("name") for claim in spec.get("volumeClaimTemplates") or ()]
    if names:
        added = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]
        own = [v for v in pod.get("volumes") or () if v.get("name") not in names]
        pod["volumes"] = [*added, *own]
    yield from spec_errors(pod, f"{at}.spec")
    yield from label_errors(labels, f"{at}.labels")
    yield from annotation_errors(metadata.get("annotations"), f"{at}.annotations")
