"""Bringing custom kinds into service when definitions are written, and out when they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from gpusched.devcluster.apimachinery.limits import WATCH_BATCH_MAX
from gpusched.devcluster.apimachinery.selectors import field_reader
from gpusched.devcluster.apiserver import api_services
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.apiserver.writing.deletion import DeleteOptions, delete_object
from gpusched.devcluster.registry.custom.kind import (
    CLEANUP,
    CustomKind,
    CustomStrategy,
    definition_condition,
)
from gpusched.devcluster.registry.custom.validation import compile_version
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage.store import Change

Obj = dict[str, Any]

VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
_STATUS_VERBS: Final = ["get", "patch", "update"]


class CustomKindController:
    """Follows the log of definitions and updates the registry from it."""

    def __init__(self, core: ServerState) -> None:
        self._core = core
        self._definitions = core.store.collection("customresourcedefinitions.apiextensions.k8s.io")
        self._position = 0
        self._wake: Callable[[], None] = _no_waker
        self._emptying: dict[str, Callable[[], None]] = {}

    def sync(self) -> None:
        """Act on every change not seen yet; writes status and removes finalizers."""
        for key in list(self._emptying):
            self._clean_up(key)
        served = self._core.registry.generation
        while changes := self._definitions.since(self._position, WATCH_BATCH_MAX):
            self._position += len(changes)
            for change in changes:
                self._react(change)
        if served != self._core.registry.generation:
            api_services.sync_api_services(self._core)

    def reload(self) -> None:
        """Start over from the definitions that are stored now, after the store was reset."""
        for resource in self._core.registry.resources():
            if resource.custom is not None:
                self._core.registry.remove(resource.group, resource.plural)
        self._position = self._definitions.end
        for _, stored in self._definitions.scan():
            for resource in resources_of(stored.obj):
                self._core.registry.add(resource)

    async def run(self) -> None:
        """Sync after every change, for ever."""
        wake = asyncio.Event()
        self._wake = wake.set
        stop = self._definitions.listen(wake.set)
        try:
            while True:
                self.sync()
                wake.clear()
                await wake.wait()
        finally:
            stop()
            self._wake = _no_waker

    def _react(self, change: Change) -> None:
        spec = change.after.obj["spec"]
        if change.type == "DELETED":
            self._core.registry.remove(spec["group"], spec["names"]["plural"])
            self._forget(change.key)
            for key, stored in list(self._definitions.scan()):
                if _disputed(stored.obj):
                    self._establish(key, stored.obj)
            return
        current = self._definitions.get(change.key)
        if current is None or current.version != change.version:
            return  # a newer change follows in the log
        if current.obj["metadata"].get("deletionTimestamp"):
            self._clean_up(change.key)
            return
        self._establish(change.key, current.obj)

    def _establish(self, key: str, definition: Obj) -> None:
        """Accept the names that no other definition has, and serve the versions when all are accepted."""
        accepted, conflict = accepted_names(definition, self._others(key))
        names = definition_condition(
            "NamesAccepted", "True", "NoConflicts", message="no conflicts found"
        )
        if conflict:
            names = definition_condition("NamesAccepted", "False", conflict[0], message=conflict[1])
        status = definition.get("status") or {}
        before = {c["type"]: c for c in status.get("conditions") or ()}
        if not conflict:
            why = "the initial names have been accepted"
            ready = definition_condition("Established", "True", "InitialNamesAccepted", message=why)
        else:
            why = "not all names are accepted"
            ready = definition_condition("Established", "False", "NotAccepted", message=why)
        if (before.get("Established") or {}).get("status") == "True":
            ready = before["Established"]  # once established, a kind is served for ever
        conditions = [self._dated(c, before) for c in (names, ready)]
        conditions += [
            c for kind, c in before.items() if kind not in {names["type"], ready["type"]}
        ]
        if ready["status"] == "True":
            self._serve(definition)
        meta = dict(definition["metadata"])
        finalizers = list(meta.get("finalizers") or ())
        if ready["status"] == "True" and CLEANUP not in finalizers:
            meta["finalizers"] = [*finalizers, CLEANUP]
        stored = status.get("storedVersions") or [
            v["name"] for v in definition["spec"]["versions"] if v.get("storage")
        ]
        new_status = {
            "conditions": conditions, "acceptedNames": accepted, "storedVersions": stored,
        }  # fmt: skip
        if new_status != status or meta != definition["metadata"]:
            self._definitions.write(key, {**definition, "metadata": meta, "status": new_status})

    def _dated(self, condition: Obj, before: dict[str, Obj]) -> Obj:
        old = before.get(condition["type"])
        if old is not None and all(
            old.get(k) == condition[k] for k in ("status", "reason", "message")
        ):
            return old
        same = old is not None and old.get("status") == condition["status"]
        when = old["lastTransitionTime"] if same and old is not None else self._core.time_text()
        return {**condition, "lastTransitionTime": when}

    def _others(self, key: str) -> list[Obj]:
        return [stored.obj for other, stored in self._definitions.scan() if other != key]

    def _serve(self, definition: Obj) -> None:
        spec = definition["spec"]
        self._core.registry.remove(spec["group"], spec["names"]["plural"])
        for resource in resources_of(definition):
            self._core.registry.add(resource)

    def _clean_up(self, key: str) -> None:
        """Delete the objects of a terminating definition, which waits for their finalizers."""
        current = self._definitions.get(key)
        if current is None:
            self._forget(key)
            return
        definition = current.obj
        spec = definition["spec"]
        collection = self._core.store.collection(f"{spec['names']['plural']}.{spec['group']}")
        resource = next(iter(resources_of(definition)), None)
        for _, stored in list(collection.scan()):
            if resource is not None and not stored.obj["metadata"].get("deletionTimestamp"):
                delete_object(self._core, resource, stored, options=DeleteOptions())
        if len(collection):
            self._serve(definition)
            if key not in self._emptying:
                self._emptying[key] = collection.listen(self._wake)
            return
        self._forget(key)
        self._core.registry.remove(spec["group"], spec["names"]["plural"])
        meta = definition["metadata"]
        left = [f for f in meta.get("finalizers") or () if f != CLEANUP]
        if not left:
            self._definitions.remove(key)
        elif CLEANUP in (meta.get("finalizers") or ()):
            self._definitions.write(key, {**definition, "metadata": {**meta, "finalizers": left}})

    def _forget(self, key: str) -> None:
        if stop := self._emptying.pop(key, None):
            stop()


def _disputed(definition: Obj) -> bool:
    """Whether names of a definition were taken, so that they may be free now."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "NamesAccepted" and c["status"] == "False" for c in conditions)


