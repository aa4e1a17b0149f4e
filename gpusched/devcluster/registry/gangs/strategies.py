# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Workload, PodGroup and CompositePodGroup: defaults, closed gates, what may change, the status."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
)
from gpusched.devcluster.apimachinery.metadata import key_errors
from gpusched.devcluster.registry.gangs import rules
from gpusched.devcluster.registry.gangs.declarative import Struct, Write, struct_errors
from gpusched.devcluster.registry.gangs.features import (
    CLAIMS,
    COMPOSITE,
    PREEMPTION,
    PREEMPTION_POLICY,
    TOPOLOGY,
    GangFeatures,
)
from gpusched.devcluster.registry.gangs.template_trees import template_tree_errors
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]

_BY_STATUS: Final = ("labels", "annotations", "finalizers", "ownerReferences")
_BEHIND_136: Final = {
    "schedulingConstraints": TOPOLOGY,
    "resourceClaims": CLAIMS,
    "disruptionMode": PREEMPTION,
    "priorityClassName": PREEMPTION,
    "priority": PREEMPTION,
}
_BEHIND_137: Final = {
    "schedulingConstraints": TOPOLOGY,
    "resourceClaims": CLAIMS,
    "preemptionPolicy": PREEMPTION_POLICY,
    "parentCompositePodGroupName": COMPOSITE,
    "compositePodGroupTemplates": COMPOSITE,
}
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_TEXT: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    "used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_REASON_MAX: Final = 1024
_MESSAGE_MAX: Final = 32768
_STATES: Final = ("False", "True", "Unknown")


class GangStrategy(Strategy):
    """What the kinds of gangs have in common: declared rules, and fields behind gates.

    Args:
        features: what is switched on.
        struct: the rules of the spec.
    """

    knows_all = True

    def __init__(self, features: GangFeatures, struct: Struct) -> None:
        self.features = features
        self.needs_version = features.release != "1.36"
        self._struct = struct
        self._behind = _BEHIND_136 if features.release == "1.36" else _BEHIND_137

    def open_fields(self, spec: Obj) -> Obj:
        """Return a copy of a spec, or of a template in it, without fields behind closed gates."""
        return {
            key: value
            for key, value in spec.items()
            if key not in self._behind or self.features.enabled(self._behind[key])
        }

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new object."""
        return self._by_rules(obj, None)

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a changed object, and what may change of it."""
        return self._by_rules(new, old)

    def _by_rules(self, new: Obj, old: Obj | None) -> list[FieldError]:
        write = Write(self.features, update=old is not None)
        before = None if old is None else old.get("spec") or {}
        return list(struct_errors(self._struct, "spec", new["spec"], before, write=write))


class GroupStrategy(GangStrategy):
    """Groups of pods or of groups, with a status that a scheduler writes."""

    has_status = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Drop a client's status; an empty one is printed."""
        obj["status"] = {}

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec, and what of the metadata has no place in a status write."""
        super().prepare_status(new, old)
        status = dict(new.get("status") or {})
        if conditions := status.get("conditions"):
            status["conditions"] = [
                {"lastTransitionTime": None, "reason": "", "message": "", **c} for c in conditions
            ]
        if not self.features.enabled(CLAIMS):
            status.pop("resourceClaimStatuses", None)
        new["status"] = {key: value for key, value in status.items() if value}
        for key in _BY_STATUS:
            if key in old["metadata"]:
                new["metadata"][key] = old["metadata"][key]
            else:
                new["metadata"].pop(key, None)

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check conditions, and that claims are those of the group."""
        status = new["status"]
        statuses = status.get("resourceClaimStatuses") or ()
        known = {claim.get("name") for claim in new["spec"].get("resourceClaims") or ()}
        errors = list(condition_errors(status.get("conditions") or (), "status.conditions"))
        why = "must match the name of an entry in `spec.resourceClaims`"
        errors += [
            invalid(f"status.resourceClaimStatuses[{i}].name", entry.get("name", ""), why)
            for i, entry in enumerate(statuses)
            if entry.get("name") not in known
        ]
        struct, write = Struct((rules.CLAIM_STATUSES,)), Write(self.features, update=True)
        errors += struct_errors(struct, "status", status, old.get("status") or {}, write=write)
        return errors


