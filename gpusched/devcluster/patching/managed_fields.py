"""managedFields: the record of which manager set which field, by which operation.

Kept for plain writes as well, so that a later apply knows from whom it takes a field.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from gpusched.devcluster.patching.field_sets import (
    FieldSet,
    Path,
    difference,
    from_fields_v1,
    to_fields_v1,
)
from gpusched.devcluster.schema import Schema
from gpusched.devcluster.schema.types import Doc

_SERVER_METADATA = frozenset(
    [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ]
)
_MANAGERS_MAX = 10
"""Update entries kept apart; older ones beyond it are joined, as on a real server."""
_OLD_MANAGER = "ancient-changes"


@attrs.frozen
class ManagerId:
    """What tells entries of managedFields apart."""

    manager: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    @property
    def told(self) -> str:
        """As conflict messages name it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


@attrs.frozen
class Owned:
    """The fields of one manager and when it last changed them."""

    fields: FieldSet
    time: str = ""
    api_version: str = ""


Managers = dict[ManagerId, Owned]


def tracked(path: Path) -> bool:
    """Whether a field can be owned; what the server itself fills cannot."""
    if not path or path[0] in {"f:apiVersion", "f:kind"} or path == ("f:metadata",):
        return False
    return not (
        path[0] == "f:metadata" and path[1].startswith("f:") and path[1][2:] in _SERVER_METADATA
    )


def managers_of(obj: Doc) -> Managers:
    """Read the managedFields of an object."""
    managers: Managers = {}
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        operation, version = entry.get("operation", "Update"), entry.get("apiVersion", "")
        key = ManagerId(
            entry.get("manager", ""),
            operation,
            # An applier stays the same when it changes its version, an updater does not.
            "" if operation == "Apply" else version,
            entry.get("subresource", ""),
        )
        managers[key] = Owned(from_fields_v1(entry.get("fieldsV1")), entry.get("time", ""), version)
    return managers


def entries_of(managers: Mapping[ManagerId, Owned]) -> list[Doc]:
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


def _entry(key: ManagerId, owned: Owned) -> Doc:
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


def with_managers(obj: Doc, managers: Mapping[ManagerId, Owned]) -> Doc:
    """The object with managedFields written anew; its other parts are shared."""
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


def track_update(
    old: Doc | None,
    new: Doc,
    *,
    schema: Schema,
    manager: str,
    now: str,
    subresource: str = "",
) -> Doc:
    """Record what a create, replace or patch changed as owned by its manager.

    Args:
        old: stored object, None on creation; its managedFields are the record so far, and what
            the new object says in that place is ignored.
        new: object about to be stored, defaults included.
        schema: of the kind.
        manager: name of the field manager.
        now: time of the write, RFC 3339.
        subresource: such as ``status``.

    Returns:
        The new object with its managedFields.
    """
    api_version = new.get("apiVersion", "")
    managers = managers_of(old) if old is not None else {}
    before = without_managers(old) if old is not None else {"metadata": {}}
    changed = difference(before, without_managers(new), schema.node)
    structs = {f"f:{key}" for key, node in schema.node.props.items() if node.props}
    written = frozenset(
        p for p in changed.written if tracked(p) and (len(p) > 1 or p[0] not in structs)
    )
    gone = changed.removed
    me = ManagerId(manager, "Update", api_version, subresource)
    mine = managers.pop(me, Owned(frozenset()))
    managers = {
        key: attrs.evolve(owned, fields=owned.fields - written - gone)
        for key, owned in managers.items()
    }
    fields = (mine.fields - gone) | written
    managers[me] = Owned(fields, now if written else mine.time, api_version)
    return with_managers(new, _capped(managers))


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
        before = kept.get(joined, Owned(frozenset()))
        kept[joined] = Owned(
            before.fields | owned.fields, max(before.time, owned.time), key.api_version
        )
    return kept
