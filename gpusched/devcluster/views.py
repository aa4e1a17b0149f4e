"""How stored objects appear in answers: whole, as metadata only, as rows, in either event group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gpusched.devcluster.event_views import to_new_group
from gpusched.devcluster.listing import Page
from gpusched.devcluster.store import Stored

if TYPE_CHECKING:
    from gpusched.devcluster.kinds import Resource

Obj = dict[str, Any]
Shape = Literal["object", "metadata", "table"]
encode: Final = msgspec.json.Encoder().encode

_META: Final = "meta.k8s.io/v1"


def shape_of(accept: str) -> Shape:
    """Read which of the three shapes an Accept header prefers among those we can give."""
    for part in accept.split(","):
        media, _, parameters = part.strip().partition(";")
        if media not in {"application/json", "*/*", "application/*", ""}:
            continue
        wanted = dict(p.strip().partition("=")[::2] for p in parameters.split(";") if p)
        kind, version = wanted.get("as", ""), wanted.get("v", "")
        if kind == "Table" and version == "v1":
            return "table"
        if kind in {"PartialObjectMetadata", "PartialObjectMetadataList"} and version == "v1":
            return "metadata"
        if not kind:
            return "object"
    return "object"


def viewed(resource: Resource) -> Callable[[Obj], Obj] | None:
    """Return how storage objects become this resource's, None when they already are."""
    if resource.storage == "events" and resource.group:
        return to_new_group
    return None


def object_bytes(resource: Resource, stored: Stored) -> bytes:
    """Encode one object for an answer."""
    change = viewed(resource)
    return stored.raw if change is None else encode(change(stored.obj))


def partial(obj: Obj) -> Obj:
    """Reduce an object to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


def list_bytes(resource: Resource, page: Page) -> bytes:
    """Encode a list; built-in items carry no kind, custom ones do, as on a real server."""
    meta: Obj = {"resourceVersion": str(page.version)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    if resource.custom is not None:
        meta.setdefault("continue", "")
        items = [stored.raw for stored in page.items]
        head = {"apiVersion": resource.api_version, "kind": resource.list_kind, "metadata": meta}
    else:
        items = _bare_items(resource, page.items)
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
    return b'%b,"items":[%b]}' % (encode(head)[:-1], b",".join(items))


def _bare_items(resource: Resource, items: Sequence[Stored]) -> list[bytes]:
    change = viewed(resource)
    if change is not None:
        return [encode({k: v for k, v in change(s.obj).items() if k not in _TYPE}) for s in items]
    skip = len(encode({"kind": resource.kind, "apiVersion": resource.api_version}))
    # The cached bytes begin with exactly these two members, then a comma: cut them off.
    return [b"{" + stored.raw[skip:] for stored in items]


_TYPE: Final = frozenset({"kind", "apiVersion"})


def partial_list_bytes(page: Page) -> bytes:
    """Encode a list of metadata."""
    meta: Obj = {"resourceVersion": str(page.version)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    return encode(
        {
            "kind": "PartialObjectMetadataList",
            "apiVersion": _META,
            "metadata": meta,
            "items": [partial(stored.obj) for stored in page.items],
        }
    )
