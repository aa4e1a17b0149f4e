"""What claims hold of the devices: whole ones, shares with their capacities, and counters of pools."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import attrs

from gpusched.api.devices.dynamic.claims import AllocatedDevice, ResourceClaim
from gpusched.api.devices.dynamic.slices import Device, ResourceSlice
from gpusched.base.classes import define, frozen
from gpusched.devices.inventory import DeviceId, PoolId, ReachablePool


class KnownDevices(Protocol):
    """Devices by their ids."""

    def find_device(self, key: tuple[str, str, str]) -> Device | None:
        """The device, None where nobody publishes it."""


_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@frozen(slots=True, eq=False)
class DeviceHolding:
    """What is taken of one device; replaced, never changed.

    Attributes:
        whole: claims that hold it whole; more than one only where somebody gave it twice.
        shares: claims that hold a share of it.
        consumed: of its capacities by shares, billionths by qualified name.
    """

    whole: int = 0
    shares: int = 0
    consumed: Mapping[str, int] = _NOTHING

    @property
    def is_free(self) -> bool:
        """Whether no claim holds any of it."""
        return not (self.whole or self.shares)

    @property
    def state(self) -> Hashable:
        """Equal for holdings of which the same is taken."""
        return (self.whole, self.shares, tuple(sorted(self.consumed.items())))

    def with_share(self, consumed: Iterable[tuple[str, int]], times: int) -> DeviceHolding:
        """The holding with a share more, or less."""
        left = dict(self.consumed)
        for name, amount in consumed:
            left[name] = left.get(name, 0) + times * amount
            if not left[name]:
                del left[name]
        return DeviceHolding(self.whole, self.shares + times, left)


_FREE: Final = DeviceHolding()
_TAKEN: Final = DeviceHolding(whole=1)
_TAKEN_STATE: Final = _TAKEN.state


@define(slots=True, eq=False)
class PoolUsage:
    """What is taken of one pool.

    Attributes:
        holdings: by name of the device; of devices of which anything is taken.
        counters: that they consume, billionths by (set, counter).
        consumes: what each of them takes of the counters while it is in use.
    """

    holdings: dict[str, DeviceHolding] = attrs.field(factory=dict)
    counters: dict[tuple[str, str], int] = attrs.field(factory=dict)
    consumes: dict[str, tuple[tuple[str, str, int], ...]] = attrs.field(factory=dict)
    _state: tuple[ReachablePool, Hashable] | None = None

    def copy(self) -> PoolUsage:
        """The same, to be changed apart."""
        return PoolUsage(dict(self.holdings), dict(self.counters), dict(self.consumes))

    def state_key(self, part: ReachablePool) -> Hashable:
        """What is taken, with places of devices in the part of the pool instead of their names."""
        known = self._state
        if known is None or known[0] is not part:
            places = part.places
            held = [
                (places[name], each.state) for name, each in self.holdings.items() if name in places
            ]
            held.sort()
            counters = tuple(sorted(self.counters.items())) if self.counters else ()
            known = self._state = (part, (tuple(held), counters))
        return known[1]

    def replace_holding(self, name: str, holding: DeviceHolding) -> None:
        """Another holding of one device."""
        self._state = None
        if holding.is_free:
            self.holdings.pop(name, None)
        else:
            self.holdings[name] = holding

    def consume_counters(self, parts: Iterable[tuple[str, str, int]], times: int) -> None:
        """Take amounts of the counters, or give them back."""
        for counter_set, name, amount in parts:
            place = (counter_set, name)
            left = self.counters.get(place, 0) + times * amount
            if left:
                self.counters[place] = left
            else:
                self.counters.pop(place, None)


class DeviceUsage:
    """What is taken, with exact undo: ``add`` with ``times=-1`` takes back what ``add`` did.

    Devices that are given for administration (``adminAccess``) are not taken. Copies share the pools
    that neither of them changes.

    Args:
        inventory: whose pools say what a device consumes; devices that it does not know hold nothing
            of counters, and are taken all the same.
    """

    def __init__(self, inventory: KnownDevices) -> None:
        self._inventory = inventory
        self._pools: dict[tuple[str, str], PoolUsage] = {}
        self._own: set[tuple[str, str]] = set()
        """Pools that no copy shares."""

    def copy(self) -> DeviceUsage:
        """The same, to be changed apart."""
        made = DeviceUsage(self._inventory)
        made._pools = dict(self._pools)
        self._own.clear()
        return made

    def find_pool(self, key: PoolId) -> PoolUsage | None:
        """What is taken of a pool, None where nothing is."""
        found = self._pools.get(key)
        return found if found is not None and found.holdings else None

    def find_holding(self, device: DeviceId) -> DeviceHolding | None:
        """What is taken of a device, None for nothing."""
        pool = self._pools.get(device[:2])
        return None if pool is None else pool.holdings.get(device[2])

    def consumed_counter(self, pool: PoolId, counter_set: str, name: str) -> int:
        """What devices in use consume of a counter, billionths."""
        found = self._pools.get(pool)
        return 0 if found is None else found.counters.get((counter_set, name), 0)

    def taken_devices(self) -> Iterator[DeviceId]:
        """Devices of which anything is taken, in any order."""
        for (driver, pool), used in self._pools.items():
            for name in used.holdings:
                yield DeviceId(driver, pool, name)

    def add(self, devices: Iterable[AllocatedDevice], times: int = 1) -> None:
        """Take what a claim was given, or give it back with ``times`` -1."""
        for each in devices:
            if not each.admin:
                if each.share:
                    key = DeviceId(each.driver, each.pool, each.device)
                    self.add_device(key, share=True, consumed=each.consumed, times=times)
                else:
                    self._add_whole((each.driver, each.pool, each.device), times)

    def add_device(
        self,
        key: DeviceId,
        *,
        share: bool,
        consumed: Iterable[tuple[str, int]] = (),
        times: int = 1,
    ) -> None:
        """Take one device whole or a share of it, or give it back with ``times`` -1."""
        if not share:
            self._add_whole(key, times)
            return
        pool = self._changeable_pool(key[:2])
        before = pool.holdings.get(key[2], _FREE)
        self._replace(pool, key, before, before.with_share(consumed, times))

    def _add_whole(self, key: tuple[str, str, str], times: int) -> None:
        pool = self._changeable_pool(key[:2])
        before = pool.holdings.get(key[2], _FREE)
        if before is _FREE and times == 1:
            after = _TAKEN
        elif before is _TAKEN and times == -1:
            after = _FREE
        else:
            after = DeviceHolding(before.whole + times, before.shares, before.consumed)
        self._replace(pool, key, before, after)

    def _replace(
        self,
        pool: PoolUsage,
        key: tuple[str, str, str],
        before: DeviceHolding,
        after: DeviceHolding,
    ) -> None:
        name = key[2]
        pool.replace_holding(name, after)
        if before is _FREE:
            device = self._inventory.find_device(key)
            if device is not None and device.consumes:
                parts = pool.consumes[name] = _consumed_parts(device)
                pool.consume_counters(parts, 1)
        elif pool.consumes and after.is_free and name in pool.consumes:
            pool.consume_counters(pool.consumes.pop(name), -1)

    def _changeable_pool(self, key: tuple[str, str]) -> PoolUsage:
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = PoolUsage()
            self._own.add(key)
        elif key not in self._own:
            found = self._pools[key] = found.copy()
            self._own.add(key)
        return found


def _consumed_parts(device: Device) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (part.name, name, amount) for part in device.consumes for name, amount in part.counters
    )


class _Published:
    """Devices of one pool, as its newest slices have them."""

    def __init__(self, slices: Sequence[ResourceSlice]) -> None:
        newest = max((each.generation for each in slices), default=0)
        self.slices = [each for each in slices if each.generation == newest]
        self._devices: dict[tuple[str, str, str], Device] = {
            DeviceId(part.driver, part.pool, device.name): device
            for part in self.slices
            for device in part.devices
        }

    def find_device(self, key: tuple[str, str, str]) -> Device | None:
        return self._devices.get(key)


def overbooked_devices(
    pool: PoolId, slices: Sequence[ResourceSlice], claims: Iterable[ResourceClaim]
) -> frozenset[DeviceId]:
    """Devices of a pool that claims hold together beyond what there is of them.

    Args:
        pool: whose devices are looked at.
        slices: of the pool, of any generation.
        claims: that have devices of it.

    Returns:
        Devices held whole by two claims or whole and in shares, devices of whose capacities shares consume
        more than there is, and devices in use that consume a counter of which too little is there.
    """
    published = _Published(slices)
    usage = DeviceUsage(published)
    for claim in claims:
        if claim.allocation is not None:
            usage.add(each for each in claim.allocation.devices if each.pool == pool.pool)
    found = set()
    for key in usage.taken_devices():
        held = usage.find_holding(key)
        if held is not None and _is_overbooked(published.find_device(key), held):
            found.add(key)
    counters = {
        (counter_set.name, name): amount
        for part in published.slices
        for counter_set in part.counters
        for name, amount in counter_set.counters
    }
    short = {
        place for place, amount in counters.items() if usage.consumed_counter(pool, *place) > amount
    }
    if short:
        found.update(
            key
            for key in usage.taken_devices()
            if _consumes_counters(published.find_device(key), short)
        )
    return frozenset(found)


def _is_overbooked(device: Device | None, held: DeviceHolding) -> bool:
    if held.whole > 1 or (held.whole and held.shares):
        return True
    if device is None or not held.shares:
        return False
    amounts: Mapping[str, int] = {each.name: each.amount for each in device.capacities}
    return any(amount > amounts.get(name, 0) for name, amount in held.consumed.items())


def _consumes_counters(device: Device | None, counters: set[tuple[str, str]]) -> bool:
    return device is not None and any(
        (part.name, name) in counters for part in device.consumes for name, _ in part.counters
    )
