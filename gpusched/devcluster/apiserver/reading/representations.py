"""How stored objects appear in answers: whole, as metadata only, as rows, in either event group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import bad_request
from gpusched.devcluster.apiserver.reading.lists import ListResult
from gpusched.devcluster.apiserver.reading.tables.table import (
    IncludeObject,
    columns_for,
    custom_columns,
    table,
)
from gpusched.devcluster.registry.devices.older_versions import older_view
from gpusched.devcluster.registry.gangs.kinds import version_view
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.registry.stored.events import to_new_group
from gpusched.devcluster.storage.store import Stored

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


def view_function(resource: Resource) -> Callable[[Obj], Obj] | None:
    """Return how storage objects become this resource's, None when they already are."""
    if resource.storage == "events" and resource.group:
        return to_new_group
    custom = resource.custom
    if custom is not None and custom.changed:
        return lambda obj: custom.shown(obj, resource.api_version)
    return older_view(resource.group, resource.version) or version_view(
        resource.group, resource.version, resource.kind
    )


def object_bytes(resource: Resource, stored: Stored) -> bytes:
    """Encode one object for an answer."""
    change = view_function(resource)
    return stored.raw if change is None else encode(change(stored.obj))


def metadata_only(obj: Obj) -> Obj:
    """Reduce an object to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


def page_meta(page: ListResult) -> Obj:
    """Return the metadata of a list."""
    meta: Obj = {"resourceVersion": str(page.version)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    return meta


def list_bytes(resource: Resource, page: ListResult) -> bytes:
    """Encode a list; built-in items carry no kind, custom ones do, as on a real server."""
    meta = page_meta(page)
    if resource.custom is not None:
        meta.setdefault("continue", "")
        items = [object_bytes(resource, stored) for stored in page.items]
        head = {"apiVersion": resource.api_version, "kind": resource.list_kind, "metadata": meta}
    else:
        items = _bare_items(resource, page.items)
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
    return b'%b,"items":[%b]}' % (encode(head)[:-1], b",".join(items))


def _bare_items(resource: Resource, items: Sequence[Stored]) -> list[bytes]:
    change = view_function(resource)
    if change is not None:
        return [encode({k: v for k, v in change(s.obj).items() if k not in _TYPE}) for s in items]
    start = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1]
    return [_bare(stored, start) for stored in items]


def _bare(stored: Stored, start: bytes) -> bytes:
    """An object without kind and apiVersion, with which nearly all begin in this order."""
    if stored.raw.startswith(start):
        return b"{" + stored.raw[len(start) + 1 :]
    return encode({k: v for k, v in stored.obj.items() if k not in _TYPE})


_TYPE: Final = frozenset({"kind", "apiVersion"})


def partial_list_bytes(page: ListResult) -> bytes:
    """Encode a list of metadata."""
    return encode(
        {
            "kind": "PartialObjectMetadataList",
            "apiVersion": _META,
            "metadata": page_meta(page),
            "items": [metadata_only(stored.obj) for stored in page.items],
        }
    )


class TableView:
    """Objects as rows. One view serves one request, so that a watch sends headers only once."""

    def __init__(self, resource: Resource, clock: Clock, *, include: str) -> None:
        if include not in {"Metadata", "Object", "None"}:
            known = '"None", "Metadata", "Object"'
            raise bad_request(
                f'includeObject: Unsupported value: "{include}": supported values: {known}'
            )
        self._include = cast("IncludeObject", include)
        self._clock = clock
        self._view = view_function(resource)
        if resource.custom is not None:
            self._columns = custom_columns(resource.custom.columns)
        else:
            self._columns = columns_for(resource.group, resource.kind)
        self._headers = True

    def of_list(self, page: ListResult) -> bytes:
        """Encode a page of a list."""
        return encode(self._table([s.obj for s in page.items], page_meta(page)))

    def of_object(self, stored: Stored) -> bytes:
        """Encode one object as a table of one row."""
        return encode(self._table([stored.obj], _version_of(stored.obj)))

    def of_event(self, obj: Obj) -> Obj:
        """Return the object of a watch event as a table of one row; headers come once."""
        made = self._table([obj], _version_of(obj))
        self._headers = False
        return made

    def _table(self, objects: list[Obj], meta: Obj) -> Obj:
        if self._view is not None:
            objects = [self._view(obj) for obj in objects]
        return table(
            self._columns,
            objects,
            now=self._clock.now(),
            metadata=meta,
            include=self._include,
            headers=self._headers,
        )


def _version_of(obj: Obj) -> Obj:
    version = obj["metadata"].get("resourceVersion")  # a dry run has none
    return {"resourceVersion": version} if version else {}
