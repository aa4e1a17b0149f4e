"""Request bodies: media types, decoding, the kind they must be of, unknown and repeated fields.

Of a field that a JSON body names twice the last value counts, and strict clients are refused.
Decoding forgets the repetition, so that it is looked for in the bytes. Almost no body has any:
keys are only counted first, in the bytes and in what was decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from gpusched.cel.schema_nodes import join
from gpusched.devcluster.apimachinery import json_values, status, yaml_text
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.schema.build import builtin_builder
from gpusched.devcluster.schema.decode_errors import decode_error
from gpusched.devcluster.schema.protobuf import ProtobufError, decode_body
from gpusched.devcluster.schema.schema import load_builtin

Obj = dict[str, Any]

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_SHOWN_BYTES: Final = 30
"""Characters of an undecodable body that its error shows."""
_decode: Final = msgspec.json.Decoder().decode


load_all_yaml: Final = yaml_text.load_all_documents
"""Parse every document of a trusted YAML text."""


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header without its parameters."""
    return header.partition(";")[0].strip().lower()


def decode_request_body(raw: bytes, content_type: str, *, kind: str, custom: bool) -> Any:
    """Decode a body; raises StatusError 400 or 415 in the API server's words."""
    media = media_type(content_type) or JSON
    if media == JSON:
        return _decode_json(raw, kind=kind)
    if media == YAML:
        try:
            return yaml_text.load_document(raw)
        except yaml.YAMLError as e:
            why = f"error converting YAML to JSON: {yaml_text.yaml_error_message(e)}"
            raise _unrecognized(kind, why, raw) from None
    if media == PROTOBUF and not custom:
        return _decode_protobuf(raw)
    known = f"{JSON}, {YAML}" if custom else f"{JSON}, {YAML}, {PROTOBUF}"
    raise unsupported_media(known)


def unsupported_media(known: str) -> status.StatusError:
    """415 that names what would have been understood."""
    return status.failure(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {known}",
    )


def decode_patch(raw: bytes, patch_type: str) -> Any:
    """Decode a JSON body that is a patch and no object; raises StatusError 400."""
    try:
        return _json(raw)
    except InvalidJson as e:
        head = "" if patch_type == "strategic" else "error decoding patch: "
        raise status.bad_request(f"{head}{e}") from None


def decode_applied(raw: bytes) -> Any:
    """Decode the YAML of a server-side apply; raises StatusError 400."""
    try:
        return yaml_text.load_document(raw)
    except yaml.YAMLError as e:
        why = (
            f"error decoding YAML: error converting YAML to JSON: {yaml_text.yaml_error_message(e)}"
        )
        raise status.bad_request(why) from None


class InvalidJson(ValueError):
    """A text is no JSON; ``str()`` says why in the words of the server's decoder."""


def _json(raw: bytes) -> Any:
    try:
        return _decode(raw)
    except RecursionError:
        raise InvalidJson("exceeded max depth") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise InvalidJson(json_values.json_error_message(raw, str(e))) from None


def _unrecognized(kind: str, why: str, raw: bytes) -> status.StatusError:
    shown = raw.hex() if raw else "<empty>"
    if raw[:1] == b"{":
        shown = raw.decode("utf-8", "replace")
    if len(raw) > _SHOWN_BYTES:
        cut = raw[:_SHOWN_BYTES]
        shown = f"{cut.decode('utf-8', 'replace') if raw[:1] == b'{' else cut.hex()} ..."
    return status.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({shown})"
    )


def _decode_json(raw: bytes, *, kind: str) -> Any:
    try:
        body = _json(raw)
    except InvalidJson as e:
        raise _unrecognized(
            kind, f"couldn't get version/kind; json parse error: {e}", raw
        ) from None
    if body is not None and not isinstance(body, dict):
        why = (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_kind(body)} "
            "into Go value of type struct { "
            'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
        raise _unrecognized(kind, why, raw)
    return {} if body is None else body


def _decode_protobuf(raw: bytes) -> Obj:
    try:
        return decode_body(raw)
    except ProtobufError as e:
        raise status.bad_request(str(e)) from None


def as_object(core: ServerState, resource: Resource, body: Any, *, subject: str = "") -> Obj:
    """Return the body as an object of the resource's kind, kind and apiVersion first.

    A body without kind or apiVersion is taken as what the path says, as real servers do for
    built-in kinds. Raises StatusError 400.
    """
    wanted = subject or resource.kind
    if not isinstance(body, dict):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {wanted}): "
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value"
        )
    for key in ("kind", "apiVersion"):
        if not isinstance(body.get(key), str | None):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {wanted}): couldn't get "
                f"version/kind; json parse error: json: cannot unmarshal {json_kind(body[key])} "
                f"into Go struct field .{key} of type string"
            )
    kind = body.get("kind") or ""
    version = body.get("apiVersion") or ""
    if resource.custom is not None and not (kind and version):
        missing = "Kind" if not kind else "apiVersion"
        shown = msgspec.json.encode(body)[:512].decode("utf-8", "replace")
        raise status.bad_request(f"Object '{missing}' is missing in '{shown}'")
    kind, version = kind or resource.kind, version or resource.api_version
    if kind != resource.kind or version != resource.api_version:
        raise status.bad_request(_mismatch(core, resource, kind, version=version))
    meta = body.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        raise status.bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {kind}: json: cannot '
            f"unmarshal {json_kind(meta)} into Go struct field {kind}.metadata of type v1.ObjectMeta"
        )
    rest = {k: v for k, v in body.items() if k not in {"kind", "apiVersion", "metadata"}}
    return {"kind": kind, "apiVersion": version, "metadata": meta or {}, **rest}


