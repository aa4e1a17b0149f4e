"""The objects of a simulated cluster: manifests, entered into a cache as its watches would enter them.

Every write is decoded again by the codecs of the daemon, so that nothing is known here that a
daemon could not read from the API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from gpusched.api.foreign import kinds
from gpusched.api.foreign.kinds import ForeignKind
from gpusched.api.meta.identity import ObjectKey, Rejected, ResourceVersion, format_time
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.errors import InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.io.watch.discovery import foreign_codec
from gpusched.io.watch.informers import (
    GROUP,
    KINDS,
    make_event_handlers,
    make_foreign_event_handler,
)

Obj: TypeAlias = dict[str, Any]
OWN_METADATA: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
"""What an object that is like another one does not get from it."""
_NUMBERED: Final = "-4000-8000-"
"""Part of every UID that is made here."""
_json = msgspec.json.Encoder()

_FOREIGN: Final = {(each.group, each.kind): each for each in kinds.ALL}
_PLURALS: Final = {
    ("", "Pod"): "pods",
    ("", "Node"): "nodes",
    ("", "Namespace"): "namespaces",
    ("", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("", "PersistentVolume"): "persistentvolumes",
    ("", "ResourceQuota"): "resourcequotas",
    ("batch", "Job"): "jobs",
    ("scheduling.k8s.io", "PriorityClass"): "priorityclasses",
    ("policy", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("storage.k8s.io", "StorageClass"): "storageclasses",
    (GROUP, "PodGroup"): "podgroups",
    (GROUP, "Queue"): "queues",
    (GROUP, "Topology"): "topologies",
    (GROUP, "Reservation"): "reservations",
}
_CLUSTER: Final = frozenset(
    {"nodes", "namespaces", "persistentvolumes", "priorityclasses", "storageclasses", "queues",
     "topologies", "reservations"}
)  # fmt: skip


def plural_of(obj: Obj) -> str:
    """The codec's name of an object's kind; empty for a kind that decisions do not read."""
    group = obj.get("apiVersion", "v1").rpartition("/")[0]
    return _PLURALS.get((group, obj.get("kind", "")), "")


def key_of(obj: Obj) -> ObjectKey:
    """Namespace and name; what has a namespace and names none is in ``default``."""
    metadata = obj["metadata"]
    plain = plural_of(obj) in _CLUSTER
    return ObjectKey("" if plain else metadata.get("namespace") or "default", metadata["name"])


def copied_slices(objects: Iterable[Obj], like: str, name: str) -> Iterator[Obj]:
    """ResourceSlices of a new node: those of the node that it is like, so that it has its devices.

    Args:
        objects: of the cluster.
        like: name of the node that there is.
        name: of the new one.
    """
    for obj in objects:
        spec = obj.get("spec") or {}
        if obj.get("kind") != "ResourceSlice" or spec.get("nodeName") != like:
            continue
        metadata = {key: value for key, value in obj["metadata"].items() if key not in OWN_METADATA}
        pool = {**(spec.get("pool") or {}), "name": name}
        yield {
            **obj,
            "metadata": {**metadata, "name": f"{metadata['name']}-{name}"},
            "spec": {**spec, "nodeName": name, "pool": pool},
        }


class SimulatedObjects:
    """Objects of a simulated cluster. Manifests that were given or handed out must not be changed: write new ones.

    Args:
        caches: what the code of each daemon reads.
        epoch: wall time at second 0, seconds since the Unix epoch.
    """

    def __init__(self, caches: Sequence[Cache], *, epoch: float) -> None:
        self.cache = caches[0]
        self._caches = caches
        self.epoch = epoch
        self.rejected: list[Rejected] = []
        """What the daemon would not believe, as it came."""
        self._sinks = [make_event_handlers(cache, self._note_rejected(cache)) for cache in caches]
        self._items: dict[str, dict[ObjectKey, Obj]] = {plural: {} for plural in KINDS}
        self._decoded: dict[str, dict[ObjectKey, Any]] = {plural: {} for plural in KINDS}
        """Each of them as the daemon's codecs read it."""
        self._others: dict[tuple[str, ObjectKey], Obj] = {}
        self._version = 0
        self._made = 0

    # -- reading ---------------------------------------------------------------------------
    def get(self, plural: str, key: ObjectKey) -> Obj | None:
        """An object as it is now."""
        return self._items[plural].get(key)

    def all(self, plural: str) -> Iterator[Obj]:
        """Of one kind, in the order in which they came."""
        return iter(self._items[plural].values())

    def keys(self, plural: str) -> list[ObjectKey]:
        """Keys of all of one kind, sorted."""
        return sorted(self._items[plural])

    def other(self, kind: str, namespace: str, name: str) -> Obj | None:
        """An object of a kind that decisions do not read, such as a ReplicaSet."""
        return self._others.get((kind, ObjectKey(namespace, name)))

    def others(self) -> Iterator[Obj]:
        """Of kinds of other projects and those that nothing reads, in the order in which they came."""
        return iter(self._others.values())

    # -- writing ---------------------------------------------------------------------------
    def create(self, obj: Obj, *, now: float) -> Obj:
        """A new object; what an API server fills in is filled in.

        Args:
            obj: a manifest; a UID and a time that it has already stay.
            now: seconds since the beginning.
        """
        plural = plural_of(obj)
        metadata = dict(obj["metadata"])
        if plural not in _CLUSTER:
            metadata.setdefault("namespace", "default")
        self._made += 1
        if "uid" not in metadata:
            metadata["uid"] = self._uid(self._made)
        elif _NUMBERED in metadata["uid"]:
            self._pass_number_of(metadata["uid"])
        if "creationTimestamp" not in metadata:
            metadata["creationTimestamp"] = format_time(self.epoch + now)
        metadata.setdefault("generation", 1)
        made = {**obj, "metadata": metadata}
        if not plural:
            self._create_other(made)
            return made
        return self._store(plural, made, "ADDED")

    def _uid(self, number: int) -> str:
        # Objects may come from a simulation that began earlier.
        part = int(self.epoch) & 0xFFFF
        return f"{number:08x}-{part:04x}{_NUMBERED}{number:012x}"

    def _pass_number_of(self, uid: str) -> None:
        """Give no UID to a new object that one from another simulation of this epoch may have."""
        number = int(uid[:8], 16) if re.fullmatch("[0-9a-f]{8}-.*", uid) else 0
        if uid == self._uid(number):
            self._made = max(self._made, number)

    def _create_other(self, made: Obj) -> None:
        """A kind of another project, which is read and not written; or one that nothing reads."""
        kind = made.get("kind", "")
        self._others[(kind, key_of(made))] = made
        foreign = _FOREIGN.get((made.get("apiVersion", "v1").rpartition("/")[0], kind))
        if foreign is None:
            return
        if not foreign.source:
            for cache in self._caches:
                cache.foreign.set_read(cache.families.read | {foreign.kind})
        self._tell_other(foreign, "ADDED", made)

    def remove_other(self, kind: str, key: ObjectKey) -> None:
        """An object of a kind of another project, or of one that nothing reads, is gone."""
        obj = self._others.pop((kind, key), None)
        if obj is None:
            return
        foreign = _FOREIGN.get((obj.get("apiVersion", "v1").rpartition("/")[0], kind))
        if foreign is not None:
            self._tell_other(foreign, "DELETED", obj)

    def _tell_other(self, foreign: ForeignKind, event: str, obj: Obj) -> None:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        line = _json.encode({"type": event, "object": {**obj, "metadata": metadata}})
        item = foreign_codec(foreign).decode_event(line).item
        for cache in self._caches:
            sink = make_foreign_event_handler(cache, foreign, self._note_rejected(cache))
            sink.apply(event, item)

    def write(self, obj: Obj) -> Obj:
        """Replace an object by its changed manifest."""
        return self._store(plural_of(obj), obj, "MODIFIED")

    def write_known(self, obj: Obj, **fields: Any) -> Obj:
        """Replace an object by its changed manifest, without the daemon's codec reading all of it again.

        Args:
            obj: the manifest.
            fields: all that is read of it otherwise than before, as fields of the entity.
        """
        plural, key = plural_of(obj), key_of(obj)
        known = self._decoded[plural].get(key)
        if known is None or isinstance(known, Rejected):
            return self.write(obj)
        self._version += 1
        version = str(self._version)
        made = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        replace = msgspec.structs.replace if isinstance(known, msgspec.Struct) else attrs.evolve
        item = replace(known, resource_version=ResourceVersion(version), **fields)
        self._items[plural][key] = made
        self._decoded[plural][key] = item
        self._tell(plural, "MODIFIED", item)
        return made

    def remove(self, plural: str, key: ObjectKey) -> None:
        """An object is gone."""
        if self._items[plural].pop(key, None) is not None:
            self._tell(plural, "DELETED", self._decoded[plural].pop(key))

    def _store(self, plural: str, obj: Obj, event: str) -> Obj:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        made = {**obj, "metadata": metadata}
        key = key_of(made)
        item = CODECS[plural].decode_event(_json.encode({"type": event, "object": made})).item
        if item is None:
            raise InvariantBroken(f"{plural} {key} was written as no event")
        self._items[plural][key] = made
        self._decoded[plural][key] = item
        self._tell(plural, event, item)
        return made

    def _tell(self, plural: str, event: str, item: Any) -> None:
        for sinks in self._sinks:
            sinks[plural].apply(event, item)

    def _note_rejected(self, cache: Cache) -> Callable[[str, Rejected], None]:
        """Notes what is not believed, once however many caches do not believe it."""

        def note(_kind: str, item: Rejected) -> None:
            if cache is self.cache:
                self.rejected.append(item)

        return note


def with_status(obj: Obj, **fields: Any) -> Obj:
    """The object with fields of its status set; None takes one off."""
    status = {**(obj.get("status") or {}), **fields}
    return {**obj, "status": {name: value for name, value in status.items() if value is not None}}


def with_condition(obj: Obj, condition: Obj) -> Obj:
    """The object with one condition set, in place of the one of its type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    rest = [each for each in conditions if each.get("type") != condition["type"]]
    return with_status(obj, conditions=[*rest, condition])


def with_annotations(obj: Obj, notes: dict[str, str]) -> Obj:
    """The object with annotations set; an empty value takes one off."""
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), **notes}
    kept = {name: value for name, value in annotations.items() if value}
    return {**obj, "metadata": {**metadata, "annotations": kept}}
