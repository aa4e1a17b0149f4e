"""Strategic merge patch: a merge patch that knows the merge keys of lists.

Where the result stands in a list follows the real server: elements the patch does not name keep
their order; elements new to the list come before them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec

from gpusched.base.merge_patch import merge_patch
from gpusched.cel.schema_nodes import Doc, Json, SchemaNode
from gpusched.devcluster.apimachinery.json_patch import PatchError, json_patch
from gpusched.devcluster.apimachinery.json_values import json_equal
from gpusched.devcluster.schema.schema import Schema

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PREFIX = "$deleteFromPrimitiveList/"
_ORDER_PREFIX = "$setElementOrder/"
_DIRECTIVES = ("$patch", "$retainKeys", "$setEl", "$deleteF")


def merge_by_node(doc: Doc, patch: Doc, node: SchemaNode | None) -> Doc:
    """Merge ``patch`` into ``doc`` by the merge keys and strategies of ``node``.

    Raises:
        PatchError: a directive is malformed, or an element lacks its merge key.
    """
    directive = patch.get(_PATCH)
    if directive == "delete":
        return {}
    if directive == "replace":
        return dict(_without_directives({k: v for k, v in patch.items() if k != _PATCH}))
    if directive not in (None, "merge"):
        raise PatchError("malformed", f"unknown patch directive {_text(directive)} for a map")
    merged = _retained(doc, patch)
    directed = any(key.startswith("$") for key in patch)
    for key, value in patch.items():
        if directed and (key in (_PATCH, _RETAIN) or key.startswith(_ORDER_PREFIX)):
            continue
        if directed and key.startswith(_DELETE_PREFIX):
            _delete_primitives(merged, key.removeprefix(_DELETE_PREFIX), value)
        elif value is None:
            merged.pop(key, None)
        else:
            child = node.child(key) if node is not None else None
            order = _order_of(patch, key) if directed else None
            merged[key] = _merge_value(merged, key, value, child=child, order=order)
    if directed:
        _reorder_untouched(merged, patch, node)
    return merged


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _retained(doc: Doc, patch: Doc) -> Doc:
    keys = patch.get(_RETAIN)
    if keys is None:
        return dict(doc)
    if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
        raise PatchError("malformed", "$retainKeys is a list of keys")
    lost = [k for k in patch if not k.startswith("$") and patch[k] is not None and k not in keys]
    if lost:
        raise PatchError("malformed", f"$retainKeys does not list {lost[0]}, which the patch sets")
    return {k: v for k, v in doc.items() if k in keys}


def _order_of(patch: Doc, key: str) -> list[Json] | None:
    order = patch.get(_ORDER_PREFIX + key)
    if order is None:
        return None
    if not isinstance(order, list):
        raise PatchError("malformed", f"$setElementOrder/{key} is a list")
    return order


def _delete_primitives(merged: Doc, key: str, values: Json) -> None:
    if not isinstance(values, list):
        raise PatchError("malformed", f"{_DELETE_PREFIX}{key} is a list")
    old = merged.get(key)
    if isinstance(old, list):
        merged[key] = [v for v in old if not any(json_equal(v, gone) for gone in values)]


def _merge_value(
    doc: Doc, key: str, value: Json, *, child: SchemaNode | None, order: list[Json] | None
) -> Json:
    old = doc.get(key)
    strategies = child.patch_strategy if child is not None else frozenset[str]()
    if isinstance(value, dict) and isinstance(old, dict) and "replace" not in strategies:
        return merge_by_node(old, value, child)
    if isinstance(value, list) and isinstance(old, list) and "merge" in strategies:
        return _merge_list(old, value, child=child, order=order)
    return _without_directives(value)


def _without_directives(value: Json) -> Json:
    """A value that is new to the document: no directives, no nulls, no deletions."""
    if isinstance(value, dict):
        return {
            k: _without_directives(v)
            for k, v in value.items()
            if v is not None and not (k.startswith("$") and k.startswith(_DIRECTIVES))
        }
    if isinstance(value, list):
        kept = [v for v in value if not (isinstance(v, dict) and v.get(_PATCH))]
        return [_without_directives(v) for v in kept]
    return value


Key = Callable[[Json], Hashable]


def _identity(merge_key: str) -> Key:
    def key(element: Json) -> Hashable:
        if not isinstance(element, dict):
            return (_text(element),)
        if merge_key not in element:
            raise PatchError(
                "malformed",
                f"map: {_text(element)} does not contain declared merge key: {merge_key}",
            )
        value = element[merge_key]
        # Nearly all keys are texts; the form of others is no text, so they never meet.
        return value if type(value) is str else (_text(value),)

    return key


def _primitive_identity(element: Json) -> Hashable:
    return _text(element)


def _merge_list(
    old: list[Json], patch: list[Json], *, child: SchemaNode | None, order: list[Json] | None
) -> list[Json]:
    if child is None or not child.merge_key:
        return _arrange(
            _unique([*old, *patch], _primitive_identity),
            _primitive_identity,
            patch_order=patch if order is None else order,
            server_order=old,
        )
    if any(isinstance(e, dict) and e.get(_PATCH) == "replace" for e in patch):
        return [
            _without_directives(e)
            for e in patch
            if not (isinstance(e, dict) and e.get(_PATCH) == "replace")
        ]
    key = _identity(child.merge_key)
    merged = _merge_elements(old, patch, key=key, items=child.items)
    written = [e for e in patch if not (isinstance(e, dict) and e.get(_PATCH) == "delete")]
    return _arrange(merged, key, patch_order=written if order is None else order, server_order=old)


def _merge_elements(
    old: list[Json], patch: list[Json], *, key: Key, items: SchemaNode | None
) -> list[Json]:
    merged = list(old)
    keys = [key(element) for element in merged]
    for element in patch:
        if not isinstance(element, dict):
            raise PatchError("malformed", "elements of a keyed list are maps")
        directive = element.get(_PATCH)
        wanted = key(element)
        if directive == "delete":
            merged = [e for e, k in zip(merged, keys, strict=True) if k != wanted]
            keys = [k for k in keys if k != wanted]
        elif directive not in (None, "merge"):
            raise PatchError("malformed", f"unknown patch directive {_text(directive)} in a list")
        elif wanted in keys:
            # Two old elements may share a key in lists that validation leaves alone: the
            # first one is meant, as the server does.
            place = keys.index(wanted)
            merged[place] = merge_by_node(merged[place], element, items)
        else:
            merged.append(_without_directives(element))
            keys.append(wanted)
    return merged


def _unique(values: Sequence[Json], key: Key) -> list[Json]:
    first: dict[Hashable, Json] = {}
    for value in values:
        first.setdefault(key(value), value)
    return list(first.values())


def _arrange(
    merged: list[Json], key: Key, *, patch_order: Sequence[Json], server_order: Sequence[Json]
) -> list[Json]:
    """Put the patch's elements in its order and the others in theirs, and zip both.

    Whenever one of either side has no place in the old list, the patch's element goes first.
    """
    place_in_patch = _places(patch_order, key)
    place_before = _places(server_order, key)
    named: list[tuple[Hashable, Json]] = []
    others: list[tuple[Hashable, Json]] = []
    for element in merged:
        name = key(element)
        (named if name in place_in_patch else others).append((name, element))
    named.sort(key=lambda each: place_in_patch[each[0]])
    result: list[Json] = []
    first, second = 0, 0
    while first < len(named) and second < len(others):
        n, o = place_before.get(named[first][0]), place_before.get(others[second][0])
        if n is not None and o is not None and o < n:
            result.append(others[second][1])
            second += 1
        else:
            result.append(named[first][1])
            first += 1
    result += [element for _, element in named[first:]]
    result += [element for _, element in others[second:]]
    return result


def _places(elements: Sequence[Json], key: Key) -> dict[Hashable, int]:
    """Where each key stands first."""
    places: dict[Hashable, int] = {}
    for index, element in enumerate(elements):
        places.setdefault(key(element), index)
    return places


def _reorder_untouched(merged: Doc, patch: Doc, node: SchemaNode | None) -> None:
    """Apply element orders that stand without a patch of their list."""
    for directive in patch:
        if not directive.startswith(_ORDER_PREFIX):
            continue
        name = directive.removeprefix(_ORDER_PREFIX)
        old = merged.get(name)
        if name in patch or not isinstance(old, list):
            continue
        child = node.child(name) if node is not None else None
        order = _order_of(patch, name)
        merged[name] = _merge_list(old, [], child=child, order=order)


__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_merge"]


def strategic_merge(doc: Doc, patch: Doc, schema: Schema) -> Doc:
    """Merge by ``x-kubernetes-patch-merge-key`` and ``-strategy`` of the kind's schema.

    Understands ``$patch`` (delete, replace, merge), ``$retainKeys``,
    ``$deleteFromPrimitiveList/FIELD`` and ``$setElementOrder/FIELD``.

    Raises:
        PatchError: ``malformed`` when a directive or an element makes no sense.
    """
    return merge_by_node(doc, patch, schema.node)
