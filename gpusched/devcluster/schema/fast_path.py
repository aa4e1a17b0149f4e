"""The common case of a built-in body in one walk: it fits, every field is known, and it is pruned.

Decoding errors, unknown fields and pruning are walks of their own that know what to say. Most
bodies need nothing said, and for them one walk does what the three would.
"""

from __future__ import annotations

from gpusched.cel.quantities import QuantityFormatError, canonical_quantity
from gpusched.cel.schema_nodes import Doc, Json, SchemaNode
from gpusched.devcluster.apimachinery.times import printed_time
from gpusched.devcluster.schema.decode_errors import is_time


class NeedsFullDecoding(Exception):
    """This body may have errors or warnings."""


def read_fast(value: Doc, node: SchemaNode) -> Doc:
    """What ``Schema.prune_builtin`` makes of a body that decodes and holds no unknown field.

    Raises:
        NeedsFullDecoding: the body may have errors or unknown fields.
    """
    props, rest = node.props, node.additional
    if node.type != "object":
        raise NeedsFullDecoding
    if node.preserve_unknown:
        if props or rest is not None:
            raise NeedsFullDecoding
        return value
    kept: Doc = {}
    for key, inner in value.items():
        child = props.get(key, rest)
        if child is None:
            raise NeedsFullDecoding
        kind = type(inner)
        if kind is str and child.type == "string" and child.format != "byte":
            kept[key] = inner
        elif isinstance(inner, dict):  # the record of fields is a dict of its own type
            clean = read_fast(inner, child)
            if clean or child.additional is None or key in node.required:
                kept[key] = clean
        elif kind is list:
            elements = _elements(inner, child)
            if elements or key in node.required:
                kept[key] = elements
        elif inner is not None:
            kept[key] = _scalar(inner, child)
    return kept


def _elements(values: list[Json], node: SchemaNode) -> list[Json]:
    items = node.items
    if node.type != "array" or items is None:
        raise NeedsFullDecoding
    read: list[Json] = []
    for element in values:
        if type(element) is dict:
            read.append(read_fast(element, items))
        elif element is None or type(element) is list:
            raise NeedsFullDecoding
        else:
            read.append(_scalar(element, items))
    return read


def _scalar(value: Json, node: SchemaNode) -> Json:
    kind, wanted = type(value), node.type
    if wanted == "quantity" and kind in {str, int}:
        try:
            return canonical_quantity(value)
        except QuantityFormatError as fault:
            raise NeedsFullDecoding from fault
    if kind is str:
        if wanted in {"string", "int-or-string"} and node.format != "byte":
            return value
        if wanted in {"time", "micro-time"} and is_time(value):
            return printed_time(value, micro=wanted == "micro-time")
    elif kind is bool:
        if wanted == "boolean":
            return value
    elif kind is int:
        bits = 31 if node.format == "int32" else 63
        if wanted in {"integer", "int-or-string"} and -(1 << bits) <= value < (1 << bits):
            return value
    raise NeedsFullDecoding
