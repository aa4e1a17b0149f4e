# strategies share one interface, and few kinds need all of it
"""Config maps and secrets: keys, sizes, what each type must hold, and immutable data."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    required,
    too_long,
)
from gpusched.devcluster.registry.pods.containers import config_key_problems
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_SIZE_MAX: Final = 1024 * 1024
_SEALED_TEXT: Final = "field is immutable when `immutable` is set"
_REDACTED: Final = "<secret contents redacted>"
_ACCOUNT: Final = "kubernetes.io/service-account.name"
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON: Final = frozenset({".dockercfg", ".dockerconfigjson"})


class ConfigMapStrategy(Strategy):
    """Config maps: texts and bytes, which may be immutable."""

    checks_metadata_again = True
    parts: tuple[str, ...] = ("data", "binaryData")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check keys and size."""
        texts, binaries = obj.get("data") or {}, obj.get("binaryData") or {}
        errors: list[FieldError] = []
        for key in texts:
            at = f"data[{key}]"
            errors += [invalid(at, key, why) for why in config_key_problems(key)]
            if key in binaries:
                errors.append(invalid(at, key, "duplicate of key present in binaryData"))
        for key in binaries:
            errors += [invalid(f"binaryData[{key}]", key, why) for why in config_key_problems(key)]
        total = sum(len(value.encode()) for value in texts.values())
        if total + sum(map(_decoded_size, binaries.values())) > _SIZE_MAX:
            errors.append(too_long("", _SIZE_MAX))
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse changes of immutable data."""
        return [*_immutable_data_errors(new, old, parts=self.parts), *self.validate(new)]


def _immutable_data_errors(new: Obj, old: Obj, *, parts: tuple[str, ...]) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", _SEALED_TEXT)
    for part in parts:
        if (new.get(part) or {}) != (old.get(part) or {}):
            yield forbidden(part, _SEALED_TEXT)


def _decoded_size(value: str) -> int:
    return len(value) // 4 * 3 - value.count("=")


class SecretStrategy(ConfigMapStrategy):
    """Secrets: stringData is written as data, the type has a default and is for ever."""

    parts = ("data",)

    def default(self, obj: Obj) -> None:
        """Give the type its default, and move what was sent as text to where it is stored."""
        obj["type"] = obj.get("type") or "Opaque"
        if texts := obj.pop("stringData", None):
            encoded = {k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep the type when a client leaves it out."""
        super().prepare_update(new, old)
        new["type"] = new.get("type") or old.get("type") or "Opaque"

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check keys, size, and what the type asks for."""
        data = obj.get("data") or {}
        errors = [
            invalid(f"data[{key}]", key, why) for key in data for why in config_key_problems(key)
        ]
        if sum(map(_decoded_size, data.values())) > _SIZE_MAX:
            errors.append(too_long("data", _SIZE_MAX))
        return [*errors, *_type_errors(obj, data)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse another type, and changes of immutable data."""
        errors: list[FieldError] = []
        if new.get("type") != old.get("type"):
            errors.append(invalid("type", new.get("type"), "field is immutable"))
        return errors + super().validate_update(new, old)


def _type_errors(obj: Obj, data: Obj) -> Iterator[FieldError]:
    kind = obj.get("type", "")
    if kind == "kubernetes.io/service-account-token":
        if not (obj["metadata"].get("annotations") or {}).get(_ACCOUNT):
            yield required(f"metadata.annotations[{_ACCOUNT}]")
    elif kind == "kubernetes.io/basic-auth" and not {"username", "password"} & {*data}:
        yield required("data[username]")
        yield required("data[password]")
    for key in _NEEDED.get(kind, ()):
        missing = not data.get(key) if key == "ssh-privatekey" else key not in data
        if missing:
            yield required(f"data[{key}]")
        elif key in _JSON:
            yield from _json_errors(data[key], f"data[{key}]")


def _json_errors(value: str, at: str) -> Iterator[FieldError]:
    text = base64.b64decode(value)
    try:
        decoded = json.loads(text)
    except ValueError:
        first = text[:1].decode("latin-1")
        why = f"invalid character '{first}' looking for beginning of value"
        yield invalid(at, _REDACTED, why if first else "unexpected end of JSON input")
        return
    if decoded is not None and not isinstance(decoded, dict):
        why = "json: cannot unmarshal into Go value of type map[string]interface {}"
        yield invalid(at, _REDACTED, why)
