# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Nodes: what a kubelet reports, and taints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusched.devcluster.amounts import is_integer, is_negative
from gpusched.devcluster.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.strategies import Strategy

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core

Obj = dict[str, Any]


class NodeStrategy(Strategy):
    """Nodes: the kubelet's own status comes with the create."""

    has_status = True
    knows_all = True

    def prepare_create(self, obj: Obj, core: Core) -> None:
        """Keep the status a kubelet sends."""

    def default(self, obj: Obj) -> None:
        """Fill in what a zero-valued node prints; allocatable stands for capacity when absent."""
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        if "capacity" in status and "allocatable" not in status:
            status["allocatable"] = dict(status["capacity"])
        for condition in status.get("conditions") or ():
            condition.setdefault("lastHeartbeatTime", None)
            condition.setdefault("lastTransitionTime", None)
        status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {}).setdefault(
            "Port", 0
        )
        info = status.setdefault("nodeInfo", {})
        for key in _NODE_INFO:
            info.setdefault(key, "")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check taints and the sign of quantities."""
        return [*_taint_errors(obj["spec"].get("taints")), *_node_quantity_errors(obj)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change; taints are told twice, once as a node and once as an update."""
        taints = _taint_errors(new["spec"].get("taints"))
        old_spec = old.get("spec") or {}
        sealed = [
            forbidden(f"spec.{key}", f'node updates may not change {key} except from "" to valid')
            for key in ("podCIDR", "providerID")
            if old_spec.get(key) and new["spec"].get(key) != old_spec[key]
        ]
        return [*taints, *taints, *sealed]

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec and fill in what a zero-valued status prints."""
        super().prepare_status(new, old)
        status = dict(new.get("status") or {})
        status["conditions"] = [dict(c) for c in status.get("conditions") or ()]
        if not status["conditions"]:
            del status["conditions"]
        for key in ("daemonEndpoints", "nodeInfo"):
            status[key] = dict(status.get(key) or {})
        new["status"] = status
        self.default(new)

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check the sign of quantities."""
        return _node_quantity_errors(new)


_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taint_errors(taints: Any) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints or ()):
        at = f"metadata.taints[{i}]"  # the API server's own slip: taints stand under spec
        if not taint.get("key"):
            errors.append(required(f"{at}.key"))
        effect = taint.get("effect", "")
        if not effect:
            errors.append(required(f"{at}.effect"))
        elif effect not in _EFFECTS:
            errors.append(not_supported(f"{at}.effect", effect, _EFFECTS))
        pair = (taint.get("key", ""), effect)
        if pair in seen:
            errors.append(
                FieldError(
                    "Duplicate value",
                    at,
                    "Duplicate value: taints must be unique by key and effect pair",
                    "FieldValueDuplicate",
                )
            )
        seen.add(pair)
    return errors


def _node_quantity_errors(obj: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    status = obj.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, value in (status.get(part) or {}).items():
            field = f"status.{part}.{name}"
            if is_negative(value):
                errors.append(invalid(field, str(value), "must be greater than or equal to 0"))
            elif "/" in name and not is_integer(value):
                errors.append(invalid(field, str(value), "must be an integer"))
    return errors
