# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Custom resources: what a definition declares, and the strategy of its objects."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.cel.schema_nodes import SchemaNode
from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.apimachinery.json_values import pack_value
from gpusched.devcluster.apimachinery.status import bad_request
from gpusched.devcluster.registry.custom.definitions import (
    definition_errors,
    immutable_name_errors,
    protected_group_errors,
    stored_version_errors,
)
from gpusched.devcluster.registry.custom.validation import CustomVersion
from gpusched.devcluster.registry.strategy import ServerContext, Strategy
from gpusched.devcluster.schema.decode_errors import decode_error
from gpusched.devcluster.schema.schema import Schema, load_builtin

Obj = dict[str, Any]

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that keeps a definition until its objects are gone."""


@frozen(eq=False)
class CustomKind:
    """One version of a custom resource as its definition declares it.

    Attributes:
        columns: additionalPrinterColumns of the version.
        scale: paths of the scale subresource; None when it has none.
        storage_version: apiVersion under which objects are stored.
        changed: whether objects may be stored in another form than this version's.
        terminating: whether the definition is going, so that nothing new may come.
    """

    checks: CustomVersion
    raw_schema: Obj
    columns: tuple[Obj, ...]
    scale: Obj | None
    storage_version: str
    changed: bool = False
    terminating: bool = False

    def shown(self, obj: Obj, api_version: str) -> Obj:
        """A stored object as this version shows it: pruned and defaulted by its schema."""
        if obj["apiVersion"] != api_version:
            obj = {**obj, "apiVersion": api_version}
        return self.schema.apply_defaults(self.schema.prune(obj))

    @property
    def schema(self) -> Schema:
        """Return the compiled schema of the version."""
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

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
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
        if kind:
            names.setdefault("singular", kind.lower())
            names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check names, versions and schemas."""
        _check_readable(obj)
        spec, name = obj["spec"], obj["metadata"].get("name")
        errors: list[FieldError] = []
        if name != f"{spec['names'].get('plural') or ''}.{spec.get('group') or ''}":
            why = 'must be spec.names.plural+"."+spec.group'
            errors.append(invalid("metadata.name", name, why))
        return [*errors, *definition_errors(obj), *protected_group_errors(obj)]

    def mark_deleted(self, obj: Obj) -> None:
        """Tell that objects will go first."""
        why = (
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        )
        condition = definition_condition(
            "Terminating", "True", "InstanceDeletionPending", message=why
        )
        condition["lastTransitionTime"] = obj["metadata"]["deletionTimestamp"]
        status = obj.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != "Terminating"]
        obj["status"] = {**status, "conditions": [*others, condition]}

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep the status, but note in which version objects are stored from now on."""
        super().prepare_update(new, old)
        status = new.get("status") or {}
        stored = list(status.get("storedVersions") or ())
        versions = (new.get("spec") or {}).get("versions") or ()
        added = [v["name"] for v in versions if v.get("storage") and v["name"] not in stored]
        if added:
            new["status"] = {**status, "storedVersions": [*stored, *added]}

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check as on creation; names and scope are immutable."""
        _check_readable(new)
        return [
            *definition_errors(new),
            *immutable_name_errors(new, old),
            *stored_version_errors(new),
            *protected_group_errors(new),
        ]


def definition_condition(kind: str, status: str, reason: str, *, message: str) -> Obj:
    """A condition of a definition without its time."""
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": None,
        "reason": reason,
        "message": message,
    }


def _check_readable(definition: Obj) -> None:
    """Refuse schemas that cannot be decoded; raises StatusError 400."""
    for version in definition["spec"].get("versions") or ():
        raw = (version.get("schema") or {}).get("openAPIV3Schema")
        if raw is not None and (why := _why_unreadable(raw)):
            kind = "CustomResourceDefinition"
            raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')


def _why_unreadable(raw: Obj) -> str | None:
    packed = pack_value(raw)
    return _misfit(raw) if packed is None else _why_packed_is_unreadable(packed)


@functools.lru_cache(maxsize=64)  # each new cluster of a process has the same definitions
def _why_packed_is_unreadable(packed: bytes) -> str | None:
    return _misfit(msgspec.msgpack.decode(packed))


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


def _schema_node() -> SchemaNode:
    kind = load_builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    node = kind.at("spec", "versions", "schema", "openAPIV3Schema")
    assert node is not None
    return node
