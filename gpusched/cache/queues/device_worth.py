"""What devices of resource claims count as in queues, by the rows of ``deviceQuota``.

A row is found by the class that a request names, or by a selector that the device itself matches; the
first that is about a device counts. Before devices are chosen a request counts as the dearest device
that it may get: it is never charged less than it will hold.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import attrs

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    AllocatedDevice,
    AllocationMode,
    ClaimAllocation,
    DeviceClaimSpec,
    DeviceRequest,
)
from gpusched.api.devices.dynamic.slices import (
    AMOUNT_UNIT,
    Device,
    DeviceCapacity,
    ResourceSlice,
)
from gpusched.api.meta.gpu_resources import DeviceQuota
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.meta.units import unit_of
from gpusched.base.classes import define, frozen
from gpusched.devices.allocator import share_of_capacity
from gpusched.devices.inventory import REMEMBERED_MAX, PoolId
from gpusched.devices.selector_verdicts import (
    AttributeFrame,
    Mismatch,
    frame_of,
    selector_verdict,
)

_WHOLE: Final = Fraction(1)
_PROFILE: Final = re.compile(r"(?:\d+c\.)?(\d+)g\..*")
"""Profile of a MIG device: how many compute slices it has of its GPU's."""
_PROFILE_NAME: Final = "profile"
_SLICES_OF_A_GPU: Final = 7
_Selectors = tuple[str, ...]
_Question = tuple[str, _Selectors, tuple[tuple[str, int], ...]]
"""Class, selectors of class and request, and capacities that are asked for."""
_NO_CONSUMPTION: Final[Mapping[str, int]] = MappingProxyType({})
_SPECS_MAX: Final = 4_096
"""Specs of claims, and requests, whose answers are remembered."""
_ALIKE_MAX: Final = 1_024
"""Answers about pools of one node that pools with the same devices share."""
_WORTHS_MAX: Final = 1_024
"""Sorts of whole cards whose amounts are remembered."""


@frozen(slots=True)
class _PoolAnswer:
    """Devices of one pool that match a request: the dearest, and the sums by node ("" for several)."""

    dearest: Resources
    by_node: Mapping[str, Resources]
    found: bool


@define(slots=True, eq=False)
class PublishedPool:
    """Devices of one pool in its newest generation.

    Attributes:
        slices: of that generation.
        counters: amounts in billionths by (set, counter).
        devices: by name, each with the one node that reaches it, "" where several may.
        answers: to requests that were asked about already.
        totals: what all of its cards count as, by node; None until asked for.
        node: the only one that reaches any of them; empty where several may.
    """

    driver: str

    slices: tuple[ResourceSlice, ...]
    counters: Mapping[tuple[str, str], int]
    devices: Mapping[str, tuple[Device, str]]
    answers: dict[_Question, _PoolAnswer] = attrs.field(factory=dict)
    totals: Mapping[str, Resources] | None = None
    node: str = ""
    _content: tuple[tuple[_Selectors, ...], Hashable] | None = None
    _frames: dict[str, AttributeFrame] = attrs.field(factory=dict)
    _verdicts: dict[_Selectors, tuple[bool | Mismatch, ...]] = attrs.field(factory=dict)

    @property
    def frames(self) -> Mapping[str, AttributeFrame]:
        """Names and types of the attributes of each device, by its name."""
        if not self._frames:
            self._frames = {name: frame_of(device) for name, (device, _) in self.devices.items()}
        return self._frames

    def content_key(self, read: tuple[_Selectors, ...]) -> Hashable:
        """All that amounts depend on where some selectors are read; None for devices of several nodes.

        Names and nodes are not in it: devices of one node are as much as the same devices of another.
        """
        if not self.node:
            return None
        if self._content is not None and self._content[0] == read:
            return self._content[1]
        found: list[Hashable] = [self.driver, tuple(sorted(self.counters.items())), read]
        looked_at = (read, ())
        last: AttributeFrame | None = None
        places: tuple[int, ...] = ()
        for (device, _), frame in zip(self.devices.values(), self.frames.values(), strict=True):
            attributes = device.attributes
            if frame is not last:  # mostly one for all devices of a pool
                last = frame
                places = (*frame.read_places(looked_at), *frame.places_ending_in(_PROFILE_NAME))
            found.append(
                (
                    frame,
                    tuple([attributes[place][1] for place in places]),
                    device.capacities,
                    device.consumes,
                    device.shareable,
                )
            )
        self._content = (read, tuple(found))
        return self._content[1]

    def selector_verdicts(self, selectors: _Selectors) -> tuple[bool | Mismatch, ...]:
        """What selectors say of each device, asked once."""
        known = self._verdicts.get(selectors)
        if known is None:
            if len(self._verdicts) >= REMEMBERED_MAX:
                self._verdicts.clear()
            known = self._verdicts[selectors] = tuple(
                [
                    frame.selector_verdict(selectors, device, self.driver)
                    for (device, _), frame in zip(
                        self.devices.values(), self.frames.values(), strict=True
                    )
                ]
            )
        return known


