"""Leases: a PUT creates what is missing, durations and counts are checked."""

from __future__ import annotations

from typing import Any

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]


class LeaseStrategy(Strategy):
    """Leases: a PUT creates, durations are positive."""

    create_on_update = True
    needs_version = True

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check durations and counts."""
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            errors.append(
                invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
            )
        return errors
