"""Claims for devices before pods: a gang is bound when all claims of all its members have theirs.

Each claim first gets the finalizer that keeps it, then its devices and the pods it is reserved for in one
write, as kube-scheduler does. From the moment that a gang is handed over the cache shows its
claims as they will be, so that no session gives the devices again: until the API server has said what
they are. See ``unbound_claims`` for what is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import quote

import attrs
import msgspec

from gpusched.api.devices.dynamic.claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimConsumer,
    ResourceClaim,
)
from gpusched.api.devices.dynamic.decode import RESOURCE_CLAIMS
from gpusched.api.meta.identity import UID, InvalidObject, ObjectKey
from gpusched.api.serializer.device_claims import (
    CONSUMERS_MAX,
    claim_finalizer_patch,
    claim_settle_patch,
    claim_status_patch,
    claim_unprotect_patch,
)
from gpusched.base.classes import frozen
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import AssumedClaim
from gpusched.io.write.claims.extended_claims import ExtendedClaims
from gpusched.io.write.preemption_calls import Body, PatchOutcome, PreemptionCalls
from gpusched.session.state.plan import ClaimBind, GangBind, PodBind

_NOT_FOUND: Final = 404
_FORGOTTEN_FROM: Final = 1000
"""Claims written and gone again that are remembered without need."""


@frozen(slots=True, order=True)
class ClaimUse:
    """A pod or group that a claim is, or was to be, reserved for.

    Attributes:
        claim: UID of the claim.
        consumer: UID of the pod or group.
    """

    key: ObjectKey
    claim: UID
    consumer: UID


class DeviceClaims:
    """Writes claims of gangs. Everything is called in the event loop.

    Args:
        calls: sends the patches.
        cache: shows claims, and what is being written of them.
        server_now: seconds since the epoch by the API server's clock.
    """

    def __init__(
        self, calls: PreemptionCalls, cache: Cache, server_now: Callable[[], float]
    ) -> None:
        self._server_now = server_now
        self._calls = calls
        self._cache = cache
        self.extended = ExtendedClaims(calls, cache, self.patch_claim)
        self._unanswered: set[ClaimUse] = set()
        """Of writes that may have been carried out, or may still be."""
        self._unanswered_releases: dict[ObjectKey, UID] = {}
        """Claims of which the same holds for what takes their devices back."""
        self._written: dict[ObjectKey, UID] = {}
        """Claims that this leader has written: nothing that one before sent of them can be carried out any more."""

    def assume_claims(self, gang: GangBind) -> None:
        """Show the claims of a gang as they will be."""
        for claim, consumers in claims_of(gang):
            if claim.extended:
                self.extended.assume_claim(claim, consumers[0])
                continue
            assumed = AssumedClaim(claim.uid, claim.allocation, tuple(consumers))
            self._cache.devices.assume_claim(claim.key, assumed)

    def forget(self, gang: GangBind) -> None:
        """The gang is not bound: what the API shows of its claims counts again, once that is known."""
        for claim, consumers in claims_of(gang):
            if claim.extended:
                self.extended.forget(claim)
                continue
            for use in _claim_uses(claim, consumers) - self._unanswered:
                self._cache.devices.forget(use.key, use.consumer)

    async def write(self, gang: GangBind, fence: str) -> str:
        """Give all claims their devices; empty when that is done, else why not."""
        writes = (
            self.extended.write(claim, users[0], fence)
            if claim.extended
            else self._write(claim, users, fence)
            for claim, users in claims_of(gang)
        )
        return next(filter(None, await asyncio.gather(*writes)), "")

    async def _write(self, claim: ClaimBind, consumers: Sequence[ClaimConsumer], fence: str) -> str:
        known = self._known_claim(claim)
        if known is None:
            return _gone_message(claim.key)
        if not known.is_protected:

            def finalizer() -> bytes | str:
                now = self._known_claim(claim)
                if now is None:
                    return _gone_message(claim.key)
                if now.is_protected:
                    return ""
                return claim_finalizer_patch(now.uid, now.resource_version, now.finalizers)

            outcome = await self.patch_claim(claim.key, "", finalizer, fence)
            if outcome.why:
                return outcome.why

        def status() -> bytes | str:
            now = self._known_claim(claim)
            return (
                _gone_message(claim.key)
                if now is None
                else _status(now, _stamp_claim(claim, self._server_now()), consumers)
            )

        uncertain = True  # also when cancelled
        try:
            outcome = await self.patch_claim(claim.key, "/status", status, fence)
            uncertain = outcome.uncertain
        finally:
            if uncertain:
                self._unanswered |= _claim_uses(claim, consumers)
        return outcome.why

    async def patch_claim(
        self, key: ObjectKey, subresource: str, body: Body, fence: str
    ) -> PatchOutcome:
        """Send a patch of a claim; the cache knows the answer at once."""
        version = self._cache.devices.api_version
        place = f"/apis/{version}/namespaces/{quote(key.namespace)}/resourceclaims"
        path = f"{place}/{quote(key.name)}{subresource}"
        outcome = await self._calls.patch_claim(path, body, fence=fence)
        if not outcome.answer:
            return outcome
        try:
            claim = RESOURCE_CLAIMS.entity_of(outcome.answer)
        except (InvalidObject, msgspec.MsgspecError) as unreadable:
            why = f"the answer to a patch of claim {key} cannot be read: {unreadable}"
            return attrs.evolve(outcome, why=why, uncertain=True)
        self._cache.devices.claims.record_answer(claim)
        self._note_written(claim)
        return outcome

    def _note_written(self, claim: ResourceClaim) -> None:
        there = self._cache.devices.claims.items
        if len(self._written) > 2 * len(there) + _FORGOTTEN_FROM:
            self._written = {key: uid for key, uid in self._written.items() if key in there}
        self._written[claim.key] = claim.uid

    def _known_claim(self, claim: ClaimBind) -> ResourceClaim | None:
        """The claim as the API shows it."""
        known = self._cache.devices.claims.items.get(claim.key)
        return known if known is not None and known.uid == claim.uid else None

    # -- writes without an answer ------------------------------------------------------------
    def unanswered_claims(self) -> list[ObjectKey]:
        """Claims of which it is not known what became of a write."""
        return sorted({use.key for use in self._unanswered} | self._unanswered_releases.keys())

    def note_unanswered_release(self, key: ObjectKey, claim: UID) -> None:
        """Devices of a claim may still be taken back: no pod is bound with them before that is settled."""
        self._unanswered_releases[key] = claim

    def _may_be_changed_late(self, claim: ResourceClaim) -> bool:
        """Whether a leader before may have sent what takes a claim's devices back, and was not done yet.

        A leader that dies knows nothing of its writes any more, and a server may carry them out after the next
        one has decided. Each carries the version that it saw, so that a write of this leader ends that.
        """
        return claim.allocation is not None and self._written.get(claim.key) != claim.uid

    def is_begun(self, claim: ResourceClaim) -> bool:
        """Whether a claim has the finalizer that comes before devices, and nobody is giving it any."""
        return (
            claim.is_protected
            and claim.allocation is None
            and not self._cache.devices.is_assumed(claim.key)
        )

    async def unprotect_claim(self, key: ObjectKey, fence: str) -> str:
        """Take the finalizer off a claim that was begun; why that was not done, or empty.

        A leader before may have sent devices for it, which carry the version that has the finalizer: they are refused then.
        """

        def body() -> bytes | str:
            known = self._cache.devices.claims.items.get(key)
            if known is None or not self.is_begun(known):
                return ""
            return claim_unprotect_patch(known.uid, known.resource_version, known.finalizers)

        return (await self.patch_claim(key, "", body, fence)).why

    async def settle_releases(self, keys: Iterable[ObjectKey], fence: str) -> str:
        """Have nothing taken back of some claims any more; why that is not sure, or empty."""
        for key in keys:
            known = self._cache.devices.claims.items.get(key)
            late = known is not None and self._may_be_changed_late(known)
            if late or key in self._unanswered_releases:
                why = await self.settle_claim(key, fence)
                if why:
                    return why
        return ""

    async def settle_claim(self, key: ObjectKey, fence: str) -> str:
        """Find out what became of unanswered writes of a claim; why it is still not known, or empty.

        The claim is made newer: a write that is still on its way is refused from then on, as it carries
        the version before. What was assumed of the claim ends.
        """
        uses = [use for use in sorted(self._unanswered) if use.key == key]
        released = self._unanswered_releases.get(key)
        meant = {use.claim for use in uses} | {released}

        def body() -> bytes | str:
            known = self._cache.devices.claims.items.get(key)
            if known is None or not (known.uid in meant or self._may_be_changed_late(known)):
                return ""
            return claim_settle_patch(known.uid, known.resource_version)

        outcome = await self.patch_claim(key, "", body, fence)
        if outcome.why and outcome.status != _NOT_FOUND:
            return outcome.why
        for use in uses:
            self._unanswered.discard(use)
            self._cache.devices.forget(key, use.consumer)
        if self._unanswered_releases.get(key) == released:
            self._unanswered_releases.pop(key, None)
        return ""


def has_claims(gang: GangBind) -> bool:
    """Whether any member's claims are to be written first."""
    return any(bind.claims for bind in gang.binds)


