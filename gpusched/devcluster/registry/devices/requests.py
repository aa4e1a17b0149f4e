"""What a claim for devices may ask: requests, selectors, constraints and configurations.

Shared by resource claims and their templates, and in part by device classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.cel.device_selectors import selector_complaint
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import name_errors
from gpusched.devcluster.registry.devices.device_fields import (
    driver_errors,
    qualified_errors,
    toleration_errors,
)

Obj = dict[str, Any]

LIST_MAX: Final = 32
"""Most requests, constraints, configurations and selectors of one list."""
_ALTERNATIVES_MAX: Final = 8
_EXPRESSION_MAX: Final = 10 * 1024
_CONSTRAINTS: Final = ("matchAttribute", "distinctAttribute")
_MODES: Final = ("All", "ExactCount")
_REFERENCE_TEXT: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def default_claim(spec: Obj) -> None:
    """Fill in how many devices each request asks for."""
    devices = spec.setdefault("devices", {})
    for request in devices.get("requests") or ():
        if exactly := request.get("exactly"):
            _default_request(exactly)
        for choice in request.get("firstAvailable") or ():
            _default_request(choice)


def _default_request(request: Obj) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    for toleration in request.get("tolerations") or ():
        toleration.setdefault("operator", "Equal")


def claim_errors(spec: Obj, at: str) -> list[FieldError]:
    """Check the spec of a claim; ``at`` is its path, e.g. ``spec``."""
    devices: Obj = spec.get("devices") or {}
    at = f"{at}.devices"
    names = request_names(spec)
    errors = [
        too_many(f"{at}.{part}", len(devices[part]), LIST_MAX)
        for part in ("requests", "constraints", "config")
        if len(devices.get(part) or ()) > LIST_MAX
    ]
    for i, request in enumerate(devices.get("requests") or ()):
        errors += _request_errors(request, f"{at}.requests[{i}]")
    errors += _repeated(devices.get("requests") or (), f"{at}.requests")
    for i, constraint in enumerate(devices.get("constraints") or ()):
        here = f"{at}.constraints[{i}]"
        errors += _reference_list_errors(constraint.get("requests"), f"{here}.requests", names)
        key = next((k for k in _CONSTRAINTS if constraint.get(k) is not None), None)
        if key is not None:
            errors += qualified_errors(constraint[key], f"{here}.{key}", full=True)
        else:
            why = (
                'exactly one of "matchAttribute" or "distinctAttribute" is required, '
                "but multiple fields are set"
            )
            errors.append(required(here, why))
    for i, config in enumerate(devices.get("config") or ()):
        here = f"{at}.config[{i}]"
        errors += _reference_list_errors(config.get("requests"), f"{here}.requests", names)
        errors += opaque_errors(config, here)
    return errors


def request_names(spec: Obj) -> frozenset[str]:
    """Return every name by which results and constraints may refer to a request."""
    found: list[str] = []
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = request.get("name") or ""
        found.append(name)
        found += [f"{name}/{c.get('name') or ''}" for c in request.get("firstAvailable") or ()]
    return frozenset(found)


def reference_errors(name: str, at: str, names: frozenset[str]) -> list[FieldError]:
    """Check that a request of a claim exists."""
    return [] if name in names else [invalid(at, name, _REFERENCE_TEXT)]


def _reference_list_errors(found: Any, at: str, names: frozenset[str]) -> Iterator[FieldError]:
    found = found or ()
    for i, name in enumerate(found):
        yield from reference_errors(name, f"{at}[{i}]", names)
    for i, name in enumerate(found):
        if name in found[:i]:
            yield duplicate(f"{at}[{i}]", name)


def _request_errors(request: Obj, at: str) -> Iterator[FieldError]:
    yield from _name_errors(request, at)
    choices, exactly = request.get("firstAvailable"), request.get("exactly")
    if choices and exactly is not None:
        why = (
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        )
        yield invalid(at, None, why)
    elif choices:
        if len(choices) > _ALTERNATIVES_MAX:
            yield too_many(f"{at}.firstAvailable", len(choices), _ALTERNATIVES_MAX)
        for i, choice in enumerate(choices):
            yield from _name_errors(choice, f"{at}.firstAvailable[{i}]")
            yield from _wanted_errors(choice, f"{at}.firstAvailable[{i}]")
        yield from _repeated(choices, f"{at}.firstAvailable")
    elif exactly is not None:
        yield from _wanted_errors(exactly, f"{at}.exactly")
    else:
        yield required(at, "exactly one of `exactly` or `firstAvailable` is required")


def _repeated(requests: Any, at: str) -> Iterator[FieldError]:
    names = [request.get("name") or "" for request in requests]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield duplicate(f"{at}[{i}]", name)


def _name_errors(request: Obj, at: str) -> list[FieldError]:
    name = request.get("name") or ""
    if not name:
        return [required(f"{at}.name")]
    return name_errors(name, field=f"{at}.name", label=True)


def _wanted_errors(request: Obj, at: str) -> Iterator[FieldError]:
    chosen = request.get("deviceClassName") or ""
    if chosen:
        yield from name_errors(chosen, field=f"{at}.deviceClassName")
    else:
        yield required(f"{at}.deviceClassName")
    yield from selector_list_errors(request.get("selectors"), f"{at}.selectors")
    mode, count = request.get("allocationMode"), request.get("count") or 0
    if mode not in _MODES:
        yield not_supported(f"{at}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        yield invalid(f"{at}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{at}.count", count, "must be greater than zero")
    for i, toleration in enumerate(request.get("tolerations") or ()):
        yield from toleration_errors(toleration, f"{at}.tolerations[{i}]")


def selector_list_errors(selectors: Any, at: str) -> Iterator[FieldError]:
    """Check the CEL selectors of a request or of a device class."""
    if len(selectors or ()) > LIST_MAX:
        yield too_many(at, len(selectors), LIST_MAX)
    for i, selector in enumerate(selectors or ()):
        if (cel := selector.get("cel")) is None:
            yield required(f"{at}[{i}].cel")
            continue
        text = cel.get("expression") or ""
        field = f"{at}[{i}].cel.expression"
        if len(text) > _EXPRESSION_MAX:
            yield too_long(field, _EXPRESSION_MAX)
        elif why := selector_complaint(text):
            yield invalid(field, text, why)


def opaque_errors(config: Obj, at: str) -> list[FieldError]:
    """Check a configuration that only its driver understands."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{at}.opaque")]
    errors = list(driver_errors(opaque.get("driver") or "", f"{at}.opaque.driver"))
    if not isinstance(opaque.get("parameters"), dict):
        errors.append(required(f"{at}.opaque.parameters"))
    return errors