class DeviceWorth:
    """Amounts that devices, requests and claims count as.

    Args:
        rows: of ``deviceQuota``.
        before: of an earlier catalog with the same rows, whose answers are used again.
    """

    def __init__(
        self,
        rows: tuple[DeviceQuota, ...],
        catalog: DeviceCatalog = NO_DEVICES,
        before: DeviceWorth | None = None,
    ) -> None:
        self.rows = rows
        self._catalog = catalog
        same = before is not None and before.rows == rows and before.has_classes_of(catalog)
        self.pools: dict[PoolId, PublishedPool] = _published_pools(
            catalog, before.pools if before is not None and same else {}
        )
        self.alike: dict[Hashable, _PoolAnswer] = (
            before.alike if before is not None and same else {}
        )
        told = [(row, self._selectors_of_row(row)) for row in rows]
        self._active_rows = [(row, texts) for row, texts in told if texts is not None]
        self._active_texts = tuple(dict.fromkeys(texts for _, texts in self._active_rows))
        self._by_class = {each.device_class for each in rows if each.device_class}
        self._selects = any(each.selector for each in rows)
        self._totals: dict[str, Resources] | None = None
        self._requests: dict[DeviceRequest, Resources] = {}
        self._claims: dict[int, tuple[DeviceClaimSpec, Resources]] = {}
        """By ``id`` of the spec, which equal claims share; with it, so that no other gets its ``id``."""
        self._classes: dict[int, tuple[DeviceClaimSpec, Mapping[str, str]]] = {}
        """Classes by name of the request as allocations have it, likewise."""

    def is_of(self, rows: tuple[DeviceQuota, ...], catalog: DeviceCatalog) -> bool:
        """Whether it has the answers for these rows and devices."""
        mine = self._catalog
        return (
            self.rows == rows
            and mine.slices is catalog.slices
            and (mine.classes is catalog.classes)
        )

    def has_classes_of(self, catalog: DeviceCatalog) -> bool:
        """Whether classes of rows are the same there; others are part of each question."""
        return all(
            self._catalog.classes.get(each.device_class) == catalog.classes.get(each.device_class)
            for each in self.rows
            if each.device_class
        )

    # -- claims ------------------------------------------------------------------------------
    def of_claim(self, spec: DeviceClaimSpec) -> Resources:
        """What a claim without devices counts as: of alternatives the dearest, by resource."""
        known = self._claims.get(id(spec))
        if known is None:
            amounts = NOTHING
            for asked in spec.requests:
                dearest = NOTHING
                for each in asked.alternatives:
                    dearest = dearest.maximum(self._of_request(each))
                amounts = amounts.plus(dearest)
            if len(self._claims) >= _SPECS_MAX:
                self._claims.clear()
            known = self._claims[id(spec)] = (spec, amounts)
        return known[1]

    def of_allocation(self, spec: DeviceClaimSpec, allocation: ClaimAllocation) -> Resources:
        """What the devices of a claim count as."""
        return total(amounts for _, amounts in self.of_devices(spec, allocation))

    def of_devices(
        self, spec: DeviceClaimSpec, allocation: ClaimAllocation
    ) -> Iterator[tuple[str, Resources]]:
        """What each device of a claim counts as, with the one node that reaches it."""
        classes = self._classes_of(spec)
        for given in allocation.devices:
            if not given.admin:
                yield self._of_device(given, classes.get(given.request, ""))

    def _classes_of(self, spec: DeviceClaimSpec) -> Mapping[str, str]:
        known = self._classes.get(id(spec))
        if known is None:
            if len(self._classes) >= _SPECS_MAX:
                self._classes.clear()
            classes = {
                f"{asked.name}/{each.name}" if asked.prioritized else asked.name: each.device_class
                for asked in spec.requests
                for each in asked.alternatives
            }
            known = self._classes[id(spec)] = (spec, classes)
        return known[1]

    def _of_device(self, given: AllocatedDevice, device_class: str) -> tuple[str, Resources]:
        pool = self.pools.get(PoolId(given.driver, given.pool))
        device, node = (pool.devices if pool else {}).get(given.device, (None, ""))
        if pool is None or device is None:  # gone from its slice, and still in use
            row = self._row_of_class(device_class)
            return node, NOTHING if row is None else Resources(row.amounts)
        row = self._quota_row(device_class, device, given.driver)
        consumed = dict(given.consumed) if given.share else None
        if row is None:
            return node, NOTHING
        return node, _device_worth(row, device, pool.frames[given.device], pool.counters, consumed)

    # -- requests ----------------------------------------------------------------------------
    def _of_request(self, request: DeviceRequest) -> Resources:
        if request.admin or not (self._selects or request.device_class in self._by_class):
            return NOTHING
        known = self._requests.get(request)
        if known is None:
            if len(self._requests) >= _SPECS_MAX:
                self._requests.clear()
            known = self._requests[request] = self._request_worth(request)
        return known

    def _request_worth(self, request: DeviceRequest) -> Resources:
        """The dearest devices it may get; where there are none yet, what its class's row says."""
        of_class = self._catalog.classes.get(request.device_class)
        answers = [
            self._of_pool(pool, request, (*of_class.selectors, *request.selectors))
            for pool in self.pools.values()
        ] if of_class is not None else []  # fmt: skip
        answers = [each for each in answers if each.found]
        row = self._row_of_class(request.device_class)
        if request.mode is AllocationMode.ALL:
            by_node: dict[str, Resources] = {}
            for each in answers:
                for node, amounts in each.by_node.items():
                    by_node[node] = by_node.get(node, NOTHING).plus(amounts)
            most = NOTHING
            for node, amounts in by_node.items():
                most = most.maximum(amounts if node else NOTHING)
            return most.plus(by_node.get("", NOTHING))
        dearest = NOTHING
        for each in answers:
            dearest = dearest.maximum(each.dearest)
        if not answers and row is not None:
            dearest = Resources(row.amounts)
        return NOTHING.plus(dearest, times=request.count) if dearest.items else NOTHING

    def _of_pool(
        self, pool: PublishedPool, request: DeviceRequest, selectors: _Selectors
    ) -> _PoolAnswer:
        question = (request.device_class, selectors, request.capacity)
        known = pool.answers.get(question)
        if known is not None:
            return known
        content = pool.content_key(self._read_with(selectors))
        alike = self.alike.get((question, content)) if content is not None else None
        if alike is None:
            answer = self._look_through(pool, request, selectors)
            if content is not None:
                self._note_alike((question, content), answer)
        else:
            answer = attrs.evolve(alike, by_node=_at_node(pool, alike.by_node))
        pool.answers[question] = answer
        return answer

    def _look_through(
        self, pool: PublishedPool, request: DeviceRequest, selectors: _Selectors
    ) -> _PoolAnswer:
        dearest, found = NOTHING, False
        by_node: dict[str, list[Resources]] = {}
        verdicts = pool.selector_verdicts(selectors)
        for (device, node), frame, verdict in zip(
            pool.devices.values(), pool.frames.values(), verdicts, strict=True
        ):
            if verdict is not True:
                continue
            consumed = _consumed_capacity(device, request, pool.driver)
            if device.shareable and consumed is None:
                continue
            found = True
            row = self._quota_row(request.device_class, device, pool.driver)
            if row is not None:
                worth = _device_worth(row, device, frame, pool.counters, consumed)
                dearest = dearest if worth is dearest else dearest.maximum(worth)
                by_node.setdefault(node, []).append(worth)
        sums = {node: total(parts) for node, parts in by_node.items()}
        return _PoolAnswer(dearest, sums, found)

    def _read_with(self, selectors: _Selectors) -> tuple[_Selectors, ...]:
        """Selectors of a request and of all rows, mostly the same for all requests."""
        rows = self._active_texts
        return rows if selectors in rows else (*rows, selectors)

    def _note_alike(self, key: Hashable, answer: _PoolAnswer) -> None:
        if len(self.alike) >= _ALIKE_MAX:
            self.alike.clear()
        self.alike[key] = answer

    # -- what there is -----------------------------------------------------------------------
    def totals_by_node(self) -> Mapping[str, Resources]:
        """What all cards count as, by the one node that reaches them ("" where several may).

        Of the partitions of one card the dearest counts, as they exclude each other.
        """
        if self._totals is None:
            active = self._active_rows
            sums: dict[str, list[Resources]] = {}
            for pool in self.pools.values() if active else ():
                if pool.totals is None:
                    pool.totals = self._totals_of_pool(pool, active)
                for node, amounts in pool.totals.items():
                    sums.setdefault(node, []).append(amounts)
            self._totals = {node: total(parts) for node, parts in sums.items()}
        return self._totals

    def _totals_of_pool(
        self, pool: PublishedPool, rows: list[tuple[DeviceQuota, _Selectors]]
    ) -> Mapping[str, Resources]:
        content = pool.content_key(self._active_texts)
        if content is None:
            return _pool_totals(pool, rows)
        key = ("totals", content)
        alike = self.alike.get(key)
        if alike is None:
            made = _pool_totals(pool, rows)
            self._note_alike(key, _PoolAnswer(NOTHING, made, found=True))
            return made
        return _at_node(pool, alike.by_node)

    def _selectors_of_row(self, row: DeviceQuota) -> _Selectors | None:
        if row.selector:
            return (row.selector,)
        found = self._catalog.classes.get(row.device_class)
        return None if found is None else found.selectors

    # -- rows --------------------------------------------------------------------------------
    def _row_of_class(self, device_class: str) -> DeviceQuota | None:
        return next((row for row in self.rows if row.device_class == device_class != ""), None)

    def _quota_row(self, device_class: str, device: Device, driver: str) -> DeviceQuota | None:
        for row in self.rows:
            if row.device_class:
                if row.device_class == device_class:
                    return row
            elif selector_verdict((row.selector,), device, driver) is True:
                return row
        return None


