"""Whether the schema of a custom kind is structural, and what is wrong when it is not.

A structural schema names the type of every field, so that pruning and defaulting are decided
by the schema alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusched.cel.schema_nodes import PRIMITIVES, Doc
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)

_TYPES = {"object", "array", *PRIMITIVES}
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_STRUCTURE_ONLY = (
    "type",
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
_NEVER = {
    "$ref": "$ref is not supported",
    "definitions": "definitions is not supported",
    "dependencies": "dependencies are not supported",
    "id": "id is not supported",
    "patternProperties": "patternProperties is not supported",
    "additionalItems": "additionalItems is not supported",
}
_UNIQUE = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"


def structural_errors(raw: Doc, path: str) -> list[FieldError]:
    """Field errors below ``path`` that keep ``raw`` from being structural; deepest first."""
    errors = list(_node(raw, path, role="root"))
    if raw.get("type") and raw["type"] != "object":
        errors.append(invalid(f"{path}.type", raw["type"], "must be object at the root"))
    if raw.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return errors


_MISSING_TYPE = {
    "root": "must not be empty at the root",
    "field": "must not be empty for specified object fields",
    "item": "must not be empty for specified array items",
}


def _node(raw: Doc, path: str, *, role: str) -> Iterator[FieldError]:
    for name in sorted(raw.get("properties", {})):
        yield from _node(raw["properties"][name], f"{path}.properties[{name}]", role="field")
    additional = raw.get("additionalProperties")
    if isinstance(additional, dict):
        yield from _node(additional, f"{path}.additionalProperties", role="field")
    items = raw.get("items")
    if isinstance(items, dict):
        yield from _node(items, f"{path}.items", role="item")
    yield from _own(raw, path, role=role)
    for junctor in _JUNCTORS:
        for i, part in enumerate(raw.get(junctor, ())):
            yield from _validation(part, f"{path}.{junctor}[{i}]", structure=raw)
    if isinstance(raw.get("not"), dict):
        yield from _validation(raw["not"], f"{path}.not", structure=raw)


def _own(raw: Doc, path: str, *, role: str) -> Iterator[FieldError]:
    kind = raw.get("type", "")
    free = raw.get("x-kubernetes-int-or-string") or raw.get("x-kubernetes-preserve-unknown-fields")
    if not kind and (role == "root" or not free):
        yield required(f"{path}.type", _MISSING_TYPE[role])
    elif kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, sorted(_TYPES))
    elif kind and raw.get("x-kubernetes-int-or-string"):
        yield forbidden(f"{path}.type", "must be empty if x-kubernetes-int-or-string is true")
    if kind == "array" and not isinstance(raw.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if raw.get("properties") and raw.get("additionalProperties"):
        yield forbidden(
            f"{path}.additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        )
    if raw.get("additionalProperties") is False:
        yield forbidden(
            f"{path}.additionalProperties", "additionalProperties cannot be set to false"
        )
    if raw.get("uniqueItems"):
        yield forbidden(f"{path}.uniqueItems", _UNIQUE)
    if raw.get("x-kubernetes-embedded-resource") and kind != "object":
        yield invalid(
            f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true"
        )
    for key, why in _NEVER.items():
        if key in raw:
            yield forbidden(f"{path}.{key}", why)
    yield from _pattern(raw, path)
    yield from _list_type(raw, path)


def _pattern(raw: Doc, path: str) -> Iterator[FieldError]:
    pattern = raw.get("pattern")
    if not pattern:
        return
    try:
        re.compile(pattern)
    except re.error as fault:
        yield invalid(
            f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {fault}"
        )


def _list_type(raw: Doc, path: str) -> Iterator[FieldError]:
    kind, keys = raw.get("x-kubernetes-list-type"), raw.get("x-kubernetes-list-map-keys", [])
    if kind is None and not keys:
        return
    if kind not in {"atomic", "set", "map"}:
        yield not_supported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "map", "set"))
        return
    if raw.get("type") != "array":
        yield invalid(
            f"{path}.type",
            raw.get("type", ""),
            "must be array if x-kubernetes-list-type is specified",
        )
    if kind == "map" and not keys:
        yield required(
            f"{path}.x-kubernetes-list-map-keys",
            "must not be empty if x-kubernetes-list-type is map",
        )
    items = raw.get("items") if isinstance(raw.get("items"), dict) else {}
    for i, key in enumerate(keys if kind == "map" else ()):
        yield from _list_key(key, items or {}, f"{path}.x-kubernetes-list-map-keys[{i}]", path=path)


def _list_key(key: str, items: Doc, where: str, *, path: str) -> Iterator[FieldError]:
    prop = items.get("properties", {}).get(key)
    if prop is None:
        yield invalid(where, key, "entries must all be names of item properties")
    elif prop.get("type") not in PRIMITIVES:
        yield invalid(
            f"{path}.items.properties[{key}].type",
            prop.get("type", ""),
            "must be a scalar type if parent array's x-kubernetes-list-type is map",
        )
    elif key not in items.get("required", ()) and "default" not in prop:
        yield required(
            f"{path}.items.properties[{key}].default",
            "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        )


def _validation(raw: Doc, path: str, *, structure: Doc) -> Iterator[FieldError]:
    """A part of allOf, anyOf, oneOf or not: it may restrict, never describe."""
    scalar_choice = structure.get("x-kubernetes-int-or-string") and set(raw) <= {"type"}
    for key in _STRUCTURE_ONLY:
        if raw.get(key) and not (key == "type" and scalar_choice):
            yield forbidden(f"{path}.{key}", "must be empty to be structural")
    yield from _pattern(raw, path)
    known = structure.get("properties", {})
    for name in sorted(raw.get("properties", {})):
        if name not in known and not isinstance(structure.get("additionalProperties"), dict):
            yield required(
                _structural_place(path, name),
                "must not be undefined for a nested value validation",
            )
        else:
            below = known.get(name, structure.get("additionalProperties"))
            yield from _validation(
                raw["properties"][name], f"{path}.properties[{name}]", structure=below
            )
    if isinstance(raw.get("items"), dict) and isinstance(structure.get("items"), dict):
        yield from _validation(raw["items"], f"{path}.items", structure=structure["items"])
    for junctor in _JUNCTORS:
        for i, part in enumerate(raw.get(junctor, ())):
            yield from _validation(part, f"{path}.{junctor}[{i}]", structure=structure)
    if isinstance(raw.get("not"), dict):
        yield from _validation(raw["not"], f"{path}.not", structure=structure)


def _structural_place(path: str, name: str) -> str:
    """Where the missing field would stand outside the value validation."""
    outside = re.sub(r"\.(?:allOf|anyOf|oneOf)\[\d+\]|\.not(?=\.|$)", "", path)
    return f"{outside}.properties[{name}]"
