"""CEL's operators on plain Python values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any, Final

from gpusched.devcluster.cel.faults import CelFault, Optional

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


def same(a: Any, b: Any) -> bool:
    """CEL equality: numbers by value, other types never equal another one."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, Optional) and isinstance(b, Optional):
        return a.present == b.present and (not a.present or same(a.value, b.value))
    return bool(a == b)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _comparable(a: Any, b: Any) -> None:
    if not ((_number(a) and _number(b)) or type(a) is type(b)):
        raise CelFault("no such overload")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and not _LOW <= value <= _HIGH:
        raise CelFault("integer overflow")
    return value


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or (type(a) is not type(b) and not _times(a, b)):
        raise CelFault("no such overload")
    return _bounded(a + b)


def _times(a: Any, b: Any) -> bool:
    kinds = (dt.datetime, dt.timedelta)
    return isinstance(a, kinds) and isinstance(b, kinds)


def _subtract(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or (type(a) is not type(b) and not _times(a, b)):
        raise CelFault("no such overload")
    return _bounded(a - b)


def _multiply(a: Any, b: Any) -> Any:
    if not _number(a) or type(a) is not type(b):
        raise CelFault("no such overload")
    return _bounded(a * b)


def _divide(a: Any, b: Any) -> Any:
    if not _number(a) or type(a) is not type(b):
        raise CelFault("no such overload")
    if isinstance(a, float):
        if b == 0:
            return math.nan if a == 0 else math.copysign(math.inf, a)
        return a / b
    if b == 0:
        raise CelFault("division by zero")
    quotient = abs(a) // abs(b)
    return _bounded(quotient if (a < 0) == (b < 0) else -quotient)


def _modulo(a: Any, b: Any) -> Any:
    if not isinstance(a, int) or not isinstance(b, int) or isinstance(a, bool):
        raise CelFault("no such overload")
    if b == 0:
        raise CelFault("modulus by zero")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _in(element: Any, container: Any) -> bool:
    if isinstance(container, dict):
        return any(same(element, key) for key in container)
    return any(same(element, other) for other in container)


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(a: Any, b: Any) -> bool:
        _comparable(a, b)
        return test(a, b)

    return compare


def _negate(value: Any) -> Any:
    if not _number(value):
        raise CelFault("no such overload")
    return _bounded(-value)


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelFault("no such overload")
    return not value


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "_==_": same,
    "_!=_": lambda a, b: not same(a, b),
    "_<_": _ordered(lambda a, b: a < b),
    "_<=_": _ordered(lambda a, b: a <= b),
    "_>_": _ordered(lambda a, b: a > b),
    "_>=_": _ordered(lambda a, b: a >= b),
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _multiply,
    "_/_": _divide,
    "_%_": _modulo,
    "@in": _in,
    "-_": _negate,
    "!_": _not,
}
"""Name of an operator to its meaning."""
