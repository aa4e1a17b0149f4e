"""What claims hold of the devices: whole ones, shares with their capacities, and counters of pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import attrs

from gpusched.api.devices.dynamic.claims import AllocatedDevice
from gpusched.api.devices.dynamic.slices import Device
from gpusched.devices.inventory import DeviceId, PoolId


class KnownDevices(Protocol):
    """Devices by their ids."""

    def device(self, key: DeviceId) -> Device | None:
        """The device, None where nobody publishes it."""


@attrs.define(slots=True, eq=False)
class DeviceHolding:
    """What is taken of one device.

    Attributes:
        whole: claims that hold it whole; more than one only where somebody gave it twice.
        shares: claims that hold a share of it.
        consumed: of its capacities by shares, billionths by qualified name.
    """

    whole: int = 0
    shares: int = 0
    consumed: dict[str, int] = attrs.field(factory=dict)

    @property
    def is_free(self) -> bool:
        """Whether no claim holds any of it."""
        return not (self.whole or self.shares)


class DeviceUsage:
    """What is taken, with exact undo: ``add`` with ``times=-1`` takes back what ``add`` did.

    Devices that are given for administration (``adminAccess``) are not taken.

    Args:
        inventory: whose pools say what a device consumes; devices that it does not know hold nothing
            of counters, and are taken all the same.
    """

    def __init__(self, inventory: KnownDevices) -> None:
        self._inventory = inventory
        self._holdings: dict[DeviceId, DeviceHolding] = {}
        self._counters: dict[tuple[PoolId, str, str], int] = {}
        self._consumes: dict[DeviceId, tuple[tuple[str, str, int], ...]] = {}

    def holding(self, device: DeviceId) -> DeviceHolding | None:
        """What is taken of a device, None for nothing."""
        return self._holdings.get(device)

    def counter(self, pool: PoolId, counter_set: str, name: str) -> int:
        """What devices in use consume of a counter, billionths."""
        return self._counters.get((pool, counter_set, name), 0)

    def devices(self) -> Iterator[DeviceId]:
        """Devices of which anything is taken, in any order."""
        return iter(self._holdings)

    def add(self, devices: Iterable[AllocatedDevice], times: int = 1) -> None:
        """Take what a claim was given, or give it back with ``times`` -1."""
        for each in devices:
            if not each.admin:
                key = DeviceId(each.driver, each.pool, each.device)
                self.add_device(key, share=bool(each.share), consumed=each.consumed, times=times)

    def add_device(
        self,
        key: DeviceId,
        *,
        share: bool,
        consumed: Iterable[tuple[str, int]] = (),
        times: int = 1,
    ) -> None:
        """Take one device whole or a share of it, or give it back with ``times`` -1."""
        held = self._holdings.get(key)
        if held is None:
            held = self._holdings[key] = DeviceHolding()
        before = held.is_free
        if share:
            held.shares += times
            for name, amount in consumed:
                left = held.consumed.get(name, 0) + times * amount
                if left:
                    held.consumed[name] = left
                else:
                    held.consumed.pop(name, None)
        else:
            held.whole += times
        if before != held.is_free:
            self._consume(key, 1 if before else -1)
        if held.is_free:
            del self._holdings[key]

    def _consume(self, key: DeviceId, times: int) -> None:
        """Counters that a device consumes while anything of it is in use."""
        pool = PoolId(key.driver, key.pool)
        if times > 0:
            self._consumes[key] = self._consumed_by(key)
        for counter_set, name, amount in self._consumes[key]:
            place = (pool, counter_set, name)
            left = self._counters.get(place, 0) + times * amount
            if left:
                self._counters[place] = left
            else:
                self._counters.pop(place, None)
        if times < 0:
            del self._consumes[key]

    def _consumed_by(self, key: DeviceId) -> tuple[tuple[str, str, int], ...]:
        found = self._inventory.device(key)
        if found is None:
            return ()
        return tuple(
            (part.name, name, amount) for part in found.consumes for name, amount in part.counters
        )