def _no_waker() -> None:
    """Stand in for the waker while the controller does not run."""


_NAMES: Final = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


def accepted_names(definition: Obj, others: list[Obj]) -> tuple[Obj, tuple[str, str] | None]:
    """Return the names of a definition that no other of its group has, and the last conflict.

    Resources (plural, singular, short names) share one space, kinds another.
    """
    wanted = definition["spec"]["names"]
    group = definition["spec"]["group"]
    taken = [
        (other.get("status") or {}).get("acceptedNames") or {}
        for other in others
        if other["spec"]["group"] == group
    ]
    resources = {n for t in taken for n in (t.get("plural"), t.get("singular"))}
    resources |= {n for t in taken for n in t.get("shortNames") or ()}
    kinds = {n for t in taken for n in (t.get("kind"), t.get("listKind"))}
    accepted: Obj = {"plural": "", "kind": ""}
    conflict: tuple[str, str] | None = None
    for key, reason in _NAMES:
        value = wanted.get(key)
        used = kinds if key in {"kind", "listKind"} else resources
        values = value if isinstance(value, list) else [value] if value else []
        clashes = [v for v in values if v in used]
        if clashes:
            messages = [f'"{v}" is already in use' for v in clashes]
            message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
            conflict = (reason, message)
        elif value:
            accepted[key] = value
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    return accepted, conflict


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
                    changed=len(spec["versions"]) > 1
                    or definition["metadata"].get("generation", 1) > 1,
                    terminating=bool(definition["metadata"].get("deletionTimestamp")),
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
