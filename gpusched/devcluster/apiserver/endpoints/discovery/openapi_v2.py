"""OpenAPI version 2, made from the documents of version 3.

kubectl before 1.27 validates and explains with it; later ones ask for it when a file holds a
List or a kind that is not served. What version 2 cannot say is left out as the real server
leaves it out: alternatives, nullable, and the fields of objects that keep unknown ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

Obj = dict[str, Any]

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_BODY_TYPES: Final = ("*/*",)
_RESPONSES: Final = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}
_DROPPED: Final = frozenset({"oneOf", "anyOf", "not", "nullable", "allOf"})


def merged_document(parts: Iterable[Obj], version: str) -> Obj:
    """Return one document of version 2 that holds what several of version 3 hold.

    Args:
        parts: documents of version 3, each a group version's; not changed.
        version: of the server, as ``v1.36.2``.
    """
    paths: Obj = {}
    definitions: Obj = {}
    for part in parts:
        for path, item in part["paths"].items():
            paths[path] = _path_item(item)
        for name, schema in part["components"]["schemas"].items():
            definitions[name] = schema_v2(schema)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": paths,
        "definitions": definitions,
    }


def schema_v2(schema: Obj) -> Obj:
    """Return a schema of version 3 in the words of version 2."""
    out = {key: value for key, value in schema.items() if key not in _DROPPED}
    alone: list[Obj] = schema.get("allOf") or []
    if len(alone) == 1 and "$ref" in alone[0]:
        out["$ref"] = alone[0]["$ref"]
    if "$ref" in out:
        out["$ref"] = _ref(out["$ref"])
    if schema.get("oneOf") and "type" not in schema:
        out["type"] = "string"  # Quantity and IntOrString, the built-in alternatives
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("nullable"):
        for key in ("type", "items", "properties", "required", "additionalProperties"):
            out.pop(key, None)
        return out
    if "items" in out:
        out["items"] = schema_v2(out["items"])
    if "properties" in out:
        out["properties"] = {name: schema_v2(p) for name, p in out["properties"].items()}
    if isinstance(out.get("additionalProperties"), dict):
        out["additionalProperties"] = schema_v2(out["additionalProperties"])
    return out


def _ref(ref: str) -> str:
    return ref.replace("#/components/schemas/", "#/definitions/")


def _path_item(item: Obj) -> Obj:
    out: Obj = {method: _operation(item[method]) for method in _METHODS if method in item}
    if "parameters" in item:
        out["parameters"] = [_parameter(p) for p in item["parameters"]]
    return out


def _operation(operation: Obj) -> Obj:
    parameters = [_parameter(p) for p in operation.get("parameters", ())]
    consumes: list[str] = list(_BODY_TYPES)
    body = operation.get("requestBody")
    if body is not None:
        content: Mapping[str, Obj] = body["content"]
        consumes = list(content)
        schema = schema_v2(next(iter(content.values()))["schema"])
        parameters.insert(0, {"name": "body", "in": "body", "schema": schema})
        parameters[0]["required"] = body.get("required", _writes(operation))
    responses = {code: _response(code, r) for code, r in operation["responses"].items()}
    produces = {
        media: None for r in operation["responses"].values() for media in r.get("content", ())
    }
    out: Obj = {"consumes": consumes, "produces": list(produces), "schemes": ["https"]}
    if parameters:
        out["parameters"] = parameters
    for key in ("tags", "operationId", "x-kubernetes-action", "x-kubernetes-group-version-kind"):
        if key in operation:
            out[key] = operation[key]
    return {**out, "responses": responses}


def _writes(operation: Obj) -> bool:
    """Tell whether a body is needed: deletions do without."""
    return operation.get("x-kubernetes-action") not in {"delete", "deletecollection"}


def _response(code: str, response: Obj) -> Obj:
    out: Obj = {"description": response.get("description") or _RESPONSES.get(code, code)}
    for content in response.get("content", {}).values():
        if "schema" in content:
            out["schema"] = schema_v2(content["schema"])
            break
    return out


def _parameter(parameter: Obj) -> Obj:
    out = {key: value for key, value in parameter.items() if key != "schema"}
    return {**out, **parameter.get("schema", {"type": "string"})}