def gives_others(known: ResourceClaim, claim: ClaimBind) -> bool:
    """Whether a claim has devices, and was decided to get others."""
    return (
        known.allocation is not None
        and claim.allocation is not None
        and _devices_without_ids(known.allocation) != _devices_without_ids(claim.allocation)
    )


def _status(
    now: ResourceClaim, claim: ClaimBind, consumers: Sequence[ClaimConsumer]
) -> bytes | str:
    users = {each.uid for each in now.reserved_for}
    if gives_others(now, claim):
        return f"claim {now.key} was given devices by somebody else"
    if now.allocation is None and claim.allocation is None:
        return f"claim {now.key} has lost its devices"
    more = [each for each in consumers if each.uid not in users]
    if not more and now.allocation is not None:
        return ""  # by a try of ours that got no answer, or for members that were bound before
    if len(users) + len(more) > CONSUMERS_MAX:
        return f"claim {now.key} is reserved for {len(users)} pods, and {len(more)} more cannot be"
    return claim_status_patch(
        now.uid,
        now.resource_version,
        allocation=claim.allocation if now.allocation is None else None,
        consumers=[*now.reserved_for, *more],
    )


def _stamp_claim(claim: ClaimBind, now: float) -> ClaimBind:
    """With the time from which devices that are not ready yet are waited for."""
    allocation = claim.allocation
    if allocation is None or not any(each.binding_conditions for each in allocation.devices):
        return claim
    return attrs.evolve(claim, allocation=attrs.evolve(allocation, timestamp=now))


