"""Patches as requests: what is refused before and after one is applied, in the server's words.

A patch that leaves an object the server cannot decode is no bad request but an invalid patch: the
answer names no kind, and its field is the patch.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import invalid
from gpusched.devcluster.apimachinery.limits import JSON_PATCH_OPERATIONS_MAX
from gpusched.devcluster.apiserver.patching.strategic import (
    PatchError,
    json_patch,
    merge_patch,
    strategic_merge,
)
from gpusched.devcluster.apiserver.patching.typed_objects import go_text
from gpusched.devcluster.apiserver.writing.bodies import json_kind
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.schema.schema import Schema

Obj = dict[str, Any]

_OPERATION_KEYS: Final = frozenset({"op", "path", "from", "value"})
_MISFIT: Final = re.compile(
    r"json: cannot unmarshal (\w+)(?: [-\d.e+]+)? into Go struct field \S+ of type (.+)"
)
_GO_KINDS: Final = {
    "object": "map[string]interface {}",
    "array": "[]interface {}",
    "number": "int64",
}
_GO_SCALARS: Final = frozenset({"string", "bool", "int32", "int64", "int", "float64"})


class UndecodablePatch(status.StatusError):
    """400 of a body that does not fit its schema; patches answer in another form.

    Attributes:
        why: the decoder's own sentence.
    """

    def __init__(self, head: str, why: str) -> None:
        super().__init__(status.bad_request(head + why).body)
        self.why = why


def apply_patch(old: Obj, patch: Any, *, patch_type: str, schema: Schema, validation: str) -> Any:
    """Apply a patch to a document; raises StatusError 400, 413, 422, or 500 as a real server."""
    _check_form(patch, patch_type)
    try:
        if patch_type == "json":
            changed = json_patch(old, patch)
        elif patch_type == "merge":
            changed = merge_patch(old, patch)
        else:
            return strategic_merge(old, patch, schema)
    except PatchError as e:
        if e.kind == "malformed" and patch_type == "strategic":
            if "does not contain declared merge key" in str(e):
                raise status.failure(500, "", str(e)) from None
            raise status.bad_request(str(e)) from None
        raise _unprocessable() from None
    if patch_type == "json" and validation == "Strict" and (unknown := _unknown_keys(patch)):
        raise invalid_patch_result(changed, patch, patch_type=patch_type, why=_strict(unknown))
    return changed


def invalid_patch_result(
    changed: Any, patch: Any, *, patch_type: str, why: str
) -> status.StatusError:
    """422 of a patch whose outcome cannot be decoded; ``why`` is the decoder's sentence."""
    if patch_type == "strategic":
        shown, why = go_text(patch), _converted(why)
    else:
        shown = msgspec.json.encode(changed, order="sorted").decode()
    error = invalid("patch", shown, why)
    text = f' "" is invalid: {error.field}: {error.text}'
    cause = {"reason": error.cause_reason, "message": error.text, "field": error.field}
    return status.failure(422, "Invalid", text, details={"causes": [cause]})


def _check_form(patch: Any, patch_type: str) -> None:
    if patch_type == "json":
        if not isinstance(patch, list):
            raise status.bad_request(_wrong_form(patch, "[]handlers.jsonPatchOp"))
        for op in patch:
            if not isinstance(op, dict):
                raise status.bad_request(_wrong_form(op, "handlers.jsonPatchOp"))
        if len(patch) > JSON_PATCH_OPERATIONS_MAX:
            raise status.failure(
                413,
                "RequestEntityTooLarge",
                "Request entity too large: The allowed maximum operations in a JSON patch is "
                f"{JSON_PATCH_OPERATIONS_MAX}, got {len(patch)}",
            )
    elif not isinstance(patch, dict):
        why = _wrong_form(patch, "map[string]interface {}")
        raise status.bad_request(
            why if patch_type == "merge" else why.removeprefix("error decoding patch: ")
        )


def _wrong_form(value: Any, wanted: str) -> str:
    kind = json_kind(value)
    return f"error decoding patch: json: cannot unmarshal {kind} into Go value of type {wanted}"


def _unprocessable() -> status.StatusError:
    return status.failure(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def _unknown_keys(ops: list[Obj]) -> list[str]:
    return [
        f'json patch unknown field "[{i}].{key}"'
        for i, op in enumerate(ops)
        for key in op
        if key not in _OPERATION_KEYS
    ]


def _strict(errors: list[str]) -> str:
    return f"strict decoding error: {', '.join(errors)}"


def _converted(why: str) -> str:
    """A type error in the words of the converter of strategic patches, which sees no JSON."""
    found = _MISFIT.fullmatch(why)
    if found is None:
        return why
    kind, wanted = found.groups()
    have = _GO_KINDS.get(kind, kind)
    if wanted in _GO_SCALARS:
        return f"cannot convert {have} to {wanted}"
    if wanted.startswith("map["):
        return f"cannot restore map from {kind if kind != 'number' else have}"
    if wanted.startswith("[]"):
        return f"cannot restore slice from {'map' if kind == 'object' else have}"
    return f"cannot restore struct from: {'slice' if kind == 'array' else have}"


def applied_object_name(resource: Resource, config: Any) -> str:
    """How apply names an object: by what the configuration itself says."""
    meta = config.get("metadata") or {}
    meta = meta if isinstance(meta, dict) else {}
    what = f"{resource.group}/{resource.version}, Kind={resource.kind}"
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {what}"


def untyped_apply_error(step: str, why: str) -> status.StatusError:
    """500 of an apply that cannot be typed; real servers have no reason for it."""
    return status.failure(500, "", f"failed to {step}: {why}")
