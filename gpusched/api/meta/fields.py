"""Single fields of foreign objects, read with a reason when they cannot be believed.

A field is named without indices and without names that users chose, because it becomes a
metric label; what the user wrote stands, cut and quoted, in the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from gpusched.api.meta import duration, wire
from gpusched.api.meta.identity import UID, InvalidObject, ResourceVersion
from gpusched.api.meta.quantity import QuantityError
from gpusched.api.meta.resources import Resources
from gpusched.base.limits import FOREIGN_TEXT_MAX, LABELS_MAX
from gpusched.base.shared_texts import SHARED_TEXTS_MAX, shared_text

T = TypeVar("T")

TEXT_UNREADABLE: Final = "cannot be read"
_INDEX: Final = re.compile(r"\[[0-9]+\]")
_PATH: Final = " - at `$"
_OBJECT_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)


def quoted(text: str) -> str:
    """Foreign text in a sentence of ours: one line, quoted, cut at ``FOREIGN_TEXT_MAX``."""
    return ascii(text[:FOREIGN_TEXT_MAX])


def is_object_name(text: str) -> bool:
    """Whether an object of most kinds could have this name: a DNS subdomain."""
    return _OBJECT_NAME.fullmatch(text) is not None


def printable_text(text: str) -> str:
    """Text with foreign parts that are not quoted, cut, without control characters."""
    cut = text[:FOREIGN_TEXT_MAX]
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()


def read_hold(text: str | None) -> str:
    """Why an object's gang is held, by its annotation ``gpusched.io/hold``; empty when it is not.

    Whatever the annotation says holds, but for nothing and for ``false``.
    """
    if not text or text == "false":
        return ""
    return printable_text(" ".join(text[:FOREIGN_TEXT_MAX].split())) or "true"


def check_identity(metadata: wire.Metadata, *, namespaced: bool) -> None:
    """An object without name, UID or version cannot be told apart; one with thousands of labels is a store.

    Raises:
        InvalidObject: the first of these.
    """
    if not metadata.name:
        raise InvalidObject("metadata.name", "is missing")
    if namespaced and not metadata.namespace:
        raise InvalidObject("metadata.namespace", "is missing")
    if not metadata.uid:
        raise InvalidObject("metadata.uid", "is missing")
    if not metadata.resource_version:
        raise InvalidObject("metadata.resourceVersion", "is missing")
    if metadata.labels is not None and len(metadata.labels) > LABELS_MAX:
        raise InvalidObject(
            "metadata.labels", f"has {len(metadata.labels)} labels, more than {LABELS_MAX}"
        )


def read_uid(metadata: wire.Metadata) -> UID:
    """The UID in the metadata."""
    return UID(metadata.uid)


def read_resource_version(metadata: wire.Metadata) -> ResourceVersion:
    """The resource version in the metadata."""
    return ResourceVersion(metadata.resource_version)


_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def read_labels(metadata: wire.Metadata) -> Mapping[str, str]:
    """The labels, each text held once in the process. They cannot be changed: plugins see them."""
    return shared_labels(tuple(metadata.labels.items())) if metadata.labels else _NO_LABELS


@lru_cache(maxsize=SHARED_TEXTS_MAX)
def shared_labels(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Labels of an object; those that have the same ones in the same order share them."""
    return MappingProxyType(interned(dict(labels))) if labels else _NO_LABELS


def interned(labels: dict[str, str]) -> dict[str, str]:
    """The same mapping of texts held once in the process."""
    return {shared_text(key): shared_text(value) for key, value in labels.items()}


def parse_resources(quantities: wire.Quantities | None, *, field: str) -> Resources:
    """A ResourceList.

    Raises:
        InvalidObject: a quantity that is none or beyond belief.
    """
    try:
        return Resources.parse(quantities, field="")
    except QuantityError as why:
        text = str(why).removeprefix("[").replace("]: ", ": ", 1).strip()
        raise InvalidObject(field, printable_text(text)) from None


def parse_duration_ns(text: str | None, *, field: str) -> int:
    """A duration in nanoseconds, 0 when absent.

    Raises:
        InvalidObject: no duration.
    """
    if not text:
        return 0
    try:
        return duration.parse_duration(text)
    except ValueError as why:
        raise InvalidObject(field, str(why)) from None


def parse_number(text: str, *, field: str, low: int, high: int) -> int:
    """A decimal number inside an annotation or label.

    Raises:
        InvalidObject: no number, or out of bounds.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise InvalidObject(field, f"{quoted(text)} is not a whole number")
    value = int(digits)
    if not low <= value <= high:
        raise InvalidObject(field, f"{value} is not between {low:,} and {high:,}")
    return value


def explain_decode_error(error: Exception, *, under: str = "") -> InvalidObject:
    """What the parser says, as a field and a reason.

    Args:
        error: of msgspec, or RecursionError.
        under: path of the part that was parsed, empty for a whole object.
    """
    if isinstance(error, RecursionError):
        return InvalidObject(under or "object", "is nested too deeply")
    says, _, path = str(error).partition(_PATH)
    field = _INDEX.sub("[]", path.rstrip("`").lstrip("."))
    where = f"{under}.{field}" if under and field and field[0] != "[" else under + field
    return InvalidObject(where or "object", says.replace("`", "") or TEXT_UNREADABLE)


def decode_part(decoder: msgspec.json.Decoder[T], raw: bytes, *, field: str) -> T | None:
    """A raw part of an object; None when it is absent or null.

    Raises:
        InvalidObject: not of its shape.
    """
    if not raw or raw == b"null":
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise explain_decode_error(error, under=field) from None