def _devices_without_ids(allocation: ClaimAllocation) -> list[AllocatedDevice]:
    """The devices without the ids of shares, which are made when they are written."""
    return [attrs.evolve(each, share="") for each in allocation.devices]


def claims_of(gang: GangBind) -> Iterable[tuple[ClaimBind, list[ClaimConsumer]]]:
    """Claims of a gang, each once, and the pods and groups that they are to be reserved for."""
    found: dict[ObjectKey, tuple[ClaimBind, dict[UID, ClaimConsumer]]] = {}
    for bind in gang.binds:
        for claim in bind.claims:
            consumer = claim.consumer or _pod_consumer(bind)
            found.setdefault(claim.key, (claim, {}))[1][consumer.uid] = consumer
    return [(claim, list(consumers.values())) for claim, consumers in found.values()]


def _claim_uses(claim: ClaimBind, consumers: Sequence[ClaimConsumer]) -> set[ClaimUse]:
    return {ClaimUse(claim.key, claim.uid, each.uid) for each in consumers}


def _pod_consumer(bind: PodBind) -> ClaimConsumer:
    return ClaimConsumer(group="", resource="pods", name=bind.key.name, uid=bind.uid)


def _gone_message(key: ObjectKey) -> str:
    return f"claim {key} is gone"