def as_applied(resource: Resource, body: Any) -> Obj:
    """Return a copy of an applied configuration of the resource's kind; raises StatusError 400.

    Unlike other bodies it has to say what it is.
    """
    if body is not None and not isinstance(body, dict):
        raise status.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {json_kind(body)} into Go value of type map[string]interface {{}}"
        )
    config: Obj = dict(body or {})
    kind, version = config.get("kind"), config.get("apiVersion")
    kind, version = (
        kind if isinstance(kind, str) else "",
        version if isinstance(version, str) else "",
    )
    if (version, kind) != (resource.api_version, resource.kind):
        group, _, short = version.rpartition("/")
        raise status.bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
    return config


def json_kind(value: Any) -> str:
    """Name a JSON value's type as decoders do in their complaints."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if value is None:
        return "null"
    return "array" if isinstance(value, list) else "object"


def _mismatch(core: ServerState, resource: Resource, kind: str, *, version: str) -> str:
    if resource.custom is not None:
        if version != resource.api_version:
            return (
                f"the API version in the data ({version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        return f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})"
    short = version.rpartition("/")[2]
    if core.registry.by_kind(version, kind) is None:
        return (
            f'{kind} in version "{short}" cannot be handled as a {resource.kind}: '
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    package = (resource.group.partition(".")[0]) or "core"
    return (
        f'{kind} in version "{short}" cannot be handled as a {resource.kind}: converting '
        f"({short}.{kind}) to ({package}.{resource.kind}): "
        "unknown conversion"
    )


def as_options(body: Any, kind: str, *, group: str = "") -> Obj:
    """Check the types of a body that is no resource: Binding, Eviction, options, a review."""
    head = f'{kind} in version "v1" cannot be handled as a {kind}: '
    if not isinstance(body, dict):
        raise status.bad_request(f"{head}json: cannot unmarshal {json_kind(body)} into Go value")
    why: str | None = None
    if kind == "Eviction":
        meta = load_builtin("", "v1", "Binding").at("metadata")
        assert meta is not None
        why = decode_error(body.get("metadata"), meta)
        options = body.get("deleteOptions")
        if why is None and options is not None:
            as_options(options, "DeleteOptions")
    elif kind == "TokenRequest":  # of another group, but a subresource of the core's accounts
        node = builtin_builder("", "v1").kind("authentication.k8s.io", "v1", kind)
        why = decode_error(body, node)
    else:
        why = load_builtin(group, "v1", kind).decode_error(body)
    if why is not None:
        raise status.bad_request(head + why)
    return body


def unknown_patch_type(*, custom: bool) -> status.StatusError:
    """Return the 415 of a patch type that the resource does not take."""
    if custom:
        return unsupported_media(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    return status.failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def check_kind(body: Obj, kind: str) -> None:
    """Refuse a Binding or an Eviction that says it is something else."""
    sent, version = body.get("kind") or kind, body.get("apiVersion") or "v1"
    if sent == kind:
        return
    short = version.rpartition("/")[2]
    package = "core" if kind == "Binding" else "policy"
    raise status.bad_request(
        f'{sent} in version "{short}" cannot be handled as a {kind}: '
        f"converting ({short}.{sent}) to ({package}.{kind}): unknown conversion"
    )


_UNUSUAL: Final = re.compile(rb'"[ \t\r\n]+:|\\\\":')
"""Spellings of a key's end that plain counting does not see."""


class _RepeatedKeys(list[tuple[str, Any]]):
    """The members of an object in order, repeated ones too."""


_decode_pairs: Final = json.JSONDecoder(object_pairs_hook=_RepeatedKeys).decode


def repeated_fields(raw: bytes, decoded: Any) -> list[str]:
    """Return ``duplicate field "spec.x"`` for each repeated field of a body, in its order.

    Args:
        raw: JSON that could be decoded.
        decoded: what it was decoded to.
    """
    if _UNUSUAL.search(raw) is None and _key_ends(raw) == _keys(decoded):
        return []
    found = _repeated(_decode_pairs(raw.decode("utf-8", "replace")), "")
    return [f'duplicate field "{path}"' for path in dict.fromkeys(found)]


def _key_ends(raw: bytes) -> int:
    return raw.count(b'":') - raw.count(b'\\":')


def _keys(value: Any) -> int:
    count, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            count += len(item)
            left += [v for v in item.values() if isinstance(v, dict | list)]
        elif isinstance(item, list):
            left += [v for v in item if isinstance(v, dict | list)]
    return count


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _RepeatedKeys):
        seen: set[str] = set()
        for key, inner in value:
            below = join(path, key)
            if key in seen:
                yield below
            seen.add(key)
            yield from _repeated(inner, below)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _repeated(inner, f"{path}[{index}]")