class PodGroupStrategy(GroupStrategy):
    """Rules for PodGroups of Kubernetes itself."""

    def __init__(self, features: GangFeatures) -> None:
        older = features.release == "1.36"
        super().__init__(features, rules.POD_GROUP_136 if older else rules.POD_GROUP_137)

    def default(self, obj: Obj) -> None:
        """Fill in how pods of the group are disrupted, and the link that is printed when empty."""
        spec = dict(obj.get("spec") or {})
        spec["schedulingPolicy"] = spec.get("schedulingPolicy") or {}
        if self.features.release == "1.36":
            spec.setdefault("podGroupTemplateRef", None)
            spec.setdefault("disruptionMode", "Pod")
        else:
            spec.setdefault("disruptionMode", {"single": {}})
            spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj["spec"] = self.open_fields(spec)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new group."""
        errors = super().validate(obj)
        if obj["spec"].get("parentCompositePodGroupName") is None or obj["spec"].get("workloadRef"):
            return errors
        why = "must be set when parentCompositePodGroupName is set"
        return [required("spec.workloadRef", why), *errors]


class CompositePodGroupStrategy(GroupStrategy):
    """Groups of groups, from Kubernetes 1.37."""

    def __init__(self, features: GangFeatures) -> None:
        super().__init__(features, rules.COMPOSITE_137)

    def default(self, obj: Obj) -> None:
        """Fill in how groups of the tree are disrupted."""
        spec = dict(obj.get("spec") or {})
        spec["schedulingPolicy"] = spec.get("schedulingPolicy") or {}
        spec.setdefault("workloadRef", None)
        spec.setdefault("disruptionMode", {"single": {}})
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        closed = not self.features.enabled(PREEMPTION_POLICY)
        obj["spec"] = {k: v for k, v in spec.items() if not closed or k != "preemptionPolicy"}


class WorkloadStrategy(GangStrategy):
    """Workloads: what a controller's groups will look like."""

    def __init__(self, features: GangFeatures) -> None:
        older = features.release == "1.36"
        super().__init__(features, rules.WORKLOAD_136 if older else rules.WORKLOAD_137)

    def default(self, obj: Obj) -> None:
        """Take fields behind closed gates out of all templates, and print empty ones as null."""
        spec = self._with_open_templates(dict(obj.get("spec") or {}))
        spec.setdefault("podGroupTemplates", None)
        obj["spec"] = spec

    def _with_open_templates(self, holder: Obj) -> Obj:
        shown = self.open_fields(holder)
        if groups := shown.get("podGroupTemplates"):
            shown["podGroupTemplates"] = [
                {"schedulingPolicy": {}, "schedulingConstraints": None, **self.open_fields(group)}
                for group in groups
            ]
        if trees := shown.get("compositePodGroupTemplates"):
            shown["compositePodGroupTemplates"] = [
                {"schedulingPolicy": {}, **self._with_open_templates(tree)} for tree in trees
            ]
        return shown

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new Workload."""
        return [*template_tree_errors(obj["spec"], self.features), *super().validate(obj)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a changed Workload."""
        tree = template_tree_errors(new["spec"], self.features)
        return [*tree, *super().validate_update(new, old)]


def condition_errors(conditions: Sequence[Obj], at: str) -> Iterator[FieldError]:
    """Check conditions of the form that all newer kinds share."""
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        here, kind = f"{at}[{i}]", condition.get("type") or ""
        if kind in seen:
            yield duplicate(f"{here}.type", kind)
        seen.add(kind)
        yield from key_errors(kind, f"{here}.type")
        if (state := condition.get("status") or "") not in _STATES:
            yield not_supported(f"{here}.status", state, _STATES)
        if (observed := condition.get("observedGeneration") or 0) < 0:
            why = "must be greater than or equal to zero"
            yield invalid(f"{here}.observedGeneration", observed, why)
        if not condition.get("lastTransitionTime"):
            yield required(f"{here}.lastTransitionTime")
        yield from _reason_errors(condition.get("reason") or "", f"{here}.reason")
        if len((condition.get("message") or "").encode()) > _MESSAGE_MAX:
            yield too_long(f"{here}.message", _MESSAGE_MAX)


def _reason_errors(reason: str, at: str) -> Iterator[FieldError]:
    if not reason:
        yield required(at)
        return
    if not _REASON.fullmatch(reason):
        yield invalid(at, reason, _REASON_TEXT)
    if len(reason.encode()) > _REASON_MAX:
        yield too_long(at, _REASON_MAX)
