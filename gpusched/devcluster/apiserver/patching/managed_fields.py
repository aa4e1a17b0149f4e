"""managedFields: the record of which manager set which field, by which operation.

Kept for plain writes as well, so that a later apply knows whose field it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from gpusched.base.classes import frozen
from gpusched.cel.schema_nodes import Doc
from gpusched.devcluster.apiserver.patching.created_fields import (
    created_fields,
    is_owned_field,
    owned_container,
)
from gpusched.devcluster.apiserver.patching.field_sets import (
    FieldOwnership,
    FieldSet,
    Path,
    field_difference,
    from_fields_v1,
    to_fields_v1,
)
from gpusched.devcluster.schema.schema import Schema

__all__ = [
    "ManagerId",
    "Managers",
    "OwnedFields",
    "entries_of",
    "is_owned_field",
    "managers_of",
    "readable_entries",
    "track_create",
    "track_update",
    "with_managers",
    "without_managers",
]  # fmt: skip

_MANAGERS_MAX = 10
"""Update entries kept apart; older ones beyond it are joined, as on a real server."""
_OLD_MANAGER = "ancient-changes"


@frozen
class ManagerId:
    """The key of an entry of managedFields."""

    manager: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    @property
    def description(self) -> str:
        """The manager as conflict messages name it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


@frozen
class OwnedFields:
    """The fields of one manager and when it last changed them; ``entry`` is how that is stored."""

    fields: FieldSet
    time: str = ""
    api_version: str = ""
    entry: Doc | None = attrs.field(default=None, eq=False, repr=False)

    def with_fields(self, fields: FieldSet) -> OwnedFields:
        """The same manager with other fields, without a cached stored form."""
        return OwnedFields(fields, self.time, self.api_version)


Managers = dict[ManagerId, OwnedFields]


def managers_of(obj: Doc) -> Managers:
    """Read the managedFields of an object."""
    return _managers(obj.get("metadata", {}).get("managedFields") or ())


def _managers(entries: Sequence[Doc]) -> Managers:
    managers: Managers = {}
    for entry in entries:
        operation, version = entry.get("operation", "Update"), entry.get("apiVersion", "")
        key = ManagerId(
            entry.get("manager", ""),
            operation,
            # An applier stays the same when it changes its version, an updater does not.
            "" if operation == "Apply" else version,
            entry.get("subresource", ""),
        )
        fields = entry.get("fieldsV1")
        managers[key] = OwnedFields(
            from_fields_v1(fields),
            entry.get("time", ""),
            version,
            entry if isinstance(fields, FieldOwnership) else None,
        )
    return managers


def entries_of(managers: Mapping[ManagerId, OwnedFields]) -> list[Doc]:
    """Write managers as managedFields: appliers first, then by time and name."""
    ordered = sorted(
        managers.items(),
        key=lambda item: (
            item[0].operation,
            item[1].time,
            item[0].manager,
            item[1].api_version,
            item[0].subresource,
        ),
    )
    return [_entry(key, owned) for key, owned in ordered if owned.fields]


def _entry(key: ManagerId, owned: OwnedFields) -> Doc:
    if owned.entry is not None:
        return owned.entry  # a form cached here, which all versions of the object share
    entry: Doc = {
        "manager": key.manager,
        "operation": key.operation,
        "apiVersion": owned.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(owned.fields),
    }
    if key.subresource:
        entry["subresource"] = key.subresource
    return {k: v for k, v in entry.items() if v != ""}


def with_managers(obj: Doc, managers: Mapping[ManagerId, OwnedFields]) -> Doc:
    """The object with rewritten managedFields; its other parts are shared."""
    metadata = dict(obj.get("metadata", {}))
    entries = entries_of(managers)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)
    return {**obj, "metadata": metadata}


def without_managers(obj: Doc) -> Doc:
    """The object without managedFields; its other parts are shared."""
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k != "managedFields"}
    return {**obj, "metadata": metadata}


def track_create(
    obj: Doc, *, schema: Schema, manager: str, now: str, skip: Sequence[Path] = ()
) -> list[Doc]:
    """The managedFields of an object about to be created.

    Args:
        obj: the object, defaults included; entries it brings along are kept.
        schema: of the kind.
        manager: name of the field manager.
        now: time of the write, RFC 3339.
        skip: what the server filled in, without an owner, such as ``("f:status",)``.

    Raises:
        TypedObjectError: elements of a keyed list have equal keys.
    """
    brought = readable_entries(obj["metadata"].get("managedFields"))
    if brought:
        obj = without_managers(obj)
    me = ManagerId(manager, "Update", obj.get("apiVersion", ""))
    mine = OwnedFields(created_fields(obj, schema, skip), now, me.api_version)
    if not brought:
        return entries_of({me: mine})
    return entries_of({**_managers(brought), me: mine})


def readable_entries(entries: object) -> list[Doc]:
    """Entries that a client sent, or none of them when one cannot be understood."""
    if not isinstance(entries, list):
        return []
    good = all(
        isinstance(e, dict)
        and e.get("operation") in {"Update", "Apply"}
        and e.get("fieldsType") == "FieldsV1"
        for e in entries
    )
    return entries if good else []


def track_update(
    old: Doc,
    new: Doc,
    *,
    schema: Schema,
    manager: str,
    now: str,
    subresource: str = "",
) -> Doc:
    """Record what a replace or patch changed as owned by its manager.

    Args:
        old: stored object.
        new: object about to be stored, defaults included; its managedFields are the record so
            far.
        schema: of the kind.
        manager: name of the field manager.
        now: time of the write, RFC 3339.
        subresource: such as ``status``.

    Returns:
        The new object with its managedFields.

    Raises:
        TypedObjectError: elements of a keyed list have equal keys.
    """
    api_version = new.get("apiVersion", "")
    managers = managers_of(new)
    changed = field_difference(without_managers(old), without_managers(new), schema.node)
    written = frozenset(p for p in changed.written if owned_container(p, schema))
    gone = changed.removed
    if not written and not gone:
        return new
    me = ManagerId(manager, "Update", api_version, subresource)
    mine = managers.pop(me, OwnedFields(frozenset()))
    lost = written | gone
    managers = {key: _remaining_fields(owned, lost) for key, owned in managers.items()}
    fields = (mine.fields - gone) | written
    managers[me] = OwnedFields(fields, now if written else mine.time, api_version)
    return with_managers(new, _capped(managers))


def _remaining_fields(owned: OwnedFields, lost: frozenset[Path] | set[Path]) -> OwnedFields:
    if owned.fields.isdisjoint(lost):
        return owned
    return owned.with_fields(owned.fields - lost)


def _capped(managers: Managers) -> Managers:
    updates = [(key, owned) for key, owned in managers.items() if key.operation == "Update"]
    updates = [(key, owned) for key, owned in updates if owned.fields]
    if len(updates) <= _MANAGERS_MAX:
        return managers
    updates.sort(key=lambda item: (item[1].time, item[0].manager))
    oldest = updates[: len(updates) - _MANAGERS_MAX + 1]
    kept = {key: owned for key, owned in managers.items() if key not in dict(oldest)}
    for key, owned in oldest:
        joined = ManagerId(_OLD_MANAGER, "Update", key.api_version)
        before = kept.get(joined, OwnedFields(frozenset()))
        kept[joined] = OwnedFields(
            before.fields | owned.fields, max(before.time, owned.time), key.api_version
        )
    return kept
