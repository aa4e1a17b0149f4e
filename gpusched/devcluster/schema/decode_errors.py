"""Decode errors of built-in kinds: a value whose JSON type does not fit its field.

The server decodes into typed structures and reports the first type error in the words of its
decoder, so these words name structures and their types.
"""

from __future__ import annotations

import base64
import binascii
import re

from gpusched.cel.quantities import QuantityFormatError, parse_quantity
from gpusched.cel.schema_nodes import Doc, Json, SchemaNode, join
from gpusched.devcluster.apimachinery.field_errors import quote_value

_GO_PRIMITIVES = {"string": "string", "boolean": "bool", "number": "float64"}
_TIME = re.compile(
    r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(?:[.,]\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$"
)
_LAYOUT = {
    "time": "2006-01-02T15:04:05Z07:00",
    "micro-time": "2006-01-02T15:04:05.000000Z07:00",
}


def decode_error(value: Json, node: SchemaNode) -> str | None:
    """The decoder's message for the first type error in the order of the object, None without one."""
    if value is not None and not isinstance(value, dict):
        return f"json: cannot unmarshal {_go_kind(value)} into Go value of type {node.go_package}.{node.go_struct}"
    return _walk(value, node, path="", struct=node.go_struct)


def _walk(value: Json, node: SchemaNode, *, path: str, struct: str) -> str | None:
    if value is None or node.type == "":
        return None
    if not _fits(value, node):
        return _misfit(value, node, path=path, struct=struct)
    if isinstance(value, dict) and not node.preserve_unknown:
        return _walk_object(value, node, path=path, struct=struct)
    if isinstance(value, list) and node.items is not None:
        for element in value:
            if error := _walk(element, node.items, path=path, struct=struct):
                return error
    return _unreadable(value, node)


def _walk_object(value: Doc, node: SchemaNode, *, path: str, struct: str) -> str | None:
    owner = node.go_struct or struct
    for key, inner in value.items():
        child = node.child(key)
        if child is None:
            continue
        # Keys of maps are data and do not appear in the decoder's path.
        below = path if node.is_map else join(path, key)
        if error := _walk(inner, child, path=below, struct=owner):
            return error
    return None


def _fits(value: Json, node: SchemaNode) -> bool:
    match node.type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and _in_range(value, node)
        case "number" | "quantity":
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return number or (node.type == "quantity" and isinstance(value, str))
        case "int-or-string":
            return isinstance(value, (int, str)) and not isinstance(value, bool)
        case _:
            return isinstance(value, str)


def _in_range(value: int, node: SchemaNode) -> bool:
    bits = 31 if node.format == "int32" else 63
    return -(1 << bits) <= value < (1 << bits)


def _unreadable(value: Json, node: SchemaNode) -> str | None:
    """Errors of the types that parse a text of their own."""
    if node.type == "quantity":
        try:
            parse_quantity(value)
        except QuantityFormatError as fault:
            return str(fault)
    elif node.type in _LAYOUT and not _TIME.match(value):
        layout = _LAYOUT[node.type]
        return f"parsing time {quote_value(value)} as {quote_value(layout)}: cannot parse {quote_value(value)} as {quote_value('2006')}"
    elif node.format == "byte" and isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return f"illegal base64 data at input byte {_bad_base64(value)}"
    return None


def is_time(text: str) -> bool:
    """Whether a text is a time that the server can read."""
    return _TIME.match(text) is not None


def _bad_base64(text: str) -> int:
    match = re.search(r"[^A-Za-z0-9+/]", text)
    return match.start() if match else len(text) - len(text) % 4


def _misfit(value: Json, node: SchemaNode, *, path: str, struct: str) -> str:
    if node.type == "quantity":
        return "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    return (
        f"json: cannot unmarshal {_go_kind(value, node)} into Go struct field "
        f"{struct}.{path} of type {_go_type(node)}"
    )


def _go_kind(value: Json, node: SchemaNode | None = None) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        precise = node is not None and node.type == "integer"
        return f"number {quote_value(value)}" if precise else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go_type(node: SchemaNode) -> str:
    if node.type == "array":
        return f"[]{_go_type(node.items)}" if node.items is not None else "[]interface {}"
    if node.is_map and node.additional is not None:
        return f"map[string]{_go_type(node.additional)}"
    if node.go_struct:
        return f"{node.go_package}.{node.go_struct}"
    if node.type == "integer":
        return node.format or "int"
    if node.type in {"time", "micro-time"}:
        return "string"
    if node.type == "quantity":
        return "resource.Quantity"
    return _GO_PRIMITIVES.get(node.type, "int32" if node.type == "int-or-string" else node.type)
