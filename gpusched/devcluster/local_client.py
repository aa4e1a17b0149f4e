"""In-process client: the same core, admission and versions as HTTP, without bytes or sockets.

Controllers and the stage engine use it. Every verb is synchronous and takes effect before it
returns; objects handed out are shared with the store and must be treated as read-only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import attrs

from gpusched.devcluster.status import StatusError

if TYPE_CHECKING:
    from gpusched.devcluster.verbs import Verbs

__all__ = ["LocalClient", "StatusError", "WatchItem"]

Obj = dict[str, Any]
PatchType = Literal["merge", "json", "strategic", "apply"]
USER = "system:devcluster"


@attrs.frozen(slots=True)
class WatchItem:
    """One change: its type, the object after it (for DELETED: as it was last), and before it."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Obj
    previous: Obj | None


class LocalClient:
    """Verbs on plain dicts. ``resource`` is a plural, qualified by group: ``jobs.batch``.

    Failures raise ``StatusError`` with ``code`` and ``reason`` as an HTTP client would see them.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def get(self, resource: str, namespace: str | None, name: str) -> Obj | None:
        """Return the object, or None when there is none."""
        return self._verbs.local_get(resource, namespace, name)

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        label_selector: str | None = None,
        *,
        field_selector: str | None = None,
    ) -> list[Obj]:
        """Return the matching objects in key order; None as namespace means all of them."""
        return self._verbs.local_list(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )

    def create(
        self, resource: str, obj: Obj, namespace: str | None = None, *, dry_run: bool = False
    ) -> Obj:
        """Create and return the stored object; metadata.namespace stands in for ``namespace``."""
        return self._verbs.local_create(resource, obj, namespace, dry_run=dry_run)

    def update(self, resource: str, obj: Obj, subresource: str | None = None) -> Obj:
        """Replace the object named in ``obj``; 409 when its resourceVersion is old."""
        return self._verbs.local_update(resource, obj, subresource)

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
        return self._verbs.local_patch(
            resource,
            namespace,
            name,
            patch,
            patch_type=patch_type,
            subresource=subresource,
            field_manager=field_manager,
        )

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
        return self._verbs.local_delete(
            resource, namespace, name, grace_s=grace_s, uid=uid, propagation=propagation
        )

    def bind(
        self, namespace: str, name: str, node: str, *, annotations: dict[str, str] | None = None
    ) -> None:
        """Bind a pod to a node."""
        metadata: Obj = {"name": name}
        if annotations:
            metadata["annotations"] = annotations
        self._verbs.local_connect(
            "pods",
            namespace,
            name,
            "binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": metadata,
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    def evict(self, namespace: str, name: str, *, grace_s: int | None = None) -> None:
        """Evict a pod; 429 when a disruption budget refuses."""
        body: Obj = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if grace_s is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace_s}
        self._verbs.local_connect("pods", namespace, name, "eviction", body)

    async def watch(self, resource: str) -> AsyncIterator[WatchItem]:
        """Yield the existing objects as ADDED, then each change; never ends by itself.

        An ended history (a consumer too slow for the event log) raises ``StatusError`` 410.
        """
        async for kind, obj, previous in self._verbs.local_watch(resource):
            yield WatchItem(kind, obj, previous)

    def event(self, involved: Obj, reason: str, message: str, type_: str = "Normal") -> None:
        """Record an event about an object, as controllers do; repeated ones raise the count."""
        self._verbs.local_event(involved, reason, message, type_)
