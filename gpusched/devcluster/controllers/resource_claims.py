"""Makes resource claims from the templates that pods and their groups name, and frees those that
are no longer used.

A claim made for a pod or for a group is owned by it and found again by an annotation, so that none
gets a second one. A pod that names a claim by the words of its group shares the group's. Reservations
of pods that are gone or done, and of groups that are gone, are dropped; with the last of them goes
the allocation, if the claim carries the finalizer that schedulers put on what they allocate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from gpusched.base.claim_templates import POD_CLAIM, claim_from_template, claim_prefix
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.admission.gangs import POD_GROUPS
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.registry.devices.resource_claims import RESERVED_MAX
from gpusched.devcluster.registry.gangs.features import CLAIMS as GROUP_CLAIMS
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures

CLAIMS: Final = "resourceclaims.resource.k8s.io"
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_COMPONENT: Final = "resource_claim"


@frozen
class _Key:
    kind: Literal["pod", "group", "claim"]
    namespace: str
    name: str


class ResourceClaimController:
    """Creates the claims of pods from templates, reserves them for bound pods, frees unused ones.

    Args:
        client: the cluster.
        clock: time of retries.
        gangs: whether groups of pods have claims of their own.
    """

    def __init__(self, client: LocalClient, clock: Clock, gangs: GangFeatures = OFF) -> None:
        self._client = client
        self._queue: WorkQueue[_Key] = WorkQueue(clock)
        self._waiting: dict[tuple[str, str], set[_Key]] = {}
        self._groups = gangs.served and gangs.enabled(GROUP_CLAIMS)
        self._members: dict[tuple[str, str], set[str]] = {}

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_pods())
            group.create_task(self._watch_claims())
            group.create_task(self._watch_templates())
            if self._groups:
                group.create_task(self._watch_groups())
            group.create_task(serve_queue(self._queue, self._sync, name="claim controller"))

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        pod = item.object
        if not pod["spec"].get("resourceClaims") and not _extended(pod):
            return
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        members = self._members.setdefault((namespace, _group_name(pod)), set())
        if item.type == "DELETED":
            self._queue.remove(_Key("pod", namespace, name))
            members.discard(name)
        else:
            self._queue.add(_Key("pod", namespace, name))
            members.add(name)
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
            owner = pod_state.controller_of(item.object)
            if item.type == "DELETED" and owner is not None and owner.get("kind") in _OWNERS:
                self._queue.add(_Key(_OWNERS[owner["kind"]], meta["namespace"], owner["name"]))
            for user in _reserved_pods(item):
                self._queue.add(_Key("pod", meta["namespace"], user))

    async def _watch_templates(self) -> None:
        async for item in self._client.watch(TEMPLATES):
            if item.type == "ADDED":
                meta = item.object["metadata"]
                waiting = self._waiting.pop((meta["namespace"], meta["name"]), set())
                for key in sorted(waiting, key=lambda key: (key.kind, key.name)):
                    self._queue.add(key)

    async def _watch_groups(self) -> None:
        async for item in self._client.watch(POD_GROUPS):
            group = item.object
            namespace, name = group["metadata"]["namespace"], group["metadata"]["name"]
            if item.type == "DELETED":
                for claim in _named(group):
                    self._queue.add(_Key("claim", namespace, claim))
                continue
            self._queue.add(_Key("group", namespace, name))
            for pod in sorted(self._members.get((namespace, name), ())):
                self._queue.add(_Key("pod", namespace, pod))

    def _sync(self, key: _Key) -> None:
        if key.kind == "group":
            group = self._client.get(POD_GROUPS, key.namespace, key.name)
            if group is not None and "deletionTimestamp" not in group["metadata"]:
                self._serve_group(group)
            return
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
        group = self._group_of(pod)
        if self._groups and _group_name(pod) and group is None:
            return  # the group's coming brings the pod here again
        made: list[Obj] = []
        for wanted in pod["spec"].get("resourceClaims") or ():
            owner = group if group is not None and _shared(group, wanted) else pod
            with self._told(pod, wanted):
                claim = self._claim_for(pod, wanted, owner=owner)
            if claim is not None:
                made.append({"name": wanted["name"], "resourceClaimName": claim})
        if made:
            pod = self._note(pod, "pods", made)
        if pod["spec"].get("nodeName"):
            self._reserve(pod, group)

    def _serve_group(self, group: Obj) -> None:
        """Make the claims a group lacks, and tell it their names."""
        made: list[Obj] = []
        for wanted in group["spec"].get("resourceClaims") or ():
            with self._told(group, wanted):
                claim = self._claim_for(group, wanted, owner=group)
            if claim is not None:
                made.append({"name": wanted["name"], "resourceClaimName": claim})
        if made:
            self._note(group, POD_GROUPS, made)

    def _group_of(self, pod: Obj) -> Obj | None:
        name = _group_name(pod) if self._groups else ""
        return self._client.get(POD_GROUPS, pod["metadata"]["namespace"], name) if name else None

    @contextlib.contextmanager
    def _told(self, obj: Obj, wanted: Obj) -> Iterator[None]:
        """Record an event about a claim that cannot be made."""
        try:
            yield
        except StatusError as refusal:
            text = f"{obj['kind']}ResourceClaim {wanted['name']}: {refusal.message}"
            reason = "FailedResourceClaimCreation"
            self._client.event(obj, reason, text, "Warning", component=_COMPONENT)
            raise

    def _note(self, obj: Obj, resource: str, made: list[Obj]) -> Obj:
        meta = obj["metadata"]
        patch = {"status": {"resourceClaimStatuses": made}}
        return self._client.patch(
            resource,
            meta["namespace"],
            meta["name"],
            patch,
            patch_type="strategic",
            subresource="status",
        )

    def _claim_for(self, obj: Obj, wanted: Obj, *, owner: Obj) -> str | None:
        """Return the name of the claim to note in a pod or group; None when there is none.

        Args:
            obj: the pod or group that names the claim.
            wanted: how it names it.
            owner: who has the claim: itself, or the pod's group, which makes it.
        """
        template = wanted.get("resourceClaimTemplateName")
        if not template:
            return None
        namespace = obj["metadata"]["namespace"]
        noted = _noted(obj).get(wanted["name"])
        if noted is not None:
            if not noted:
                return None  # it was found to need none
            claim = self._client.get(CLAIMS, namespace, noted)
            if claim is not None and _belongs(claim, owner):
                return None
        for claim in self._client.list(CLAIMS, namespace):
            annotations = claim["metadata"].get("annotations") or {}
            if _belongs(claim, owner) and annotations.get(POD_CLAIM) == wanted["name"]:
                return str(claim["metadata"]["name"])
        if owner is not obj:
            return None
        source = self._client.get(TEMPLATES, namespace, template)
        if source is None:
            key = _Key(_OWNERS[obj["kind"]], namespace, obj["metadata"]["name"])
            self._waiting.setdefault((namespace, template), set()).add(key)
            missing = status.not_found("resourceclaimtemplate", "resource.k8s.io", template)
            raise status.failure(
                404, "NotFound", f'resource claim template "{template}": {missing.message}'
            )
        return str(self._client.create(CLAIMS, _claim_of(obj, wanted, source))["metadata"]["name"])

    def _reserve(self, pod: Obj, group: Obj | None) -> None:
        """Reserve allocated claims for a pod that was bound without its scheduler doing so."""
        noted = _noted(pod)
        for wanted in pod["spec"].get("resourceClaims") or ():
            name = wanted.get("resourceClaimName") or noted.get(wanted["name"])
            if not name:
                continue
            user = _user(group if group is not None and _shared(group, wanted) else pod)
            claim = self._client.get(CLAIMS, pod["metadata"]["namespace"], name)
            if claim is None:
                return
            users = (claim.get("status") or {}).get("reservedFor") or []
            allocated = (claim.get("status") or {}).get("allocation") is not None
            reserved = any(known.get("uid") == user["uid"] for known in users)
            if not allocated or reserved or len(users) >= RESERVED_MAX:
                continue
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
        kind = (user.get("apiGroup") or "", user.get("resource"))
        if self._groups and kind == ("scheduling.k8s.io", "podgroups"):
            group = self._client.get(POD_GROUPS, claim["metadata"]["namespace"], user["name"])
            return group is not None and group["metadata"]["uid"] == user["uid"]
        if kind != ("", "pods"):
            return True  # only pods and their groups are known here
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


_OWNERS: Final[Mapping[str, Literal["pod", "group"]]] = {"Pod": "pod", "PodGroup": "group"}
"""Kinds for which claims are made."""


def _group_name(pod: Obj) -> str:
    """Return the name of a pod's group, empty for none."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def _shared(group: Obj, wanted: Obj) -> bool:
    """Whether a pod names a claim as its group does, and so uses the group's."""
    keys = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return any(
        all(claim.get(key) == wanted.get(key) for key in keys)
        for claim in group["spec"].get("resourceClaims") or ()
    )


