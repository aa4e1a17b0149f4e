"""Everything a version of a custom kind checks on a write, in the order of its errors.

Schema errors come first, then those of the scale subresource, then CEL rules or the note that
they were skipped.
"""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.base.errors import GpuschedError
from gpusched.cel.schema_nodes import Doc, Json, kind_of
from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid, rules_skipped
from gpusched.devcluster.apimachinery.json_values import pack_value
from gpusched.devcluster.registry.custom.cel_rules import (
    RulesRefused,
    ValidationRules,
    compile_rules,
)
from gpusched.devcluster.registry.custom.ratcheting import errors_of_changes
from gpusched.devcluster.schema.schema import SCHEMA_PATH, NotStructural, Schema, structural

__all__ = ["CustomVersion", "SchemaRefused", "compile_version"]

_BLOCKING = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueNotSupported",
        "FieldValueTooMany",
        "FieldValueTooLong",
    }
)
"""Errors after which CEL rules would read nonsense."""

_COMPILED_MAX: Final = 64
"""Compiled versions that the process remembers: all that are shipped, twice. Each definition is
compiled when it is checked and again when it is served, and again by each cluster in a process."""

_GO_TYPES = {"boolean": "bool", "number": "float64", "array": "[]interface {}"}
_GO_TYPES |= {"object": "map[string]interface {}", "null": "<nil>"}


class SchemaRefused(GpuschedError):
    """A CRD's version has a schema or rules that cannot be used.

    Attributes:
        errors: field errors of the CRD.
    """

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.text}" for e in errors))
        self.errors = errors


@frozen
class CustomVersion:
    """A compiled version of a custom kind.

    Attributes:
        schema: for strict decoding, pruning and defaults.
        scale_paths: ``.spec.replicas`` and ``.status.replicas`` paths of the scale subresource.
    """

    schema: Schema
    rules: ValidationRules
    scale_paths: tuple[str, ...] = ()

    def validate(self, obj: Doc, old: Doc | None = None) -> list[FieldError]:
        """All errors of an object that was pruned and defaulted; ``old`` is set on updates.

        Errors that the stored object has as well are not held against the writer.
        """
        errors = self.schema.validate(obj)
        if errors and old is not None:
            errors = errors_of_changes(errors, obj, old, self.schema.node)
        blocked = any(e.cause_reason in _BLOCKING for e in errors)
        for path in self.scale_paths:
            errors += _scale_errors(obj, path)
        if not self.rules:
            return errors
        return [*errors, rules_skipped()] if blocked else [*errors, *self.rules.check(obj, old)]


def compile_version(
    raw: Doc, *, scale: Doc | None = None, path: str = SCHEMA_PATH
) -> CustomVersion:
    """Compile an ``openAPIV3Schema`` with its rules.

    Args:
        raw: the schema.
        scale: the ``subresources.scale`` of the version, when it has one.
        path: where the schema stands in the CRD, for errors.

    Raises:
        SchemaRefused: it is not structural or a rule does not compile.
    """
    scale = scale or {}
    paths = (scale.get("specReplicasPath", ""), scale.get("statusReplicasPath", ""))
    scale_paths = tuple(each for each in paths if each)
    packed = pack_value(raw)
    if packed is None:
        return _compile(raw, scale_paths, path)
    return _compile_packed(packed, scale_paths, path)


@functools.lru_cache(maxsize=_COMPILED_MAX)
def _compile_packed(packed: bytes, scale_paths: tuple[str, ...], path: str) -> CustomVersion:
    """Compile a schema from its bytes, so that equal ones are compiled once."""
    return _compile(msgspec.msgpack.decode(packed), scale_paths, path)


def _compile(raw: Doc, scale_paths: tuple[str, ...], path: str) -> CustomVersion:
    try:
        schema = structural(raw, path=path)
        rules = compile_rules(schema, path=path)
    except (NotStructural, RulesRefused) as refusal:
        raise SchemaRefused(refusal.errors) from refusal
    return CustomVersion(schema, rules, scale_paths)


def _scale_errors(obj: Doc, path: str) -> list[FieldError]:
    value: Json = obj
    for key in path.removeprefix(".").split("."):
        if not isinstance(value, dict) or key not in value:
            return []
        value = value[key]
    kind = kind_of(value)
    if kind != "integer":
        shown = value if isinstance(value, str) else str(value)
        go_type = _GO_TYPES.get(kind, kind)
        return [
            invalid(
                path, 0, f"{path} accessor error: {shown} is of the type {go_type}, expected int64"
            )
        ]
    if value < 0:
        return [invalid(path, value, "should be a non-negative integer")]
    return []
