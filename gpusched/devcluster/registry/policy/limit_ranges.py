"""Limit ranges: defaults that follow from bounds, and bounds that must not cross."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.cel.quantities import parse_amount
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
)
from gpusched.devcluster.apimachinery.metadata import key_errors
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_TYPES: Final = ("Container", "PersistentVolumeClaim", "Pod")
_PARTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})


class LimitRangeStrategy(Strategy):
    """Limit ranges; ``gpusched.devcluster.apiserver.admission.limit_ranger`` applies them."""

    def default(self, obj: Obj) -> None:
        """Derive default limits from bounds, and default requests from default limits."""
        for limit in (obj.get("spec") or {}).get("limits") or ():
            if limit.get("type") != "Container":
                continue
            limits = {**(limit.get("max") or {}), **(limit.get("default") or {})}
            least = limit.get("min") or {}
            requests = {**least, **limits, **(limit.get("defaultRequest") or {})}
            if limits:
                limit["default"] = limits
            if requests:
                limit["defaultRequest"] = requests

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check every limit of the range."""
        errors: list[FieldError] = []
        seen: set[str] = set()
        for i, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
            at, kind = f"spec.limits[{i}]", limit.get("type") or ""
            if "/" not in kind and kind not in _TYPES:
                why = "must be a standard limit type or fully qualified"
                errors.append(invalid(f"{at}.type", kind, why))
            if kind in seen:
                errors.append(duplicate(f"{at}.type", kind))
            seen.add(kind)
            errors += _limit_errors(limit, at)
        return errors


def _limit_errors(limit: Obj, at: str) -> Iterator[FieldError]:
    kind = limit.get("type")
    names: set[str] = set()
    for part in _PARTS:
        values = limit.get(part) or {}
        if kind == "Pod" and part in {"default", "defaultRequest"}:
            if values:
                yield forbidden(f"{at}.{part}", "may not be specified when `type` is 'Pod'")
            continue
        for name in sorted(values):
            names.add(name)
            yield from key_errors(name, f"{at}.{part}[{name}]")
    if kind == "PersistentVolumeClaim" and not any(
        "storage" in (limit.get(part) or {}) for part in ("min", "max")
    ):
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{at}.limits", why)
    for name in sorted(names):
        yield from _crossings(limit, name, at)


def _crossings(limit: Obj, name: str, at: str) -> Iterator[FieldError]:
    """Yield each pair of bounds that contradict each other."""
    value = {part: limit[part][name] for part in _PARTS if name in (limit.get(part) or {})}
    pairs = (
        ("min", "max", "min", "min value {} is greater than max value {}"),
        ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
        ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
        ("defaultRequest", "default", "defaultRequest", "default request value {} is greater than default limit value {}"),
        ("min", "default", "default", "min value {} is greater than default value {}"),
        ("default", "max", "default", "default value {} is greater than max value {}"),
    )  # fmt: skip
    shown = {("min", "default"): "min", ("default", "max"): "max"}
    for low, high, part, text in pairs:
        if low in value and high in value and parse_amount(value[low]) > parse_amount(value[high]):
            bad = value[shown.get((low, high), part)]
            yield invalid(f"{at}.{part}[{name}]", str(bad), text.format(value[low], value[high]))
    ratio = value.get("maxLimitRequestRatio")
    if ratio is not None and parse_amount(ratio) < 1:
        field = f"{at}.maxLimitRequestRatio[{name}]"
        yield invalid(field, str(ratio), f"ratio {ratio} is less than 1")
    both = "default" in value and "defaultRequest" in value
    overcommits = name in _NATIVE
    if (
        both
        and not overcommits
        and parse_amount(value["default"]) != parse_amount(value["defaultRequest"])
    ):
        why = (
            f"default value {value['default']} must equal to defaultRequest value "
            f"{value['defaultRequest']} in {name}"
        )
        yield invalid(f"{at}.defaultRequest[{name}]", str(value["defaultRequest"]), why)
