"""Leaves of an API object only what the wire structs declare, and what a few rules add.

A field that no struct names does not get through: what this program does not read it does not
record either. Values are kept as they are. Of one of a type that the struct does not allow the
type is kept, so that an object which could not be believed stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect

DROP: Final[Any] = object()
"""What a shape answers for a value of which nothing is kept."""
ValueFilter: TypeAlias = Callable[[Any], Any]
"""The part of a JSON value that is kept."""
Fields: TypeAlias = Mapping[str, ValueFilter]
"""Shapes by member; ``*`` stands for those that are not named."""


def keep_scalar(value: Any) -> Any:
    """Text, numbers, booleans and null; of anything else only that it is no such value."""
    return type(value)() if isinstance(value, dict | list) else value


def keep_all(value: Any) -> Any:
    """All of it; only for parts that hold nothing but numbers and names."""
    return value


def keep_count(value: Any) -> Any:
    """A list of which only the length matters."""
    return [{} for _ in value] if isinstance(value, list) else keep_scalar(value)


def keep_members(fields: Fields) -> ValueFilter:
    """An object with these members."""
    rest = fields.get("*")

    def filtered(value: Any) -> Any:
        if not isinstance(value, dict):
            return keep_scalar(value)
        found = {}
        for name, part in value.items():
            shape = fields.get(name, rest)
            kept = DROP if shape is None or name == "*" else shape(part)
            if kept is not DROP:
                found[name] = kept
        return found

    return filtered


def keep_list(shape: ValueFilter) -> ValueFilter:
    """A list; elements of which nothing is kept are left out."""

    def filtered(value: Any) -> Any:
        if not isinstance(value, list):
            return keep_scalar(value)
        return [kept for kept in map(shape, value) if kept is not DROP]

    return filtered


def keep_map(shape: ValueFilter) -> ValueFilter:
    """An object with members of any name."""
    return keep_members({"*": shape})


class FieldFilters:
    """Makes shapes of wire structs.

    Args:
        raw: by struct and field as it is written in JSON, the shape or struct of a field that
            the struct leaves raw.
        more: by struct, members that are kept although the struct does not name them; they also
            replace what it says of those it names.
    """

    def __init__(
        self,
        raw: Mapping[tuple[type[Any], str], type[Any] | ValueFilter],
        more: Mapping[type[Any], Fields],
    ) -> None:
        self._raw = raw
        self._more = more
        self._known: dict[type[Any], ValueFilter] = {}

    def struct_shape(self, struct: type[Any]) -> ValueFilter:
        """The shape of a struct.

        Raises:
            KeyError: a raw field without a rule.
        """
        known = self._known.get(struct)
        if known is None:
            info = inspect.type_info(struct)
            assert isinstance(info, inspect.StructType)
            made: list[ValueFilter] = []
            # A struct that holds its own kind refers to what is being made.
            self._known[struct] = lambda value: made[0](value)  # noqa: PLW0108 - not made yet
            known = self._known[struct] = keep_members(self._fields(info))
            made.append(known)
        return known

    def _fields(self, info: inspect.StructType) -> Fields:
        fields: dict[str, ValueFilter] = {}
        for each in info.fields:
            name = each.encode_name
            if _is_raw(each.type):
                fields[name] = self._rule_shape(self._raw[info.cls, name])
            else:
                fields[name] = self._type_shape(each.type)
        for base in reversed(info.cls.__mro__):
            fields.update(self._more.get(base, {}))
        return fields

    def _rule_shape(self, rule: type[Any] | ValueFilter) -> ValueFilter:
        if isinstance(rule, type) and issubclass(rule, msgspec.Struct):
            return self.struct_shape(rule)
        shape: ValueFilter = rule
        return shape

    def _type_shape(self, info: inspect.Type) -> ValueFilter:
        if isinstance(info, inspect.StructType):
            return self.struct_shape(info.cls)
        if isinstance(info, inspect.ListType):
            return keep_list(self._type_shape(info.item_type))
        if isinstance(info, inspect.DictType):
            return keep_map(self._type_shape(info.value_type))
        if isinstance(info, inspect.UnionType):
            parts = [each for each in info.types if not isinstance(each, _SCALARS)]
            return self._type_shape(parts[0]) if parts else keep_scalar
        assert isinstance(info, _SCALARS), f"what is kept of {info} is not known"
        return keep_scalar


_SCALARS: Final = (
    inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.NoneType,
    inspect.LiteralType, inspect.AnyType,
)  # fmt: skip
"""Of anything that may be of any type a scalar is kept."""


def _is_raw(info: inspect.Type) -> bool:
    """Whether the field, or each element of it, is left raw."""
    if isinstance(info, inspect.UnionType):
        return any(map(_is_raw, info.types))
    if isinstance(info, inspect.ListType):
        return _is_raw(info.item_type)
    return isinstance(info, inspect.RawType)
