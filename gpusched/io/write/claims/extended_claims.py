"""Claims for extended resources that a node has as devices only: made with the binding, and deleted without it.

As kube-scheduler does it: the pod owns the claim, which has an annotation; its devices are written, then the
pod's status says which request is for which resource of which container, and then the pod is bound. The name is made of the
pod's, so that a repeated write makes no second claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

import msgspec

from gpusched.api.devices.dynamic.claims import (
    PROTECTION,
    ClaimConsumer,
    ResourceClaim,
)
from gpusched.api.devices.dynamic.decode import RESOURCE_CLAIMS
from gpusched.api.meta.identity import InvalidObject, ObjectKey, ResourceVersion
from gpusched.api.serializer.device_claims import (
    claim_delete_body,
    claim_status_patch,
    claim_unprotect_patch,
    extended_claim_body,
    extended_claim_status,
    extended_status_patch,
)
from gpusched.cache.cache import Cache
from gpusched.devices.extended_resources import extended_claim_spec
from gpusched.io.write.bind_calls import pod_path
from gpusched.io.write.preemption_calls import Body, PatchOutcome, PreemptionCalls
from gpusched.session.state.plan import ClaimBind

_NOT_FOUND: Final = 404
PatchClaim = Callable[[ObjectKey, str, Body, str], Awaitable[PatchOutcome]]
"""Sends a patch of a claim's subresource under a fence, and records the answer."""


def extended_claim_as_made(claim: ClaimBind, pod: ClaimConsumer) -> ResourceClaim:
    """A claim for extended resources, with its devices, as it will be."""
    return ResourceClaim(
        namespace=claim.key.namespace,
        name=claim.key.name,
        uid=claim.uid,
        resource_version=ResourceVersion(""),
        spec=extended_claim_spec(claim.extended),
        allocation=claim.allocation,
        reserved_for=(pod,),
        owner=pod.uid,
        finalizers=(PROTECTION,),
        extended=True,
    )


class ExtendedClaims:
    """See the module. Everything is called in the event loop.

    Args:
        calls: sends requests.
        cache: shows claims, and what is being written of them.
        patch: sends patches of claims.
    """

    def __init__(self, calls: PreemptionCalls, cache: Cache, patch: PatchClaim) -> None:
        self._calls = calls
        self._devices = cache.devices
        self._pod = cache.find_pod
        self._patch = patch
        self._uncertain: set[ObjectKey] = set()
        """Claims that may have, or may still get, the devices of a write without an answer."""

    def assume_claim(self, claim: ClaimBind, pod: ClaimConsumer) -> None:
        """Show the claim as it will be."""
        self._devices.assume_made(extended_claim_as_made(claim, pod))

    def forget(self, claim: ClaimBind) -> None:
        """The pod is not bound; what is written of the claim is deleted, see ``remove_claim``."""
        if claim.key not in self._uncertain:
            self._devices.forget_made(claim.key)

    def is_open(self, key: ObjectKey) -> bool:
        """Whether a claim is being made, and what became of its writes is not in doubt."""
        return self._devices.claim_being_made(key) is not None and key not in self._uncertain

    async def write(self, claim: ClaimBind, pod: ClaimConsumer, fence: str) -> str:
        """Make the claim with its devices and tell the pod; empty when that is done, else why not."""
        made, why = await self._make_claim(claim, pod, fence)
        if made is None:
            return why
        uncertain = True  # also when cancelled
        try:
            outcome = await self._allocate_claim(claim, made, pod, fence)
            uncertain = outcome.uncertain
        finally:
            if uncertain:
                self._uncertain.add(claim.key)
        if outcome.why:
            return outcome.why
        why = await self._write_pod_status(claim, pod, fence)
        if not why:
            self._devices.forget_made(claim.key)
        return why

    async def _write_pod_status(self, claim: ClaimBind, pod: ClaimConsumer, fence: str) -> str:
        """Write the pod's status, where it does not say so already."""
        told = extended_claim_status(claim.key.name, claim.extended)

        def body() -> bytes | str:
            known = self._pod(pod.uid)
            if known is None:
                return f"pod {claim.key.namespace}/{pod.name} is gone"
            if known.extended_told and msgspec.json.decode(known.extended_told) == told:
                return ""
            return extended_status_patch(pod.uid, told)

        path = f"{pod_path(ObjectKey(claim.key.namespace, pod.name))}/status"
        return (await self._calls.patch_claim(path, body, fence=fence)).why

    async def _make_claim(
        self, claim: ClaimBind, pod: ClaimConsumer, fence: str
    ) -> tuple[ResourceClaim | None, str]:
        """The claim as the API server made it, or why it did not."""
        body = extended_claim_body(
            claim.key,
            pod=pod.name,
            uid=pod.uid,
            spec=extended_claim_spec(claim.extended),
            version=self._devices.api_version,
        )
        outcome = await self._calls.send_claim(
            "POST", self._claims_path(claim.key.namespace), lambda: body, fence=fence
        )
        if outcome.why:
            return None, outcome.why
        try:
            made = RESOURCE_CLAIMS.entity_of(outcome.answer)
        except (InvalidObject, msgspec.MsgspecError) as unreadable:
            return None, f"the answer to making claim {claim.key} cannot be read: {unreadable}"
        self._devices.claims.record_made(made)
        return made, ""

    async def _allocate_claim(
        self, claim: ClaimBind, made: ResourceClaim, pod: ClaimConsumer, fence: str
    ) -> PatchOutcome:
        def body() -> bytes | str:
            now = self._devices.claims.items.get(claim.key)
            if now is None or now.uid != made.uid:
                return f"claim {claim.key} is gone"
            if now.allocation is not None:
                return ""  # by a try that got no answer
            return claim_status_patch(
                now.uid, now.resource_version, allocation=claim.allocation, consumers=[pod]
            )

        return await self._patch(claim.key, "/status", body, fence)

    async def remove_claim(self, key: ObjectKey, stays: Callable[[], bool], fence: str) -> str:
        """Delete a claim of a pod that is not bound; empty when it is done, or not to be done, else why not.

        Args:
            key: of the claim.
            stays: whether the claim is to stay after all.
            fence: of the leadership.
        """

        def unprotected() -> bytes | str:
            known = self._devices.claims.items.get(key)
            if known is None or stays() or not known.is_protected:
                return ""
            return claim_unprotect_patch(known.uid, known.resource_version, known.finalizers)

        outcome = await self._patch(key, "", unprotected, fence)
        if outcome.why and outcome.status != _NOT_FOUND:
            return outcome.why

        def options() -> bytes | str:
            known = self._devices.claims.items.get(key)
            if known is None or stays():
                return ""
            return claim_delete_body(known.uid, known.resource_version)

        path = f"{self._claims_path(key.namespace)}/{quote(key.name)}"
        outcome = await self._calls.send_claim("DELETE", path, options, fence=fence)
        if outcome.why and outcome.status != _NOT_FOUND:
            return outcome.why
        if key in self._uncertain:
            self._uncertain.discard(key)
            self._devices.forget_made(key)
        return ""

    def _claims_path(self, namespace: str) -> str:
        version = self._devices.api_version
        return f"/apis/{version}/namespaces/{quote(namespace)}/resourceclaims"
