# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Nodes: what a kubelet reports, and taints."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    quote_value,
    required,
)
from gpusched.devcluster.apimachinery.metadata import key_errors, label_value_problems
from gpusched.devcluster.registry.pods.resources import value_errors
from gpusched.devcluster.registry.pods.scheduling import EFFECTS
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]


class NodeStrategy(Strategy):
    """Nodes: the kubelet's own status comes with the create."""

    has_status = True
    knows_all = True
    checks_metadata_again = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Keep the status a kubelet sends."""

    def default(self, obj: Obj) -> None:
        """Fill in what a zero-valued node prints; allocatable stands for capacity when absent."""
        _default_ranges(obj.setdefault("spec", {}))
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
        return [
            *_taint_errors(obj["spec"].get("taints")),
            *_node_quantity_errors(obj),
            *_range_errors(obj["spec"].get("podCIDRs") or ()),
        ]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change; errors of taints appear twice, once of the node and once of the update."""
        taints = _taint_errors(new["spec"].get("taints"))
        old_spec = old.get("spec") or {}
        immutable = [
            forbidden(f"spec.{key}", f'node updates may not change {key} except from "" to valid')
            for key in ("podCIDR", "providerID")
            if old_spec.get(key) and new["spec"].get(key) != old_spec[key]
        ]
        return [*taints, *taints, *immutable]

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


def _default_ranges(spec: Obj) -> None:
    """One address range and the list of ranges say the same; the single one counts."""
    one, many = spec.get("podCIDR"), spec.get("podCIDRs")
    if one and (not many or many[0] != one):
        spec["podCIDRs"] = [one]
    elif many and not one:
        spec["podCIDR"] = many[0]


def _range_errors(ranges: Sequence[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, text in enumerate(ranges):
        try:
            ip_network(text, strict=False)
            fits = "/" in text
        except ValueError:
            fits = False
        if not fits:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid(f"spec.podCIDRs[{i}]", text, why))
    if len(ranges) > 1 and len({":" in text for text in ranges}) < len(ranges):
        why = "may specify no more than one CIDR for each IP family"
        errors.append(invalid("spec.podCIDRs", list(ranges), why))
    return errors


def _taint_errors(taints: Any) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints or ()):
        at = f"metadata.taints[{i}]"  # the API server's own slip: taints stand under spec
        key, value, effect = (taint.get(k) or "" for k in ("key", "value", "effect"))
        errors += key_errors(key, f"{at}.key")
        if problems := label_value_problems(value):
            errors.append(invalid(f"{at}.value", value, ";".join(problems)))
        if not effect:
            errors.append(required(f"{at}.effect"))
        elif effect not in EFFECTS:
            errors.append(not_supported(f"{at}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            printed = {"Key": key, "Value": value, "Effect": effect}
            shown = quote_value({**printed, "TimeAdded": taint.get("timeAdded")}, ordered=False)
            why = f"Duplicate value: {shown}: taints must be unique by key and effect pair"
            errors.append(FieldError("Duplicate value", at, why, "FieldValueDuplicate"))
        seen.add((key, effect))
    return errors


def _node_quantity_errors(obj: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    status = obj.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, value in (status.get(part) or {}).items():
            field = f"status.{part}.{name}"
            errors += value_errors(name, value, field)
    return errors
