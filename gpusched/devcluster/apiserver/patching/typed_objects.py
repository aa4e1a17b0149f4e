"""What an applied object must be before it is merged: typed, every field known, elements of lists with distinct keys.

Server-side apply reads an object by its schema alone and not with the decoder of other writes, so
it tells all that is wrong at once, and in other words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gpusched.cel.schema_nodes import Doc, Json, SchemaNode
from gpusched.devcluster.apiserver.patching.field_sets import (
    Path,
    TypedObjectError,
    element_path,
    granular_list,
    path_text,
)

_GO_TYPES: Final = {dict: "map[string]interface {}", list: "[]interface {}", bool: "bool"}
_STRINGS: Final = frozenset({"string", "time", "micro-time"})
_NUMBERS: Final = frozenset({"integer", "number"})
_UNTYPED: Final = frozenset({"quantity", "int-or-string"})


def check_typed(config: Doc, node: SchemaNode) -> None:
    """Check an applied object.

    Raises:
        TypedObjectError: with the one fault, or all of them, a line each.
    """
    faults = [f"{path_text(path)}: {why}" for path, why in _faults(config, node, ())]
    if faults:
        raise TypedObjectError(faults[0] if len(faults) == 1 else "\n  ".join(("errors:", *faults)))


def _faults(value: Json, node: SchemaNode, path: Path) -> Iterator[tuple[Path, str]]:
    if value is None or node.type == "":
        return
    if node.type == "object":
        if not isinstance(value, dict):
            yield path, f"expected map, got {go_value(value)}"
        else:
            yield from _map_faults(value, node, path)
    elif node.type == "array":
        if not isinstance(value, list):
            yield path, f"expected list, got {go_value(value)}"
        elif node.items is not None:
            yield from _list_faults(value, node, path)
    elif (why := _scalar_fault(value, node)) is not None:
        yield path, why


def _map_faults(value: Doc, node: SchemaNode, path: Path) -> Iterator[tuple[Path, str]]:
    for key, inner in value.items():
        below = (*path, f"f:{key}")
        child = node.child(key)
        if child is not None:
            yield from _faults(inner, child, below)
        elif not node.preserve_unknown:
            yield below, "field not declared in schema"


def _list_faults(value: list[Json], node: SchemaNode, path: Path) -> Iterator[tuple[Path, str]]:
    assert node.items is not None
    seen: dict[str, None] = {}
    for index, element in enumerate(value):
        place = f"i:{index}"
        if granular_list(value, node):
            if node.is_keyed_list and not isinstance(element, dict):
                yield (
                    path,
                    (f"element {index}: associative list with keys may not have non-map elements"),
                )
                return
            try:
                place = element_path(element, node, index)
            except TypedObjectError as e:
                yield path, str(e)
                return
            if place in seen:
                yield path, f"duplicate entries for key {path_text((place,))}"
            seen[place] = None
        yield from _faults(element, node.items, (*path, place))


def _scalar_fault(value: Json, node: SchemaNode) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if node.type in _STRINGS:
        return None if isinstance(value, str) else f"expected string, got {go_syntax(value)}"
    if node.type in _NUMBERS:
        return None if number else f"expected numeric (int or float), got {_go_type(value)}"
    if node.type == "boolean":
        return None if isinstance(value, bool) else f"expected boolean, got {go_value(value)}"
    if node.type in _UNTYPED and isinstance(value, dict | list):
        return f"expected any scalar, got {go_value(value)}"
    return None


def _go_type(value: Json) -> str:
    if isinstance(value, str):
        return "string"
    return _GO_TYPES.get(type(value), "int64")


def go_value(value: Json) -> str:
    """A value as its holder is printed plainly: ``&{map[a:1]}``."""
    return f"&{{{go_text(value)}}}"


def go_text(value: Json) -> str:
    """A value as Go prints it plainly: ``map[a:1 b:[x y]]``."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{k}:{go_text(value[k])}' for k in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    return _scalar(value, str)


def go_syntax(value: Json) -> str:
    """A value as its holder is printed in Go's syntax."""
    return f"&value.valueUnstructured{{Value:{_literal(value)}}}"


def _literal(value: Json) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_quoted(k)}:{_literal(value[k])}" for k in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_literal, value))}}}"
    return _scalar(value, _quoted)


def _scalar(value: Json, text: Callable[[str], str]) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return text(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
