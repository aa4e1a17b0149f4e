"""What a create sets, field by field: computed once for all objects of one shape.

Thousands of pods differ in names and amounts and not in which fields they have, so the set of
fields and its stored form are kept by the object's shape: its keys and what tells the elements
of its lists apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpusched.cel.schema_nodes import Doc, Json, SchemaNode
from gpusched.devcluster.apimachinery.json_values import json_fingerprint
from gpusched.devcluster.apimachinery.limits import FIELD_SHAPES_MAX
from gpusched.devcluster.apiserver.patching.field_sets import (
    FieldSet,
    Path,
    element_path,
    field_difference,
)
from gpusched.devcluster.schema.schema import Schema

__all__ = ["created_fields", "is_owned_field", "owned_container", "server_filled"]

_SERVER_METADATA: Final = frozenset(
    [
        "f:name",
        "f:namespace",
        "f:creationTimestamp",
        "f:selfLink",
        "f:uid",
        "f:clusterName",
        "f:generation",
        "f:managedFields",
        "f:resourceVersion",
    ]
)
_ALWAYS_THERE: Final = frozenset(
    [
        ("f:metadata",),
        ("f:spec",),
        ("f:status",),
        ("f:involvedObject",),
        ("f:source",),
        ("f:spec", "f:containers"),
        ("f:spec", "f:template"),
        ("f:spec", "f:template", "f:metadata"),
        ("f:spec", "f:template", "f:spec"),
        ("f:spec", "f:template", "f:spec", "f:containers"),
    ]
)
"""Containers that even an empty built-in object has, which therefore have no owner."""

SERVER_FILLED: Final[Mapping[str, tuple[Path, ...]]] = {
    "pods": (
        ("f:spec", "f:tolerations"),
        ("f:spec", "f:priority"),
        ("f:spec", "f:preemptionPolicy"),
    ),
    "jobs.batch": (
        ("f:spec", "f:selector"),
        ("f:spec", "f:template", "f:metadata", "f:labels"),
    ),
    "nodes": (("f:spec", "f:taints"),),
    "namespaces": (("f:spec",),),
}
"""By storage name: what admission and strategies add to a new object, without an owner."""

_STATUS: Final[Path] = ("f:status",)
_Shape = tuple[str | int | bytes, ...]
_Marks = list[str | int | bytes]
_SHAPES: Final[dict[tuple[int, _Shape], tuple[SchemaNode, FieldSet]]] = {}


def is_owned_field(path: Path) -> bool:
    """Whether a field can be owned; what the server itself fills cannot."""
    if not path or path[0] in {"f:apiVersion", "f:kind"} or path == ("f:metadata",):
        return False
    return not (path[0] == "f:metadata" and path[1] in _SERVER_METADATA)


def created_fields(obj: Doc, schema: Schema, skip: Sequence[Path] = ()) -> FieldSet:
    """Fields that a create sets; ``skip`` names those that the server filled in by itself.

    Raises:
        TypedObjectError: elements of a keyed list have equal keys.
    """
    around: _Marks = [".".join(path) for path in skip]
    _mark({key: value for key, value in obj.items() if key != "spec"}, schema.node, around)
    # The spec is most of an object and the same in many: its bytes are had quicker than its shape.
    same = (id(schema.node), (*around, json_fingerprint(obj.get("spec"))))
    found = _SHAPES.get(same)
    if found is None:
        inside: _Marks = []
        _mark({"spec": obj.get("spec")}, schema.node, inside)
        shape = (id(schema.node), (*around, *inside))
        # The node is held by the entry, so that its identity is not given to another one.
        found = _SHAPES.get(shape) or (schema.node, _fields(obj, schema, skip))
        if len(_SHAPES) >= FIELD_SHAPES_MAX:
            _SHAPES.clear()
        _SHAPES[shape] = _SHAPES[same] = found
    return found[1]


def _fields(obj: Doc, schema: Schema, skip: Sequence[Path]) -> FieldSet:
    changed = field_difference({"metadata": {}}, obj, schema.node).written
    return frozenset(
        path
        for path in changed
        if is_owned_field(path)
        and not (schema.builtin and path in _ALWAYS_THERE)
        and not any(path[: len(s)] == s for s in skip)
    )


def server_filled(storage: str, body: Doc, *, has_status: bool) -> tuple[Path, ...]:
    """Fields of a new object that are the server's own, given what the client sent."""
    own = SERVER_FILLED.get(storage, ())
    if own:
        own = tuple(path for path in own if _value_at_path(body, path) is None)
    return (_STATUS, *own) if has_status else own


def _value_at_path(value: Json, path: Path) -> Json:
    for element in path:
        value = value.get(element[2:]) if isinstance(value, dict) else None
    return value


def owned_container(path: Path, schema: Schema) -> bool:
    """Whether a path names something that can be set, and not a container always there."""
    return is_owned_field(path) and not (schema.builtin and path in _ALWAYS_THERE)


def _mark(value: Json, node: SchemaNode, marks: _Marks) -> None:
    """Append what the fields of a value depend on."""
    props, rest = node.props, node.additional
    for key, inner in value.items():
        marks.append(key)
        kind = type(inner)
        if kind is dict:
            child = props.get(key, rest)
            if child is None or child.map_type != "atomic":
                marks.append(1)
                _mark(inner, child or _UNKNOWN, marks)
                marks.append(0)
        elif kind is list:
            child = props.get(key, rest)
            if child is not None and child.list_type != "atomic":
                _mark_list(inner, child, marks)


def _mark_list(values: list[Json], node: SchemaNode, marks: _Marks) -> None:
    items = node.items or _UNKNOWN
    marks.append(2)
    for index, element in enumerate(values):
        if node.list_type == "map" and not node.map_keys:
            continue
        marks.append(element_path(element, node, index))
        if type(element) is dict:
            _mark(element, items, marks)
            marks.append(0)
    marks.append(3)


_UNKNOWN: Final = SchemaNode(preserve_unknown=True)
