# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Resource quotas: names that can be limited, and scopes that fit them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid, required
from gpusched.devcluster.registry.pods.resources import (
    HUGE_PAGES_PREFIX,
    standard_name_errors,
    value_errors,
)
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]

_POD_SCOPES: Final = frozenset({"Terminating", "NotTerminating", "NotBestEffort", "PriorityClass"})
_SCOPES: Final = _POD_SCOPES | {"BestEffort", "CrossNamespacePodAffinity", "VolumeAttributesClass"}
_PAIRS: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_COMPUTE: Final = frozenset(
    {
        "pods",
        "cpu",
        "memory",
        "requests.cpu",
        "requests.memory",
        "limits.cpu",
        "limits.memory",
    }
)
_OTHERS: Final = frozenset(
    {
        "ephemeral-storage",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.ephemeral-storage",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "persistentvolumeclaims",
        "configmaps",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_EXISTS_TEXT: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


class ResourceQuotaStrategy(Strategy):
    """Resource quotas: usage is a status of its own."""

    returns_object = True
    has_status = True
    knows_all = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start with no usage known."""
        obj.setdefault("spec", {})
        obj["status"] = {}

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check limits and scopes."""
        spec = obj.get("spec") or {}
        return [*_hard_errors(spec), *_scope_errors(spec), *_selector_errors(spec)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change: what a quota is about stays as it was."""
        errors = self.validate(new)
        now = (new.get("spec") or {}).get("scopes") or []
        if sorted(now) != sorted((old.get("spec") or {}).get("scopes") or []):
            errors.append(invalid("spec.scopes", now or None, "field is immutable"))
        return errors


def _is_standard(name: str) -> bool:
    return (
        name in _COMPUTE
        or name in _OTHERS
        or name.removeprefix("requests.").startswith(HUGE_PAGES_PREFIX)
    )


def _hard_errors(spec: Obj) -> Iterator[FieldError]:
    for name, value in (spec.get("hard") or {}).items():
        at = f"spec.hard[{name}]"
        yield from standard_name_errors(name, at)
        if "/" not in name and not _is_standard(name):
            yield invalid(at, name, "must be a standard resource for quota")
        yield from value_errors(name, value, at)


def _fits(scope: str, name: str) -> bool:
    if not _is_standard(name):
        return True
    if scope in _POD_SCOPES:
        return name in _COMPUTE
    return name == "pods" if scope in {"BestEffort", "CrossNamespacePodAffinity"} else True


def _scope_errors(spec: Obj) -> Iterator[FieldError]:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid("spec.scopes", scopes, "unsupported scope")
        for name in sorted(spec.get("hard") or {}):
            if not _fits(scope, name):
                yield invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _PAIRS:
        if {*pair} <= {*scopes}:
            yield invalid("spec.scopes", scopes, "conflicting scopes")


def _selector_errors(spec: Obj) -> Iterator[FieldError]:
    selector = spec.get("scopeSelector")
    if selector is None:
        return
    at = "spec.scopeSelector.matchExpressions"
    wanted = selector.get("matchExpressions") or ()
    for rule in wanted:
        scope, operator = rule.get("scopeName") or "", rule.get("operator") or ""
        values = rule.get("values") or []
        if scope not in _SCOPES:
            yield invalid(f"{at}.scopeName", scope, "unsupported scope")
        for name in sorted(spec.get("hard") or {}):
            if not _fits(scope, name):
                why = "unsupported scope applied to resource"
                yield invalid(at, _printed(selector), why)
        if scope != "PriorityClass" and scope in _SCOPES and operator != "Exists":
            yield invalid(f"{at}.operator", operator, _EXISTS_TEXT)
        yield from _operator_errors(operator, values, at)
    named = {rule.get("scopeName") for rule in wanted}
    for pair in _PAIRS:
        if {*pair} <= named:
            yield invalid(at, spec.get("scopes"), "conflicting scopes")


def _operator_errors(operator: str, values: list[str], at: str) -> Iterator[FieldError]:
    if operator in {"In", "NotIn"}:
        if not values:
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(f"{at}.values", why)
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{at}.values", values, why)
    else:
        yield invalid(f"{at}.operator", operator, "not a valid selector operator")


def _printed(selector: Obj) -> Obj:
    rules = [
        {
            "ScopeName": rule.get("scopeName", ""),
            "Operator": rule.get("operator", ""),
            "Values": rule.get("values"),
        }
        for rule in selector.get("matchExpressions") or ()
    ]
    return {"MatchExpressions": rules or None}
