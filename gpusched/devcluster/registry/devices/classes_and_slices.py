"""Device classes and resource slices: what drivers offer and what administrators name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    required,
    too_many,
)
from gpusched.devcluster.registry.devices.device_fields import (
    counter_set_errors,
    device_errors,
    driver_errors,
)
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
_NODES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


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
            value = _value_at_path(now, path)
            if value != _value_at_path(was, path):
                errors.append(invalid(f"spec.{'.'.join(path)}", value, "field is immutable"))
        return errors


def _value_at_path(spec: Obj, path: tuple[str, ...]) -> Any:
    value: Any = spec
    for key in path:
        value = (value or {}).get(key)
    return value


def _slice_errors(spec: Obj) -> Iterator[FieldError]:
    yield from driver_errors(spec.get("driver") or "", "spec.driver")
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


def _is_advanced(device: Obj) -> bool:
    """Whether a device has taints, takes of counters, or has lists among its attributes."""
    attributes = (device.get("attributes") or {}).values()
    lists = any(key.endswith("s") for value in attributes for key in value)
    return bool(device.get("taints") or device.get("consumesCounters") or lists)


def _device_list_errors(spec: Obj) -> Iterator[FieldError]:
    devices = spec.get("devices") or ()
    if devices and spec.get("sharedCounters"):
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    advanced = any(_is_advanced(device) for device in devices)
    most = _DEVICES_TAINTED_MAX if advanced else _DEVICES_MAX
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
    seen: set[str] = set()
    for i, device in enumerate(devices):
        at, name = f"spec.devices[{i}]", device.get("name") or ""
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        yield from device_errors(device, at, per_device=bool(spec.get("perDeviceNodeSelection")))
    yield from counter_set_errors(spec.get("sharedCounters") or (), "spec.sharedCounters")
