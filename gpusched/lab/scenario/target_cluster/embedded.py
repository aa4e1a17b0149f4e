"""The embedded cluster as a ground: every change is told in the moment it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import SYSTEM, LocalClient
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions
from gpusched.devcluster.cluster import DevCluster
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage import store
from gpusched.lab.scenario.target_cluster.interface import Obj, ObjectChange, WriteRefused

MANAGER: Final = "gpusched-scenario"
_OWN_GROUP: Final = "scheduling.gpusched.io"
_TOO_MANY: Final = 429


class EmbeddedTarget:
    """A ground over a running embedded cluster.

    Args:
        cluster: it is used, not owned.
        clock: the cluster's.
    """

    embedded = True

    def __init__(self, cluster: DevCluster, clock: Clock) -> None:
        self.clock = clock
        self.cluster = cluster
        self._begin = clock.monotonic()
        self._client: LocalClient = cluster.client.acting_as(MANAGER)
        self._api = cluster.api
        self._kinds: dict[str, str] = {}
        self._served = -1
        self._listeners: list[Callable[[ObjectChange], None]] = []
        cluster.core.store.observers.append(self._observe)

    def close(self) -> None:
        """Listen to changes no longer."""
        self.cluster.core.store.observers.remove(self._observe)

    def begin(self) -> None:
        """Begin the run: changes are told in seconds since this moment."""
        self._begin = self.clock.monotonic()

    def check(self) -> None:
        """Nothing to check: the cluster is in this process."""

    # -- writes ------------------------------------------------------------------------------
    async def apply(self, obj: Obj) -> Obj:
        """Apply an object server-side; fields that the kind does not have are refused."""
        meta = obj.get("metadata") or {}
        kind = self._kind(obj.get("kind") or "", obj.get("apiVersion") or "")
        place = (meta.get("namespace") or "default") if kind.namespaced else ""
        name = meta.get("name")
        try:
            if not name:
                options = WriteOptions(validation="Strict", manager=MANAGER, user=SYSTEM)
                body = {**obj, "metadata": dict(meta)}
                stored = self._api.create(kind, place, body, options=options)
            else:
                options = WriteOptions(
                    validation="Strict",
                    manager=MANAGER,
                    operation="Apply",
                    force=True,
                    user=SYSTEM,
                )
                stored, _ = self._api.patch(
                    kind, place, name, patch=obj, patch_type="apply", options=options
                )
        except StatusError as error:
            raise WriteRefused(
                _error_text(kind, place, name or meta.get("generateName", ""), error)
            ) from None
        finally:
            self.cluster.sync()
        return stored.obj

    async def patch(self, kind: str, namespace: str, name: str, body: Obj, *, status: bool) -> None:
        """Apply a merge patch to an object or its status."""
        served = self._kind(kind)
        try:
            self._client.patch(
                served.qualified,
                namespace if served.namespaced else "",
                name,
                body,
                subresource="status" if status else None,
            )
        except StatusError as error:
            raise WriteRefused(_error_text(served, namespace, name, error)) from None

    async def delete(
        self, kind: str, namespace: str, name: str, *, grace_s: int | None = None
    ) -> None:
        """Delete an object in the background."""
        served = self._kind(kind)
        place = namespace if served.namespaced else ""
        try:
            self._client.delete(
                served.qualified, place, name, grace_s=grace_s, propagation="Background"
            )
        except StatusError as error:
            if error.code != 404:
                raise WriteRefused(_error_text(served, place, name, error)) from None

    async def evict(self, namespace: str, name: str) -> bool:
        """Evict a pod; False when a disruption budget refuses for now."""
        try:
            self._client.evict(namespace, name)
        except StatusError as error:
            if error.code == _TOO_MANY:
                return False
            if error.code != 404:
                raise WriteRefused(_error_text(self._kind("Pod"), namespace, name, error)) from None
        return True

    # -- reads -------------------------------------------------------------------------------
    def list(self, kind: str) -> Sequence[Obj]:
        """Objects of a kind as last seen; every kind that is served is watched."""
        return self._client.list(self._kind(kind).qualified)

    def on_change(self, listener: Callable[[ObjectChange], None]) -> None:
        """Tell a listener of every change, of what is there first."""
        at = self._now()
        for collection in self.cluster.core.store.collections():
            kind = self._kind_of(collection.name)
            if kind:
                for _, stored in list(collection.scan()):
                    listener(ObjectChange(at, kind, stored.obj, gone=False))
        self._listeners.append(listener)

    # -- inside ------------------------------------------------------------------------------
    def _now(self) -> float:
        # Sums of floats: what is due at a whole second should be told as that.
        return round(max(0.0, self.clock.monotonic() - self._begin), 6)

    def _observe(self, name: str, change: store.Change) -> None:
        if not self._listeners:
            return
        kind = self._kinds.get(name) or self._kind_of(name)
        if not kind:
            return
        told = ObjectChange(self._now(), kind, change.after.obj, gone=change.type == "DELETED")
        for listener in self._listeners:
            listener(told)

    def _kind_of(self, storage: str) -> str:
        """Kind of what a collection holds; empty where nothing serves it."""
        registry = self.cluster.core.registry
        if registry.generation != self._served:
            self._kinds = {each.storage: each.kind for each in registry.resources()}
            self._served = registry.generation
        return self._kinds.get(storage, "")

    def _kind(self, kind: str, api_version: str = "") -> Resource:
        """The served resource of a kind; of several groups ours comes first, then built-ins."""
        registry = self.cluster.core.registry
        if api_version:
            found = registry.by_kind(api_version, kind)
            if found is None:
                raise WriteRefused(f"the cluster serves no {kind} of {api_version}")
            return found
        served = [each for each in registry.resources() if each.kind == kind]
        if not served:
            raise WriteRefused(f"the cluster serves no kind {kind}")
        return min(served, key=lambda each: (each.group != _OWN_GROUP, each.custom is not None))


def _error_text(kind: Any, namespace: str, name: str, error: StatusError) -> str:
    place = f"{namespace}/{name}" if namespace else name
    return f"{kind.kind} {place}: {error.message}"
