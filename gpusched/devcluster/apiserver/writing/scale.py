"""The scale subresource: one number behind two paths, of custom and of built-in kinds."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import invalid
from gpusched.devcluster.apimachinery.selector_validation import as_text
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.schema.build import builtin_builder
from gpusched.devcluster.schema.schema import Schema

Obj = dict[str, Any]

_BUILTIN: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}


def paths_of(resource: Resource) -> Obj:
    """Paths of the replica counts of a kind with a scale; the same for all built-in kinds."""
    if resource.custom is None:
        return _BUILTIN
    paths = resource.custom.scale
    assert paths is not None, "routes lead here only when the kind has a scale"
    return paths


def scale_schema() -> Schema:
    """The schema of a Scale, which is shipped with the kinds that have one."""
    return Schema(
        node=builtin_builder("apps", "v1").kind("autoscaling", "v1", "Scale"), builtin=True
    )


def scale_of(obj: Obj, paths: Obj) -> Obj:
    """Return the Scale that an object shows under the paths of its definition."""
    meta = obj["metadata"]
    state: Obj = {"replicas": _get(obj, paths.get("statusReplicasPath", "")) or 0}
    if selector := _get(obj, paths.get("labelSelectorPath", "")):
        state["selector"] = as_text(selector) if isinstance(selector, dict) else selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = _get(obj, paths["specReplicasPath"])
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": state,
    }


def with_scale(resource: Resource, obj: Obj, scale: Any) -> Obj:
    """Return the object with the replicas of a Scale; an old version is kept for the conflict.

    Raises StatusError 400, 409 for the Scale of another object, 422 for a negative count.
    """
    name = obj["metadata"]["name"]
    if not isinstance(scale, dict):
        raise status.bad_request("the body is no Scale")
    if (why := scale_schema().decode_error(scale)) is not None:
        raise status.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {why}')
    meta, replicas = scale.get("metadata") or {}, (scale.get("spec") or {}).get("replicas") or 0
    if (meta.get("name") or name) != name:
        raise status.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    if replicas < 0:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.invalid("Scale", "autoscaling", name, errors=[error])
    uid, held = meta.get("uid") or "", obj["metadata"]["uid"]
    if uid and uid != held:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held}"
        raise status.conflict(f"{resource.plural}/scale", resource.group, name, why=why)
    mine = dict(obj["metadata"])
    if version := meta.get("resourceVersion"):
        mine["resourceVersion"] = version
    return {
        **_with_value(obj, _keys(paths_of(resource)["specReplicasPath"]), replicas),
        "metadata": mine,
    }


def _keys(path: str) -> list[str]:
    return [key for key in path.split(".") if key]


def _get(obj: Obj, path: str) -> Any:
    value: Any = obj
    for key in _keys(path):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value if path else None


def _with_value(obj: Obj, keys: list[str], value: Any) -> Obj:
    first, *rest = keys
    inner = _with_value(obj.get(first) or {}, rest, value) if rest else value
    return {**obj, first: inner}
