"""Compiling schemas: the shipped OpenAPI of built-in kinds, and the schema of a custom kind.

The documents of built-in kinds are read when the first kind of their group and version is asked
for, so starting costs nothing.
"""

from __future__ import annotations

import functools
import gzip
import re
from importlib import resources
from typing import Any

import attrs
import msgspec

from gpusched.cel.schema_nodes import ANY, PRIMITIVES, Doc, SchemaNode

_REF = "#/components/schemas/"
_SPECIAL = {"Quantity": "quantity", "IntOrString": "int-or-string", "Time": "time"}
_SPECIAL["MicroTime"] = "micro-time"


class NoSchema(LookupError):
    """This group, version or kind is not among the shipped documents."""


def load_shipped(name: str) -> Any:
    """Decode one gzipped JSON document of the package, such as ``discovery.json.gz``."""
    file = resources.files("gpusched.devcluster").joinpath("data", name)
    return msgspec.json.decode(gzip.decompress(file.read_bytes()))


@functools.cache
def openapi_document(group: str, version: str, edition: str = "") -> Doc:
    """The OpenAPI v3 document of a group and version, as shipped; read-only.

    Args:
        group: empty for the core.
        version: of the group.
        edition: the release that it is of, where it differs from that of all others.

    Raises:
        NoSchema: it is not shipped.
    """
    path = f"apis_{group}_{version}" if group else f"api_{version}"
    path = f"{path}-{edition}" if edition else path
    try:
        document: Doc = load_shipped(f"openapi/{path}.json.gz")
    except FileNotFoundError:
        raise NoSchema(f"no OpenAPI document of {group or 'core'}/{version} is shipped") from None
    return document


@functools.cache
def builtin_builder(group: str, version: str, edition: str = "") -> SchemaBuilder:
    """The compiler of one shipped document; nodes are built once and shared."""
    return SchemaBuilder(openapi_document(group, version, edition)["components"]["schemas"])


class SchemaBuilder:
    """Compiles the schemas of one OpenAPI document, following its references."""

    def __init__(self, schemas: dict[str, Doc]) -> None:
        self._schemas = schemas
        self._nodes: dict[str, SchemaNode] = {}
        self._kinds = {
            (gvk["group"], gvk["version"], gvk["kind"]): name
            for name, raw in schemas.items()
            for gvk in raw.get("x-kubernetes-group-version-kind", ())
        }

    def kind(self, group: str, version: str, kind: str) -> SchemaNode:
        """Node of a kind's whole object.

        Raises:
            NoSchema: the document has no such kind.
        """
        name = self._kinds.get((group, version, kind))
        if name is None:
            raise NoSchema(f"no schema of {kind} in {group or 'core'}/{version} is shipped")
        return self.named(name)

    def named(self, name: str) -> SchemaNode:
        """Node of a named schema, shared by everything that refers to it."""
        if name in self._nodes:
            return self._nodes[name]
        raw = self._schemas[name]
        short = name.rsplit(".", 1)[-1]
        if short in _SPECIAL:
            node = SchemaNode(type=_SPECIAL[short])
        elif "type" not in raw:
            node = ANY
        else:
            # Entered before it is filled: schemas of schemas refer to themselves.
            package = name.split(".")[-2]
            node = SchemaNode(type=raw["type"], go_struct=short, go_package=package)
            node.preserve_unknown = raw["type"] == "object" and "properties" not in raw
            self._nodes[name] = node
            self._fill(node, raw)
        self._nodes[name] = node
        return node

    def _fill(self, node: SchemaNode, raw: Doc) -> None:
        for key, value in raw.get("properties", {}).items():
            node.props[key] = self._compile(value)
        _structure(node, raw)
        if "additionalProperties" in raw:
            node.additional = self._compile(raw["additionalProperties"])
        if "items" in raw:
            node.items = self._compile(raw["items"])

    def _compile(self, raw: Doc) -> SchemaNode:
        ref = raw.get("$ref") or (raw["allOf"][0]["$ref"] if "allOf" in raw else None)
        if ref is None:
            node = SchemaNode(type=raw.get("type", ""))
            self._fill(node, raw)
            return node
        base = self.named(ref.removeprefix(_REF))
        own = SchemaNode()
        _structure(own, raw)
        if not (own.has_default or own.patch_strategy) and "x-kubernetes-map-type" not in raw:
            return base
        return attrs.evolve(
            base,
            has_default=own.has_default,
            default=own.default,
            patch_strategy=own.patch_strategy,
            merge_key=own.merge_key,
            map_type=own.map_type if "x-kubernetes-map-type" in raw else base.map_type,
        )