def _user(obj: Obj) -> Obj:
    """Return the entry by which a claim is reserved for a pod or a group."""
    meta = obj["metadata"]
    user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
    if obj["kind"] == "PodGroup":
        user |= {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
    return user


def _claim_of(owner: Obj, wanted: Obj, template: Obj) -> Obj:
    """The claim that a pod or a group gets from a template."""
    claim = claim_from_template(owner, wanted["name"], template)
    prefix = claim_prefix(owner["metadata"]["name"], wanted["name"])
    return {**claim, "metadata": {"generateName": prefix, **claim["metadata"]}}


def _noted(obj: Obj) -> dict[str, str]:
    """By the name of each of its claims, which claim a status says was made for it."""
    found = (obj.get("status") or {}).get("resourceClaimStatuses") or ()
    return {entry["name"]: entry.get("resourceClaimName") or "" for entry in found}


def _named(obj: Obj) -> Iterator[str]:
    """Names of the claims that a pod or group uses, as far as they are known."""
    noted = _noted(obj)
    if extended := _extended(obj):
        yield extended
    for claim in obj["spec"].get("resourceClaims") or ():
        if name := claim.get("resourceClaimName") or noted.get(claim["name"]):
            yield name


def _extended(obj: Obj) -> str:
    """Return the name of the claim that a scheduler made for a pod's extended resources, empty for none."""
    told = (obj.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return str(told.get("resourceClaimName") or "")


def _owning_pod(claim: Obj) -> Obj | None:
    owner = pod_state.controller_of(claim)
    if owner is None or (owner.get("apiVersion"), owner.get("kind")) != ("v1", "Pod"):
        return None
    return owner


def _belongs(claim: Obj, owner: Obj) -> bool:
    found = pod_state.controller_of(claim)
    return found is not None and found.get("uid") == owner["metadata"]["uid"]


def _reserved_pods(item: WatchItem) -> list[str]:
    users = (item.object.get("status") or {}).get("reservedFor") or ()
    return [user["name"] for user in users if user.get("resource") == "pods"]


def _done(pod: Obj) -> bool:
    """Whether none of a pod's containers runs or ever will."""
    unbound = not pod["spec"].get("nodeName")
    return pod_state.is_terminal(pod) or (pod_state.is_deleting(pod) and unbound)
