"""Server-side apply: an object is merged into the stored one by the ownership of fields.

A manager that applies owns what it names. Fields it named last time and names no more go away
unless another manager owns them. Changing a field of another manager is a conflict, unless forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusched.base.errors import GpuschedError
from gpusched.cel.schema_nodes import ANY, Doc, Json, SchemaNode
from gpusched.devcluster.apiserver.patching.field_sets import (
    FieldSet,
    Path,
    TypedObjectError,
    child_of,
    elements_of,
    field_difference,
    fields_of,
    granular_list,
    granular_map,
    path_text,
)
from gpusched.devcluster.apiserver.patching.managed_fields import (
    ManagerId,
    Managers,
    OwnedFields,
    entries_of,
    is_owned_field,
    managers_of,
    with_managers,
    without_managers,
)
from gpusched.devcluster.apiserver.patching.typed_objects import check_typed
from gpusched.devcluster.schema.schema import Schema

__all__ = ["ApplyConflict", "TypedObjectError", "apply_object"]

_BEFORE = "before-first-apply"
"""The manager of the fields of an object that was written without any record."""


class ApplyConflict(GpuschedError):
    """Fields are owned by others with other values; the caller answers 409.

    Attributes:
        causes: entries for ``details.causes`` of the Status.
    """

    def __init__(self, message: str, causes: list[Doc]) -> None:
        super().__init__(message)
        self.causes = causes


def apply_object(
    live: Doc | None,
    config: Doc,
    *,
    schema: Schema,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
    reset: Sequence[Path] = (),
) -> Doc:
    """Merge an applied object into the stored one.

    Args:
        live: the stored object, None when the apply creates it.
        config: what the manager applies, with apiVersion and kind.
        schema: of the kind; its list types and keys decide how lists merge.
        manager: name of the field manager.
        now: time of the write, RFC 3339.
        force: take fields over instead of raising a conflict.
        subresource: such as ``status``.
        reset: fields this request may not change, like ``("f:status",)``; they are ignored.

    Returns:
        The new object with managedFields, or ``live`` itself when nothing changes.

    Raises:
        ApplyConflict: others own fields that would change.
        TypedObjectError: the applied object has values of other types, unknown fields or unclear
            lists.
    """
    check_typed(config, schema.node)
    config = _without(config, reset)
    applied = frozenset(p for p in fields_of(config, schema.node) if is_owned_field(p))
    me = ManagerId(manager, "Apply", subresource=subresource)
    base = {} if live is None else without_managers(live)
    managers = _known_managers(live, schema)
    last = managers.get(me, OwnedFields(frozenset()))
    others = {key: owned for key, owned in managers.items() if key != me}
    merged = _merge(base, without_managers(config), schema.node)
    kept = applied.union(*(owned.fields for owned in others.values()))
    new = _prune(merged, schema.node, (), gone=last.fields - kept, kept=kept)
    changed = field_difference(base, new, schema.node)
    if live is not None:
        others = _yielded(others, changed.written, changed.removed, force=force)
    me_now = OwnedFields(applied, now, config.get("apiVersion", ""))
    if live is not None and not changed and _same(managers, {**others, me: me_now}):
        return live
    return with_managers(new, {**others, me: me_now})


def _known_managers(live: Doc | None, schema: Schema) -> Managers:
    if live is None:
        return {}
    managers = managers_of(live)
    if managers:
        return managers
    version = live.get("apiVersion", "")
    fields = frozenset(
        p for p in fields_of(without_managers(live), schema.node) if is_owned_field(p)
    )
    created = live.get("metadata", {}).get("creationTimestamp", "")
    return {ManagerId(_BEFORE, "Update", version): OwnedFields(fields, created, version)}


def _same(before: Managers, after: Managers) -> bool:
    """Whether two records say the same, times aside."""

    def timeless(managers: Managers) -> list[Doc]:
        undated = {
            key: OwnedFields(owned.fields, "", owned.api_version) for key, owned in managers.items()
        }
        return entries_of(undated)

    return timeless(before) == timeless(after)


def _without(config: Doc, reset: Iterable[Path]) -> Doc:
    for path in reset:
        config = _removed(config, [element.removeprefix("f:") for element in path])
    return config


def _removed(value: Json, keys: list[str]) -> Json:
    if not isinstance(value, dict) or keys[0] not in value:
        return value
    if len(keys) == 1:
        return {k: v for k, v in value.items() if k != keys[0]}
    return {**value, keys[0]: _removed(value[keys[0]], keys[1:])}


def _yielded(others: Managers, written: set[Path], removed: set[Path], *, force: bool) -> Managers:
    """Other managers without the fields that this apply takes or removes.

    Raises:
        ApplyConflict: there are such fields to take and it is not forced.
    """
    taken = {key: owned.fields & written for key, owned in others.items()}
    taken = {key: fields for key, fields in taken.items() if fields}
    if taken and not force:
        raise _conflict(taken)
    return {
        key: owned.with_fields(owned.fields - taken.get(key, frozenset()) - removed)
        for key, owned in others.items()
    }


def _conflict(taken: dict[ManagerId, FieldSet]) -> ApplyConflict:
    by_manager = [
        (key.description, sorted(path_text(path) for path in fields))
        for key, fields in sorted(taken.items(), key=lambda item: item[0].description)
    ]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": place}
        for who, places in by_manager
        for place in places
    ]
    if len(causes) == 1:
        who, places = by_manager[0]
        return ApplyConflict(
            f"Apply failed with 1 conflict: conflict with {who}: {places[0]}", causes
        )
    lines = []
    for who, places in by_manager:
        lines.append(f"conflicts with {who}:")
        lines += [f"- {place}" for place in places]
    text = "\n".join(lines)
    return ApplyConflict(f"Apply failed with {len(causes)} conflicts: {text}", causes)


def _merge(live: Json, config: Json, node: SchemaNode) -> Json:
    """The stored value with everything the applied one names; nulls take fields away."""
    if granular_map(config, node):
        merged = dict(live) if isinstance(live, dict) else {}
        for key, value in config.items():
            child = child_of(node, key)
            if value is None and not child.nullable:
                merged.pop(key, None)
            else:
                merged[key] = _merge(merged.get(key), value, child)
        return merged
    if granular_list(config, node):
        return _merge_list(live if isinstance(live, list) else [], config, node)
    return config


def _merge_list(live: list[Json], config: list[Json], node: SchemaNode) -> list[Json]:
    """Elements of both: shared and new ones in the applied order, the others where they were."""
    before, after = elements_of(live, node), elements_of(config, node)
    items = node.items or ANY
    waiting = list(after)
    merged: dict[str, Json] = {}
    for key, element in before.items():
        if key not in after:
            merged[key] = element
            continue
        while key not in merged:
            following = waiting.pop(0)
            merged[following] = _merge(before.get(following), after[following], items)
    for key in waiting:
        merged[key] = _merge(before.get(key), after[key], items)
    return list(merged.values())


def _prune(value: Json, node: SchemaNode, path: Path, *, gone: FieldSet, kept: FieldSet) -> Json:
    """Remove the fields that the manager dropped and no other manager owns.

    A dropped element of a list goes as a whole, with fields that have no owner, unless another manager
    owns a part of it.
    """
    if not any(p[: len(path)] == path for p in gone):
        return value
    if granular_map(value, node):
        left: Doc = {}
        for key, inner in value.items():
            below = (*path, f"f:{key}")
            if not _goes(below, gone, kept):
                left[key] = _prune(inner, child_of(node, key), below, gone=gone, kept=kept)
        return left
    if granular_list(value, node):
        items = node.items or ANY
        return [
            _prune(inner, items, (*path, key), gone=gone, kept=kept)
            for key, inner in elements_of(value, node).items()
            if not _goes((*path, key), gone, kept)
        ]
    return value


def _goes(path: Path, gone: FieldSet, kept: FieldSet) -> bool:
    return path in gone and not any(p[: len(path)] == path for p in kept)