def _structure(node: SchemaNode, raw: Doc) -> None:
    """Set the keywords that built-in and custom schemas share, except children."""
    node.format = raw.get("format", "")
    node.required = tuple(raw.get("required", ()))
    node.nullable = raw.get("nullable", False)
    # Zero defaults of built-in kinds only describe how an absent field reads.
    if raw.get("default") not in (None, {}, "", 0):
        node.has_default, node.default = True, raw["default"]
    if "enum" in raw:
        node.enum = tuple(raw["enum"])
    node.list_type = raw.get("x-kubernetes-list-type", "atomic")
    node.map_keys = tuple(raw.get("x-kubernetes-list-map-keys", ()))
    node.map_type = raw.get("x-kubernetes-map-type", "granular")
    node.merge_key = raw.get("x-kubernetes-patch-merge-key", "")
    node.patch_strategy = frozenset(
        raw.get("x-kubernetes-patch-strategy", "").split(",")
    ) - frozenset({""})


_LIMITS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_items",
    "maxItems": "max_items",
    "uniqueItems": "unique_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
}


def custom_schema(raw: Doc, *, root: bool = False) -> SchemaNode:
    """Compile a structural schema, already found to be one; ``root`` for whole objects."""
    node = SchemaNode(type=raw.get("type", ""))
    _structure(node, raw)
    node.has_default, node.default = "default" in raw, raw.get("default")
    for key, attribute in _LIMITS.items():
        if key in raw:
            setattr(node, attribute, raw[key])
    if raw.get("pattern"):
        node.pattern_text = raw["pattern"]
        node.pattern = re.compile(raw["pattern"])
    node.preserve_unknown = raw.get("x-kubernetes-preserve-unknown-fields", False)
    node.validations = tuple(raw.get("x-kubernetes-validations", ()))
    if raw.get("x-kubernetes-int-or-string"):
        node.type = "int-or-string"
    node.props = {key: custom_schema(value) for key, value in raw.get("properties", {}).items()}
    if isinstance(raw.get("additionalProperties"), dict):
        node.additional = custom_schema(raw["additionalProperties"])
    elif raw.get("additionalProperties") is True:
        node.additional = ANY
    if isinstance(raw.get("items"), dict):
        node.items = custom_schema(raw["items"])
    _junctors(node, raw)
    if root or raw.get("x-kubernetes-embedded-resource"):
        _embed(node, root=root)
    return node


def _junctors(node: SchemaNode, raw: Doc) -> None:
    node.all_of = tuple(custom_schema(part) for part in raw.get("allOf", ()))
    node.any_of = tuple(custom_schema(part) for part in raw.get("anyOf", ()))
    node.one_of = tuple(custom_schema(part) for part in raw.get("oneOf", ()))
    if "not" in raw:
        node.negated = custom_schema(raw["not"])
    if node.type == "int-or-string":
        # The customary anyOf of integer and string says the same once more.
        same = [p for p in node.any_of if p.type in {"integer", "string"}]
        if len(same) == len(node.any_of):
            node.any_of = ()


def _embed(node: SchemaNode, *, root: bool) -> None:
    """Give an object the three fields that every resource has."""
    meta = _metadata()
    node.embedded = not root
    own = node.props.get("metadata")
    if own is not None and own.props:
        meta = attrs.evolve(meta, props={**meta.props, **_narrowed(meta, own)})
    node.props["apiVersion"] = node.props.get("apiVersion", SchemaNode(type="string"))
    node.props["kind"] = node.props.get("kind", SchemaNode(type="string"))
    node.props["metadata"] = meta


@functools.cache
def _metadata() -> SchemaNode:
    """Metadata of custom objects: what is required inside is checked where all kinds are."""
    meta = builtin_builder("", "v1").named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    owners = meta.props["ownerReferences"]
    assert owners.items is not None
    free = attrs.evolve(owners, items=attrs.evolve(owners.items, required=()))
    return attrs.evolve(meta, props={**meta.props, "ownerReferences": free})


def _narrowed(meta: SchemaNode, own: SchemaNode) -> dict[str, SchemaNode]:
    """Limits a custom schema puts on metadata.name; the other fields cannot be limited."""
    return {k: v for k, v in own.props.items() if k in meta.props and v.type in PRIMITIVES}
