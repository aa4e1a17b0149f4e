"""Amounts that containers and whole pods ask for: known names, sound values, limits that hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpusched.cel.quantities import (
    QuantityFormatError,
    canonical_quantity,
    is_integer,
    is_negative,
    parse_amount,
)
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import qualified_name_problems

Obj = dict[str, Any]

HUGE_PAGES_PREFIX: Final = "hugepages-"
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = frozenset(
    {
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_STANDARD: Final = frozenset(
    {
        *_COMPUTE,
        *_COUNTED,
        "storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "requests.storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_OVERCOMMIT_TEXT: Final = "Limit must be set for non overcommitable resources"


def is_native(name: str) -> bool:
    """Tell whether the API itself knows what a resource is."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Tell whether a resource is one that nodes advertise, such as ``nvidia.com/gpu``."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name_problems(f"requests.{name}")


def is_counted(name: str) -> bool:
    """Tell whether only whole numbers of a resource make sense."""
    return name in _COUNTED or is_extended(name)


def value_errors(name: str, value: Any, at: str) -> Iterator[FieldError]:
    """Check the sign of an amount, and that counted things come whole."""
    if is_negative(value):
        yield invalid(at, str(value), "must be greater than or equal to 0")
    if is_counted(name) and not is_integer(value):
        yield invalid(at, str(value), "must be an integer")


def standard_name_errors(name: str, at: str) -> Iterator[FieldError]:
    """Check that a resource is well known or has a domain."""
    problems = qualified_name_problems(name)
    for why in problems:
        yield invalid(at, name, why)
    if not problems and "/" not in name and name not in _STANDARD and HUGE_PAGES_PREFIX not in name:
        yield invalid(at, name, "must be a standard resource type or fully qualified")


def _container_name_errors(name: str, at: str) -> Iterator[FieldError]:
    yield from standard_name_errors(name, at)
    if "/" not in name:
        if name not in _COMPUTE and not name.startswith(HUGE_PAGES_PREFIX):
            yield invalid(at, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(at, name, "doesn't follow extended resource name standard")


def _pod_name_errors(name: str, at: str) -> Iterator[FieldError]:
    problems = [*standard_name_errors(name, at)]
    yield from problems
    if not problems and name not in {"cpu", "memory"} and not name.startswith(HUGE_PAGES_PREFIX):
        yield not_supported(at, name, ("cpu", HUGE_PAGES_PREFIX, "memory"))


def requirement_errors(resources: Obj, at: str, *, whole_pod: bool = False) -> Iterator[FieldError]:
    """Check requests and limits of a container or of a whole pod."""
    limits: Mapping[str, Any] = resources.get("limits") or {}
    requests: Mapping[str, Any] = resources.get("requests") or {}
    names = _pod_name_errors if whole_pod else _container_name_errors
    for name, value in limits.items():
        yield from _amount_errors(name, value, f"{at}.limits[{name}]", names=names)
        yield from _huge_errors(name, value, f"{at}.limits[{name}]")
    for name, value in requests.items():
        yield from _amount_errors(name, value, f"{at}.requests[{name}]", names=names)
        yield from _limit_errors(name, value, limits.get(name), at)
        yield from _huge_errors(name, value, f"{at}.requests[{name}]")
    asked = [*limits, *requests]
    if any(name.startswith(HUGE_PAGES_PREFIX) for name in asked) and not {"cpu", "memory"} & {
        *asked
    }:
        yield forbidden(at, "HugePages require cpu or memory")


def _amount_errors(
    name: str, value: Any, at: str, *, names: Callable[[str, str], Iterator[FieldError]]
) -> Iterator[FieldError]:
    yield from names(name, at)
    yield from value_errors(name, value, at)


def _limit_errors(name: str, value: Any, limit: Any, at: str) -> Iterator[FieldError]:
    exact = not is_native(name) or name.startswith(HUGE_PAGES_PREFIX)
    if limit is None:
        if exact:
            yield required(f"{at}.limits", _OVERCOMMIT_TEXT)
        return
    asked, most = parse_amount(value), parse_amount(limit)
    if exact and asked != most:
        why = f"must be equal to {name} limit of {canonical_quantity(limit)}"
        yield invalid(f"{at}.requests", str(value), why)
    elif asked > most:
        why = f"must be less than or equal to {name} limit of {canonical_quantity(limit)}"
        yield invalid(f"{at}.requests", str(value), why)


def _huge_errors(name: str, value: Any, at: str) -> Iterator[FieldError]:
    if not name.startswith(HUGE_PAGES_PREFIX):
        return
    try:
        size = parse_amount(name.removeprefix(HUGE_PAGES_PREFIX))
    except QuantityFormatError:
        size = parse_amount(0)
    if size <= 0 or parse_amount(value) % size:
        why = f"{canonical_quantity(value)} is not positive integer multiple of {name}"
        yield invalid(at, str(value), why)


def pod_level_errors(spec: Obj, at: str) -> Iterator[FieldError]:
    """Check what a pod asks for as a whole against what its containers ask for."""
    resources: Obj = spec["resources"]
    if resources.get("claims"):
        yield forbidden(f"{at}.claims", "claims cannot be set for Resources at pod-level")
    yield from requirement_errors(resources, at, whole_pod=True)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    total: dict[str, Any] = {}
    for container in spec.get("containers") or ():
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, parse_amount(0)) + parse_amount(value)
    for name, asked in total.items():
        if name not in {"cpu", "memory"} and not name.startswith(HUGE_PAGES_PREFIX):
            continue
        have = requests.get(name, "0")
        if asked > parse_amount(have):
            shown = canonical_quantity(str(float(asked))) if asked.denominator > 1 else str(asked)
            why = f"must be greater than or equal to aggregate container requests of {shown}"
            yield invalid(f"{at}.requests[{name}]", str(have), why)
    for i, container in enumerate(spec.get("containers") or ()):
        for name, value in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse_amount(value) > parse_amount(limits[name]):
                why = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{at}.containers[{i}][{name}].limits", str(value), why)
