"""Walks that change or question an object by its schema: unknown fields, pruning, defaults.

All return new documents and leave their input alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.cel.quantities import QuantityFormatError, canonical_quantity
from gpusched.cel.schema_nodes import ANY, Doc, Json, SchemaNode, join
from gpusched.devcluster.apimachinery.times import printed_time


def knows_all(value: Json, node: SchemaNode) -> bool:
    """Whether the schema knows every field; much quicker than listing the unknown ones."""
    if isinstance(value, dict):
        props, rest = node.props, node.additional
        open_ended = node.preserve_unknown or not _is_object(node)
        for key, inner in value.items():
            child = props.get(key, rest)
            if child is None:
                if not open_ended:
                    return False
            elif isinstance(inner, (dict, list)) and not knows_all(inner, child):
                return False
    elif isinstance(value, list) and node.items is not None:
        items = node.items
        return all(knows_all(v, items) for v in value if isinstance(v, (dict, list)))
    return True


def unknown_fields(value: Json, node: SchemaNode) -> list[str]:
    """Paths of fields that the schema does not know, in the order of the object."""
    return [] if knows_all(value, node) else _unknown_fields(value, node, "")


def _unknown_fields(value: Json, node: SchemaNode, path: str) -> list[str]:
    if isinstance(value, list):
        if node.items is None:
            return []
        found = [_unknown_fields(v, node.items, f"{path}[{i}]") for i, v in enumerate(value)]
        return [p for paths in found for p in paths]
    if not isinstance(value, dict):
        return []
    unknown: list[str] = []
    for key, inner in value.items():
        child = node.child(key)
        if child is not None:
            unknown += _unknown_fields(inner, child, join(path, key))
        elif not node.preserve_unknown and _is_object(node):
            unknown.append(join(path, key))
    return unknown


def _is_object(node: SchemaNode) -> bool:
    return node.type == "object"


def prune_custom(value: Json, node: SchemaNode) -> Json:
    """Drop fields of a custom resource that its schema does not know."""
    if isinstance(value, list):
        return value if node.items is None else [prune_custom(v, node.items) for v in value]
    if not isinstance(value, dict):
        return value
    kept: Doc = {}
    for key, inner in value.items():
        child = node.child(key)
        if child is not None:
            kept[key] = prune_custom(inner, child)
        elif node.preserve_unknown or not _is_object(node):
            kept[key] = inner
    return kept


def prune_builtin(value: Json, node: SchemaNode) -> Json:
    """Bring a decoded built-in object into the form the server stores and prints.

    Unknown fields and nulls go, empty lists and maps that are optional go, quantities become
    canonical.
    """
    if isinstance(value, list):
        return _elements(value, node.items)
    if not isinstance(value, dict):
        return _scalar(value, node)
    if node.preserve_unknown:
        return value
    kept: Doc = {}
    for key, inner in value.items():
        child = node.child(key)
        if child is None or inner is None:
            continue
        clean = prune_builtin(inner, child)
        if clean or not _vanishes(clean, child) or key in node.required:
            kept[key] = clean
    return kept


def _elements(values: list[Json], node: SchemaNode | None) -> list[Json]:
    """Elements of a list; a null among them is an empty value of their type."""
    if node is None:
        return values
    empty = _EMPTY.get(node.type)
    return [prune_builtin(v if v is not None or empty is None else empty(), node) for v in values]


_EMPTY: Final[Mapping[str, Callable[[], Json]]] = {"object": dict, "string": str, "integer": int}


def _vanishes(value: Json, node: SchemaNode) -> bool:
    """Whether an empty value of this field is printed as if it were absent."""
    return isinstance(value, list) or (isinstance(value, dict) and node.is_map)


def _scalar(value: Json, node: SchemaNode) -> Json:
    if node.type == "quantity" and isinstance(value, (str, int, float)):
        try:
            return canonical_quantity(value)
        except QuantityFormatError:
            # Decode errors are reported elsewhere; here the text stays what the client sent.
            return value
    if node.type in {"time", "micro-time"} and isinstance(value, str):
        return printed_time(value, micro=node.type == "micro-time")
    return value


def with_defaults(value: Json, node: SchemaNode) -> Json:
    """Fill absent fields from the schema's defaults, deeply; a null where none is allowed counts
    as absent, so that it gets the default or goes.
    """
    if isinstance(value, list):
        return value if node.items is None else [with_defaults(v, node.items) for v in value]
    if not isinstance(value, dict):
        return value
    filled: dict[str, Any] = {}
    for key, inner in value.items():
        child = node.child(key)
        if child is None:
            filled[key] = inner
        elif inner is None and not child.nullable and child is not ANY:
            continue
        else:
            filled[key] = with_defaults(inner, child)
    for key, child in node.props.items():
        if child.has_default and key not in filled:
            filled[key] = with_defaults(child.default, child)
    return filled
