"""In-process client: the same core, admission and versions as HTTP, without bytes or sockets.

Controllers and the stage engine use it. Every verb is synchronous and takes effect before it
returns; objects handed out are shared with the store and must be treated as read-only.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from typing import Any, Final, Literal

from gpusched.devcluster.apimachinery.metadata import copy_tree
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.rbac.rules import EVERYONE, MASTERS, User, account_user
from gpusched.devcluster.apiserver.reading.lists import object_predicate
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.apiserver.writing.deletion import DeleteOptions
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage.change_feed import See, WatchItem
from gpusched.devcluster.storage.store import Stored

__all__ = ["LocalClient", "StatusError", "WatchItem"]

Obj = dict[str, Any]
PatchType = Literal["merge", "json", "strategic", "apply"]
USER = "system:devcluster"
SYSTEM = User(USER, (MASTERS, EVERYONE))
"""The user that admission policies see where no service account is named."""
_BATCH: Final = 64


class LocalClient:
    """Verbs on plain dicts. ``resource`` is a plural, qualified by group: ``jobs.batch``.

    Failures raise ``StatusError`` with ``code`` and ``reason`` as an HTTP client would see them.
    """

    def __init__(self, api: ResourceApi, manager: str = USER, account: User = SYSTEM) -> None:
        self._api = api
        self._core = api.core
        self._manager = manager
        self._account = account

    def acting_as(self, manager: str, *, account: str = "") -> LocalClient:
        """Return a client whose writes are recorded under another field manager's name.

        ``account`` names the service account in kube-system that admission policies see.
        """
        user = account_user("kube-system", account) if account else self._account
        return LocalClient(self._api, manager, user)

    def _options(self, **given: Any) -> WriteOptions:
        """The options of a write by this client, without complaints about unknown fields."""
        given = {"validation": "Ignore", "manager": self._manager, "user": self._account, **given}
        return WriteOptions(**given)

    def kind_of(self, api_version: str, kind: str) -> Resource | None:
        """Return the served resource of a kind, None when there is none."""
        return self._core.registry.by_kind(api_version, kind)

    def builtins(self) -> list[Resource]:
        """Return the built-in resources that can be written, one version of each."""
        found = self._core.registry.resources()
        return [
            r
            for r in found
            if r.custom is None and not r.only_read and self._core.registry.named(r.qualified) is r
        ]

    def get(self, resource: str, namespace: str | None, name: str) -> Obj | None:
        """Return the object, or None when there is none."""
        kind = self._core.registry.named(resource)
        key = kind.key(namespace or "", name)
        stored = self._core.store.collection(kind.storage).get(key)
        return None if stored is None else stored.obj

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        label_selector: str | None = None,
        *,
        field_selector: str | None = None,
    ) -> list[Obj]:
        """Return the matching objects in key order; None as namespace means all of them."""
        kind = self._core.registry.named(resource)
        match = object_predicate(kind, label_selector or "", field_text=field_selector or "")
        found = self._core.store.collection(kind.storage).scan(namespace or "")
        return [s.obj for _, s in found if match is None or match(s.obj)]

    def create(
        self, resource: str, obj: Obj, namespace: str | None = None, *, dry_run: bool = False
    ) -> Obj:
        """Create and return the stored object; metadata.namespace stands in for ``namespace``."""
        kind = self._core.registry.named(resource)
        place = namespace or (obj.get("metadata") or {}).get("namespace") or ""
        options = self._options(dry_run=dry_run)
        return self._api.create(kind, place, copy_tree(obj), options=options).obj

    def update(self, resource: str, obj: Obj, subresource: str | None = None) -> Obj:
        """Replace the object named in ``obj``; 409 when its resourceVersion is old."""
        kind = self._core.registry.named(resource)
        meta = obj["metadata"]
        stored, _ = self._api.replace(
            kind,
            meta.get("namespace", ""),
            meta["name"],
            body=copy_tree(obj),
            options=self._options(),
            subresource=subresource or "",
        )
        return stored.obj

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        patch_type: PatchType = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Obj:
        """Patch and return the stored object; a patch that changes nothing writes nothing."""
        options = self._options(
            manager=field_manager or self._manager,
            operation="Apply" if patch_type == "apply" else "Update",
            force=patch_type == "apply",
        )
        stored, _ = self._api.patch(
            self._core.registry.named(resource),
            namespace or "",
            name,
            patch=patch,
            patch_type=patch_type,
            options=options,
            subresource=subresource or "",
        )
        return stored.obj

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        propagation: str | None = None,
    ) -> Obj:
        """Delete, gracefully where the kind knows grace; return the answer of the server."""
        options = DeleteOptions(grace_s=grace_s, uid=uid or "", propagation=propagation or "")
        kind = self._core.registry.named(resource)
        answer, _ = self._api.delete(
            kind, namespace or "", name, options=options, by=self._options()
        )
        return answer.obj if isinstance(answer, Stored) else answer

    def bind(
        self, namespace: str, name: str, node: str, *, annotations: dict[str, str] | None = None
    ) -> None:
        """Bind a pod to a node."""
        metadata: Obj = {"name": name}
        if annotations:
            metadata["annotations"] = annotations
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._api.connect(namespace, name, "binding", body=body, options=self._options())

    def evict(self, namespace: str, name: str, *, grace_s: int | None = None) -> None:
        """Evict a pod; 429 when a disruption budget refuses, 500 when it has two of them."""
        body: Obj = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if grace_s is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace_s}
        answer = self._api.connect(namespace, name, "eviction", body=body, options=self._options())
        if answer["status"] != "Success":
            raise StatusError(answer)

    async def watch(self, resource: str) -> AsyncGenerator[WatchItem]:
        """Yield the existing objects as ADDED, then each change; never ends by itself.

        However slow the consumer, it misses nothing: its place in the history is kept.
        """
        kind = self._core.registry.named(resource)
        collection = self._core.store.collection(kind.storage)
        wake = asyncio.Event()
        stop = collection.listen(wake.set)
        pin = collection.pin()
        try:
            for _, stored in list(collection.scan()):
                yield WatchItem("ADDED", stored.obj, None)
            while True:
                wake.clear()
                changes = collection.since(pin.position, _BATCH)
                assert changes is not None, "the pin keeps them"
                for change in changes:
                    pin.position += 1
                    previous = None if change.before is None else change.before.obj
                    yield WatchItem(change.type, change.after.obj, previous)
                if len(changes) == _BATCH:
                    await asyncio.sleep(0)  # noqa: TID251 - a long backlog must not hold up the server
                else:
                    await wake.wait()
        finally:
            stop()
            collection.unpin(pin)

    async def follow(self, resource: str, see: See) -> None:
        """As ``watch``, but ``see`` is called with each change: many followers cost little.

        Never ends by itself. What ``see`` raises comes through.
        """
        kind = self._core.registry.named(resource)
        await self._core.following(kind.storage).follow(see)

    def event(
        self,
        involved: Obj,
        reason: str,
        message: str,
        type_: str = "Normal",
        *,
        component: str = USER,
    ) -> None:
        """Record an event about an object, as controllers do; repeated ones raise the count.

        ``component`` is the source that ``kubectl describe`` shows.
        """
        meta = involved["metadata"]
        namespace = meta.get("namespace") or "default"
        now = self._core.time_text()
        identity = f"{meta['uid']}/{reason}/{type_}/{message}"
        name = f"{meta['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        known = self.get("events", namespace, name)
        if known is not None:
            again = {"count": known.get("count", 1) + 1, "lastTimestamp": now}
            self.patch("events", namespace, name, again)
            return
        if self.get("namespaces", None, namespace) is None:
            return  # the namespace is gone, and its events with it
        about = {
            "kind": involved["kind"],
            "apiVersion": involved["apiVersion"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        if meta.get("namespace"):
            about["namespace"] = meta["namespace"]
        event: Obj = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": type_,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": component},
            "reportingComponent": component,
        }
        try:
            self.create("events", event, namespace)
        except StatusError as e:
            if e.code != 403:  # a terminating namespace accepts no more events
                raise