def _published_pools(
    catalog: DeviceCatalog, before: Mapping[PoolId, PublishedPool]
) -> dict[PoolId, PublishedPool]:
    slices: dict[PoolId, list[ResourceSlice]] = {}
    for each in catalog.slices:
        slices.setdefault(PoolId(each.driver, each.pool), []).append(each)
    found = {}
    for key, parts in sorted(slices.items()):
        newest = max(each.generation for each in parts)
        current = tuple(each for each in parts if each.generation == newest)
        known = before.get(key)
        same = known is not None and len(known.slices) == len(current)
        if known is None or not same or any(
            mine is not theirs for mine, theirs in zip(known.slices, current, strict=True)
        ):  # fmt: skip
            known = _make_pool(key.driver, current)
        found[key] = known
    return found


def _make_pool(driver: str, slices: tuple[ResourceSlice, ...]) -> PublishedPool:
    devices: dict[str, tuple[Device, str]] = {}
    for part in slices:
        for each in part.devices:
            reach = part.reach or each.reach
            devices.setdefault(each.name, (each, reach.node if reach is not None else ""))
    counters = {
        (counter_set.name, name): amount
        for part in slices
        for counter_set in part.counters
        for name, amount in counter_set.counters
    }
    nodes = {node for _, node in devices.values()}
    return PublishedPool(
        driver, slices, counters, devices, node=nodes.pop() if len(nodes) == 1 else ""
    )


