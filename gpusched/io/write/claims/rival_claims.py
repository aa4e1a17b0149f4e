"""Schedulers beside us that allocate the same devices: nothing in the API keeps two claims from one device.

A scheduler chooses from what its watch showed and writes a moment later, and kube-scheduler never looks again.
It also forgets that a device is in use as soon as any claim gives it back, so that a device which two
claims have must not be given back by one of them alone. So while claims of others wait for devices, what
was chosen is written only when they had the time to write what they chose before; and a gang is bound only
when they had it once more. A claim of ours whose device another claim has too keeps it, unused, until the
other one has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import ResourceClaim
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import DeviceObjectStores
from gpusched.devices.inventory import DeviceId, PoolId
from gpusched.devices.usage import overbooked_devices
from gpusched.io.write.claims.device_claims import claims_of
from gpusched.session.state.plan import GangBind

_WATCH_S: Final = 5.0
"""Seconds for which a late watch of claims is waited for."""
_POLL_S: Final = 0.01
_BEFORE_S: Final = 0.3
"""Seconds before a write in which others write what they chose of the same devices."""
_SINCE_S: Final = 1.0
"""Seconds after a write in which others write what they chose before they saw it."""
_LOOK_S: Final = 0.25
_REMEMBERED_S: Final = 60.0
"""Seconds for which others are expected to come again: their next claim may not be seen in time."""


class RivalClaims:
    """See the module. Everything is called in the event loop.

    Args:
        cache: shows claims and pods.
        clock: time.
    """

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._looked_at = -_LOOK_S
        self._seen_at = -_REMEMBERED_S

    async def taken_before(self, gang: GangBind) -> str:
        """Which device of what is to be written somebody else has taken meanwhile; empty for none."""
        if not self._others_wait():
            return ""
        await self._clock.sleep(_BEFORE_S)
        return self._shared_device(gang)

    async def taken_since(self, gang: GangBind) -> str:
        """Which device of what was just written another claim has as well; empty for none."""
        began = self._clock.monotonic()
        rivals = self._others_wait()
        await self._watch_comes(gang)
        left_s = began + _SINCE_S - self._clock.monotonic()
        if rivals and left_s > 0:
            await self._clock.sleep(left_s)
        return self._shared_device(gang)

    async def _watch_comes(self, gang: GangBind) -> None:
        claims, wait_s = self._cache.devices.claims, _POLL_S
        until = self._clock.monotonic() + _WATCH_S
        keys = [claim.key for claim, _ in claims_of(gang)]
        while any(map(claims.awaits_watch, keys)) and self._clock.monotonic() < until:
            await self._clock.sleep(wait_s)
            wait_s *= 2

    def _others_wait(self) -> bool:
        """Whether claims that are not of our pods wait for devices, or did a moment ago."""
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            waiting = self._cache.devices.claims.without_devices
            if self._cache.charges.served.others_wait() or any(
                not self._is_ours(claim) for claim in waiting
            ):
                self._seen_at = now
        return now - self._seen_at < _REMEMBERED_S

    def _is_ours(self, claim: ResourceClaim) -> bool:
        pod = self._cache.find_pod(claim.owner) if claim.owner else None
        if pod is not None:
            return pod.scheduler in self._cache.schedulers
        group = self._cache.charges.claims.group_of(claim.owner)
        if group is not None:
            return not self._cache.families.members_of_others(GangKey("PodGroup", *group))
        return claim.deleting or self._cache.devices.is_assumed(claim.key)

    def _shared_device(self, gang: GangBind) -> str:
        """Which of the devices that a gang gets, or got, another claim has as well; empty for none."""
        given = []
        for claim, _ in claims_of(gang):
            known = self._cache.devices.claims.items.get(claim.key)
            known = known or self._cache.devices.claim_being_made(claim.key)
            if known is not None:
                given.append(attrs.evolve(known, allocation=known.allocation or claim.allocation))
        for device, holders in devices_given_twice(self._cache.devices, given):
            return (
                f"device {device.device} of pool {device.pool} was given to more than one claim at a time "
                f"({', '.join(map(str, holders))}): another scheduler allocates devices of driver "
                f"{device.driver} too"
            )
        return ""


def devices_given_twice(
    devices: DeviceObjectStores, given: Iterable[ResourceClaim]
) -> Iterator[tuple[DeviceId, list[ObjectKey]]]:
    """Devices of these claims that claims hold beyond what there is, with the claims that hold them.

    Args:
        devices: with all claims as the API shows them.
        given: claims with devices, written or not yet.
    """
    of_pool: dict[PoolId, dict[ObjectKey, ResourceClaim]] = {}
    for claim in given:
        for device in _claimed_devices(claim):
            of_pool.setdefault(PoolId(device.driver, device.pool), {})[claim.key] = claim
    for pool, claims in sorted(of_pool.items()):
        own = {device for claim in claims.values() for device in _claimed_devices(claim)}
        every = {**{claim.key: claim for claim in devices.claims.of_pool(pool)}, **claims}
        slices = [*devices.slices.of_pool(pool)]
        for device in sorted(own & overbooked_devices(pool, slices, every.values())):
            yield (
                device,
                sorted(key for key, each in every.items() if device in _claimed_devices(each)),
            )


def _claimed_devices(claim: ResourceClaim) -> set[DeviceId]:
    held = claim.allocation.devices if claim.allocation is not None else ()
    return {DeviceId(each.driver, each.pool, each.device) for each in held if not each.admin}
