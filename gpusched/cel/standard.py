"""CEL's own operators and functions on plain Python values.

The functions convert between types, measure sizes, match texts and read parts of times.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpusched.cel.errors import CelError, OptionalValue
from gpusched.cel.libraries.patterns import compile_pattern
from gpusched.cel.values import seconds_of_duration

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


def cel_equal(a: Any, b: Any) -> bool:
    """CEL equality: numbers by value, other types never equal another one."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(cel_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(cel_equal(v, b[k]) for k, v in a.items())
    if isinstance(a, OptionalValue) and isinstance(b, OptionalValue):
        return a.present == b.present and (not a.present or cel_equal(a.value, b.value))
    return bool(a == b)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _comparable(a: Any, b: Any) -> None:
    if not ((_number(a) and _number(b)) or type(a) is type(b)):
        raise CelError("no such overload")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and not _LOW <= value <= _HIGH:
        raise CelError("integer overflow")
    return value


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or (type(a) is not type(b) and not _times(a, b)):
        raise CelError("no such overload")
    return _bounded(a + b)


def _times(a: Any, b: Any) -> bool:
    kinds = (dt.datetime, dt.timedelta)
    return isinstance(a, kinds) and isinstance(b, kinds)


def _subtract(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or (type(a) is not type(b) and not _times(a, b)):
        raise CelError("no such overload")
    return _bounded(a - b)


def _multiply(a: Any, b: Any) -> Any:
    if not _number(a) or type(a) is not type(b):
        raise CelError("no such overload")
    return _bounded(a * b)


def _divide(a: Any, b: Any) -> Any:
    if not _number(a) or type(a) is not type(b):
        raise CelError("no such overload")
    if isinstance(a, float):
        if b == 0:
            return math.nan if a == 0 else math.copysign(math.inf, a)
        return a / b
    if b == 0:
        raise CelError("division by zero")
    quotient = abs(a) // abs(b)
    return _bounded(quotient if (a < 0) == (b < 0) else -quotient)


def _modulo(a: Any, b: Any) -> Any:
    if not isinstance(a, int) or not isinstance(b, int) or isinstance(a, bool):
        raise CelError("no such overload")
    if b == 0:
        raise CelError("modulus by zero")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _in(element: Any, container: Any) -> bool:
    if isinstance(container, dict):
        return any(cel_equal(element, key) for key in container)
    return any(cel_equal(element, other) for other in container)


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(a: Any, b: Any) -> bool:
        _comparable(a, b)
        return test(a, b)

    return compare


def _negate(value: Any) -> Any:
    if not _number(value):
        raise CelError("no such overload")
    return _bounded(-value)


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return not value


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "_==_": cel_equal,
    "_!=_": lambda a, b: not cel_equal(a, b),
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


_DURATION: Final = re.compile(r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_OFFSET: Final = re.compile(r"([+-]?)(\d{2}):(\d{2})")
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def _int(value: Any) -> int:
    if isinstance(value, dt.datetime):
        return int(value.timestamp())
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise CelError(f"type conversion error from '{_kind(value)}' to 'int'") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise CelError("integer overflow")
    return number


def _uint(value: Any) -> int:
    number = _int(value)
    if number < 0:
        raise CelError("unsigned integer overflow")
    return number


def _double(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise CelError(f"type conversion error from '{_kind(value)}' to 'double'") from None


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "t", "true", "TRUE", "True", "T"):
        return True
    if value in ("0", "f", "false", "FALSE", "False", "F"):
        return False
    raise CelError(f"type conversion error from '{_kind(value)}' to 'bool'")


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dt.timedelta):
        return f"{value / dt.timedelta(seconds=1):.9f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _duration(value: Any) -> dt.timedelta:
    if isinstance(value, dt.timedelta):
        return value
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise CelError(f'time: invalid duration "{value}"')
    return seconds_of_duration(value)


def _timestamp(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, int):
        return dt.datetime.fromtimestamp(value, dt.UTC)
    try:
        found = dt.datetime.fromisoformat(str(value).upper())
    except ValueError:
        raise CelError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00"') from None
    if found.tzinfo is None:
        raise CelError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00"')
    return found


_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (dt.timedelta, "google.protobuf.Duration"),
    (dt.datetime, "google.protobuf.Timestamp"),
    (type(None), "null_type"),
    (OptionalValue, "optional_type"),
)


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "dyn")


def _size(value: Any) -> int:
    if isinstance(value, (str, bytes, list, dict)):
        return len(value)
    raise CelError("no such overload")


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).is_in(text)


def _local(moment: dt.datetime, zone: str = "") -> dt.datetime:
    if not zone:
        return moment.astimezone(dt.UTC)
    if found := _OFFSET.fullmatch(zone):
        sign, hours, minutes = found.groups()
        shift = dt.timedelta(hours=int(hours), minutes=int(minutes))
        return moment.astimezone(dt.timezone(-shift if sign == "-" else shift))
    try:
        return moment.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):
        raise CelError(f"unknown time zone {zone}") from None


def _date_field(read: Callable[[dt.datetime], int]) -> Callable[..., int]:
    return lambda moment, zone="": read(_local(moment, zone))


def _clock_part(unit: dt.timedelta, read: Callable[[dt.datetime], int]) -> Callable[..., int]:
    def get(value: Any, zone: str = "") -> int:
        if isinstance(value, dt.timedelta):
            whole = abs(value) // unit
            return -whole if value < dt.timedelta() else whole
        return read(_local(value, zone))

    return get


def _must_be_there(value: OptionalValue) -> Any:
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _some(value: Any) -> OptionalValue:
    return OptionalValue(value, present=True)


CONVERSIONS: Final[dict[str, Callable[..., Any]]] = {
    "int": _int,
    "uint": _uint,
    "double": _double,
    "bool": _bool,
    "string": _string,
    "bytes": _bytes,
    "dyn": lambda value: value,
    "type": _kind,
    "duration": _duration,
    "timestamp": _timestamp,
    "size": _size,
    "matches": _matches,
    "contains": lambda text, part: part in text,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "getFullYear": _date_field(lambda t: t.year),
    "getMonth": _date_field(lambda t: t.month - 1),
    "getDate": _date_field(lambda t: t.day),
    "getDayOfMonth": _date_field(lambda t: t.day - 1),
    "getDayOfWeek": _date_field(lambda t: t.isoweekday() % 7),
    "getDayOfYear": _date_field(lambda t: t.timetuple().tm_yday - 1),
    "getHours": _clock_part(dt.timedelta(hours=1), lambda t: t.hour),
    "getMinutes": _clock_part(dt.timedelta(minutes=1), lambda t: t.minute),
    "getSeconds": _clock_part(dt.timedelta(seconds=1), lambda t: t.second),
    "getMilliseconds": _clock_part(dt.timedelta(milliseconds=1), lambda t: t.microsecond // 1000),
    "hasValue": lambda value: value.present,
    "value": _must_be_there,
    "orValue": lambda value, other: value.value if value.present else other,
    "or": lambda value, other: value if value.present else other,
    "optional.of": _some,
    "optional.none": OptionalValue,
    "optional.ofNonZeroValue": lambda value: _some(value) if value else OptionalValue(),
}
"""Name of a function or method to its meaning; a method's receiver is its first argument."""