def _at_node(pool: PublishedPool, by_node: Mapping[str, Resources]) -> Mapping[str, Resources]:
    """Sums of a pool that is of one node, as the same sums of another such pool."""
    return dict.fromkeys([pool.node], *by_node.values()) if by_node else {}


def _pool_totals(
    pool: PublishedPool, rows: list[tuple[DeviceQuota, _Selectors]]
) -> Mapping[str, Resources]:
    cards: dict[tuple[str, str], Resources] = {}
    verdicts = [(row, pool.selector_verdicts(texts)) for row, texts in rows]
    for number, (name, (device, node)) in enumerate(pool.devices.items()):
        row = next((row for row, verdict in verdicts if verdict[number] is True), None)
        if row is not None:
            card = f"set {device.consumes[0].name}" if device.consumes else f"device {device.name}"
            worth = _device_worth(row, device, pool.frames[name], pool.counters, None)
            known = cards.get((node, card))
            cards[node, card] = worth if known is None else known.maximum(worth)
    sums: dict[str, list[Resources]] = {}
    for (node, _), amounts in cards.items():
        sums.setdefault(node, []).append(amounts)
    return {node: total(parts) for node, parts in sums.items()}


def _consumed_capacity(
    device: Device, request: DeviceRequest, driver: str
) -> Mapping[str, int] | None:  # fmt: skip
    """What a share for a request takes of each capacity; None for whole devices, and where none fits."""
    if not device.shareable:
        return None
    asked = {
        name if "/" in name else f"{driver}/{name}": amount for name, amount in request.capacity
    }
    found = {}
    for each in device.capacities:
        amount = share_of_capacity(each.amount, each.policy, asked.get(each.name))
        if amount is None or amount > each.amount:
            return None
        found[each.name] = amount
    return found


