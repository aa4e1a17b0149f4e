"""Bringing custom kinds into service when definitions are written, and out when they go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster.custom import CLEANUP, CustomKind, CustomStrategy
from gpusched.devcluster.custom.validation import compile_version
from gpusched.devcluster.kinds import Resource
from gpusched.devcluster.selectors import field_reader
from gpusched.limits import WATCH_BATCH_MAX

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core
    from gpusched.devcluster.store import Change

Obj = dict[str, Any]

VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
_STATUS_VERBS: Final = ["get", "patch", "update"]


class Installer:
    """Follows the log of definitions and keeps the registry in step with it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._definitions = core.store.collection("customresourcedefinitions.apiextensions.k8s.io")
        self._position = 0

    def sync(self) -> None:
        """Act on every change not seen yet; writes status and removes finalizers."""
        while changes := self._definitions.since(self._position, WATCH_BATCH_MAX):
            self._position += len(changes)
            for change in changes:
                self._react(change)

    async def run(self) -> None:
        """Sync after every change, for ever."""
        wake = asyncio.Event()
        stop = self._definitions.listen(wake.set)
        try:
            while True:
                self.sync()
                wake.clear()
                await wake.wait()
        finally:
            stop()

    def _react(self, change: Change) -> None:
        spec = change.after.obj["spec"]
        if change.type == "DELETED":
            self._core.registry.remove(spec["group"], spec["names"]["plural"])
            return
        current = self._definitions.get(change.key)
        if current is None or current.version != change.version:
            return  # a newer change follows in the log
        if current.obj["metadata"].get("deletionTimestamp"):
            self._clean_up(change.key, current.obj)
            return
        for resource in resources_of(current.obj):
            self._core.registry.add(resource)
        self._establish(change.key, current.obj)

    def _establish(self, key: str, definition: Obj) -> None:
        if (definition.get("status") or {}).get("conditions"):
            return
        now = self._core.time_text()
        spec = definition["spec"]
        status = {
            "conditions": [
                {
                    "type": "NamesAccepted",
                    "status": "True",
                    "lastTransitionTime": now,
                    "reason": "NoConflicts",
                    "message": "no conflicts found",
                },
                {
                    "type": "Established",
                    "status": "True",
                    "lastTransitionTime": now,
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                },
            ],
            "acceptedNames": dict(spec["names"]),
            "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
        }
        meta = dict(definition["metadata"])
        meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP]
        self._definitions.put(key, {**definition, "metadata": meta, "status": status})

    def _clean_up(self, key: str, definition: Obj) -> None:
        spec = definition["spec"]
        name = f"{spec['names']['plural']}.{spec['group']}"
        objects = self._core.store.collection(name)
        for object_key in [k for k, _ in objects.scan()]:
            objects.remove(object_key)
        self._core.registry.remove(spec["group"], spec["names"]["plural"])
        meta = definition["metadata"]
        left = [f for f in meta.get("finalizers") or () if f != CLEANUP]
        if left:
            self._definitions.put(key, {**definition, "metadata": {**meta, "finalizers": left}})
        else:
            self._definitions.remove(key)


def resources_of(definition: Obj) -> list[Resource]:
    """Return the resources that a definition serves, one a served version."""
    spec = definition["spec"]
    group, names = spec["group"], spec["names"]
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        namespaced = spec["scope"] == "Namespaced"
        raw = version["schema"]["openAPIV3Schema"]
        paths = ["metadata.name", *(["metadata.namespace"] if namespaced else [])]
        paths += [f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()]
        found.append(
            Resource(
                group=group,
                version=version["name"],
                plural=names["plural"],
                singular=names["singular"],
                kind=names["kind"],
                namespaced=namespaced,
                verbs=VERBS,
                storage=f"{names['plural']}.{group}",
                strategy=CustomStrategy(has_status="status" in subresources),
                fields={path: field_reader(path) for path in paths},
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=_subresources(group, version["name"], names["kind"], subresources),
                custom=CustomKind(
                    checks=compile_version(raw, scale=subresources.get("scale")),
                    raw_schema=raw,
                    columns=tuple(version.get("additionalPrinterColumns") or ()),
                    scale=subresources.get("scale"),
                    storage_version=f"{group}/{storage}",
                ),
                list_kind=names["listKind"],
            )
        )
    return found


def _subresources(group: str, version: str, kind: str, declared: Obj) -> tuple[Obj, ...]:
    own = {"group": group, "version": version, "kind": kind}
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    found: list[Obj] = []
    if "status" in declared:
        found.append({"subresource": "status", "responseKind": own, "verbs": _STATUS_VERBS})
    if "scale" in declared:
        found.append({"subresource": "scale", "responseKind": scale, "verbs": _STATUS_VERBS})
    return tuple(found)
