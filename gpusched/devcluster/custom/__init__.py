# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Custom resources: what a definition declares, and the strategy of its objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from gpusched.devcluster.custom.validation import CustomVersion, SchemaRefused, compile_version
from gpusched.devcluster.field_errors import FieldError, invalid, required
from gpusched.devcluster.meta import name_errors
from gpusched.devcluster.schema import Schema, load_builtin
from gpusched.devcluster.schema.decode import decode_error
from gpusched.devcluster.schema.types import Node
from gpusched.devcluster.status import bad_request
from gpusched.devcluster.strategies import Strategy

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core

Obj = dict[str, Any]

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that keeps a definition until its objects are gone."""


@attrs.frozen(eq=False)
class CustomKind:
    """One version of a custom resource as its definition declares it.

    Attributes:
        columns: additionalPrinterColumns of the version.
        scale: paths of the scale subresource; None when it has none.
        storage_version: apiVersion under which objects are stored.
    """

    checks: CustomVersion
    raw_schema: Obj
    columns: tuple[Obj, ...]
    scale: Obj | None
    storage_version: str

    @property
    def schema(self) -> Schema:
        """The compiled schema."""
        return self.checks.schema

    def errors(self, new: Obj, old: Obj | None) -> list[FieldError]:
        """Return every violation of schema, scale paths and rules."""
        return self.checks.validate(new, old)


class CustomStrategy(Strategy):
    """Objects of a custom kind."""

    generation = True
    needs_version = True

    def __init__(self, *, has_status: bool) -> None:
        self.has_status = has_status

    def raises_generation(self, new: Obj, old: Obj) -> bool:
        """Everything but metadata counts, and status where it is no subresource."""
        free = {"metadata", "status"} if self.has_status else {"metadata"}
        return {k: v for k, v in new.items() if k not in free} != {
            k: v for k, v in old.items() if k not in free
        }

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep everything but the status; metadata is not written through it either."""
        super().prepare_status(new, old)
        kept = dict(old["metadata"])
        if "managedFields" in new["metadata"]:
            kept["managedFields"] = new["metadata"]["managedFields"]
        new["metadata"] = kept


class DefinitionStrategy(Strategy):
    """CustomResourceDefinitions: names complete themselves, schemas must be structural."""

    generation = True
    has_status = True

    def prepare_create(self, obj: Obj, core: Core) -> None:
        """Start unaccepted: the installer answers for names and establishment."""
        versions = (obj.get("spec") or {}).get("versions") or ()
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [v.get("name", "") for v in versions if v.get("storage")],
        }

    def default(self, obj: Obj) -> None:
        """Derive the names that follow from the kind."""
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = names.get("kind") or ""
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check names, versions and schemas."""
        spec = obj["spec"]
        names, group = spec["names"], spec.get("group") or ""
        wanted = f"{names.get('plural', '')}.{group}"
        errors: list[FieldError] = []
        if not group:
            errors.append(required("spec.group"))
        else:
            errors += name_errors(group, field="spec.group")
        if obj["metadata"].get("name") != wanted:
            why = 'must be spec.names.plural+"."+spec.group'
            errors.append(invalid("metadata.name", obj["metadata"].get("name"), why))
        versions = spec.get("versions") or []
        stored = [v["name"] for v in versions if v.get("storage")]
        if len(stored) != 1:
            why = "must have exactly one version marked as storage version"
            errors.append(invalid("spec.versions", [v["name"] for v in versions], why))
        for i, version in enumerate(versions):
            errors += _schema_errors(version, i, alone=len(versions) == 1)
        return errors

    def mark_deleted(self, obj: Obj) -> None:
        """Nothing to show before the installer has cleaned up."""

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep the status."""
        super().prepare_update(new, old)

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check as on creation; scope and group are sealed."""
        errors = self.validate(new)
        for key in ("scope", "group"):
            if new["spec"].get(key) != old["spec"].get(key):
                errors.append(invalid(f"spec.{key}", new["spec"].get(key), "field is immutable"))
        return errors


def _schema_errors(version: Obj, index: int, *, alone: bool) -> list[FieldError]:
    at = "spec.validation.openAPIV3Schema"
    if not alone:
        at = f"spec.versions[{index}].schema.openAPIV3Schema"
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    if raw is not None and (why := _misfit(raw)):
        kind = "CustomResourceDefinition"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')
    if raw is None:
        return [required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")]
    scale = (version.get("subresources") or {}).get("scale")
    try:
        compile_version(raw, scale=scale, path=at)
    except SchemaRefused as e:
        return e.errors
    return []


def _misfit(raw: Obj) -> str | None:
    """Return why a nested schema cannot be decoded: those that may also be booleans or lists."""
    for key in ("items", "additionalProperties"):
        inner = raw.get(key)
        if inner is None or isinstance(inner, bool | list):
            continue
        if (why := decode_error(inner, _schema_node())) is not None:
            return why
    nested = [raw.get("items"), raw.get("additionalProperties"), raw.get("not")]
    properties = raw.get("properties") or {}
    if None in properties.values():
        return "json: cannot unmarshal null into Go struct field JSONSchemaProps.properties"
    nested += properties.values()
    for key in ("allOf", "anyOf", "oneOf"):
        nested += raw.get(key) or ()
    for inner in nested:
        if isinstance(inner, dict) and (why := _misfit(inner)):
            return why
    return None


def _schema_node() -> Node:
    kind = load_builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    node = kind.at("spec", "versions", "schema", "openAPIV3Schema")
    assert node is not None
    return node
