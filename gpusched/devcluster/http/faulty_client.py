"""In-process access that fault rules strike, for programs that run beside the cluster.

Its verbs are synchronous, so delays do not match them; lost connections are raised as
``LostConnection`` and made answers as ``StatusError``, as an HTTP client would tell them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.client.local_client import (
    LocalClient,
    Obj,
    PatchType,
    WatchItem,
)
from gpusched.devcluster.apiserver.reading.lists import object_predicate
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.control.fault_rules import FaultEffect, RequestFacts
from gpusched.devcluster.http.handler_chain import HandlerChain, LostConnection, injected_status


class FaultyClient(LocalClient):
    """A ``LocalClient`` behind faults.

    Args:
        api: the cluster.
        handlers: holds the rules.
        user, agent: what fault rules match.
    """

    def __init__(
        self, api: ResourceApi, handlers: HandlerChain, *, user: str, agent: str = ""
    ) -> None:
        super().__init__(api)
        self._handlers = handlers
        self._user = user
        self._agent = agent

    def _meet(
        self, verb: str, resource: str, namespace: str | None, name: str, subresource: str
    ) -> FaultEffect | None:
        kind = self._core.registry.named(resource)
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        place = f"/namespaces/{namespace}" if namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        facts = RequestFacts(
            verb=verb,
            path=f"{root}{place}/{kind.plural}{tail}",
            resource=f"{resource}/{subresource}" if subresource else resource,
            namespace=namespace or "",
            name=name,
            user=self._user,
            agent=self._agent,
        )
        met = self._handlers.faults.meet(facts, self._handlers.elapsed_s, can_wait=False)
        return met.fault

    @contextmanager
    def _struck(
        self, verb: str, resource: str, namespace: str | None, name: str = "", sub: str = ""
    ) -> Iterator[FaultEffect | None]:
        fault = self._meet(verb, resource, namespace, name, sub)
        if fault is not None and fault.type == "status":
            raise injected_status(fault)
        if fault is not None and fault.type == "lost" and not fault.applied:
            raise LostConnection("before the request took effect")
        if fault is not None and fault.type == "expired" and verb == "list":
            raise status.expired("too old resource version")
        yield fault
        if fault is not None and fault.type in {"lost", "truncate"}:
            raise LostConnection("the answer is lost")

    def get(self, resource: str, namespace: str | None, name: str) -> Obj | None:
        """Call ``LocalClient.get`` after the fault rules."""
        with self._struck("get", resource, namespace, name):
            return super().get(resource, namespace, name)

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        label_selector: str | None = None,
        *,
        field_selector: str | None = None,
    ) -> list[Obj]:
        """See ``LocalClient.list``; a lag shows the past."""
        with self._struck("list", resource, namespace) as fault:
            if fault is None or fault.type != "lag":
                return super().list(
                    resource, namespace, label_selector, field_selector=field_selector
                )
            kind = self._core.registry.named(resource)
            match = object_predicate(kind, label_selector or "", field_text=field_selector or "")
            collection = self._core.store.collection(kind.storage)
            version = max(self._handlers.version_behind(fault), collection.trimmed_version)
            found = collection.scan_at(version, namespace or "") or ()
            return [s.obj for _, s in found if match is None or match(s.obj)]

    def create(
        self, resource: str, obj: Obj, namespace: str | None = None, *, dry_run: bool = False
    ) -> Obj:
        """Call ``LocalClient.create`` after the fault rules."""
        place = namespace or (obj.get("metadata") or {}).get("namespace")
        name = (obj.get("metadata") or {}).get("name") or ""
        with self._struck("create", resource, place, name):
            return super().create(resource, obj, namespace, dry_run=dry_run)

    def update(self, resource: str, obj: Obj, subresource: str | None = None) -> Obj:
        """Call ``LocalClient.update`` after the fault rules."""
        meta = obj["metadata"]
        with self._struck(
            "update", resource, meta.get("namespace"), meta["name"], subresource or ""
        ):
            return super().update(resource, obj, subresource)

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
        """Call ``LocalClient.patch`` after the fault rules."""
        with self._struck("patch", resource, namespace, name, subresource or ""):
            return super().patch(
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
        """Call ``LocalClient.delete`` after the fault rules."""
        with self._struck("delete", resource, namespace, name):
            return super().delete(
                resource, namespace, name, grace_s=grace_s, uid=uid, propagation=propagation
            )

    def bind(
        self, namespace: str, name: str, node: str, *, annotations: dict[str, str] | None = None
    ) -> None:
        """Call ``LocalClient.bind`` after the fault rules."""
        with self._struck("create", "pods", namespace, name, "binding"):
            super().bind(namespace, name, node, annotations=annotations)

    def evict(self, namespace: str, name: str, *, grace_s: int | None = None) -> None:
        """Call ``LocalClient.evict`` after the fault rules."""
        with self._struck("create", "pods", namespace, name, "eviction"):
            super().evict(namespace, name, grace_s=grace_s)

    async def watch(self, resource: str) -> AsyncGenerator[WatchItem]:
        """See ``LocalClient.watch``; may drop (LostConnection), end, stall or raise 410."""
        with self._struck("watch", resource, None) as fault:
            pass
        if fault is not None and fault.type == "expired":
            raise status.expired("too old resource version")
        left = -1
        if fault is not None and fault.type in {"drop", "stall"}:
            left = fault.after_events
        async with aclosing(super().watch(resource)) as items:
            while left:
                yield await anext(items)
                left -= 1
        if fault is not None and fault.type == "stall":
            await asyncio.get_running_loop().create_future()
        if fault is None or not fault.clean:
            raise LostConnection("a watch is dropped")
