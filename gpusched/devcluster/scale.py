"""The scale subresource of custom kinds: one number behind two paths."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]


def scale_of(obj: Obj, paths: Obj) -> Obj:
    """Return the Scale that an object shows under the paths of its definition."""
    meta = obj["metadata"]
    status: Obj = {"replicas": _get(obj, paths.get("statusReplicasPath", "")) or 0}
    if selector := _get(obj, paths.get("labelSelectorPath", "")):
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": _get(obj, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def scaled(obj: Obj, paths: Obj, scale: Obj) -> Obj:
    """Return the object with the replicas of a Scale; an old version is kept for the conflict."""
    meta = dict(obj["metadata"])
    if version := (scale.get("metadata") or {}).get("resourceVersion"):
        meta["resourceVersion"] = version
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return {**_put(obj, _keys(paths["specReplicasPath"]), replicas), "metadata": meta}


def _keys(path: str) -> list[str]:
    return [key for key in path.split(".") if key]


def _get(obj: Obj, path: str) -> Any:
    value: Any = obj
    for key in _keys(path):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value if path else None


def _put(obj: Obj, keys: list[str], value: Any) -> Obj:
    first, *rest = keys
    inner = _put(obj.get(first) or {}, rest, value) if rest else value
    return {**obj, first: inner}
