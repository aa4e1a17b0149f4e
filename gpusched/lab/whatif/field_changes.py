"""``--set KIND/NAME.FIELD=VALUE``: one field of a Queue or PodGroup, checked as the API server checks it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import ObjectKey
from gpusched.base import installed_files
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.config.yaml_tree import did_you_mean, list_names, quoted
from gpusched.devcluster.apimachinery.yaml_text import load_all_documents
from gpusched.devcluster.registry.custom.validation import compile_version
from gpusched.engine.objects import Obj, key_of, plural_of

_KINDS: Final = {
    "queue": "queues", "queues": "queues", "podgroup": "podgroups", "podgroups": "podgroups",
}  # fmt: skip
_NAMES: Final = {"queues": "queue", "podgroups": "podgroup"}
_REMOVED: Final = ("null", "")
_WHOLE_MAX: Final = 20
"""Digits of a whole number: more are absurd."""


@frozen(kw_only=True)
class FieldChange:
    """A field of one object and its new value.

    Attributes:
        path: keys below ``spec``.
        value: None to take the field off.
        message: what is changed, with the value of before.
    """

    plural: str
    key: ObjectKey
    path: tuple[str, ...]
    value: Any
    message: str

    def edit(self, obj: Obj) -> Obj:
        """The manifest with the field changed."""
        return {**obj, "spec": _with_value(obj.get("spec") or {}, self.path, self.value)}


def read_field_change(text: str, objects: Sequence[Obj]) -> FieldChange:
    """What ``--set`` says.

    Raises:
        UsageError: no such object or field, or a value that the API server would refuse.
    """
    left, is_set, value = text.partition("=")
    kind, is_named, rest = left.strip().partition("/")
    if not is_set or not is_named or not rest:
        raise UsageError(
            f"--set takes KIND/NAME.FIELD=VALUE such as queue/research.deserved=128, not {text[:80]!r}"
        )
    plural = _KINDS.get(kind.lower())
    if plural is None:
        near = did_you_mean(kind, list(_KINDS)).rstrip("?")
        raise UsageError(f"--set {text}: kinds are queue and podgroup, not {quoted(kind)}{near}")
    obj, words = _named_object(plural, rest, objects, text)
    path, schema = _field_path(_spec_schema(plural), words, text)
    change = FieldChange(
        plural=plural,
        key=key_of(obj),
        path=path,
        value=None if value in _REMOVED else _typed_value(schema, value, text),
        message="",
    )
    _check(plural, change.edit(obj), obj, text)
    before = _value_at(obj.get("spec") or {}, path)
    name = str(change.key).removeprefix("/")
    shown = "taken off" if change.value is None else _text(change.value)
    old = "not set" if before is None else _text(before)
    return attrs.evolve(
        change, message=f"{_NAMES[plural]} {name}: {'.'.join(path)} is {shown} (now {old})"
    )


# -- what is meant -----------------------------------------------------------------------------
def _named_object(
    plural: str, rest: str, objects: Sequence[Obj], text: str
) -> tuple[Obj, list[str]]:
    """The object that is named, and the words of the field behind its name; names may hold dots."""
    known = {
        f"{key.namespace}/{key.name}".removeprefix("/"): obj
        for obj in objects
        if plural_of(obj) == plural and (key := key_of(obj))
    }
    found = max((name for name in known if rest.startswith(f"{name}.")), key=len, default="")
    if not found and rest in known:
        raise UsageError(f"--set {text}: which field of {_NAMES[plural]} {rest}?")
    if not found:
        name = rest.partition(".")[0]
        form = "" if plural == "queues" or "/" in rest else "; write podgroup/NAMESPACE/NAME.FIELD"
        raise UsageError(
            f"--set {text}: there is no {_NAMES[plural]} {quoted(name)}"
            f"{did_you_mean(name, list(known)).rstrip('?')}{form}"
        )
    return known[found], rest[len(found) + 1 :].split(".")


def _field_path(
    schema: Mapping[str, Any], words: list[str], text: str
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Keys below ``spec`` and the schema of what they name; amounts without a resource are of GPUs."""
    path: list[str] = []
    words = [*words]
    while True:
        fields: Mapping[str, Any] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            name = ".".join(words) or gpu_resources().main.name
            return (*path, name), others
        if not fields:
            if words:
                raise UsageError(f"--set {text}: {'.'.join(path)} has no fields below it")
            return tuple(path), schema
        if len(fields) == 1 and (not words or words[0] not in fields) and path:
            words = [*fields, *words]  # guarantee.cpu is guarantee.resource.cpu
        if not words:
            return tuple(path), schema
        word = words.pop(0)
        if word not in fields:
            above = ".".join(path) or "spec"
            raise UsageError(
                f"--set {text}: {above} has no field {quoted(word)}; fields are "
                f"{list_names(fields)}{did_you_mean(word, list(fields)).rstrip('?')}"
            )
        path.append(word)
        schema = fields[word]


def _typed_value(schema: Mapping[str, Any], value: str, text: str) -> Any:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string") or kind == "string":
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    if isinstance(found, int) and len(value) > _WHOLE_MAX:
        raise UsageError(
            f"--set {text}: a number of {len(value)} digits is none that a field takes"
        )
    return found


# -- what is allowed ---------------------------------------------------------------------------
@cache
def _definition(plural: str) -> Mapping[str, Any]:
    path = installed_files.path("manifests/crds") / f"{plural}.yaml"
    (document,) = load_all_documents(path.read_text("utf-8"))
    (version,) = document["spec"]["versions"]
    found: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def _spec_schema(plural: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _definition(plural)["properties"]["spec"]
    return found


def _check(plural: str, new: Obj, old: Obj, text: str) -> None:
    checks = compile_version(dict(_definition(plural)))
    complete = [
        checks.schema.apply_defaults(checks.schema.prune(json.loads(json.dumps(each))))
        for each in (new, old)
    ]
    errors = checks.validate(*complete)
    if errors:
        first = errors[0]
        raise UsageError(f"--set {text}: the API server refuses it: {first.field}: {first.text}")


# -- values ------------------------------------------------------------------------------------
def _with_value(spec: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    key, *deeper = path
    made = dict(spec)
    if deeper:
        made[key] = _with_value(made.get(key) or {}, tuple(deeper), value)
        if value is None and not made[key]:
            del made[key]
    elif value is None:
        made.pop(key, None)
    else:
        made[key] = value
    return made


def _value_at(spec: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = spec
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
