"""OpenAPI version 2 documents in protobuf: the encoding that older kubectl asks for.

Only what such a document of a Kubernetes server holds is encoded; field numbers are those of
the ``openapi.v2`` package. Two encoded documents one after the other are their union.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

Obj = dict[str, Any]

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_METHODS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}
_SCHEMA_TEXTS: Final = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_SCHEMA_COUNTS: Final = {"maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15}
_SCHEMA_EXTENSION: Final = 31
_QUERY: Final = {"type": 6, "format": 7, "unique_items": 20}
_PATH: Final = {"type": 5, "format": 6, "unique_items": 19}


def encode_document(body: Obj) -> bytes:
    """Encode an OpenAPI v2 document as protobuf."""
    info = _text(1, body["info"]["title"]) + _text(2, body["info"]["version"])
    paths = b"".join(_named(2, name, _path_item(item)) for name, item in body["paths"].items())
    return (
        _text(1, body["swagger"])
        + _message(2, info)
        + _message(8, paths)
        + _message(9, _schemas(body["definitions"]))
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _texts(number: int, texts: Iterable[str]) -> bytes:
    return b"".join(_text(number, text) for text in texts)


def _named(number: int, name: str, content: bytes) -> bytes:
    return _message(number, _text(1, name) + _message(2, content))


def _any(value: Any) -> bytes:
    """Encode a free value as YAML, of which JSON is a part."""
    return _message(2, msgspec.json.encode(value) + b"\n")


def _extensions(number: int, body: Mapping[str, Any]) -> bytes:
    marked = ((key, value) for key, value in body.items() if key.startswith("x-"))
    return b"".join(_named(number, key, _any(value)) for key, value in marked)


def _schemas(schemas: Mapping[str, Obj]) -> bytes:
    return b"".join(_named(1, name, _schema(schema)) for name, schema in schemas.items())


def _schema(schema: Obj) -> bytes:
    parts = [_text(at, schema[key]) for key, at in _SCHEMA_TEXTS.items() if key in schema]
    parts += [_number(at, schema[key]) for key, at in _SCHEMA_COUNTS.items() if key in schema]
    if "default" in schema:
        parts.append(_message(5, _any(schema["default"])))
    parts.append(_texts(19, schema.get("required", ())))
    parts += [_message(20, _any(value)) for value in schema.get("enum", ())]
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict):
        parts.append(_message(21, _message(1, _schema(rest))))
    elif rest is not None:
        parts.append(_message(21, _number(2, int(rest))))
    if "type" in schema:
        parts.append(_message(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_message(23, _message(1, _schema(schema["items"]))))
    if "properties" in schema:
        parts.append(_message(25, _schemas(schema["properties"])))
    parts.append(_extensions(_SCHEMA_EXTENSION, schema))
    return b"".join(parts)


def _path_item(item: Obj) -> bytes:
    methods = (_message(at, _operation(item[m])) for m, at in _METHODS.items() if m in item)
    return b"".join(methods) + _parameters(9, item)


def _operation(operation: Obj) -> bytes:
    responses = b"".join(
        _named(1, code, _message(1, _response(response)))
        for code, response in operation["responses"].items()
    )
    return (
        _texts(1, operation.get("tags", ()))
        + _text(5, operation["operationId"])
        + _texts(6, operation.get("produces", ()))
        + _texts(7, operation.get("consumes", ()))
        + _parameters(8, operation)
        + _message(9, responses)
        + _texts(10, operation.get("schemes", ()))
        + _extensions(13, operation)
    )


def _response(response: Obj) -> bytes:
    out = _text(1, response["description"])
    if "schema" in response:
        out += _message(2, _message(1, _schema(response["schema"])))
    return out


def _parameters(number: int, holder: Obj) -> bytes:
    """Encode parameters, each wrapped as ``ParametersItem`` and ``Parameter``."""
    return b"".join(
        _message(number, _message(1, _parameter(parameter)))
        for parameter in holder.get("parameters", ())
    )


def _parameter(parameter: Obj) -> bytes:
    if parameter["in"] == "body":
        body = _text(2, parameter["name"]) + _text(3, "body")
        body += _number(4, int(parameter.get("required", False)))
        return _message(1, body + _message(5, _schema(parameter["schema"])))
    in_query = parameter["in"] == "query"
    at = _QUERY if in_query else _PATH
    content = (
        _number(1, int(parameter.get("required", False)))
        + _text(2, parameter["in"])
        + _text(4, parameter["name"])
        + _text(at["type"], parameter["type"])
        + _number(at["unique_items"], int(parameter.get("uniqueItems", False)))
    )
    return _message(2, _message(3 if in_query else 4, content))
