"""Makes resource claims from the templates that pods name, and frees claims that are no longer used.

A claim made for a pod is owned by it and found again by an annotation, so that a pod gets no
second one. Reservations of pods that are gone or done are dropped; with the last of them goes the
allocation, if the claim carries the finalizer that schedulers put on what they allocate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Literal

import attrs

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.registry.devices.resource_claims import RESERVED_MAX

CLAIMS: Final = "resourceclaims.resource.k8s.io"
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_COMPONENT: Final = "resource_claim"
_PREFIX_MAX: Final = 57
"""Longest prefix of a generated name: a hyphen and five characters follow it."""


@attrs.frozen
class _Key:
    kind: Literal["pod", "claim"]
    namespace: str
    name: str


class ResourceClaimController:
    """Creates the claims of pods from templates, reserves them for bound pods, frees unused ones.

    Args:
        client: the cluster.
        clock: time of retries.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[_Key] = WorkQueue(clock)
        self._waiting: dict[tuple[str, str], set[str]] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_pods())
            group.create_task(self._watch_claims())
            group.create_task(self._watch_templates())
            group.create_task(serve_queue(self._queue, self._sync, name="claim controller"))

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        pod = item.object
        if not pod["spec"].get("resourceClaims"):
            return
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if item.type == "DELETED":
            self._queue.remove(_Key("pod", namespace, name))
        else:
            self._queue.add(_Key("pod", namespace, name))
        if item.type == "DELETED" or _done(pod):
            for claim in _named(pod):
                self._queue.add(_Key("claim", namespace, claim))

    async def _watch_claims(self) -> None:
        async for item in self._client.watch(CLAIMS):
            meta = item.object["metadata"]
            key = _Key("claim", meta["namespace"], meta["name"])
            if item.type == "DELETED":
                self._queue.remove(key)
            else:
                self._queue.add(key)
            owner = _owning_pod(item.object)
            if item.type == "DELETED" and owner is not None:
                self._queue.add(_Key("pod", meta["namespace"], owner["name"]))
            for user in _reserved_pods(item):
                self._queue.add(_Key("pod", meta["namespace"], user))

    async def _watch_templates(self) -> None:
        async for item in self._client.watch(TEMPLATES):
            if item.type == "ADDED":
                meta = item.object["metadata"]
                waiting = self._waiting.pop((meta["namespace"], meta["name"]), set())
                for pod in sorted(waiting):
                    self._queue.add(_Key("pod", meta["namespace"], pod))

    def _sync(self, key: _Key) -> None:
        if key.kind == "pod":
            pod = self._client.get("pods", key.namespace, key.name)
            if pod is not None and pod_state.is_active(pod):
                self._serve_pod(pod)
            return
        claim = self._client.get(CLAIMS, key.namespace, key.name)
        if claim is not None:
            self._serve_claim(claim)

    # -- pods ----------------------------------------------------------------------------------

    def _serve_pod(self, pod: Obj) -> None:
        """Make the claims a pod lacks, tell it their names, reserve them once it is bound."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        made: list[Obj] = []
        for wanted in pod["spec"].get("resourceClaims") or ():
            try:
                claim = self._claim_for(pod, wanted)
            except StatusError as refusal:
                text = f"PodResourceClaim {wanted['name']}: {refusal.message}"
                reason = "FailedResourceClaimCreation"
                self._client.event(pod, reason, text, "Warning", component=_COMPONENT)
                raise
            if claim is not None:
                made.append({"name": wanted["name"], "resourceClaimName": claim})
        if made:
            patch = {"status": {"resourceClaimStatuses": made}}
            pod = self._client.patch(
                "pods", namespace, name, patch, patch_type="strategic", subresource="status"
            )
        if pod["spec"].get("nodeName"):
            self._reserve(pod)

    def _claim_for(self, pod: Obj, wanted: Obj) -> str | None:
        """Return the name of the claim to note in the pod; None when nothing is to be noted."""
        template = wanted.get("resourceClaimTemplateName")
        if not template:
            return None
        namespace = pod["metadata"]["namespace"]
        noted = _noted(pod).get(wanted["name"])
        if noted is not None:
            if not noted:
                return None  # it was found to need none
            claim = self._client.get(CLAIMS, namespace, noted)
            if claim is not None and _belongs(claim, pod):
                return None
        for claim in self._client.list(CLAIMS, namespace):
            annotations = claim["metadata"].get("annotations") or {}
            if _belongs(claim, pod) and annotations.get(POD_CLAIM) == wanted["name"]:
                return str(claim["metadata"]["name"])
        source = self._client.get(TEMPLATES, namespace, template)
        if source is None:
            self._waiting.setdefault((namespace, template), set()).add(pod["metadata"]["name"])
            missing = status.not_found("resourceclaimtemplate", "resource.k8s.io", template)
            raise status.failure(
                404, "NotFound", f'resource claim template "{template}": {missing.message}'
            )
        return str(self._client.create(CLAIMS, _claim_of(pod, wanted, source))["metadata"]["name"])

    def _reserve(self, pod: Obj) -> None:
        """Reserve allocated claims for a pod that was bound without its scheduler doing so."""
        meta = pod["metadata"]
        for name in _named(pod):
            claim = self._client.get(CLAIMS, meta["namespace"], name)
            if claim is None:
                return
            users = (claim.get("status") or {}).get("reservedFor") or []
            allocated = (claim.get("status") or {}).get("allocation") is not None
            reserved = any(user.get("uid") == meta["uid"] for user in users)
            if not allocated or reserved or len(users) >= RESERVED_MAX:
                continue
            user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
            self._write_status(claim, {**claim["status"], "reservedFor": [*users, user]})

    # -- claims --------------------------------------------------------------------------------

    def _serve_claim(self, claim: Obj) -> None:
        """Drop reservations of finished pods, and claims that are no longer needed."""
        state = claim.get("status") or {}
        users = state.get("reservedFor") or []
        kept = [user for user in users if self._still_uses(claim, user)]
        protected = FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(kept) < len(users):
            rest = {k: v for k, v in state.items() if k != "reservedFor"}
            if kept:
                rest["reservedFor"] = kept
            elif protected:
                rest.pop("allocation", None)
            claim = self._write_status(claim, rest)
            if protected and "allocation" not in (claim.get("status") or {}):
                claim = self._unprotect(claim)
        elif protected and "deletionTimestamp" in claim["metadata"] and not kept:
            if "allocation" in state:
                rest = {k: v for k, v in state.items() if k != "allocation"}
                claim = self._write_status(claim, rest)
            claim = self._unprotect(claim)
        if not kept:
            self._delete_unneeded(claim)

    def _still_uses(self, claim: Obj, user: Obj) -> bool:
        if user.get("apiGroup") or user.get("resource") != "pods":
            return True  # only pods are known here
        pod = self._client.get("pods", claim["metadata"]["namespace"], user["name"])
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and not _done(pod)

    def _delete_unneeded(self, claim: Obj) -> None:
        """Delete a claim made for a pod that is done; if it is gone, garbage collection does."""
        meta = claim["metadata"]
        owner = _owning_pod(claim)
        if owner is None or "deletionTimestamp" in meta:
            return
        pod = self._client.get("pods", meta["namespace"], owner["name"])
        if pod is None or (pod["metadata"]["uid"] == owner["uid"] and not _done(pod)):
            return
        if self._client.get(CLAIMS, meta["namespace"], meta["name"]) is not None:
            self._client.delete(CLAIMS, meta["namespace"], meta["name"], uid=meta["uid"])

    def _write_status(self, claim: Obj, state: Obj) -> Obj:
        return self._client.update(CLAIMS, {**claim, "status": state}, "status")

    def _unprotect(self, claim: Obj) -> Obj:
        meta = claim["metadata"]
        kept = [name for name in meta.get("finalizers") or () if name != FINALIZER]
        return self._client.update(CLAIMS, {**claim, "metadata": {**meta, "finalizers": kept}})


def _claim_of(pod: Obj, wanted: Obj, template: Obj) -> Obj:
    """The claim that a pod gets from a template."""
    name, part = pod["metadata"]["name"], wanted["name"]
    prefix = f"{name}-{part}-"
    if len(prefix) > _PREFIX_MAX:  # both parts give way in proportion
        share = _PREFIX_MAX / len(prefix)
        prefix = f"{name[: int(len(name) * share)]}-{part[: int(len(part) * share)]}"
    like = template["spec"].get("metadata") or {}
    meta: Obj = {
        "generateName": prefix,
        "namespace": pod["metadata"]["namespace"],
        "annotations": {**(like.get("annotations") or {}), POD_CLAIM: part},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": name,
                "uid": pod["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    if like.get("labels"):
        meta["labels"] = like["labels"]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**head, "metadata": meta, "spec": template["spec"]["spec"]}


def _noted(pod: Obj) -> dict[str, str]:
    """By the name of each of its claims, which claim the pod's status says was made for it."""
    found = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {entry["name"]: entry.get("resourceClaimName") or "" for entry in found}


def _named(pod: Obj) -> Iterator[str]:
    """Names of the claims that a pod uses, as far as they are known."""
    noted = _noted(pod)
    for claim in pod["spec"].get("resourceClaims") or ():
        if name := claim.get("resourceClaimName") or noted.get(claim["name"]):
            yield name


def _owning_pod(claim: Obj) -> Obj | None:
    owner = pod_state.controller_of(claim)
    if owner is None or (owner.get("apiVersion"), owner.get("kind")) != ("v1", "Pod"):
        return None
    return owner


def _belongs(claim: Obj, pod: Obj) -> bool:
    owner = _owning_pod(claim)
    return owner is not None and owner.get("uid") == pod["metadata"]["uid"]


def _reserved_pods(item: WatchItem) -> list[str]:
    users = (item.object.get("status") or {}).get("reservedFor") or ()
    return [user["name"] for user in users if user.get("resource") == "pods"]


def _done(pod: Obj) -> bool:
    """Whether none of a pod's containers runs or ever will."""
    unbound = not pod["spec"].get("nodeName")
    return pod_state.is_terminal(pod) or (pod_state.is_deleting(pod) and unbound)
