# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""What a disruption budget may say, and the condition that sums up its counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gpusched.devcluster.apimachinery.field_errors import FieldError, not_supported
from gpusched.devcluster.apimachinery.selector_validation import selector_errors
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.registry.strategy import ServerContext, Strategy
from gpusched.devcluster.registry.workloads.int_or_percent import (
    at_most_errors,
    int_or_percent_errors,
)

Obj = dict[str, Any]

_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_INTERNAL: Final = {
    "MinAvailable": "minAvailable",
    "Selector": "selector",
    "MaxUnavailable": "maxUnavailable",
    "UnhealthyPodEvictionPolicy": "unhealthyPodEvictionPolicy",
}
"""Names that the server gives to the fields of a spec where it shows one whole."""


class DisruptionBudgetStrategy(Strategy):
    """Disruption budgets: the counts belong to their controller."""

    checks_changes_again = False
    generation = True
    has_status = True
    needs_version = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start with zero counts, which forbid every eviction until the controller has looked."""
        obj.setdefault("spec", {})
        obj["status"] = {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        }

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check that one of the two bounds is given, and that it is sound."""
        return budget_errors(obj["spec"])


def budget_errors(spec: Obj) -> list[FieldError]:
    """Check that at most one bound is given, that it is sound, and the selector."""
    errors: list[FieldError] = []
    bounds = [key for key in ("minAvailable", "maxUnavailable") if spec.get(key) is not None]
    if len(bounds) > 1:
        shown = msgspec.json.encode({name: spec.get(key) for name, key in _INTERNAL.items()})
        why = "minAvailable and maxUnavailable cannot be both set"
        text = f"Invalid value: {shown.decode()}: {why}"
        errors.append(FieldError("Invalid value", "spec", text, "FieldValueInvalid"))
    for key in bounds:
        errors += int_or_percent_errors(spec[key], f"spec.{key}")
        errors += at_most_errors(spec[key], f"spec.{key}")
    if spec.get("selector") is not None:
        errors += selector_errors(spec["selector"], "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return errors


def with_condition(
    conditions: Iterable[Obj] | None, counts: Obj, *, now: float, why: str = ""
) -> list[Obj]:
    """The conditions with DisruptionAllowed as the counts have it.

    Args:
        conditions: as they are.
        counts: the status they belong to.
        now: epoch seconds.
        why: the counts could not be made; empty when they could.
    """
    allowed = counts["disruptionsAllowed"] > 0
    fresh: Obj = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": counts.get("observedGeneration", 0),
        "lastTransitionTime": rfc3339(now),
        "reason": "SyncFailed" if why else "SufficientPods" if allowed else "InsufficientPods",
        "message": why,
    }
    if not fresh["observedGeneration"]:
        del fresh["observedGeneration"]
    made = list(conditions or ())
    for i, have in enumerate(made):
        if have.get("type") == fresh["type"]:
            if have.get("status") == fresh["status"] and have.get("lastTransitionTime"):
                fresh["lastTransitionTime"] = have["lastTransitionTime"]
            made[i] = fresh
            return made
    return [*made, fresh]
