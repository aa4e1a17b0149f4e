"""Declarative validation, as Kubernetes generates it from the markers of its types.

A ``Struct`` lists its fields in the order of the type. What an update leaves unchanged is not
looked at again. Of a field the checks of presence and change come first; where one of them fails,
or an optional field is absent, its content is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

from gpusched.base.classes import define, frozen
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate_structure,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import (
    label_name_problems,
    qualified_name_problems,
    segment_problems,
    subdomain_problems,
)
from gpusched.devcluster.registry.gangs.features import GangFeatures

Obj = dict[str, Any]
Test = Callable[[str, Any], list[FieldError]]

IMMUTABLE: Final = "field is immutable"
PRIORITY_MAX: Final = 1_000_000_000
_NOTHING: Final[tuple[Any, ...]] = (None, "", 0, [])
"""What counts as absent: zero values of Go's types."""


@frozen(kw_only=True, eq=False)
class Field:
    """One field of a structure.

    Attributes:
        presence: ``any`` for structures that always are there, checked even when empty.
        pointer: whether zero is a value of its own, and only null stands for absence.
        immutable: whether an update may not change it at all.
        kept: whether an update may change what is in it but neither set nor clear it.
        sealed: whether an update may neither add nor remove items of the list, told apart by
            ``key``.
        gate: the feature gate behind which it stands; empty for none.
        most: longest list; 0 for no limit.
        key: name of the field that tells items of a list apart; empty for a list without.
        tests: what its value must satisfy.
        struct: what it holds, or what each item of it is.
        printed: whether texts print it as null where it is absent.
    """

    name: str
    presence: Literal["required", "optional", "any"] = "optional"
    pointer: bool = False
    immutable: bool = False
    kept: bool = False
    sealed: bool = False
    gate: str = ""
    most: int = 0
    key: str = ""
    tests: tuple[Test, ...] = ()
    struct: Struct | None = None
    printed: bool = False


@define(eq=False)
class Struct:
    """One structure.

    Attributes:
        fields: in the order of the type, those without rules too.
        union: names of the fields of which exactly one must be set; empty for no union.
    """

    fields: tuple[Field, ...] = ()
    union: tuple[str, ...] = ()


@frozen
class Write:
    """The write that is judged: by which gates, and whether it is an update."""

    features: GangFeatures
    update: bool = False


def struct_errors(
    struct: Struct, at: str, new: Obj, old: Obj | None, *, write: Write
) -> Iterator[FieldError]:
    """Check a structure against its rules and, on an update, against its old value.

    Args:
        struct: the rules.
        at: path of the structure; fields stand below it.
        new: its value.
        old: its old value; None on a create, and for what was not there.
        write: gates and operation.
    """
    yield from _union_errors(struct, at, new, old, write=write)
    for field in struct.fields:
        value, before = new.get(field.name), None if old is None else old.get(field.name)
        if write.update and old is not None and _same(field, value, before):
            continue
        yield from _field_errors(field, f"{at}.{field.name}", value, before, write=write)


def _absent(field: Field, value: Any) -> bool:
    if field.pointer or (field.struct is not None and not field.key):
        return value is None
    return value in _NOTHING


def _same(field: Field, new: Any, old: Any) -> bool:
    return bool(new == old) or (_absent(field, new) and _absent(field, old))


def _union_errors(
    struct: Struct, at: str, new: Obj, old: Obj | None, *, write: Write
) -> Iterator[FieldError]:
    if not struct.union:
        return
    given = [name for name in struct.union if _is_given(new.get(name))]
    before = [name for name in struct.union if _is_given((old or {}).get(name))]
    if write.update and old is not None and given == before:
        return
    names = ", ".join(f"`{name}`" for name in struct.union)
    if not given:
        yield invalid(at, "", f"must specify one of: {names}")
    elif len(given) > 1:
        yield invalid(at, f"{{{', '.join(given)}}}", f"must specify exactly one of: {names}")


def _is_given(value: Any) -> bool:
    return value is not None and value != []


