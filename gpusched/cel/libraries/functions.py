"""Functions that Kubernetes adds to CEL, as far as rules of custom kinds commonly use them.

CEL values are plain Python values here; a quantity travels between functions as a map with one
key that no JSON object here has.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from gpusched.cel.errors import CelError
from gpusched.cel.libraries.authorization import AUTHORIZATION
from gpusched.cel.libraries.extensions import LIBRARIES, Semver
from gpusched.cel.libraries.patterns import compile_pattern
from gpusched.cel.quantities import QuantityFormatError, parse_quantity

_QUANTITY = "\x00quantity"
Quantity = dict[str, str]


def _pack(value: Fraction) -> Quantity:
    return {_QUANTITY: f"{value.numerator}/{value.denominator}"}


def quantity_of_billionths(amount: int) -> Quantity:
    """A quantity as expressions compute with it."""
    return _pack(Fraction(amount, 10**9))


def _unpack(quantity: Any) -> Fraction:
    if not isinstance(quantity, dict) or _QUANTITY not in quantity:
        raise TypeError("no such overload: a quantity is expected")
    return Fraction(quantity[_QUANTITY])


def _quantity(text: Any) -> Quantity:
    if not isinstance(text, str):
        raise TypeError("no such overload: quantity() takes a string")
    try:
        return _pack(parse_quantity(text))
    except QuantityFormatError as fault:
        raise CelError(str(fault)) from None


def _is_quantity(text: Any) -> bool:
    try:
        _quantity(text)
    except (CelError, TypeError):
        return False
    return True


def _compare(a: Any, b: Any) -> int:
    if isinstance(a, Semver) and isinstance(b, Semver):
        return (a.order > b.order) - (a.order < b.order)
    left, right = _unpack(a), _unpack(b)
    return (left > right) - (left < right)


def _other(value: Any) -> Fraction:
    return Fraction(value) if isinstance(value, int) else _unpack(value)


def _as_integer(quantity: Any) -> int:
    value = _unpack(quantity)
    if value.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return int(value)


def _sign(quantity: Any) -> int:
    value = _unpack(quantity)
    return (value > 0) - (value < 0)


def _sum(values: list[Any]) -> Any:
    return sum(values[1:], start=values[0]) if values else 0


def _smallest(values: list[Any]) -> Any:
    if not values:
        raise ValueError("min called on empty list")
    return min(values)


def _largest(values: list[Any]) -> Any:
    if not values:
        raise ValueError("max called on empty list")
    return max(values)


def _is_sorted(values: list[Any]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(values))


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, str):
        return where.find(what, start)
    return where.index(what) if what in where else -1


def _last_index_of(where: Any, what: Any) -> int:
    if isinstance(where, str):
        return where.rfind(what)
    return len(where) - 1 - where[::-1].index(what) if what in where else -1


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        return list(text)
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"index out of range: {start}")
    return text[start:stop]


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise ValueError(f"index out of range: {index}")
    return text[index : index + 1]


def _find(text: str, pattern: str) -> str:
    return next(iter(compile_pattern(pattern).all_in(text)), "")


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    found = compile_pattern(pattern).all_in(text)
    return list(found if count < 0 else itertools.islice(found, count))


def _format(template: str, values: list[Any]) -> str:
    left = iter(values)

    def one(match: re.Match[str]) -> str:
        precision, verb = match.groups()
        if verb == "%":
            return "%"
        value = next(left)
        match verb:
            case "s":
                return _text(value)
            case "d":
                return str(int(value))
            case "b":
                return f"{int(value):b}"
            case "o":
                return f"{value:o}"
            case "x" | "X":
                return f"{value:{verb}}"
        return f"{float(value):.{int(precision) if precision else 6}{verb}}"

    try:
        return re.sub(r"%(?:\.(\d{1,2}))?([%sdboxXef])", one, template)
    except StopIteration:
        raise ValueError("format() has fewer arguments than verbs") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(_text(v) for v in value)}]"
    return str(value)


def _join(values: list[str], separator: str = "") -> str:
    return separator.join(values)


def _escape_pointer_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError("no such overload: jsonpatch.escapeKey() takes a string")
    return key.replace("~", "~0").replace("/", "~1")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **LIBRARIES,
    **AUTHORIZATION,
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "compareTo": _compare,
    "isGreaterThan": lambda a, b: _compare(a, b) > 0,
    "isLessThan": lambda a, b: _compare(a, b) < 0,
    "isInteger": lambda q: _unpack(q).denominator == 1,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda q: float(_unpack(q)),
    "sign": _sign,
    "add": lambda a, b: _pack(_unpack(a) + _other(b)),
    "sub": lambda a, b: _pack(_unpack(a) - _other(b)),
    "sum": _sum,
    "min": _smallest,
    "max": _largest,
    "isSorted": _is_sorted,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "charAt": _char_at,
    "lowerAscii": str.lower,
    "upperAscii": str.upper,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "substring": _substring,
    "trim": str.strip,
    "reverse": lambda value: value[::-1],
    "find": _find,
    "findAll": _find_all,
    "format": _format,
    "jsonpatch.escapeKey": _escape_pointer_key,
}
"""Name of a function or method to its meaning; a method's receiver is its first argument."""
