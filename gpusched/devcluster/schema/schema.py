"""Schemas of served kinds: what a request body may hold, and what is made of it.

Built-in kinds come from the OpenAPI documents in ``data/``; custom kinds from their CRD. The
two differ as they do on a real server: a built-in body with a wrong type is a decode error, a
custom one a list of field errors.
"""

from __future__ import annotations

import functools

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import GpuschedError
from gpusched.cel.schema_nodes import Doc, SchemaNode, join
from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.schema.build import (
    NoSchema,
    builtin_builder,
    custom_schema,
    openapi_document,
)
from gpusched.devcluster.schema.decode_errors import decode_error
from gpusched.devcluster.schema.fast_path import NeedsFullDecoding, read_fast
from gpusched.devcluster.schema.pruning_and_defaults import (
    prune_builtin,
    prune_custom,
    unknown_fields,
    with_defaults,
)
from gpusched.devcluster.schema.structural import structural_errors
from gpusched.devcluster.schema.validate import validate_builtin, validate_value

__all__ = ["NoSchema", "NotStructural", "Schema", "load_builtin", "openapi_document", "structural"]

SCHEMA_PATH = "spec.validation.openAPIV3Schema"
"""Where errors of a CRD's schema stand while all versions share one schema."""


class NotStructural(GpuschedError):
    """A CRD's schema is refused.

    Attributes:
        errors: every reason, as field errors of the CRD.
    """

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.text}" for e in errors))
        self.errors = errors


@frozen
class Schema:
    """The schema of one kind; methods never change the object they are given.

    Attributes:
        node: compiled schema of the whole object, for walks of other modules.
        builtin: whether it came from the shipped documents.
    """

    node: SchemaNode
    builtin: bool

    def child(self, key: str) -> SchemaNode | None:
        """Node of a field of the object, such as ``spec``; None when there is none."""
        return self.node.child(key)

    def at(self, *path: str) -> SchemaNode | None:
        """Node of a nested field; lists are stepped through, as in ``spec.containers.image``."""
        node: SchemaNode | None = self.node
        for key in path:
            while node is not None and node.type == "array":
                node = node.items
            node = node.child(key) if node is not None else None
        return node

    def strict_errors(self, obj: Doc) -> list[str]:
        """``unknown field "spec.nonsense"`` for each, in the order of the object."""
        return [f'unknown field "{path}"' for path in unknown_fields(obj, self.node)]

    def decode_error(self, obj: Doc) -> str | None:
        """Why a built-in body cannot be decoded, None when it can; custom bodies always can.

        The caller puts ``Pod in version "v1" cannot be handled as a Pod: `` in front.
        """
        if self.builtin:
            return decode_error(obj, self.node)
        metadata = obj.get("metadata", {})
        node = self.node.child("metadata")
        return decode_error(metadata, node) if node is not None else None

    def plain(self, obj: Doc) -> Doc | None:
        """What ``prune`` makes of a built-in body without errors and warnings, in one walk.

        None for every other: then ``decode_error`` and ``strict_errors`` have to look first.
        """
        if not self.builtin:
            return None
        try:
            return read_fast(obj, self.node)
        except NeedsFullDecoding:
            return None

    def prune(self, obj: Doc) -> Doc:
        """The object without fields the schema does not know.

        A built-in object also loses nulls and empty optional lists and maps, and its quantities
        become canonical, as decoding into typed structures does.
        """
        if self.builtin:
            return dict(prune_builtin(obj, self.node))
        pruned = dict(prune_custom(obj, self.node))
        metadata, node = pruned.get("metadata"), self.node.child("metadata")
        if isinstance(metadata, dict) and node is not None:
            pruned["metadata"] = prune_builtin(metadata, node)
        return pruned

    def apply_defaults(self, obj: Doc) -> Doc:
        """The object with the schema's defaults filled in.

        The shipped documents know only a few defaults of built-in kinds (``protocol: TCP``);
        strategies fill the rest.
        """
        return dict(with_defaults(obj, self.node))

    def validate(self, obj: Doc) -> list[FieldError]:
        """Every field error of the object, by path.

        For built-in kinds these are missing required fields and unsupported enumerated values
        outside metadata and status; strategies know the rest.
        """
        if self.builtin:
            return validate_builtin(obj, self.node)
        return validate_value(obj, self.node)


@functools.cache
def load_builtin(group: str, version: str, kind: str, edition: str = "") -> Schema:
    """Schema of a built-in kind; ``group`` is empty for the core, ``edition`` for most kinds.

    Raises:
        NoSchema: it is not among the shipped documents.
    """
    builder = builtin_builder(group, version, edition)
    return Schema(node=builder.kind(group, version, kind), builtin=True)


def structural(raw: Doc, *, path: str = SCHEMA_PATH) -> Schema:
    """Compile the ``openAPIV3Schema`` of a CRD's version.

    Raises:
        NotStructural: it is not structural, or a default breaks the schema it stands in.
    """
    errors = structural_errors(raw, path)
    if errors:
        raise NotStructural(errors)
    node = custom_schema(raw, root=True)
    errors = _default_errors(custom_schema(raw), path)
    if errors:
        raise NotStructural(errors)
    return Schema(node=node, builtin=False)


def _default_errors(node: SchemaNode, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if node.has_default:
        errors += [
            attrs.evolve(
                e,
                field=join(f"{path}.default", e.field) if e.field != "<nil>" else f"{path}.default",
            )
            for e in validate_value(with_defaults(node.default, node), node)
        ]
        if unknown_fields(node.default, node):
            errors.append(invalid(f"{path}.default", node.default, "must not have unknown fields"))
    for name in sorted(node.props):
        errors += _default_errors(node.props[name], f"{path}.properties[{name}]")
    if node.additional is not None and node.additional is not node:
        errors += _default_errors(node.additional, f"{path}.additionalProperties")
    if node.items is not None:
        errors += _default_errors(node.items, f"{path}.items")
    return errors
