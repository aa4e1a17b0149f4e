# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Events: the newer group asks for more, the older prints what is unset."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.field_errors import FieldError, invalid, required
from gpusched.devcluster.strategies import Strategy

Obj = dict[str, Any]

_NULLS: Final = ("firstTimestamp", "lastTimestamp", "eventTime")
_EMPTIES: Final = ("reportingComponent", "reportingInstance")
_MESSAGE_MAX: Final = 1024


class EventStrategy(Strategy):
    """Events of both groups in their stored form, the core one."""

    create_on_update = True
    default_propagation = "None"

    def default(self, obj: Obj) -> None:
        """Print unset times as null and unset reporters as empty."""
        obj.setdefault("source", {})
        for key in _NULLS:
            obj.setdefault(key, None)
        for key in _EMPTIES:
            obj.setdefault(key, "")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check what an event about an object must say; stricter when it has an eventTime."""
        errors: list[FieldError] = []
        involved = obj.get("involvedObject") or {}
        namespace = obj["metadata"].get("namespace", "")
        if (involved.get("namespace") or "default") != namespace:
            errors.append(
                invalid(
                    "involvedObject.namespace",
                    involved.get("namespace", ""),
                    "does not match event.namespace",
                )
            )
        if obj.get("eventTime") is None:
            return errors
        for key, field in (
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
            ("action", "action"),
            ("reason", "reason"),
        ):
            if not obj.get(key):
                errors.append(required(field))
        if len(obj.get("message") or "") > _MESSAGE_MAX:
            errors.append(invalid("message", "", f"can have at most {_MESSAGE_MAX} characters"))
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Allow any later state: only the series and counts change in practice."""
        return []
