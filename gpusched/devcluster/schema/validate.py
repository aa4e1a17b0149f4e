"""Validation of objects, in the texts that custom resources are answered with.

Errors come in the order of paths: the real server's order is that of a hash map.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from gpusched.cel.schema_nodes import Doc, Json, SchemaNode, join, kind_of
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    quote_value,
    required,
    too_long,
    too_many,
    type_invalid,
)
from gpusched.devcluster.apimachinery.json_values import json_equal

_DATE = re.compile(r"^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$")
_DATE_TIME = re.compile(
    r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(?:[.,]\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?$"
)
_GO_DURATION = re.compile(r"^[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$")
_WORD_DURATION = re.compile(
    r"^\s*\d+\s*(?:ns|nano|nanos?econds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?"
    r"|s|secs?|seconds?|m|mins?|minutes?|h|hr|hours?|d|days?|w|wks?|weeks?)\s*$"
)
_HOSTNAME = re.compile(
    r"^(?=.{1,255}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_-]{1,63})*$"
)
_EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")


def _by_parser(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _cidr(text: str) -> object:
    if "/" not in text:
        raise ValueError(text)
    return ipaddress.ip_network(text, strict=False)


def _uri(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme) or text.startswith("/")
    except ValueError:
        return False


def _duration(text: str) -> bool:
    return bool(_GO_DURATION.match(text) or _WORD_DURATION.match(text))


CHECKS: dict[str, Callable[[str], bool]] = {
    "byte": _by_parser(_base64),
    "cidr": _by_parser(_cidr),
    "date": lambda text: bool(_DATE.match(text)),
    "date-time": lambda text: bool(_DATE_TIME.match(text)),
    "datetime": lambda text: bool(_DATE_TIME.match(text)),
    "duration": _duration,
    "email": lambda text: bool(_EMAIL.match(text)),
    "hostname": lambda text: bool(_HOSTNAME.match(text)),
    "ipv4": _by_parser(ipaddress.IPv4Address),
    "ipv6": _by_parser(ipaddress.IPv6Address),
    "uri": _uri,
    "uuid": _by_parser(uuid.UUID),
}
"""Format name to whether a text has that form."""


_TYPE_NAMES = {"int-or-string": "integer,string", "time": "string", "micro-time": "string"}


def validate_value(value: Json, node: SchemaNode, path: str = "") -> list[FieldError]:
    """All field errors of a value that a custom schema describes, list keys included."""
    return [*_shape(value, node, path), *_lists(value, node, path)]


def validate_builtin(value: Json, node: SchemaNode) -> list[FieldError]:
    """Required and enumerated fields of a built-in object; everything else is a strategy's.

    Metadata and status are left out: their required fields only describe what is printed.
    """
    errors: list[FieldError] = []
    for key, inner in value.items():
        child = node.child(key)
        if child is not None and key not in {"metadata", "status"}:
            _builtin(inner, child, (key,), errors=errors)
    absent = [required(key) for key in node.required if not _is_given(value, node, key)]
    return [*absent, *errors]


Place = tuple[str | int, ...]
"""A path not yet written out: most objects have no errors, and texts cost time."""


def _written(place: Place) -> str:
    path = ""
    for part in place:
        path = f"{path}[{part}]" if isinstance(part, int) else join(path, part)
    return path


def _is_given(value: Doc, node: SchemaNode, key: str) -> bool:
    """Whether a required field is there; numbers and switches count as given."""
    if value.get(key) is not None and value[key] not in ("", []):
        return True
    child = node.child(key)
    return child is None or child.type in {"integer", "boolean", "number"}


def _builtin(value: Json, node: SchemaNode, place: Place, *, errors: list[FieldError]) -> None:
    if isinstance(value, list):
        if node.items is not None:
            for i, element in enumerate(value):
                _builtin(element, node.items, (*place, i), errors=errors)
    elif not isinstance(value, dict):
        if node.enum is not None and value not in (None, "", *node.enum):
            errors.append(not_supported(_written(place), value, node.enum))
    elif not node.preserve_unknown:
        errors += [
            required(_written((*place, key)))
            for key in node.required
            if not _is_given(value, node, key)
        ]
        for key, inner in value.items():
            child = node.child(key)
            if child is not None and (child.enum is not None or isinstance(inner, (dict, list))):
                _builtin(inner, child, (*place, key), errors=errors)


def _field(path: str) -> str:
    return path or "<nil>"


def _shape(value: Json, node: SchemaNode, path: str) -> Iterator[FieldError]:
    if value is None and (node.nullable or node.type == ""):
        return
    mismatch = _type_error(value, node, path)
    if mismatch is not None:
        yield mismatch
        return
    if node.enum is not None and not any(json_equal(value, allowed) for allowed in node.enum):
        yield not_supported(_field(path), value, node.enum)
    if isinstance(value, str):
        yield from _string(value, node, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number(value, node, path)
    elif isinstance(value, list):
        yield from _array(value, node, path)
    elif isinstance(value, dict):
        yield from _object(value, node, path)
    yield from _junctors(value, node, path)


def _fits(value: Json, wanted: str) -> bool:
    kind = kind_of(value)
    if wanted == "int-or-string":
        return kind in {"integer", "string"}
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer() and abs(value) < 1 << 63
    if wanted == "number":
        return kind in {"integer", "number"}
    return kind == _TYPE_NAMES.get(wanted, wanted)


def _type_error(value: Json, node: SchemaNode, path: str) -> FieldError | None:
    if node.type == "" or _fits(value, node.type):
        return None
    name = _TYPE_NAMES.get(node.type, node.type)
    kind = kind_of(value)
    return type_invalid(
        _field(path), kind, f"{path} in body must be of type {name}: {quote_value(kind)}"
    )


def _string(value: str, node: SchemaNode, path: str) -> Iterator[FieldError]:
    if node.max_length is not None and len(value) > node.max_length:
        yield too_long(_field(path), node.max_length)
    if node.min_length is not None and len(value) < node.min_length:
        yield invalid(
            _field(path), value, f"{path} in body should be at least {node.min_length} chars long"
        )
    if node.pattern is not None and not node.pattern.search(value):
        yield invalid(_field(path), value, f"{path} in body should match '{node.pattern_text}'")
    check = CHECKS.get(node.format)
    if check is not None and not check(value):
        yield type_invalid(
            _field(path),
            value,
            f"{path} in body must be of type {node.format}: {quote_value(value)}",
        )


def _number_text(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _number(value: float, node: SchemaNode, path: str) -> Iterator[FieldError]:
    low, high = node.minimum, node.maximum
    if low is not None and (value < low or (node.exclusive_minimum and value == low)):
        words = "greater than" if node.exclusive_minimum else "greater than or equal to"
        yield invalid(_field(path), value, f"{path} in body should be {words} {_number_text(low)}")
    if high is not None and (value > high or (node.exclusive_maximum and value == high)):
        words = "less than" if node.exclusive_maximum else "less than or equal to"
        yield invalid(_field(path), value, f"{path} in body should be {words} {_number_text(high)}")
    if node.multiple_of is not None and value % node.multiple_of != 0:
        yield invalid(
            _field(path),
            value,
            f"{path} in body should be a multiple of {_number_text(node.multiple_of)}",
        )


def _array(value: list[Json], node: SchemaNode, path: str) -> Iterator[FieldError]:
    if node.max_items is not None and len(value) > node.max_items:
        yield too_many(_field(path), len(value), node.max_items)
    if node.min_items is not None and len(value) < node.min_items:
        yield invalid(
            _field(path),
            len(value),
            f"{path} in body should have at least {node.min_items} items",
        )
    if node.items is not None:
        for i, element in enumerate(value):
            yield from _shape(element, node.items, f"{path}[{i}]")


def _object(value: Doc, node: SchemaNode, path: str) -> Iterator[FieldError]:
    if node.max_properties is not None and len(value) > node.max_properties:
        yield too_many(_field(path), len(value), node.max_properties)
    if node.min_properties is not None and len(value) < node.min_properties:
        yield invalid(
            _field(path),
            node.min_properties,
            f"{path} in body should have at least {node.min_properties} properties",
        )
    for key in sorted({*value, *node.required}):
        if key not in value:
            yield required(join(path, key))
            continue
        child = node.child(key)
        if child is not None:
            yield from _shape(value[key], child, join(path, key))
    if node.embedded:
        yield from (required(join(path, k)) for k in ("apiVersion", "kind") if not value.get(k))


def _junctors(value: Json, node: SchemaNode, path: str) -> Iterator[FieldError]:
    for part in node.all_of:
        yield from _shape(value, part, path)
    if node.any_of:
        yield from _any_of(value, node, path)
    if node.one_of:
        yield from _one_of(value, node, path)
    if node.negated is not None and not list(_shape(value, node.negated, path)):
        yield _composite(path, "must not validate the schema (not)")


def _composite(path: str, why: str) -> FieldError:
    return invalid(_field(path), "", f"{quote_value(path)} {why}")


def _closest(failures: Iterable[list[FieldError]]) -> list[FieldError]:
    return min(failures, key=len)


def _any_of(value: Json, node: SchemaNode, path: str) -> Iterator[FieldError]:
    failures = [list(_shape(value, part, path)) for part in node.any_of]
    if all(failures):
        yield _composite(path, "must validate at least one schema (anyOf)")
        yield from _closest(failures)


def _one_of(value: Json, node: SchemaNode, path: str) -> Iterator[FieldError]:
    failures = [list(_shape(value, part, path)) for part in node.one_of]
    passed = sum(1 for errors in failures if not errors)
    if passed == 1:
        return
    why = "must validate one and only one schema (oneOf). "
    if passed:
        yield _composite(path, f"{why}Found {passed} valid alternatives")
        return
    yield _composite(path, f"{why}Found none valid")
    yield from _closest(failures)


def _lists(value: Json, node: SchemaNode, path: str) -> Iterator[FieldError]:
    """Elements that lists of type set or map hold twice."""
    if isinstance(value, list) and node.items is not None:
        yield from _duplicates(value, node, path)
        for i, element in enumerate(value):
            yield from _lists(element, node.items, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, inner in value.items():
            child = node.child(key)
            if child is not None:
                yield from _lists(inner, child, join(path, key))


def _duplicates(value: list[Json], node: SchemaNode, path: str) -> Iterator[FieldError]:
    if node.list_type == "atomic" and not node.unique_items:
        return
    seen: set[str] = set()
    for i, element in enumerate(value):
        key = _list_key(element, node)
        quoted = quote_value(key)
        if quoted in seen:
            yield duplicate(f"{path}[{i}]", key)
        seen.add(quoted)


def _list_key(element: Json, node: SchemaNode) -> Json:
    """What tells an element apart: itself in a set, its keys (with their defaults) in a map."""
    if node.list_type != "map" or not isinstance(element, dict):
        return element
    items = node.items
    key: Doc = {}
    for name in node.map_keys:
        child = items.child(name) if items is not None else None
        if name in element:
            key[name] = element[name]
        elif child is not None and child.has_default:
            key[name] = child.default
    return key
