r"""Request bodies that kubectl sends as protobuf, decoded into the JSON the rest works on.

The field numbers stand in a shipped table; types that have their own JSON form (times,
quantities, IntOrString, raw extensions) are spelled here. A body is the four bytes ``k8s\\0``
and a runtime.Unknown that names the type of what it wraps.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gpusched.base.errors import GpuschedError
from gpusched.cel.schema_nodes import Doc, Json
from gpusched.devcluster.schema.build import load_shipped

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_META = "k8s.io.apimachinery.pkg.apis.meta.v1"
_UNKNOWN = "k8s.io.apimachinery.pkg.runtime.Unknown"
_INLINED = frozenset(
    [
        "localObjectReference",
        "ephemeralContainerCommon",
        "persistentVolumeSource",
        "handler",
        "volumeSource",
    ]
)
"""Fields whose content stands beside them in JSON, not below them."""
_WRAPPED_LISTS = frozenset({f"{_META}.Verbs", "k8s.io.api.authorization.v1.ExtraValue"})
_ZERO_IS_ABSENT = frozenset(
    [
        "generation",
        "observedGeneration",
        "hostPort",
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
        "minReadySeconds",
        "stdin",
        "stdinOnce",
        "tty",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "readOnly",
        "unschedulable",
        "globalDefault",
        "paused",
        "count",
        "active",
        "succeeded",
        "failed",
        "currentReplicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
    ]
)
"""Numbers and switches that clients always send and that mean nothing when zero.

