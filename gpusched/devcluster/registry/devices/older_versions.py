"""Older versions of resource.k8s.io: other views of the objects that are stored as v1.

v1beta2 differs by its name alone. In v1beta1 a request says what it wants without ``exactly``,
and a device has all but its name under ``basic``. Nothing is lost in either direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Obj = dict[str, Any]
Change = Callable[[Obj], Obj]

GROUP: Final = "resource.k8s.io"
_STORED: Final = "v1"
_OF_A_REQUEST: Final = frozenset({"name", "firstAvailable"})


def older_view(group: str, version: str) -> Change | None:
    """Return how a stored object appears in a version of a group; None where it needs no change."""
    if group != GROUP or version == _STORED:
        return None
    inner = _flat_request if version == "v1beta1" else _same
    device = _nested_device if version == "v1beta1" else _same
    return lambda obj: _changed(obj, f"{group}/{version}", request=inner, device=device)


def stored_form(group: str, version: str, obj: Obj) -> Obj:
    """Return an object of any version as it is stored."""
    if group != GROUP or version == _STORED:
        return obj
    request = _exact_request if version == "v1beta1" else _same
    device = _bare_device if version == "v1beta1" else _same
    return _changed(obj, f"{GROUP}/{_STORED}", request=request, device=device)


def _same(obj: Obj) -> Obj:
    return obj


def _flat_request(request: Obj) -> Obj:
    rest = {k: v for k, v in request.items() if k != "exactly"}
    return {**rest, **(request.get("exactly") or {})}


def _exact_request(request: Obj) -> Obj:
    exactly = {k: v for k, v in request.items() if k not in _OF_A_REQUEST}
    rest = {k: v for k, v in request.items() if k in _OF_A_REQUEST}
    if exactly or not request.get("firstAvailable"):
        rest["exactly"] = exactly
    return rest


def _nested_device(device: Obj) -> Obj:
    basic = {k: v for k, v in device.items() if k != "name"}
    return {"name": device.get("name", ""), "basic": basic}


def _bare_device(device: Obj) -> Obj:
    return {"name": device.get("name", ""), **(device.get("basic") or {})}


def _changed(obj: Obj, api_version: str, *, request: Change, device: Change) -> Obj:
    """Return a copy in another version; what does not change is shared."""
    new = {**obj, "apiVersion": api_version}
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return new
    if obj.get("kind") == "ResourceClaim":
        new["spec"] = _claim(spec, request)
    elif obj.get("kind") == "ResourceClaimTemplate" and isinstance(spec.get("spec"), dict):
        new["spec"] = {**spec, "spec": _claim(spec["spec"], request)}
    elif obj.get("kind") == "ResourceSlice" and spec.get("devices"):
        new["spec"] = {**spec, "devices": [device(entry) for entry in spec["devices"]]}
    return new


def _claim(spec: Obj, request: Change) -> Obj:
    devices = spec.get("devices")
    if not isinstance(devices, dict) or not devices.get("requests"):
        return spec
    requests = [request(entry) for entry in devices["requests"]]
    return {**spec, "devices": {**devices, "requests": requests}}
