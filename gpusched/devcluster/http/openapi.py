"""OpenAPI v3: the shipped documents of built-in kinds, and one made from each definition.

Version 2 has only its frame: kubectl asks for it to read a file of kind List, or with a kind that
is not served, and then goes on without what it does not find there.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster.views import encode

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from gpusched.devcluster.kinds import Registry, Resource

Obj = dict[str, Any]

INDEX_TYPE: Final = "text/plain; charset=utf-8"
"""Media type of the index: the real server's label, though the body is JSON."""
_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO: Final = {"title": "Kubernetes", "version": "1.36"}
_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def _data(path: str) -> Traversable:
    name = f"data/v3-{path.replace('/', '_')}.json.gz"
    return resources.files("gpusched.devcluster").joinpath(name)


@lru_cache(maxsize=64)
def _shipped(path: str) -> bytes:
    return gzip.decompress(_data(path).read_bytes())


@lru_cache(maxsize=256)
def _is_shipped(path: str) -> bool:
    return _data(path).is_file()


def _paths(registry: Registry) -> list[tuple[str, list[Resource]]]:
    """Return the documents there are: versions that are only read may have none."""
    by_path: dict[str, list[Resource]] = {}
    for resource in registry.resources():
        head = f"apis/{resource.group}" if resource.group else "api"
        by_path.setdefault(f"{head}/{resource.version}", []).append(resource)
    return [
        (path, served)
        for path, served in by_path.items()
        if served[0].custom is not None or _is_shipped(path)
    ]


def frame_v2(accept: str) -> tuple[bytes, str]:
    """Return a version 2 document without kinds and its media type, protobuf when asked for."""
    if "proto-openapi.spec.v2" not in accept:
        return encode({"swagger": "2.0", "info": _INFO, "paths": {}}), "application/json"
    info = b"".join(_text_field(at, text) for at, text in enumerate(_INFO.values(), start=1))
    return _text_field(1, "2.0") + b"\x12" + bytes([len(info)]) + info, _V2_PROTOBUF


def _text_field(number: int, text: str) -> bytes:
    """Encode a short string field of a protobuf message."""
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def _document(path: str, served: list[Resource]) -> bytes:
    if any(resource.custom is None for resource in served):
        return _shipped(path)
    return encode(_custom_document(path, served))


def index(registry: Registry) -> bytes:
    """Return the body of ``/openapi/v3``: hashed addresses, so that clients may cache for ever."""
    entries = {}
    for path, served in _paths(registry):
        digest = hashlib.sha512(_document(path, served)).hexdigest().upper()
        entries[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return encode({"paths": entries})


def document(registry: Registry, path: str) -> bytes | None:
    """Return the document of ``api/v1`` or ``apis/GROUP/VERSION``, None when it is not served."""
    for known, served in _paths(registry):
        if known == path:
            return _document(path, served)
    return None


def _custom_document(path: str, served: list[Resource]) -> Obj:
    schemas: Obj = {}
    operations: Obj = {}
    for resource in served:
        assert resource.custom is not None
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        reverse = ".".join(reversed(resource.group.split(".")))
        schemas[f"{reverse}.{resource.version}.{resource.kind}"] = {
            **_with_type_fields(resource.custom.raw_schema),
            "x-kubernetes-group-version-kind": [kind],
        }
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        operations[f"/{path}/{scope}{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": [{"name": name, "in": "query"} for name in _PARAMETERS],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": operations,
        "components": {"schemas": schemas},
    }


def _with_type_fields(schema: Obj) -> Obj:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **(schema.get("properties") or {}),
    }
    return {**schema, "properties": properties}