def _field_errors(
    field: Field, at: str, value: Any, old: Any, *, write: Write
) -> Iterator[FieldError]:
    """Check a field that is new or changed."""
    refused = list(_refusals(field, at, value, old, write=write))
    yield from refused
    if refused or (_absent(field, value) and field.presence != "any"):
        return
    for test in field.tests:
        yield from test(at, value)
    if field.struct is None:
        return
    if isinstance(value, list):
        yield from _item_errors(field, at, value, old or (), write=write)
        return
    yield from struct_errors(field.struct, at, value or {}, old, write=write)


def _refusals(field: Field, at: str, value: Any, old: Any, *, write: Write) -> Iterator[FieldError]:
    absent = _absent(field, value)
    behind = bool(field.gate) and not write.features.enabled(field.gate)
    if behind and not absent:
        yield forbidden(at, "")
    if field.immutable and write.update:
        yield invalid(at, None, IMMUTABLE)
    if field.most and len(value or ()) > field.most:
        yield too_many(at, len(value), field.most)
    if field.presence == "required" and absent and not behind:
        yield required(at)
    if field.kept and write.update:
        if old is None and value is not None:
            yield invalid(at, None, "field cannot be set once created")
        if old is not None and value is None:
            yield invalid(at, None, "field cannot be cleared once set")
    if field.sealed and write.update:
        yield from _sealed_errors(field, at, value or (), old or ())


def _sealed_errors(
    field: Field, at: str, value: Sequence[Obj], old: Sequence[Obj]
) -> Iterator[FieldError]:
    now, was = ({item.get(field.key) for item in items} for items in (value, old))
    for i, item in enumerate(value):
        if item.get(field.key) not in was:
            yield forbidden(f"{at}[{i}]", "item may not be added")
    for item in old:
        if item.get(field.key) not in now:
            yield forbidden(at, "item may not be removed")


def _item_errors(
    field: Field, at: str, value: Sequence[Obj], old: Sequence[Obj], *, write: Write
) -> Iterator[FieldError]:
    assert field.struct is not None
    if field.key:
        seen: list[Any] = []
        for i, item in enumerate(value):
            name = item.get(field.key) or ""
            if name in seen:
                yield duplicate_structure(f"{at}[{i}]", printed_structure(field.struct, item))
            seen.append(name)
    before = {item.get(field.key): item for item in reversed(old)} if field.key else {}
    for i, item in enumerate(value):
        was = before.get(item.get(field.key))
        if write.update and was == item:
            continue
        yield from struct_errors(field.struct, f"{at}[{i}]", item, was, write=write)


def printed_structure(struct: Struct, value: Obj) -> Obj:
    """Return a structure as texts print it: its fields in the order of the type."""
    shown: Obj = {}
    for field in struct.fields:
        part = value.get(field.name)
        if part is None and not field.printed:
            continue
        if field.struct is not None and isinstance(part, dict):
            part = printed_structure(field.struct, part)
        elif field.struct is not None and isinstance(part, list):
            part = [printed_structure(field.struct, item) for item in part]
        shown[field.name] = part
    return shown


# -- what values must satisfy ------------------------------------------------------------------


def short_name(at: str, value: str) -> list[FieldError]:
    """Check a DNS label."""
    return [invalid(at, value, why) for why in label_name_problems(value, unit="bytes")]


def long_name(at: str, value: str) -> list[FieldError]:
    """Check a DNS subdomain."""
    return [invalid(at, value, why) for why in subdomain_problems(value, unit="bytes")]


def label_key(at: str, value: str) -> list[FieldError]:
    """Check a key of labels."""
    return [invalid(at, value, why) for why in qualified_name_problems(value)]


def path_segment(at: str, value: str) -> list[FieldError]:
    """Check a name that must fit into a path."""
    return [invalid(at, value, why) for why in segment_problems(value)]


def at_least_one(at: str, value: int) -> list[FieldError]:
    """Check a count that starts at one."""
    return [] if value >= 1 else [invalid(at, value, "must be greater than or equal to 1")]


def user_priority(at: str, value: int) -> list[FieldError]:
    """Check a priority that users may give."""
    if value > PRIORITY_MAX:
        return [invalid(at, value, f"must be less than or equal to {PRIORITY_MAX}")]
    return []


def one_of(*known: str) -> Test:
    """Return the check of a word out of a closed list, printed in its own order."""

    def check(at: str, value: str) -> list[FieldError]:
        return [] if value in known else [not_supported(at, value, known)]

    return check