Zeros of other fields were set on purpose: replicas, gracePeriodSeconds, value.
"""


_TOKENS = "k8s.io.api.authentication.v1"
_TOKEN_MESSAGES: dict[str, dict[int, tuple[str, str, str]]] = {
    f"{_TOKENS}.TokenRequest": {
        1: ("metadata", "one", f"{_META}.ObjectMeta"),
        2: ("spec", "one", f"{_TOKENS}.TokenRequestSpec"),
    },
    f"{_TOKENS}.TokenRequestSpec": {
        1: ("audiences", "list", "string"),
        3: ("boundObjectRef", "one", f"{_TOKENS}.BoundObjectReference"),
        4: ("expirationSeconds", "one", "int64"),
    },
    f"{_TOKENS}.BoundObjectReference": {
        1: ("kind", "one", "string"),
        2: ("apiVersion", "one", "string"),
        3: ("name", "one", "string"),
        4: ("uid", "one", "string"),
    },
}
"""What ``kubectl create token`` sends; the shipped table leaves this group out."""


class ProtobufError(GpuschedError):
    """A body that is not what its media type says."""


@functools.cache
def _messages() -> dict[str, dict[int, tuple[str, str, str]]]:
    table: dict[str, dict[str, list[str]]] = load_shipped("protobuf-fields.json.gz")
    known = {
        name: {int(number): (f[0], f[1], f[2]) for number, f in fields.items()}
        for name, fields in table.items()
    }
    return known | _TOKEN_MESSAGES


def decode_body(body: bytes) -> Doc:
    """Decode a request body into the JSON object it stands for, apiVersion and kind included.

    Raises:
        ProtobufError: no such message, or the bytes are cut or contradict the table.
    """
    if not body.startswith(MAGIC):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    unknown = _message(memoryview(body)[len(MAGIC) :], _UNKNOWN)
    meta = unknown.get("typeMeta", {})
    api_version, kind = meta.get("apiVersion", ""), meta.get("kind", "")
    raw = base64.b64decode(unknown.get("raw", ""))
    decoded: Doc = {"apiVersion": api_version, "kind": kind}
    decoded |= _message(memoryview(raw), _name(api_version, kind))
    return decoded


def _name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    name = f"k8s.io.api.{group.split('.')[0] or 'core'}.{version}.{kind}"
    for candidate in (name, f"{_META}.{kind}"):
        if candidate in _messages():
            return candidate
    raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ProtobufError("proto: unexpected end of the message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ProtobufError("proto: a number is longer than ten bytes")


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers with their raw values: a number, or the bytes of anything longer."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in {1, 5}:
            length = 8 if wire == 1 else 4
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")
        if number == 0 or length > len(data) - at:
            raise ProtobufError("proto: unexpected end of the message")
        yield number, data[at : at + length]
        at += length


def _message(data: memoryview, name: str) -> Doc:
    fields = _messages()[name]
    decoded: Doc = {}
    for number, raw in _fields(data):
        if number not in fields:
            # Fields of newer clients: the type they belong to here does not have them.
            continue
        key, shape, kind = fields[number]
        if shape == "map":
            decoded.setdefault(key, {}).update(_entry(_bytes(raw), kind))
        elif shape == "list":
            decoded.setdefault(key, []).extend(_elements(raw, kind))
        elif key in _INLINED:
            decoded |= _message(_bytes(raw), kind)
        else:
            value = _value(raw, kind)
            if not _absent(key, value):
                decoded[key] = value
    return decoded


def _absent(key: str, value: Json) -> bool:
    if value is None or value == "":
        return True
    return key in _ZERO_IS_ABSENT and not value and not isinstance(value, (dict, list))


def _bytes(raw: int | memoryview) -> memoryview:
    if isinstance(raw, int):
        raise ProtobufError("proto: wrong wireType for a message or text")
    return raw


def _text(raw: int | memoryview) -> str:
    try:
        return bytes(_bytes(raw)).decode()
    except UnicodeDecodeError:
        raise ProtobufError("proto: a text is not valid UTF-8") from None


def _signed(raw: int | memoryview) -> int:
    if not isinstance(raw, int):
        raise ProtobufError("proto: wrong wireType for a number")
    return raw - 2**64 if raw >= 2**63 else raw


def _elements(raw: int | memoryview, kind: str) -> list[Json]:
    """Elements one occurrence of a repeated field brings: several when numbers are packed."""
    if kind in {"int32", "int64", "bool"} and not isinstance(raw, int):
        numbers, at = [], 0
        while at < len(raw):
            number, at = _varint(raw, at)
            numbers.append(_value(number, kind))
        return numbers
    return [_value(raw, kind)]


def _entry(data: memoryview, kind: str) -> Doc:
    key, value = "", None
    for number, raw in _fields(data):
        if number == 1:
            key = _text(raw)
        elif number == 2:
            value = _value(raw, kind)
    return {key: ("" if kind in {"string", "bytes"} else {}) if value is None else value}


def _value(raw: int | memoryview, kind: str) -> Json:
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(raw)
    if kind in _WRAPPED_LISTS:
        return _message(_bytes(raw), kind).get("items", [])
    if kind not in _messages():
        raise ProtobufError(f"proto: the type {kind} is not in the table")
    return _message(_bytes(raw), kind)


def _numbers(raw: int | memoryview) -> dict[int, int | memoryview]:
    return dict(_fields(_bytes(raw)))


def _instant(raw: int | memoryview) -> dt.datetime | None:
    parts = _numbers(raw)
    if not parts:
        return None
    try:
        return dt.datetime.fromtimestamp(_signed(parts.get(1, 0)), dt.UTC).replace(
            microsecond=_signed(parts.get(2, 0)) // 1000
        )
    except (ValueError, OverflowError, OSError):
        raise ProtobufError("proto: a time is out of range") from None


def _time(raw: int | memoryview) -> str | None:
    instant = _instant(raw)
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ") if instant else None


def _micro_time(raw: int | memoryview) -> str | None:
    instant = _instant(raw)
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if instant else None


def _quantity(raw: int | memoryview) -> str:
    return _text(_numbers(raw).get(1, memoryview(b"0")))


def _int_or_string(raw: int | memoryview) -> int | str:
    parts = _numbers(raw)
    if parts.get(1, 0):
        return _text(parts.get(3, memoryview(b"")))
    return _signed(parts.get(2, 0))


def _raw_json(raw: int | memoryview) -> Json:
    text = bytes(_bytes(_numbers(raw).get(1, memoryview(b""))))
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise ProtobufError(f"proto: an embedded object is not JSON: {fault}") from None


_SPECIAL: dict[str, Callable[[int | memoryview], Any]] = {
    "string": _text,
    "bool": lambda raw: bool(_signed(raw)),
    "int32": _signed,
    "int64": _signed,
    "bytes": lambda raw: base64.b64encode(_bytes(raw)).decode(),
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.FieldsV1": _raw_json,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": _quantity,
    "k8s.io.apimachinery.pkg.api.resource.QuantityValue": _quantity,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _raw_json,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
}
