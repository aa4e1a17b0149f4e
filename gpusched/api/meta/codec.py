"""Lists and watch events of one kind: bytes in, entities or ``Rejected`` out.

The fast way parses a page as a whole. When anything in it cannot be believed, the page is taken
apart and each item is read alone, so that only the bad one is rejected. Only bytes that are not
the document that was asked for make the whole unusable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from gpusched.api.meta import raw_json, wire
from gpusched.api.meta.fields import explain_decode_error
from gpusched.api.meta.identity import (
    UID,
    InvalidObject,
    ObjectKey,
    Rejected,
    ResourceVersion,
    parse_time,
)
from gpusched.base.classes import frozen
from gpusched.base.errors import UndecodableObject
from gpusched.base.known_keys import is_unknown_key, may_hold_unknown_keys, unknown_key_message

Entity = TypeVar("Entity")
Parsed = TypeVar("Parsed")

AddUnknownKeys = Callable[[Any, tuple[str, ...]], Any]
"""An entity with sentences about keys of its object that mean nothing."""

AddRejectedDetails = Callable[[Rejected, dict[str, bytes]], Rejected]
"""Adds to a rejection what a kind wants of the object's raw members."""

KEYS_TOLD_MAX: Final = 3
"""Keys that mean nothing of which an object's author is told."""
DEFECT: Final = "scheduler"
"""The field of a rejection for which the scheduler is to blame, and not the object."""
_DEFECT: Final = "the scheduler fails to read it, which is a defect of the scheduler"
_FAULTS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Of the parser; ``InvalidObject`` is a ValueError."""
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


@frozen
class ObjectPage(Generic[Entity]):
    """One page of a list."""

    items: tuple[Entity | Rejected, ...]
    resource_version: str
    continue_token: str


@frozen
class WatchEvent(Generic[Entity]):
    """One line of a watch; ``code`` and ``message`` belong to an ERROR."""

    type: str
    item: Entity | Rejected | None = None
    resource_version: str = ""
    code: int = 0
    message: str = ""


class _WirePage(Struct, Generic[Parsed], gc=False):
    metadata: wire.ListMeta
    items: list[Parsed] | None
    kind: str = ""


class _WireEvent(Struct, Generic[Parsed], gc=False):
    type: str
    object: Parsed


class ListedHead(Struct, gc=False, rename="camel"):
    """Which object of a list it is, and in which version; of the object itself nothing is read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _WireHead(Struct, gc=False):
    metadata: ListedHead


class _Bookmark(Struct, gc=False):
    metadata: wire.ListMeta


class _Status(Struct, gc=False):
    code: int = 0
    message: str = ""


_LIST_META: Final = msgspec.json.Decoder(wire.ListMeta)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_STATUS: Final = msgspec.json.Decoder(_Status)
_GENERATION: Final = msgspec.json.Decoder(wire.Generation)
_HEADS: Final = msgspec.json.Decoder(_WirePage[_WireHead])


def read_known_page(
    body: bytes, is_known: Callable[[ListedHead], bool]
) -> ObjectPage[ListedHead] | None:
    """The heads of the objects of a list that are all known in just their version; None for any other list.

    To read them costs a fifth of decoding what they are.

    Args:
        body: of the list.
        is_known: whether nothing new is to be learned of an object.
    """
    try:
        page = _HEADS.decode(body)
    except _FAULTS:
        return None  # whoever decodes it tells what is wrong with it
    heads = tuple([each.metadata for each in page.items or ()])
    if not heads or not page.metadata.resource_version or not all(map(is_known, heads)):
        return None
    return ObjectPage(heads, page.metadata.resource_version, page.metadata.continue_token or "")


