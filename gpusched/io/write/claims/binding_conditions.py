"""Devices that are not ready when they are given: pods are bound once their drivers say so.

A device may name conditions that must be true on its claim before a pod with it is bound (a GPU of a fabric
that is attached first), and others that say it never will be. As kube-scheduler does, what fails and what is
not ready within ten minutes of its allocation is given back, and the gang is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpusched.api.devices.dynamic.claims import AllocatedDevice, ResourceClaim
from gpusched.api.meta.identity import GangKey, format_time
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.commit.awaited_devices import AwaitedDevices
from gpusched.devices.readiness import READY_WITHIN_S, awaited_conditions, failed_condition
from gpusched.io.write.claims.device_claims import claims_of
from gpusched.session.state.plan import GangBind

_LOOK_S: Final = 1.0


class BindingConditions:
    """Waits for devices of claims that were written. Everything is called in the event loop.

    Args:
        cache: shows claims.
        clock: time.
        server_now: seconds since the epoch by the API server's clock.
    """

    def __init__(self, cache: Cache, clock: Clock, server_now: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock
        self._server_now = server_now
        self.awaited: dict[GangKey, AwaitedDevices] = {}
        """What gangs wait for now."""

    async def wait_until_ready(self, gang: GangBind, stopped: Callable[[], str]) -> str:
        """Empty when all devices of a gang are ready, else why they will not be.

        Args:
            gang: whose claims are written.
            stopped: why nothing is to be waited for any more, empty while it is.
        """
        try:
            return await self._wait_for_devices(gang, stopped)
        finally:
            self.awaited.pop(gang.gang, None)

    async def _wait_for_devices(self, gang: GangBind, stopped: Callable[[], str]) -> str:
        began = self._server_now()
        while True:
            awaited: list[str] = []
            until = 0.0
            for bind, _ in claims_of(gang):
                claim = self._cache.devices.claims.items.get(bind.key)
                if claim is None or claim.allocation is None:
                    return f"claim {bind.key} has lost its devices"
                since = claim.allocation.timestamp or began
                for device in claim.allocation.devices:
                    failed = failed_condition(claim, device)
                    if failed:
                        return f"{_device_text(claim, device)} cannot be used: it has condition {failed}"
                    missing = awaited_conditions(claim, device)
                    if missing and self._server_now() - since >= READY_WITHIN_S:
                        return (
                            f"{_device_text(claim, device)} was not ready within {READY_WITHIN_S:g} s: it lacks "
                            f"condition {', '.join(missing)}"
                        )
                    if missing:
                        awaited.append(f"{', '.join(missing)} of {_device_text(claim, device)}")
                        until = min(until or since + READY_WITHIN_S, since + READY_WITHIN_S)
            if not awaited:
                return ""
            said = AwaitedDevices(gang, _awaited_text(awaited, until))
            if self.awaited.get(gang.gang) != said:
                self.awaited[gang.gang] = said
                self._cache.request_status()
            why = stopped()
            if why:
                return why
            await self._clock.sleep(_LOOK_S)


def _awaited_text(awaited: Sequence[str], until: float) -> str:
    more = len(awaited) - 1
    others = f" and {more} more device{'s' if more > 1 else ''}" if more else ""
    return (
        f"has its devices and waits for {awaited[0]}{others}, until {format_time(until)}: what is not ready then "
        "is given back"
    )


def _device_text(claim: ResourceClaim, device: AllocatedDevice) -> str:
    return f"device {device.driver}/{device.pool}/{device.device} of claim {claim.key}"
