# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Priority classes: value and preemption policy are immutable, the highest values are reserved for the system."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
)
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_USER_MAX: Final = 1_000_000_000
_POLICIES: Final = ("PreemptLowerPriority", "Never")
_SYSTEM: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class PriorityClassStrategy(Strategy):
    """Priority classes, whose value and policy never change."""

    generation = True

    def default(self, obj: Obj) -> None:
        """Classes preempt unless they say otherwise."""
        obj["preemptionPolicy"] = obj.get("preemptionPolicy") or "PreemptLowerPriority"
        obj.setdefault("value", 0)
        if not obj.get("globalDefault"):
            obj.pop("globalDefault", None)
        if not obj.get("description"):
            obj.pop("description", None)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Reserve names and the highest values for the system."""
        name, value = obj["metadata"].get("name", ""), obj["value"]
        errors: list[FieldError] = []
        if name.startswith("system-"):
            if why := _system_problem(name, value, default=bool(obj.get("globalDefault"))):
                text = (
                    "priority class names with 'system-' prefix are reserved for system use only. "
                    f"error: {why}"
                )
                errors.append(forbidden("metadata.name", text))
        elif value > _USER_MAX:
            text = f"maximum allowed value of a user defined priority is {_USER_MAX}"
            errors.append(forbidden("value", text))
        if obj["preemptionPolicy"] not in _POLICIES:
            errors.append(not_supported("preemptionPolicy", obj["preemptionPolicy"], _POLICIES))
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse a change of value or policy."""
        errors: list[FieldError] = []
        if new["value"] != old["value"]:
            errors.append(forbidden("value", "may not be changed in an update."))
        if new["preemptionPolicy"] != old["preemptionPolicy"]:
            shown = new["preemptionPolicy"]
            errors.append(invalid("preemptionPolicy", shown, "field is immutable"))
        return errors

    def raises_generation(self, new: Obj, old: Obj) -> bool:
        """Return False: nothing that counts can change."""
        return False


def _system_problem(name: str, value: int, *, default: bool) -> str:
    wanted = _SYSTEM.get(name)
    if wanted is None:
        return f"{name} is not a known system priority class"
    if value != wanted:
        return f"value of {name} PriorityClass must be {wanted}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""
