"""Sets of fields: the fields of an object that a manager owns, and the changes between two states of it.

A path is a tuple of elements spelled as in ``fieldsV1``: ``f:name`` a key, ``k:{...}`` an
element of a keyed list, ``v:...`` an element of a set, ``i:...`` one by its index. A set of paths names leaves and, where
ownership of the container itself matters, containers too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import attrs
import msgspec

from gpusched.base.classes import define
from gpusched.base.errors import GpuschedError
from gpusched.cel.schema_nodes import ANY, Doc, Json, SchemaNode
from gpusched.devcluster.apimachinery.json_values import json_equal
from gpusched.devcluster.apimachinery.limits import FIELD_SHAPES_MAX

Path = tuple[str, ...]
FieldSet = frozenset[Path]


class TypedObjectError(GpuschedError):
    """An applied object does not fit its schema; ``str()`` has the place and the reason."""


def path_text(path: Path) -> str:
    """A path as error messages write it: ``.spec.containers[name="c"].image``."""
    return "".join(_path_element_text(element) for element in path)


def _path_element_text(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    if kind == "i:":
        return f"[{text}]"
    keys = msgspec.json.decode(text)
    return f"[{','.join(f'{k}={_json(v)}' for k, v in keys.items())}]"


def _json(value: Json) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def child_of(node: SchemaNode, key: str) -> SchemaNode:
    """The node of a key; fields that no schema knows may hold anything."""
    return node.child(key) or ANY


def element_path(element: Json, node: SchemaNode, index: int) -> str:
    """The path element of a list's element.

    Raises:
        TypedObjectError: an element of a keyed list lacks a key that has no default.
    """
    if node.list_type == "set":
        return f"v:{_json(element)}"
    keys: Doc = {}
    for key in node.map_keys:
        child = node.items.child(key) if node.items is not None else None
        if isinstance(element, dict) and element.get(key) is not None:
            keys[key] = element[key]
        elif child is not None and child.has_default:
            keys[key] = child.default
    if not keys:
        names = " ".join(f'"{key}"' for key in node.map_keys)
        raise TypedObjectError(
            f"element {index}: associative list with keys has an element that omits all key fields "
            f"[{names}] (and doesn't have default values for any key fields)"
        )
    return f"k:{_json(keys)}"


def granular_map(value: Json, node: SchemaNode) -> bool:
    """Whether the keys of this value are owned one by one."""
    return isinstance(value, dict) and node.map_type != "atomic"


def granular_list(value: Json, node: SchemaNode) -> bool:
    """Whether the elements of this value are owned one by one."""
    return isinstance(value, list) and (node.list_type == "set" or node.is_keyed_list)


def elements_of(value: list[Json], node: SchemaNode) -> dict[str, Json]:
    """Elements of a granular list by their path elements, in order.

    Raises:
        TypedObjectError: two elements have the same keys or value, or one has none.
    """
    found: dict[str, Json] = {}
    for index, element in enumerate(value):
        key = element_path(element, node, index)
        if key in found:
            raise TypedObjectError(f"duplicate entries for key {_path_element_text(key)}")
        found[key] = element
    return found


def fields_of(value: Json, node: SchemaNode) -> FieldSet:
    """Paths an applied object names: leaves, entries of maps and elements of lists.

    Raises:
        TypedObjectError: elements of a granular list have equal keys.
    """
    return frozenset(_named(value, node, ()))


def _named(value: Json, node: SchemaNode, path: Path) -> Iterator[Path]:
    if granular_map(value, node):
        for key, inner in value.items():
            below = (*path, f"f:{key}")
            yield from _named(inner, child_of(node, key), below)
            if inner is None or inner == {} or key not in node.props:
                yield below
    elif granular_list(value, node):
        for key, inner in _located(value, node, path).items():
            yield from _named(inner, node.items or ANY, (*path, key))
            yield (*path, key)
    elif path:
        yield path


def _located(value: list[Json], node: SchemaNode, path: Path) -> dict[str, Json]:
    try:
        return elements_of(value, node)
    except TypedObjectError as fault:
        raise TypedObjectError(f"{path_text(path)}: {fault}") from None


def _everything(value: Json, node: SchemaNode, path: Path, found: set[Path]) -> None:
    """Add all paths of a value, its own and those of its containers included."""
    found.add(path)
    if granular_map(value, node):
        for key, inner in value.items():
            below = (*path, f"f:{key}")
            if isinstance(inner, (dict, list)):
                _everything(inner, child_of(node, key), below, found)
            else:
                found.add(below)
    elif granular_list(value, node):
        for index, inner in enumerate(value):
            key = element_path(inner, node, index)
            _everything(inner, node.items or ANY, (*path, key), found)


@define
class FieldDifference:
    """Paths in which two objects differ."""

    modified: set[Path] = attrs.field(factory=set)
    added: set[Path] = attrs.field(factory=set)
    removed: set[Path] = attrs.field(factory=set)

    def __bool__(self) -> bool:
        return bool(self.modified or self.added or self.removed)

    @property
    def written(self) -> set[Path]:
        """The fields that the newer object adds or changes."""
        return self.modified | self.added


def field_difference(old: Doc, new: Doc, node: SchemaNode) -> FieldDifference:
    """Compare two objects of one kind; equal parts cost nothing when they are shared."""
    found = FieldDifference()
    _compare(old, new, node, path=(), found=found)
    return found


def _compare(old: Json, new: Json, node: SchemaNode, *, path: Path, found: FieldDifference) -> None:
    if old is new:
        return
    if granular_map(old, node) and granular_map(new, node):
        # Maps that are alike as a whole are found out by their entries, each looked at once.
        _compare_entries(old, new, node, path=path, found=found)
    elif json_equal(old, new):
        return
    elif granular_list(old, node) and granular_list(new, node):
        before, after = _located(old, node, path), _located(new, node, path)
        items = node.items or ANY
        for key, was in before.items():
            if key in after:
                _compare(was, after[key], items, path=(*path, key), found=found)
            else:
                _everything(was, items, (*path, key), found.removed)
        for key, now in after.items():
            if key not in before:
                _everything(now, items, (*path, key), found.added)
    else:
        found.modified.add(path)
        if isinstance(old, (dict, list)):
            inside = set[Path]()
            _everything(old, node, path, inside)
            found.removed |= inside - {path}


def _compare_entries(
    old: Doc, new: Doc, node: SchemaNode, *, path: Path, found: FieldDifference
) -> None:
    for key, was in old.items():
        if key not in new:
            _everything(was, child_of(node, key), (*path, f"f:{key}"), found.removed)
            continue
        now = new[key]
        if was is now or (type(was) is str and was == now):
            continue
        _compare(was, now, child_of(node, key), path=(*path, f"f:{key}"), found=found)
    for key, now in new.items():
        if key not in old:
            _everything(now, child_of(node, key), (*path, f"f:{key}"), found.added)


class FieldOwnership(dict[str, Json]):
    """A set in its stored form that remembers what it was written from; never changed."""

    __slots__ = ("paths",)

    paths: FieldSet


@functools.lru_cache(maxsize=FIELD_SHAPES_MAX)
def to_fields_v1(fields: FieldSet) -> FieldOwnership:
    """A set as it is stored in managedFields; equal sets share one document."""
    stored = FieldOwnership(_nested(fields))
    stored.paths = fields
    return stored


def _nested(fields: FieldSet) -> Doc:
    """Maps within maps; one that is in the set itself and has content begins with a dot."""
    places: dict[Path, Doc] = {(): {}}

    def place_of(path: Path) -> Doc:
        place = places.get(path)
        if place is None:
            above = path[:-1]
            around = place_of(above)
            if not around and above in fields:
                around["."] = {}
            place = places[path] = around[path[-1]] = {}
        return place

    for path in sorted(fields):  # containers come before what is in them
        place_of(path)
    return places[()]


def from_fields_v1(stored: Json) -> FieldSet:
    """The set that a managedFields entry stores."""
    if isinstance(stored, FieldOwnership):
        return stored.paths
    return frozenset(_stored_paths(stored, ())) if isinstance(stored, dict) else frozenset()


def _stored_paths(place: Doc, path: Path) -> Iterator[Path]:
    for element, inner in place.items():
        if element == ".":
            yield path
        elif isinstance(inner, dict) and inner:
            yield from _stored_paths(inner, (*path, element))
        else:
            yield (*path, element)
