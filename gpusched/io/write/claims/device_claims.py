"""Claims for devices before pods: a gang is bound when all claims of all its members have theirs.

Each claim first gets the finalizer that keeps it, then its devices and the pod it is reserved for in one
write, as kube-scheduler does. From the moment that a gang is handed over the cache shows its
claims as they will be, so that no session gives the devices again. What was written for a gang that
is not bound is taken back, by whoever leads then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

from gpusched.api.devices.dynamic.claims import ClaimConsumer, ResourceClaim
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.device_claims import (
    CONSUMERS_MAX,
    claim_finalizer_patch,
    claim_release_patch,
    claim_status_patch,
)
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import AssumedClaim
from gpusched.cache.gangs.gang import Gang
from gpusched.io.observe.logs import Logger
from gpusched.io.write.preemption_calls import PreemptionCalls
from gpusched.session.state.plan import ClaimBind, GangBind, PodBind

_log = Logger(__name__)
_RELEASES_MAX: Final = 64
"""Claims that are released at a time; the rest follows with the next session."""


class DeviceClaims:
    """Writes claims of gangs. Everything is called in the event loop.

    Args:
        calls: sends the patches.
        cache: shows claims, and what is being written of them.
        fence: of the leadership in force, empty for none.
    """

    def __init__(
        self,
        calls: PreemptionCalls,
        cache: Cache,
        *,
        fence: Callable[[], str],
    ) -> None:
        self._calls = calls
        self._cache = cache
        self._fence = fence
        self._releases: dict[ObjectKey, asyncio.Task[None]] = {}

    def assume(self, gang: GangBind) -> None:
        """Show the claims of a gang as they will be."""
        for bind, claim in _claims(gang):
            consumer = _consumer(bind)
            self._cache.devices.assume(
                claim.key, AssumedClaim(claim.uid, claim.allocation, (consumer,))
            )

    def forget(self, gang: GangBind) -> None:
        """The gang is not bound: what the API shows of its claims counts again."""
        for bind, claim in _claims(gang):
            self._cache.devices.forget(claim.key, bind.uid)

    async def write(self, gang: GangBind, fence: str) -> str:
        """Give all claims their devices; empty when that is done, else why not."""
        found = await asyncio.gather(
            *(self._write(bind, claim, fence) for bind, claim in _claims(gang))
        )
        return next(filter(None, found), "")

    async def _write(self, bind: PodBind, claim: ClaimBind, fence: str) -> str:
        known = self._known(claim)
        if known is None:
            return f"claim {claim.key} is gone"
        if not known.is_protected:

            def finalizer() -> bytes | str:
                now = self._known(claim)
                if now is None:
                    return f"claim {claim.key} is gone"
                if now.is_protected:
                    return ""
                return claim_finalizer_patch(now.uid, now.resource_version, now.finalizers)

            why = await self._calls.patch_claim(self._path(claim.key), finalizer, fence=fence)
            if why:
                return why

        def status() -> bytes | str:
            now = self._known(claim)
            if now is None:
                return f"claim {claim.key} is gone"
            if now.allocation is not None and claim.allocation is not None:
                return f"claim {claim.key} was given devices by somebody else"
            if now.allocation is None and claim.allocation is None:
                return f"claim {claim.key} has lost its devices"
            users = [each for each in now.reserved_for if each.uid != bind.uid]
            if len(users) >= CONSUMERS_MAX:
                return f"claim {claim.key} is reserved for {len(users)} pods, and more cannot be"
            return claim_status_patch(
                now.uid,
                now.resource_version,
                allocation=claim.allocation,
                consumers=[*users, _consumer(bind)],
            )

        return await self._calls.patch_claim(f"{self._path(claim.key)}/status", status, fence=fence)

    def _known(self, claim: ClaimBind) -> ResourceClaim | None:
        """The claim as the API shows it."""
        known = self._cache.devices.claims.items.get(claim.key)
        return known if known is not None and known.uid == claim.uid else None

    def _path(self, key: ObjectKey) -> str:
        version = self._cache.devices.api_version
        return f"/apis/{version}/namespaces/{quote(key.namespace)}/resourceclaims/{quote(key.name)}"

    # -- what was left behind ----------------------------------------------------------------
    def release_leftovers(
        self, gangs: Sequence[Gang], has_open_commit: Callable[[GangKey], bool]
    ) -> None:
        """Take devices back that were given to claims of pods which are not bound after all.

        Args:
            gangs: of the snapshot.
            has_open_commit: whether a gang is being bound.
        """
        if not self._cache.devices.claims.items:
            return
        for gang in gangs:
            for pod_set in gang.pod_sets:
                if pod_set.pod_class.claims and not has_open_commit(gang.key):
                    for pod in pod_set.pods:
                        self._release_claims(pod)

    def _release_claims(self, pod: Pod) -> None:
        for claim in self._own_claims(pod):
            users = {each.uid for each in claim.reserved_for}
            if (
                claim.allocation is not None
                and users <= {pod.uid}
                and claim.key not in self._releases
                and not self._cache.devices.is_assumed(claim.key)
                and len(self._releases) < _RELEASES_MAX
            ):
                task = asyncio.get_running_loop().create_task(
                    self._release(claim.key, claim.uid), name="release claim"
                )
                self._releases[claim.key] = task

    def _own_claims(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Claims that were made for the pod alone."""
        for _, name in pod.generated_claims:
            claim = self._cache.devices.claims.items.get(ObjectKey(pod.namespace, name))
            if claim is not None and claim.owner == pod.uid:
                yield claim

    async def _release(self, key: ObjectKey, uid: UID) -> None:
        def body() -> bytes | str:
            known = self._cache.devices.claims.items.get(key)
            if known is None or known.uid != uid or known.allocation is None:
                return ""
            return claim_release_patch(known.uid, known.resource_version)

        try:
            why = await self._calls.patch_claim(
                f"{self._path(key)}/status", body, fence=self._fence()
            )
        finally:
            self._releases.pop(key, None)
        if why:
            _log.warning("devices of a claim are not released", claim=key, why=why)

    async def drain(self) -> None:
        """Begin nothing more."""
        waiting = list(self._releases.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def has_claims(gang: GangBind) -> bool:
    """Whether any member's claims are to be written first."""
    return any(bind.claims for bind in gang.binds)


def _claims(gang: GangBind) -> Iterable[tuple[PodBind, ClaimBind]]:
    return ((bind, claim) for bind in gang.binds for claim in bind.claims)


def _consumer(bind: PodBind) -> ClaimConsumer:
    return ClaimConsumer(group="", resource="pods", name=bind.key.name, uid=bind.uid)
