"""Frozen entities as JSON and back, whatever hangs by whatever: for files that repeat a decision.

A document is a list of nodes, children first, and says of each class which fields it has. What
one object holds twice it holds twice again afterwards: nodes are named by their number.

    {"classes": [["pod", ["namespace", ...]], ...],
     "nodes": [[0, "default", [7], ...], ["t", 1, 2], ...], "root": [812]}

Classes and fields stand under their names of ``io.file_names``, which are no Python names.
Reading runs no code that a file names. It builds classes that have a tag and hold nothing but
data (attrs classes, structs, named tuples, enums), without calling what they define, plain
containers, and arrays of numbers. A field that the file lacks gets its default. A class without
a tag is refused, as is a field that the class does not have or that has no default: then another
version wrote the file.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import numpy as np

from gpusched.base.errors import GpuschedError
from gpusched.io.decisions.file_names import (
    CLASSES,
    TAGS,
    WITHIN,
    fields_of,
    tag_in,
    worked_out_fields,
)

Document: TypeAlias = dict[str, Any]
_Parts: TypeAlias = Callable[[Any], tuple[Any, ...]]
_INLINE: Final = 2**63
_NUMBERS: Final = frozenset("biuf")
"""Kinds of numbers that arrays are made of."""


class Unrecordable(GpuschedError):
    """Something is of a type that files of decisions do not know."""


class UnreadableGraph(Exception):
    """The document is damaged, or another version wrote it; ``str()`` says what is wrong."""


# -- writing -------------------------------------------------------------------------------------
def encode(root: object) -> Document:
    """The document of an object and all that hangs by it.

    Raises:
        Unrecordable: something is neither data with a tag nor a plain container or number.
    """
    writer = _GraphWriter()
    return {"root": writer.value(root), "classes": writer.classes, "nodes": writer.nodes}


def _parts(names: tuple[str, ...]) -> _Parts:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


class _GraphWriter:
    def __init__(self) -> None:
        self.classes: list[Any] = []
        self.nodes: list[list[Any]] = []
        self._numbers: dict[type[Any], int] = {}
        self._entities: dict[type[Any], tuple[int, _Parts]] = {}
        self._seen: dict[int, list[int]] = {}
        self._alive: list[object] = []
        """What ``_seen`` knows by its identity, so that no other object gets that."""

    def value(self, value: Any) -> Any:
        """How the value stands in its holder: itself, or the number of its node in a list."""
        kind = type(value)
        if kind is str or value is None or kind is bool:
            return value
        if kind is int and -_INLINE <= value < _INLINE:
            return value
        if kind is float and math.isfinite(value):
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return known
        node = self._node(kind, value)
        reference = [len(self.nodes)]
        self.nodes.append(node)
        self._seen[id(value)] = reference
        self._alive.append(value)
        return reference

    def _node(self, kind: type[Any], value: Any) -> list[Any]:
        if kind is tuple:
            return ["t", *map(self.value, value)]
        entity = self._entities.get(kind) or self._entity(kind)
        if entity is not None:
            number, parts = entity
            return [number, *map(self.value, parts(value))]
        write = _WRITERS.get(kind)
        if write is not None:
            return write(self, value)
        if isinstance(value, Enum):
            return ["e", self._number(kind), value.name]
        if isinstance(value, Mapping):  # of a kind that knows more, such as what has changed in it
            return ["d", *self.pairs(value)]
        if isinstance(value, tuple):
            return ["n", self._number(kind), *map(self.value, value)]
        if isinstance(value, np.generic):
            return ["g", self.value(np.asarray(value).reshape(1))]
        raise Unrecordable(f"{kind.__module__}.{kind.__qualname__} cannot be recorded")

    def _entity(self, kind: type[Any]) -> tuple[int, _Parts] | None:
        """Number and values of the fields of a class that is built field by field."""
        if kind not in TAGS or issubclass(kind, tuple | Enum):
            return None
        fields = fields_of(kind) or ()
        entity = self._number(kind), _parts(tuple(each.name for each in fields))
        self._entities[kind] = entity
        return entity

    def _number(self, kind: type[Any]) -> int:
        number = self._numbers.get(kind)
        if number is None:
            tag, fields = TAGS.get(kind), fields_of(kind)
            if tag is None or fields is None:
                raise Unrecordable(f"{kind.__module__}.{kind.__qualname__} cannot be recorded")
            number = self._numbers[kind] = len(self.classes)
            self.classes.append([tag, [each.written for each in fields]])
        return number

    def pairs(self, value: Mapping[Any, Any]) -> list[Any]:
        """Keys and values in turn, in the order of the mapping."""
        found = []
        for key, item in value.items():
            found += [self.value(key), self.value(item)]
        return found

    def array(self, value: Any) -> list[Any]:
        """Type, shape, whether it may be written to, numbers."""
        if value.dtype.kind not in _NUMBERS:
            raise Unrecordable(f"an array of {value.dtype} cannot be recorded")
        raw = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return ["a", value.dtype.str, list(value.shape), bool(value.flags.writeable), raw]

    def members(self, value: frozenset[Any] | set[Any]) -> list[Any]:
        """Of a set, in an order that does not hang by hashes."""
        return [self.value(each) for each in sorted(value, key=repr)]


_WRITERS: Final[Mapping[type[Any], Callable[[_GraphWriter, Any], list[Any]]]] = {
    list: lambda writer, value: ["l", *map(writer.value, value)],
    dict: lambda writer, value: ["d", *writer.pairs(value)],
    MappingProxyType: lambda writer, value: ["p", *writer.pairs(value)],
    frozenset: lambda writer, value: ["f", *writer.members(value)],
    set: lambda writer, value: ["s", *writer.members(value)],
    bytes: lambda _writer, value: ["b", base64.b64encode(value).decode()],
    int: lambda _writer, value: ["i", hex(value)],
    float: lambda _writer, value: ["x", repr(value)],
    np.ndarray: lambda writer, value: writer.array(value),
}


# -- reading -------------------------------------------------------------------------------------
def decode(document: Document) -> Any:
    """What ``encode`` was given.

    Raises:
        UnreadableGraph: see there.
    """
    try:
        reader = _GraphReader(document["classes"])
        for node in document["nodes"]:
            reader.read(node)
        return reader.value(document["root"])
    except UnreadableGraph:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise UnreadableGraph(f"damaged: {type(error).__name__}: {error}") from error


class _GraphReader:
    def __init__(self, classes: list[Any]) -> None:
        self._built: list[Any] = []
        self._shapes = [_Shape(str(name), [*map(str, fields)]) for name, fields in classes]

    def value(self, stands: Any) -> Any:
        """What a place in a node stands for. Only nodes before it can be named."""
        if type(stands) is list:
            (number,) = stands
            if type(number) is not int or number < 0:
                raise UnreadableGraph(f"damaged: {number!r} is no node")
            return self._built[number]
        if type(stands) is dict:
            raise UnreadableGraph("damaged: an object stands where a value has to")
        return stands

    def read(self, node: list[Any]) -> None:
        """Build the next node."""
        tag, *parts = node
        if type(tag) is int:
            self._built.append(self._entity(tag, parts))
        else:
            self._built.append(_READERS[tag](self, parts))

    def values(self, parts: list[Any]) -> list[Any]:
        """Values of all places, in their order."""
        return [self.value(each) for each in parts]

    def pairs(self, parts: list[Any]) -> dict[Any, Any]:
        """A dictionary of keys and values in turn."""
        found = self.values(parts)
        return dict(zip(found[::2], found[1::2], strict=True))

    def named(self, parts: list[Any]) -> Any:
        """A named tuple from its tag and fields."""
        shape = self._shape(parts[0])
        if not issubclass(shape.cls, tuple):
            raise UnreadableGraph(f"damaged: {shape.tag} is no tuple")
        values = shape.filled(self.values(parts[1:]))
        return tuple.__new__(shape.cls, [values[name] for name in shape.order])

    def member(self, parts: list[Any]) -> Any:
        """One of an enum."""
        shape = self._shape(parts[0])
        if not issubclass(shape.cls, Enum):
            raise UnreadableGraph(f"damaged: {shape.tag} is no enum")
        return shape.cls[parts[1]]

    def _shape(self, number: int) -> _Shape:
        if type(number) is not int or number < 0:
            raise UnreadableGraph(f"damaged: {number!r} is no class")
        return self._shapes[number]

    def _entity(self, number: int, parts: list[Any]) -> Any:
        shape = self._shape(number)
        if issubclass(shape.cls, tuple | Enum):
            raise UnreadableGraph(f"damaged: {shape.tag} is built otherwise")
        values = shape.filled(self.values(parts))
        if issubclass(shape.cls, msgspec.Struct):
            return shape.cls(**values)
        made = object.__new__(shape.cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        for name, work_out in shape.worked_out:
            object.__setattr__(made, name, work_out(made))
        return made


class _Shape:
    """A class as a file has it.

    Args:
        name: in the file.
        written: its fields there, in their order.
    """

    def __init__(self, name: str, written: list[str]) -> None:
        self.tag = tag_in(name)
        cls = CLASSES.get(self.tag)
        fields = None if cls is None else fields_of(cls)
        if cls is None or fields is None:
            raise UnreadableGraph(
                f"it tells of {name!r}, which this version of gpusched does not have"
            )
        self.cls = cls
        inside = WITHIN.get(cls, {})
        self._inside = {name: held for held, names in inside.items() for name in names}
        known = {each.written for each in fields} | self._inside.keys()
        needed = {each.written for each in fields if each.default is None}
        strange = sorted((set(written) - known) | (needed - set(written)))
        if strange or len(set(written)) != len(written):
            raise UnreadableGraph(
                f"{name} has other fields in this version of gpusched: "
                f"{', '.join(strange) or 'one stands twice'}"
            )
        names = {each.written: each.name for each in fields} | {each: each for each in self._inside}
        self._names = [names[each] for each in written]
        self.order = [each.name for each in fields]
        """Of the class; a file may have another."""
        self.worked_out = worked_out_fields(cls)
        self._absent = [
            (each.name, each.default)
            for each in fields
            if each.written not in written and each.default is not None
        ]

    def filled(self, values: list[Any]) -> dict[str, Any]:
        """All fields by their names in the code.

        Raises:
            UnreadableGraph: there are more or fewer values than fields in the file.
        """
        if len(values) != len(self._names):
            raise UnreadableGraph(f"damaged: {self.tag} has {len(self._names)} fields")
        given = dict(zip(self._names, values, strict=True))
        for name, default in self._absent:
            given[name] = default()
        if self._inside:
            for name in sorted(self._inside.keys() & given.keys()):
                held = self._inside[name]
                given[held] = attrs.evolve(given[held], **{name: given.pop(name)})
        return given


def _array(parts: list[Any]) -> Any:
    text, shape, writeable, raw = parts
    kind = np.dtype(str(text))
    if kind.kind not in _NUMBERS:
        raise UnreadableGraph(f"damaged: an array of {kind}")
    made = np.frombuffer(base64.b64decode(raw, validate=True), dtype=kind).reshape(shape).copy()
    made.setflags(write=bool(writeable))
    return made


_READERS: Final[Mapping[str, Callable[[_GraphReader, list[Any]], Any]]] = {
    "t": lambda reader, parts: tuple(reader.values(parts)),
    "l": lambda reader, parts: reader.values(parts),
    "d": lambda reader, parts: reader.pairs(parts),
    "p": lambda reader, parts: MappingProxyType(reader.pairs(parts)),
    "f": lambda reader, parts: frozenset(reader.values(parts)),
    "s": lambda reader, parts: set(reader.values(parts)),
    "n": lambda reader, parts: reader.named(parts),
    "e": lambda reader, parts: reader.member(parts),
    "b": lambda _reader, parts: base64.b64decode(parts[0], validate=True),
    "i": lambda _reader, parts: int(parts[0], 16),
    "x": lambda _reader, parts: float(parts[0]),
    "a": lambda _reader, parts: _array(parts),
    "g": lambda reader, parts: reader.value(parts[0])[0],
}
