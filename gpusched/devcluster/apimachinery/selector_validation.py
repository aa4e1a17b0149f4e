"""Label selectors inside objects: what is wrong with one, and how it reads in error texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gpusched.devcluster.apimachinery.field_errors import FieldError, forbidden, invalid, required
from gpusched.devcluster.apimachinery.metadata import key_errors, label_errors

Obj = dict[str, Any]


def selector_errors(selector: Obj, at: str) -> list[FieldError]:
    """Check keys, operators and values of a selector."""
    errors = label_errors(selector.get("matchLabels"), f"{at}.matchLabels")
    for i, rule in enumerate(selector.get("matchExpressions") or ()):
        errors += _rule_errors(rule, f"{at}.matchExpressions[{i}]")
    return errors


def _rule_errors(rule: Obj, at: str) -> Iterator[FieldError]:
    operator, values = rule.get("operator") or "", rule.get("values") or ()
    if operator in {"In", "NotIn"}:
        if not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{at}.values", why)
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{at}.values", why)
    else:
        yield invalid(f"{at}.operator", operator, "not a valid selector operator")
    yield from key_errors(rule.get("key") or "", f"{at}.key")
    for i, value in enumerate(values):
        yield from label_errors({"k": value}, f"{at}.values[{i}]")


def selects_all(selector: Obj) -> bool:
    """Tell whether a selector has no requirement."""
    return not (selector.get("matchLabels") or selector.get("matchExpressions"))


def invalid_selector(at: str, selector: Obj | None, detail: str) -> FieldError:
    """A selector that is not acceptable, shown with its fields in their own order."""
    shown: Any = None
    if selector is not None:
        shown = {}
        if labels := selector.get("matchLabels"):
            shown["matchLabels"] = dict(sorted(labels.items()))
        if rules := selector.get("matchExpressions"):
            order = ("key", "operator", "values")
            shown["matchExpressions"] = [{k: r[k] for k in order if k in r} for r in rules]
    value = msgspec.json.encode(shown).decode()
    text = f"Invalid value: {value}: {detail}" if detail else f"Invalid value: {value}"
    return FieldError("Invalid value", at, text, "FieldValueInvalid")


def as_text(selector: Obj) -> str:
    """A selector in the form that list requests take, requirements sorted by key."""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for rule in selector.get("matchExpressions") or ():
        key, values = rule["key"], ",".join(sorted(rule.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }[rule["operator"]]
        parts.append((key, text))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))