class KindCodec(Generic[Parsed, Entity]):
    """Reads one kind.

    Args:
        kind: as in ``kind:`` of an object.
        wire_type: the struct of one object.
        entity: makes an entity of the struct, or raises ``InvalidObject``.
        ours: whether the author of a bad object expects an answer from us.
        adorn: what the kind adds to a rejection.
        note_keys: takes what is said of labels and annotations that mean nothing; None where nobody
            is told of them.
    """

    def __init__(
        self,
        kind: str,
        *,
        wire_type: type[Parsed],
        entity: Callable[[Parsed], Entity],
        ours: bool = False,
        adorn: AddRejectedDetails | None = None,
        note_keys: AddUnknownKeys | None = None,
    ) -> None:
        self.kind = kind
        self.wire_type = wire_type
        self._entity = entity
        self._ours = ours
        self._adorn = adorn
        self._note_keys = note_keys
        # Generic structs are parametrised at run time, where mypy sees a plain value.
        page: Any = _WirePage
        event: Any = _WireEvent
        self._one: msgspec.json.Decoder[Parsed] = msgspec.json.Decoder(wire_type)
        self._page: msgspec.json.Decoder[_WirePage[Parsed]] = msgspec.json.Decoder(page[wire_type])
        self._event: msgspec.json.Decoder[_WireEvent[Parsed]] = msgspec.json.Decoder(
            event[wire_type]
        )

    def entity_of(self, raw: bytes) -> Entity:
        """One object as it is; raises whatever stands in the way."""
        return self._entity(self._one.decode(raw))

    def decode_page(self, body: bytes) -> ObjectPage[Entity]:
        """The body of a list.

        Raises:
            Undecodable: not a list of this kind, or without a version.
        """
        if self._note_keys is not None and may_hold_unknown_keys(body):
            return self._page_by_items(body)
        try:
            page = self._page.decode(body)
            items = tuple([self._entity(item) for item in page.items or ()])
        except Exception:  # noqa: BLE001 - one object, be it by our own defect, must not stop a list
            return self._page_by_items(body)
        return self._checked(page.kind, page.metadata, items)

    def decode_event(self, line: bytes) -> WatchEvent[Entity]:
        """One line of a watch.

        Raises:
            Undecodable: not an event.
        """
        if self._note_keys is not None and may_hold_unknown_keys(line):
            return self._event_by_parts(line)
        try:
            event = self._event.decode(line)
            if event.type in _CHANGES:
                item = self._entity(event.object)
                version: str = item.resource_version  # type: ignore[attr-defined]
                return WatchEvent(event.type, item, version)
        except Exception:  # noqa: BLE001, S110 - told by what follows
            pass
        return self._event_by_parts(line)

    def _page_by_items(self, body: bytes) -> ObjectPage[Entity]:
        try:
            parts = raw_json.raw_members(body)
            metadata = _LIST_META.decode(parts["metadata"])
            raw = parts["items"]
            if raw != b"null" and not raw.startswith(b"["):
                raise ValueError("items is no list")
            items = tuple([self._item(each) for each in raw_json.raw_elements(raw)])
        except KeyError as missing:
            raise UndecodableObject(f"a list of {self.kind} has no {missing.args[0]}") from None
        except _FAULTS as error:
            raise UndecodableObject(f"a list of {self.kind} is not readable: {error}") from error
        return self._checked(raw_json.raw_text(parts.get("kind")), metadata, items)

    def _checked(
        self, kind: str, metadata: wire.ListMeta, items: tuple[Entity | Rejected, ...]
    ) -> ObjectPage[Entity]:
        """A page that is what was asked for; believing another one would empty the cache."""
        if kind and kind != f"{self.kind}List":
            raise UndecodableObject(f"asked for a list of {self.kind}, got {kind[:64]!r}")
        if not metadata.resource_version:
            raise UndecodableObject(f"a list of {self.kind} has no resourceVersion")
        return ObjectPage(items, metadata.resource_version, metadata.continue_token or "")

    def _event_by_parts(self, line: bytes) -> WatchEvent[Entity]:
        try:
            parts = raw_json.raw_members(line)
            event_type, raw = raw_json.raw_text(parts["type"]), parts["object"]
            if event_type == "ERROR":
                status = _STATUS.decode(raw)
                return WatchEvent(event_type, code=status.code, message=status.message)
            if event_type == "BOOKMARK":
                mark = _BOOKMARK.decode(raw).metadata
                return WatchEvent(event_type, resource_version=mark.resource_version)
        except KeyError as missing:
            raise UndecodableObject(f"an event of {self.kind} has no {missing.args[0]}") from None
        except _FAULTS as error:
            raise UndecodableObject(f"an event of {self.kind} is not readable: {error}") from error
        if event_type not in _CHANGES:
            return WatchEvent(event_type)
        item = self._item(raw)
        version = item.resource_version  # type: ignore[union-attr]
        return WatchEvent(event_type, item, version)

    def _item(self, raw: bytes) -> Entity | Rejected:
        try:
            return self._with_keys(self._entity(self._one.decode(raw)), raw)
        except InvalidObject as why:
            return self._rejected(raw, why)
        except _FAULTS as error:
            return self._rejected(raw, explain_decode_error(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours costs this object only
            return self._rejected(raw, InvalidObject(DEFECT, f"{_DEFECT}: {type(error).__name__}"))

    def _with_keys(self, entity: Entity, raw: bytes) -> Entity:
        """The entity with what is to be said of its object's keys."""
        said = _unknown_key_messages(raw) if self._note_keys is not None else ()
        if not said or self._note_keys is None:
            return entity
        noted: Entity = self._note_keys(entity, said)
        return noted

    def _rejected(self, raw: bytes, why: InvalidObject) -> Rejected:
        parts = raw_json.raw_members(raw)
        metadata = raw_json.raw_members(parts.get("metadata", b"{}"))
        rejected = Rejected(
            kind=self.kind,
            key=ObjectKey(
                raw_json.raw_text(metadata.get("namespace")),
                raw_json.raw_text(metadata.get("name")),
            ),
            uid=UID(raw_json.raw_text(metadata.get("uid"))),
            resource_version=ResourceVersion(raw_json.raw_text(metadata.get("resourceVersion"))),
            field=why.field,
            why=why.why,
            generation=_generation(metadata.get("generation", b"0")),
            ours=self._ours,
            status=parts.get("status", b"{}") if self._ours else b"{}",
            created=_created(metadata.get("creationTimestamp")),
        )
        if self._adorn is None:
            return rejected
        try:
            return self._adorn(rejected, parts)
        except Exception:  # noqa: BLE001 - as above: what it takes of a node cannot be told then
            return rejected


def _created(raw: bytes | None) -> float:
    try:
        return parse_time(raw_json.raw_text(raw))
    except InvalidObject:
        return 0.0


def _unknown_key_messages(raw: bytes) -> tuple[str, ...]:
    """A sentence for each of the first keys of an object, or of its pods' template, that mean nothing."""
    if not may_hold_unknown_keys(raw):
        return ()
    parts = raw_json.raw_members(raw)
    spec = parts.get("spec", b"{}")
    template = raw_json.raw_members(spec).get("template", b"{}") if spec[:1] == b"{" else b"{}"
    holders = [parts, raw_json.raw_members(template) if template[:1] == b"{" else {}]
    said: dict[str, None] = {}
    for holder in holders:
        metadata = raw_json.raw_members(holder.get("metadata", b"{}"))
        for kind in ("labels", "annotations"):
            keys = metadata.get(kind, b"{}")
            for key in sorted(raw_json.raw_members(keys)) if keys[:1] == b"{" else ():
                if is_unknown_key(key):
                    said[unknown_key_message(kind.removesuffix("s"), key)] = None
    return tuple(said)[:KEYS_TOLD_MAX]


def _generation(raw: bytes) -> int:
    """0 when it is no number: it only keeps us from telling the author twice."""
    try:
        return _GENERATION.decode(raw)
    except _FAULTS:
        return 0
