"""The compiled form of a schema: one node a field, shared by every walk over an object.

Built once (``schema.build``), then only read. A node of a built-in kind may point back at
itself through a reference, so a graph and not a tree.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from gpusched.base.classes import define

Json = Any
"""An undecoded JSON value: dict, list, str, int, float, bool or None."""
Doc = dict[str, Any]

PRIMITIVES = frozenset({"string", "integer", "number", "boolean"})


@define(eq=False, repr=False)
class SchemaNode:
    """What one value must look like.

    Attributes:
        type: ``object``, ``array``, ``string``, ``integer``, ``number``, ``boolean``;
            ``quantity``, ``int-or-string``, ``time`` or ``micro-time`` for the types that have
            their own JSON form; empty when anything goes.
        go_struct: name of the structure that decode errors speak of, built-in kinds only;
            ``go_package`` of the package that they name with it.
        props: known keys of an object.
        additional: what unknown keys of a map hold.
        items: what a list holds.
        list_type: ``atomic``, ``set`` or ``map``; ``map_keys`` tell its elements apart.
        map_type: ``granular`` or ``atomic``.
        merge_key, patch_strategy: how strategic merge patches treat the list or map.
        validations: raw ``x-kubernetes-validations`` entries, compiled elsewhere.
        all_of, any_of, one_of, negated: value validations beside the structure.
    """

    type: str = ""
    go_struct: str = ""
    go_package: str = "v1"
    format: str = ""
    props: dict[str, SchemaNode] = attrs.field(factory=dict)
    additional: SchemaNode | None = None
    items: SchemaNode | None = None
    required: tuple[str, ...] = ()
    has_default: bool = False
    default: Json = None
    nullable: bool = False
    enum: tuple[Json, ...] | None = None
    pattern: re.Pattern[str] | None = None
    pattern_text: str = ""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    preserve_unknown: bool = False
    embedded: bool = False
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    merge_key: str = ""
    patch_strategy: frozenset[str] = frozenset()
    validations: tuple[Doc, ...] = ()
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    negated: SchemaNode | None = None

    def child(self, key: str) -> SchemaNode | None:
        """The node of an object's key, None when the schema does not know it."""
        found = self.props.get(key)
        return found if found is not None else self.additional

    @property
    def is_map(self) -> bool:
        """Whether keys are data (labels) and not fields."""
        return self.additional is not None

    @property
    def is_keyed_list(self) -> bool:
        """Whether elements are identified by keys."""
        return self.list_type == "map" and bool(self.map_keys)


ANY = SchemaNode(preserve_unknown=True)
"""Accepts and keeps whatever comes."""


def join(path: str, key: str) -> str:
    """``spec`` and ``size`` give ``spec.size``; the root has an empty path."""
    return f"{path}.{key}" if path else key


def map_path(path: str, key: str) -> str:
    """Path of a map's entry; keys that hold dots stand in brackets."""
    return f"{path}[{key}]" if "." in key else join(path, key)


def kind_of(value: Json) -> str:
    """Name of a JSON value's type as error texts spell it; beyond 64 bits a number is a float."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and -(1 << 63) <= value < (1 << 63):
        return "integer"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
