"""OpenAPI v3: the shipped documents of built-in kinds, and one made from each definition.

Version 2 is made of the same documents.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec

from gpusched.devcluster.apiserver.endpoints.discovery import openapi_v2, openapi_v2_protobuf
from gpusched.devcluster.apiserver.endpoints.discovery.documents import VERSION
from gpusched.devcluster.apiserver.reading.representations import encode
from gpusched.devcluster.registry.kinds import Registry, Resource

Obj = dict[str, Any]

INDEX_TYPE: Final = "text/plain; charset=utf-8"
"""Media type of the index: the real server's label, though the body is JSON."""
_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
_SCHEMAS: Final = "#/components/schemas/"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_METADATA: Final = tuple(
    f"{_META}.{name}"
    for name in ("ObjectMeta", "ManagedFieldsEntry", "FieldsV1", "OwnerReference", "Time")
)
_CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
_API_VERSION: Final[Obj] = {
    "description": "APIVersion defines the versioned schema of this representation of an object. "
    "Servers should convert recognized schemas to the latest internal value, and may reject "
    f"unrecognized values. More info: {_CONVENTIONS}#resources",
    "type": "string",
}
_KIND: Final[Obj] = {
    "description": "Kind is a string value representing the REST resource this object represents. "
    "Servers may infer this from the endpoint the client submits requests to. Cannot be updated. "
    f"In CamelCase. More info: {_CONVENTIONS}#types-kinds",
    "type": "string",
}


def _data(path: str) -> Traversable:
    name = f"data/openapi/{path.replace('/', '_')}.json.gz"
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
        if served[0].custom is not None or _is_shipped(_edition(path, served))
    ]


def _edition(path: str, served: list[Resource]) -> str:
    """The name of the shipped document that describes some resources."""
    return f"{path}-{served[0].edition}" if served[0].edition else path


def version_2(registry: Registry, accept: str) -> tuple[bytes, str]:
    """Return the document of version 2 and its media type, protobuf when asked for."""
    shipped, custom = [], []
    for path, served in _paths(registry):
        if served[0].custom is None:
            shipped.append(_edition(path, served))
        else:
            custom.append(_custom_document(path, served))
    if "proto-openapi.spec.v2" in accept:
        own = openapi_v2.merged_document(custom, VERSION["gitVersion"])
        return _shipped_v2_protobuf(tuple(shipped)) + openapi_v2_protobuf.encode_document(
            own
        ), openapi_v2_protobuf.MEDIA_TYPE
    body = openapi_v2.merged_document([*map(_decoded, shipped), *custom], VERSION["gitVersion"])
    return encode(body), "application/json"


def _decoded(path: str) -> Obj:
    body: Obj = msgspec.json.decode(_shipped(path))
    return body


@lru_cache(maxsize=1)
def _shipped_v2_protobuf(paths: tuple[str, ...]) -> bytes:
    """Encode the built-in part, which never changes, once."""
    return openapi_v2_protobuf.encode_document(
        openapi_v2.merged_document(map(_decoded, paths), VERSION["gitVersion"])
    )


def _document(path: str, served: list[Resource]) -> bytes:
    if any(resource.custom is None for resource in served):
        return _shipped(_edition(path, served))
    return encode(_custom_document(path, served))


def openapi_index(registry: Registry) -> bytes:
    """Return the body of ``/openapi/v3``: hashed addresses, so that clients may cache for ever."""
    entries = {}
    for path, served in _paths(registry):
        digest = hashlib.sha512(_document(path, served)).hexdigest().upper()
        entries[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return encode({"paths": entries})


def openapi_document(registry: Registry, path: str) -> bytes | None:
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
        name = f"{reverse}.{resource.version}.{resource.kind}"
        schemas[name] = {
            **_with_type_fields(resource.custom.raw_schema),
            "x-kubernetes-group-version-kind": [kind],
        }
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        operations[f"/{path}/{scope}{resource.plural}/{{name}}"] = {
            "get": _custom_operation("read", "get", kind, name),
            "put": _custom_operation("replace", "put", kind, name),
            "patch": _custom_operation("patch", "patch", kind, name),
            "delete": _custom_operation("delete", "delete", kind, name),
        }
        operations[f"/{path}/{scope}{resource.plural}"] = {
            "post": _custom_operation("create", "post", kind, name)
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": operations,
        "components": {"schemas": {**schemas, **_metadata_schemas()}},
    }


def _custom_operation(verb: str, action: str, kind: Obj, schema: str) -> Obj:
    group = "".join(part.capitalize() for part in re.split(r"[.-]", kind["group"]))
    content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{schema}"}}}
    operation: Obj = {
        "tags": [f"{kind['group'].replace('.', '_')}_{kind['version']}"],
        "operationId": f"{verb}{group}{kind['version'].capitalize()}{kind['kind']}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in (("pretty",) if action == "get" else _PARAMETERS)
        ],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    }
    if action in {"put", "post"}:
        operation["requestBody"] = {"content": content, "required": True}
    return operation


@lru_cache(maxsize=1)
def _metadata_schemas() -> Obj:
    """Return ObjectMeta and what it is made of, which custom kinds refer to."""
    known: Obj = _decoded("api/v1")["components"]["schemas"]
    return {name: known[name] for name in _METADATA}


def _with_type_fields(schema: Obj) -> Obj:
    own = schema.get("properties") or {}
    properties = {
        **own,
        "apiVersion": {**_API_VERSION, **own.get("apiVersion", {})},
        "kind": {**_KIND, **own.get("kind", {})},
        "metadata": {
            "allOf": [{"$ref": f"{_SCHEMAS}{_METADATA[0]}"}],
            "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
        },
    }
    return {**schema, "properties": properties}
