"""Comparing what is there with what is expected: numbers as numbers, texts as texts."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.lab.scenario.model.scenario import Comparator, Comparison

_NANO: Final = 9
_ORDERS: Final[Mapping[Comparator, Callable[[Any, Any], bool]]] = {
    Comparator.AT_LEAST: operator.ge,
    Comparator.AT_MOST: operator.le,
    Comparator.ABOVE: operator.gt,
    Comparator.BELOW: operator.lt,
}
WORDS: Final[Mapping[Comparator, str]] = {
    Comparator.EQUALS: "",
    Comparator.NOT: "not ",
    Comparator.AT_LEAST: "at least ",
    Comparator.AT_MOST: "at most ",
    Comparator.ABOVE: "above ",
    Comparator.BELOW: "below ",
    Comparator.CONTAINS: "with ",
    Comparator.MATCHES: "like ",
}
AT_LEAST_ONE: Final = Comparison(Comparator.AT_LEAST, 1.0)


def comparison_holds(comparison: Comparison, values: Sequence[Any]) -> bool:
    """Whether what was found is as expected.

    Of several values, as ``[*]`` finds them, each must be; for CONTAINS one of them must be the
    value or have it in it, and MATCHES looks into each. Nothing found is equal to nothing: only
    NOT holds then.
    """
    if not values:
        return comparison.test is Comparator.NOT
    if comparison.test is Comparator.CONTAINS:
        return any(_contains(each, comparison.value) for each in values)
    return all(_one(comparison, each) for each in values)


def _one(comparison: Comparison, value: Any) -> bool:
    test, wanted = comparison.test, comparison.value
    if test is Comparator.MATCHES:
        return re.search(value_text(wanted), value_text(value)) is not None
    if test is Comparator.EQUALS:
        return _same(value, wanted)
    if test is Comparator.NOT:
        return not _same(value, wanted)
    pair = _numbers(value, wanted)
    left, right = (value_text(value), value_text(wanted)) if pair is None else pair
    return _ORDERS[test](left, right)


def _same(value: Any, wanted: float | str | bool) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value_text(value).lower() == value_text(wanted).lower()
    pair = _numbers(value, wanted)
    return value_text(value) == value_text(wanted) if pair is None else pair[0] == pair[1]


def _contains(value: Any, wanted: float | str | bool) -> bool:
    if isinstance(value, list):
        return any(_same(each, wanted) for each in value)
    if isinstance(value, dict):
        return value_text(wanted) in value
    return value_text(wanted) in value_text(value)


def _numbers(value: Any, wanted: float | str) -> tuple[Fraction, Fraction] | None:
    """Both as numbers of one kind; None where one of them is none."""
    for read in (_quantity, _seconds):
        left, right = read(value), read(wanted)
        if left is not None and right is not None:
            return left, right
    return None


def _quantity(value: Any) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return Fraction(value)
    if not isinstance(value, str) or "/" in value:
        return None
    try:
        return Fraction(value)
    except ValueError:
        negative = value.startswith("-")
    try:
        found = Fraction(parse_quantity(value.removeprefix("-"), power=_power(value)))
    except QuantityError:
        return None
    found /= Fraction(10) ** _power(value)
    return -found if negative else found


def _power(text: str) -> int:
    return _NANO if text.endswith(("n", "u", "m")) else 0


def _seconds(value: Any) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return Fraction(value)
    if not isinstance(value, str):
        return None
    try:
        return Fraction(parse_duration(value), NANOSECONDS)
    except ValueError:
        return None


def value_text(value: Any) -> str:
    """A value as people write it: whole numbers without a point, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (dict, list, bool)) or value is None:
        return json.dumps(value, separators=(",", ":"))
    return f"{value:g}" if isinstance(value, float) else str(value)
