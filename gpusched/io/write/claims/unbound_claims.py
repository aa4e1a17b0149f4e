"""Claims that have devices for pods which are not bound after all: the devices are taken back.

A gang is refused after some of its claims were written, or a process dies between two writes: whoever leads
then takes the pod out of the claim's ``reservedFor``, and the devices from a claim that nobody else
uses. Claims of which a write got no answer are asked about first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import ResourceClaim
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.device_claims import claim_release_patch, claim_status_patch
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang
from gpusched.io.observe.logs import Logger
from gpusched.io.write.claims.device_claims import DeviceClaims
from gpusched.io.write.claims.rival_claims import devices_given_twice

_log = Logger(__name__)
_OPEN_MAX: Final = 64
"""Claims that are written at a time; the rest follows with the next session."""
_RETRY_MAX_S: Final = 60.0


@attrs.frozen(slots=True)
class _Failed:
    """A claim that could not be written.

    Attributes:
        tries: made so far.
        retry_at: monotonic seconds.
    """

    tries: int
    retry_at: float


class UnboundClaims:
    """See the module. Everything is called in the event loop.

    Args:
        devices: sends the patches.
        cache: shows claims and pods.
        clock: time.
        fence: of the leadership in force, empty for none.
        has_open_commit: whether a gang is being bound.
    """

    def __init__(
        self,
        devices: DeviceClaims,
        cache: Cache,
        *,
        clock: Clock,
        fence: Callable[[], str],
        has_open_commit: Callable[[GangKey], bool],
    ) -> None:
        self._devices = devices
        self._cache = cache
        self._clock = clock
        self._fence = fence
        self._has_open_commit = has_open_commit
        self._open: dict[ObjectKey, asyncio.Task[None]] = {}
        self._failed: dict[ObjectKey, _Failed] = {}

    def release(self, gangs: Sequence[Gang]) -> None:
        """Take back what unbound pods of these gangs hold, and ask about writes without an answer."""
        for key in self._devices.unanswered():
            self._begin(key, self._devices.settle)
        claims = self._cache.devices.claims.items
        if not claims:
            return
        leaving: dict[ObjectKey, dict[UID, GangKey]] = {}
        for gang in gangs:
            for pod_set in gang.pod_sets:
                if pod_set.pod_class.claims and not self._has_open_commit(gang.key):
                    for pod in pod_set.pods:
                        for claim in self._held_claims(pod):
                            leaving.setdefault(claim.key, {})[pod.uid] = gang.key
        for key, pods in leaving.items():

            async def take_back(
                key: ObjectKey, fence: str, pods: Mapping[UID, GangKey] = pods
            ) -> str:
                return await self._take_back(key, pods, fence)

            if not self._cache.devices.is_assumed(key):
                self._begin(key, take_back)

    async def drain(self) -> None:
        """Begin nothing more."""
        waiting = list(self._open.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _held_claims(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Claims with devices that are reserved for the pod, or were made for it alone."""
        generated = dict(pod.generated_claims)
        for each in pod.pod_class.claims:
            key = ObjectKey(pod.namespace, each.claim or generated.get(each.name, ""))
            claim = self._cache.devices.claims.items.get(key)
            if claim is not None and claim.allocation is not None and _holds(claim, pod.uid):
                yield claim

    def _begin(self, key: ObjectKey, write: Callable[[ObjectKey, str], Awaitable[str]]) -> None:
        failed = self._failed.get(key)
        if key in self._open or len(self._open) >= _OPEN_MAX:
            return
        if failed is None or failed.retry_at <= self._clock.monotonic():
            task = asyncio.get_running_loop().create_task(self._run(key, write), name="claims")
            self._open[key] = task

    async def _run(self, key: ObjectKey, write: Callable[[ObjectKey, str], Awaitable[str]]) -> None:
        try:
            why = await write(key, self._fence())
        finally:
            self._open.pop(key, None)
        if not why:
            self._failed.pop(key, None)
            return
        tries = self._failed[key].tries + 1 if key in self._failed else 1
        wait_s = min(_RETRY_MAX_S, 2.0**tries)
        self._failed[key] = _Failed(tries, self._clock.monotonic() + wait_s)
        _log.warning("devices of a claim are not taken back", claim=key, why=why, retry_s=wait_s)

    async def _take_back(self, key: ObjectKey, pods: Mapping[UID, GangKey], fence: str) -> str:
        def body() -> bytes | str:
            known = self._cache.devices.claims.items.get(key)
            if known is None or known.allocation is None or self._cache.devices.is_assumed(key):
                return ""
            leaving = {
                pod
                for pod, gang in pods.items()
                if _holds(known, pod) and self._is_unbound(pod) and not self._has_open_commit(gang)
            }
            staying = [each for each in known.reserved_for if each.uid not in leaving]
            if not leaving:
                return ""
            if not staying and any(devices_given_twice(self._cache.devices, [known])):
                return ""  # not while another claim has them too, see ``rival_claims``
            if not staying:
                return claim_release_patch(known.uid, known.resource_version)
            if len(staying) == len(known.reserved_for):
                return ""
            return claim_status_patch(
                known.uid, known.resource_version, allocation=None, consumers=staying
            )

        return (await self._devices.patch(key, "/status", body, fence)).why

    def _is_unbound(self, uid: UID) -> bool:
        """Whether the pod is there and neither has a node nor is about to get one."""
        pod = self._cache.pod(uid)
        return pod is not None and not pod.node and self._cache.ledger.get(uid) is None


def _holds(claim: ResourceClaim, pod: UID) -> bool:
    return claim.owner == pod or any(each.uid == pod for each in claim.reserved_for)