def _device_worth(
    row: DeviceQuota,
    device: Device,
    frame: AttributeFrame,
    counters: Mapping[tuple[str, str], int],
    consumed: Mapping[str, int] | None,
) -> Resources:
    """Amounts of a row for a device, or for a share that consumes so much of its capacities."""
    profiles = tuple(device.attributes[place][1] for place in frame.places_ending_in(_PROFILE_NAME))
    whole = _part_by_profile(profiles) if profiles else _WHOLE
    if consumed is None and not device.consumes:
        return _worth_of_card(row, device.capacities if row.capacities else (), whole)
    part = _card_part(device, whole, counters, consumed) if row.by_part else _WHOLE
    return _part_amounts(row, device.capacities, part, consumed)


@lru_cache(maxsize=_WORTHS_MAX)
def _worth_of_card(
    row: DeviceQuota, capacities: tuple[DeviceCapacity, ...], part: Fraction
) -> Resources:
    """Amounts of a row for a device that is given as it is: the same object for equal ones."""
    return _part_amounts(row, capacities, part if row.by_part else _WHOLE, None)


def _part_amounts(
    row: DeviceQuota,
    capacities: tuple[DeviceCapacity, ...],
    part: Fraction,
    consumed: Mapping[str, int] | None,
) -> Resources:
    """Amounts of a row for a part of a card, rounded down, so that all parts are never more than the card."""
    amounts = {
        name: max(1, amount * part.numerator // part.denominator) if amount and part else 0
        for name, amount in row.amounts
    }
    for name, capacity in row.capacities:
        for each in capacities:
            if capacity in (each.name, each.name.rpartition("/")[2]):
                amount = each.amount if consumed is None else consumed.get(each.name, 0)
                amounts[name] = amount * unit_of(name) // AMOUNT_UNIT
    return Resources.of({name: amount for name, amount in amounts.items() if amount})


def _card_part(
    device: Device,
    by_profile: Fraction,
    counters: Mapping[tuple[str, str], int],
    consumed: Mapping[str, int] | None,
) -> Fraction:
    """The part of a card: the largest of any counter that it takes, and of any capacity of a share."""
    taken = [
        Fraction(amount, there)
        for part in device.consumes
        for name, amount in part.counters
        if (there := counters.get((part.name, name), 0))
    ]
    whole = min(_WHOLE, max(taken)) if taken else by_profile
    if consumed is not None:
        shares = [
            Fraction(consumed.get(each.name, 0), each.amount)
            for each in device.capacities
            if each.amount
        ]
        whole *= min(_WHOLE, max(shares)) if shares else _WHOLE
    return whole


def _part_by_profile(profiles: tuple[object, ...]) -> Fraction:
    """The part that the profile of a MIG device names; others are whole."""
    for value in profiles:
        if isinstance(value, str):
            match = _PROFILE.fullmatch(value)
            if match is not None:
                return min(_WHOLE, Fraction(int(match[1]), _SLICES_OF_A_GPU))
    return _WHOLE
