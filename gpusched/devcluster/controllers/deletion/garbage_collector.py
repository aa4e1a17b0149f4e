"""Deletes what has lost its owners: in the background, in the foreground, or leaves it orphaned.

The propagation policy stands in a finalizer that the API server puts on the deleted owner:
``foregroundDeletion`` (dependents first), ``orphan`` (dependents stay, without the reference).
An owner without either is simply gone, and its dependents follow.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.all_kinds_watch import AllKindsWatch
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.registry.kinds import Resource

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


@frozen
class ObjectIdentity:
    """Where an object is: plural with group, namespace (None for cluster-scoped), name."""

    resource: str
    namespace: str | None
    name: str


class GarbageCollector:
    """Follows owner references by uid.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._places: dict[str, ObjectIdentity] = {}
        self._owners: dict[str, frozenset[str]] = {}
        self._dependents: dict[str, set[str]] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(AllKindsWatch(self._client, self._see).run())
            group.create_task(serve_queue(self._queue, self.sync, name="garbage collector"))

    def _see(self, resource: str, item: WatchItem) -> None:
        metadata = item.object["metadata"]
        uid: str = metadata["uid"]
        if item.type == "DELETED":
            self._forget(uid)
            return
        self._places[uid] = ObjectIdentity(resource, metadata.get("namespace"), metadata["name"])
        owners = frozenset(ref.get("uid", "") for ref in metadata.get("ownerReferences") or ())
        fresh = owners != self._owners.get(uid, frozenset())
        if fresh:
            self._link(uid, owners)
        if (owners and fresh) or _waits(item.object):
            self._queue.add(uid)
        if "deletionTimestamp" in metadata:
            for owner in sorted(owners):  # one that waits for it may be done
                self._queue.add(owner)

    def _link(self, uid: str, owners: frozenset[str]) -> None:
        for owner in self._owners.get(uid, frozenset()) - owners:
            self._dependents.get(owner, set()).discard(uid)
        for owner in owners:
            self._dependents.setdefault(owner, set()).add(uid)
        self._owners[uid] = owners

    def _forget(self, uid: str) -> None:
        self._places.pop(uid, None)
        self._queue.remove(uid)
        for owner in sorted(self._owners.get(uid, frozenset())):
            self._queue.add(owner)
        self._link(uid, frozenset())
        self._owners.pop(uid, None)
        for dependent in sorted(self._dependents.get(uid, set())):
            self._queue.add(dependent)
        if not self._dependents.get(uid):
            self._dependents.pop(uid, None)

    def sync(self, uid: str) -> None:
        """Look at one object, as a dependent and as an owner that waits for its dependents."""
        place = self._places.get(uid)
        obj = None if place is None else self._read(place)
        if place is None or obj is None or obj["metadata"]["uid"] != uid:
            return
        if _waits(obj):
            self._release(uid, place, obj)
        elif "deletionTimestamp" not in obj["metadata"]:
            self._judge(place, obj)

    def _read(self, place: ObjectIdentity) -> Obj | None:
        try:
            return self._client.get(place.resource, place.namespace, place.name)
        except KeyError:  # its kind is no longer served, so it is gone too
            return None

    def _judge(self, place: ObjectIdentity, obj: Obj) -> None:
        """Delete an object whose owners are all gone; else drop the references to those gone."""
        references = obj["metadata"].get("ownerReferences") or []
        if not references:
            return
        solid: list[Obj] = []
        waiting: list[Obj] = []
        for reference in references:
            kind = self._client.kind_of(reference.get("apiVersion", ""), reference.get("kind", ""))
            if kind is None:
                solid.append(reference)  # whether such an owner is gone cannot be known
                continue
            if kind.namespaced and place.namespace is None:
                return  # such an owner is in no namespace; real clusters let the object be as well
            owner = self._owner(kind, reference, place, obj)
            if owner is not None:
                (waiting if _in_foreground(owner) else solid).append(reference)
        if not solid:
            self._delete(place, obj, foreground=bool(waiting))
        elif len(solid) < len(references):
            self._patch(place, {"metadata": {"ownerReferences": solid}})

    def _owner(self, kind: Resource, reference: Obj, place: ObjectIdentity, obj: Obj) -> Obj | None:
        """The owner where the dependent is, else cluster-wide; those of other namespaces own nothing."""
        where = place.namespace if kind.namespaced else None
        uid = reference.get("uid", "")
        owner = self._read(ObjectIdentity(kind.qualified, where, reference.get("name", "")))
        if owner is not None and owner["metadata"]["uid"] == uid:
            return owner
        known = self._places.get(uid)
        if known is not None and where is not None and known.namespace not in {None, where}:
            version, name = reference.get("apiVersion", ""), reference.get("name", "")
            who = f"[{version}/{kind.kind}, namespace: {where}, name: {name}, uid: {uid}]"
            message = f'ownerRef {who} does not exist in namespace "{where}"'
            self._client.event(
                obj,
                "OwnerRefInvalidNamespace",
                message,
                "Warning",
                component="garbage-collector-controller",
            )
        return None

    def _delete(self, place: ObjectIdentity, obj: Obj, *, foreground: bool) -> None:
        """Delete a dependent; in the foreground when it has dependents that must go before it."""
        metadata = obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        policy = "Background"
        if foreground and self._dependents.get(metadata["uid"]):
            self._break_circles(place, obj)
            policy = "Foreground"
        elif ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        try:
            self._client.delete(
                place.resource,
                place.namespace,
                place.name,
                uid=metadata["uid"],
                propagation=policy,
            )
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone, or another object by that name
                raise

    def _break_circles(self, place: ObjectIdentity, obj: Obj) -> None:
        """Let an object hold up no owner when one of its own dependents waits to go already."""
        for uid in sorted(self._dependents.get(obj["metadata"]["uid"], set())):
            where = self._places.get(uid)
            dependent = None if where is None else self._read(where)
            if dependent is not None and _in_foreground(dependent):
                references = [
                    {**r, "blockOwnerDeletion": False} if r.get("blockOwnerDeletion") else r
                    for r in obj["metadata"]["ownerReferences"]
                ]
                self._patch(place, {"metadata": {"ownerReferences": references}})
                return

    def _release(self, uid: str, place: ObjectIdentity, obj: Obj) -> None:
        """Deal with the dependents of a deleted owner; take its finalizer off when done."""
        dependents = [
            (where, found)
            for where in (self._places[d] for d in sorted(self._dependents.get(uid, set())))
            if (found := self._read(where)) is not None
        ]
        if ORPHAN in obj["metadata"]["finalizers"]:
            for where, found in dependents:
                references = found["metadata"].get("ownerReferences") or []
                kept = [r for r in references if r.get("uid") != uid]
                self._patch(where, {"metadata": {"ownerReferences": kept or None}})
        else:
            blocking = False
            for where, found in dependents:
                blocking = blocking or _blocks(found, uid)
                if "deletionTimestamp" not in found["metadata"]:
                    self._judge(where, found)
            if blocking:
                return  # their deletion brings this owner back
        gone = {ORPHAN, FOREGROUND}
        kept = [name for name in obj["metadata"]["finalizers"] if name not in gone]
        self._patch(place, {"metadata": {"finalizers": kept or None}})

    def _patch(self, place: ObjectIdentity, patch: Obj) -> None:
        self._client.patch(place.resource, place.namespace, place.name, patch)


def _waits(obj: Obj) -> bool:
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or ()
    return "deletionTimestamp" in metadata and (FOREGROUND in finalizers or ORPHAN in finalizers)


def _in_foreground(owner: Obj) -> bool:
    return _waits(owner) and FOREGROUND in owner["metadata"]["finalizers"]


def _blocks(dependent: Obj, owner: str) -> bool:
    references = dependent["metadata"].get("ownerReferences") or ()
    return any(r.get("uid") == owner and r.get("blockOwnerDeletion") for r in references)
