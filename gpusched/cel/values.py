"""What a rule of a custom kind sees as ``self``: the object as typed by its schema."""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from typing import Any

from gpusched.cel.schema_nodes import Json, SchemaNode

KEYWORDS = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
"""Words that no name in an expression may be."""
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}


class DefaultMap(dict[str, Any]):
    """A map of maps: one that it lacks is empty, though ``in`` says that it is not there."""


def escape_identifier(key: str) -> str | None:
    """Name of a field inside a rule; None when no rule can name it."""
    for plain, spelled in _ESCAPES:
        key = key.replace(plain, spelled)
    if not _NAME.match(key):
        return None
    return f"__{key}__" if key in KEYWORDS else key


def cel_value(value: Json, node: SchemaNode, *, root: bool = False) -> Any:
    """The value as rules see it: declared fields only, numbers and times typed by the schema.

    Of a whole resource rules see its type and, of its metadata, name and generateName.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        return _object(value, node, root=root)
    if isinstance(value, list):
        return value if node.items is None else [cel_value(v, node.items) for v in value]
    if node.type == "number":
        return float(value)
    if node.type == "integer":
        return int(value)
    if isinstance(value, str):
        return _text(value, node.format)
    return value


def _object(value: dict[str, Json], node: SchemaNode, *, root: bool) -> dict[str, Any]:
    if node.additional is not None and not node.props:
        return {k: cel_value(v, node.additional) for k, v in value.items()}
    seen: dict[str, Any] = {}
    for key, inner in value.items():
        child, name = node.props.get(key), escape_identifier(key)
        if child is None or name is None:
            continue
        if key == "metadata" and (root or node.embedded):
            seen[name] = {k: v for k, v in inner.items() if k in {"name", "generateName"}}
        else:
            seen[name] = cel_value(inner, child)
    return seen


def _text(value: str, form: str) -> Any:
    if form in {"date-time", "datetime"}:
        parsed = dt.datetime.fromisoformat(value.upper())
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)
    if form == "date":
        return dt.datetime.fromisoformat(f"{value}T00:00:00+00:00")
    if form == "duration":
        return seconds_of_duration(value)
    return value


def seconds_of_duration(text: str) -> dt.timedelta:
    """A duration as Go writes it, such as ``1h30m``."""
    microseconds = sum(Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    found = dt.timedelta(microseconds=round(microseconds))
    return -found if text.startswith("-") else found
