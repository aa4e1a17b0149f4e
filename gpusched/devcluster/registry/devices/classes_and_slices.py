"""Device classes and resource slices: what drivers offer and what administrators name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    required,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import name_errors
from gpusched.devcluster.registry.devices.requests import (
    LIST_MAX,
    opaque_errors,
    selector_list_errors,
)
from gpusched.devcluster.registry.devices.resource_claims import pool_errors
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_DEVICES_MAX: Final = 128
_DEVICES_TAINTED_MAX: Final = 64
_ATTRIBUTES_MAX: Final = 32
_NODES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


class DeviceClassStrategy(Strategy):
    """Device classes: selectors and configurations."""

    generation = True
    returns_object = True

    def default(self, obj: Obj) -> None:
        """Print the spec even when it is empty."""
        obj.setdefault("spec", {})

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check selectors and configurations."""
        spec = obj["spec"]
        errors = list(selector_list_errors(spec.get("selectors"), "spec.selectors"))
        config = spec.get("config") or ()
        if len(config) > LIST_MAX:
            errors.append(too_many("spec.config", len(config), LIST_MAX))
        for i, entry in enumerate(config):
            errors += opaque_errors(entry, f"spec.config[{i}]")
        return errors


class ResourceSliceStrategy(Strategy):
    """Resource slices: a part of a driver's pool of devices."""

    generation = True
    returns_object = True

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check driver, pool, nodes and devices of a slice."""
        return list(_slice_errors(obj.get("spec") or {}))

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a changed slice, whose driver, pool and node are immutable."""
        now, was = new.get("spec") or {}, old.get("spec") or {}
        errors = list(_slice_errors(now))
        for path in (("pool", "name"), ("driver",), ("nodeName",)):
            value = _at(now, path)
            if value != _at(was, path):
                errors.append(invalid(f"spec.{'.'.join(path)}", value, "field is immutable"))
        return errors


def _at(spec: Obj, path: tuple[str, ...]) -> Any:
    value: Any = spec
    for key in path:
        value = (value or {}).get(key)
    return value


def _slice_errors(spec: Obj) -> Iterator[FieldError]:
    driver = spec.get("driver") or ""
    if driver:
        yield from name_errors(driver, field="spec.driver")
    else:
        yield required("spec.driver")
    pool = spec.get("pool") or {}
    yield from pool_errors(pool.get("name") or "", "spec.pool.name")
    slices, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if slices <= 0:
        yield invalid("spec.pool.resourceSliceCount", slices, "must be greater than zero")
    if generation < 0:
        why = "must be greater than or equal to zero"
        yield invalid("spec.pool.generation", generation, why)
    yield from _node_errors(spec)
    yield from _device_list_errors(spec)


def _node_errors(spec: Obj) -> Iterator[FieldError]:
    if spec.get("nodeName") == "":
        yield invalid("spec.nodeName", "", "must be either unset or set to a non-empty string")
    for key in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(key) is False:
            yield invalid(f"spec.{key}", False, "must be either unset or set to true")
    given = [f"`{key}`" for key in _NODES if spec.get(key)]
    why = (
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` "
        "is required"
    )
    if not given:
        yield required("spec", why)
    elif len(given) > 1:
        yield invalid("spec", f"{{{', '.join(given)}}}", f"{why}, but multiple fields are set")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if len(terms) > 1:
        why = "must have exactly one node selector term"
        yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, why)


def _device_list_errors(spec: Obj) -> Iterator[FieldError]:
    devices = spec.get("devices") or ()
    if devices and spec.get("sharedCounters"):
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    advanced = any(d.get("taints") or d.get("consumesCounters") for d in devices)
    most = _DEVICES_TAINTED_MAX if advanced else _DEVICES_MAX
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
    seen: set[str] = set()
    for i, device in enumerate(devices):
        at, name = f"spec.devices[{i}]", device.get("name") or ""
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        yield from name_errors(name, field=f"{at}.name", label=True)
        yield from _device_errors(device, at)


def _device_errors(device: Obj, at: str) -> Iterator[FieldError]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > _ATTRIBUTES_MAX:
        why = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES_MAX}"
        yield invalid(at, total, why)
    for name, value in sorted(attributes.items()):
        field = f"{at}.attributes[{name}]"
        if len(value) != 1:
            yield invalid(field, value or "", "exactly one value must be specified")
        version = value.get("version")
        if version is not None and not _SEMVER.fullmatch(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            yield invalid(f"{field}.version", version, why)
    if not device.get("allowMultipleAllocations"):
        for name, value in sorted(capacity.items()):
            if value.get("requestPolicy") is not None:
                why = "Forbidden: allowMultipleAllocations must be true"
                field = f"{at}.capacity[{name}].requestPolicy"
                yield FieldError("Forbidden", field, why, "FieldValueForbidden")
