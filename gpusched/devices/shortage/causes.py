"""Why requests find no device: how many match, which are held and by whom, tainted, or short of a counter.

Every device that matches a request is counted once, under the first cause that keeps it away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import AllocationMode
from gpusched.api.meta.quantity import format_billionths
from gpusched.base.classes import frozen
from gpusched.devices.allocator import REPELS, share_of_capacity
from gpusched.devices.fit import PodCount, count_pods
from gpusched.devices.inventory import (
    DeviceId,
    DeviceInventory,
    NodeDevices,
    Pool,
    PoolDevice,
)
from gpusched.devices.requests import ReadyClaim, ReadyRequest
from gpusched.devices.search.node_signature import node_signature
from gpusched.devices.usage import DeviceHolding, DeviceUsage

Holders = Callable[[DeviceId], Sequence[str]]
"""Gangs or pods that hold a device, or a share of it."""

_NODES_MAX: Final = 64
_SIGNATURES_MAX: Final = 8
_STEPS_MAX: Final = 1_000


class DeviceState(StrEnum):
    """What keeps a device that matches from a request."""

    FREE = "free"
    ELSEWHERE = "elsewhere"
    """Free, on nodes that have no room for the pod otherwise."""
    HELD = "held"
    TAINTED = "tainted"
    COUNTERS = "counters"
    CAPACITY = "capacity"
    POOL = "pool"


@frozen(slots=True, kw_only=True)
class AmountShortage:
    """A counter or a capacity of which too little is left; amounts in billionths.

    Attributes:
        name: of the counter or the capacity.
        place: counter set and pool, or the device.
    """

    name: str
    place: str
    needed: int
    left: int
    total: int

    def __str__(self) -> str:
        needed, left, total = map(format_billionths, (self.needed, self.left, self.total))
        return f"{needed} {self.name} needed, {left} of {total} left in {self.place}"


@frozen(slots=True, kw_only=True)
class RequestShortage:
    """Devices that match one request, by what keeps them away.

    Attributes:
        needed: devices that one pod asks for, 0 for all that match.
        matching: devices that the selectors of class and request choose.
        states: how many of them are in each state.
        most_on_node: free devices of the node that has most.
        holders: with the devices that each keeps away, most first.
        taints: that the request does not tolerate, with the devices that have them, most first.
        counter: nearest to what is needed, of devices that are short of one.
        counter_holders: of devices that use up such counters, most first.
        capacity: nearest to what is needed, of shared devices that are short of it.
        capacity_holders: of shares of those, most first.
        unanswered: why a selector has no value for a device, empty where all have.
    """

    claim: str
    request: str
    needed: int
    matching: int
    states: Mapping[DeviceState, int]
    most_on_node: int
    holders: tuple[tuple[str, int], ...] = ()
    taints: tuple[tuple[str, int], ...] = ()
    counter: AmountShortage | None = None
    counter_holders: tuple[tuple[str, int], ...] = ()
    capacity: AmountShortage | None = None
    capacity_holders: tuple[tuple[str, int], ...] = ()
    unanswered: str = ""

    @property
    def free(self) -> int:
        """Devices that the request could take now."""
        return self.states.get(DeviceState.FREE, 0)


class _Counts:
    """What is found while the devices of nodes are gone through."""

    def __init__(self) -> None:
        self.states: Counter[DeviceState] = Counter()
        self.holders: Counter[str] = Counter()
        self.taints: Counter[str] = Counter()
        self.counter: AmountShortage | None = None
        self.counter_sets: dict[tuple[Hashable, str], Pool] = {}
        self.capacity: AmountShortage | None = None
        self.capacity_holders: Counter[str] = Counter()
        self.unanswered = ""
        self.most_on_node = 0


def describe_request(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    nodes: Iterable[tuple[NodeDevices, bool]],
    claim: ReadyClaim,
    request: ReadyRequest,
    *,
    holders: Holders,
) -> RequestShortage:
    """Count the devices that match a request, by what keeps them away.

    Args:
        inventory: of the devices.
        usage: of all devices.
        nodes: with whether each has room for the pod beside devices.
        claim: of the request.
        request: or one of its alternatives.
        holders: of devices.
    """
    found = _Counts()
    seen: set[DeviceId] = set()
    for node, has_room in sorted(nodes, key=lambda each: not each[1]):
        free = 0
        selection = inventory.select_devices(node, request.selectors)
        for number, why in selection.unanswered if not found.unanswered else ():
            device, _ = node.listed[number]
            found.unanswered = f"a selector has no value for {'/'.join(device.id)}: {why.message}"
            break
        for number in selection.chosen:
            device, pool = node.listed[number]
            if device.id in seen:
                continue
            seen.add(device.id)
            state = _device_state(usage, pool, device, request, found=found, holders=holders)
            if state is DeviceState.FREE and not has_room:
                state = DeviceState.ELSEWHERE
            free += state is DeviceState.FREE
            found.states[state] += 1
        found.most_on_node = max(found.most_on_node, free)
    exact = request.request.mode is AllocationMode.EXACT
    return RequestShortage(
        claim=claim.name,
        request=request.name,
        needed=request.request.count if exact else 0,
        matching=sum(found.states.values()),
        states=dict(found.states),
        most_on_node=found.most_on_node,
        holders=_most_first(found.holders),
        taints=_most_first(found.taints),
        counter=found.counter,
        counter_holders=_most_first(_counter_holders(usage, found, holders)),
        capacity=found.capacity,
        capacity_holders=_most_first(found.capacity_holders),
        unanswered=found.unanswered,
    )


def _device_state(
    usage: DeviceUsage,
    pool: Pool,
    device: PoolDevice,
    request: ReadyRequest,
    *,
    found: _Counts,
    holders: Holders,
) -> DeviceState:
    """The first cause that keeps a device away, noted in what was found."""
    asked = request.request
    if not pool.is_usable:
        return DeviceState.POOL
    held = usage.find_holding(device.id)
    if held is not None and not asked.admin and (held.whole or not device.device.shareable):
        for name in dict.fromkeys(holders(device.id)):
            found.holders[name] += 1
        return DeviceState.HELD
    for taint in device.taints:
        if taint.effect in REPELS and not any(each.tolerates(taint) for each in asked.tolerations):
            found.taints[f"{taint.key}:{taint.effect}"] += 1
            return DeviceState.TAINTED
    if held is None or asked.admin:
        short = _short_counter(usage, pool, device)
        if short is not None:
            found.counter = _nearer_shortage(found.counter, short)
            for part in device.device.consumes:
                found.counter_sets[pool.id, part.name] = pool
            return DeviceState.COUNTERS
    lacking = _short_capacity(held, device, request)
    if lacking is not None:
        found.capacity = _nearer_shortage(found.capacity, lacking)
        found.capacity_holders.update(dict.fromkeys(holders(device.id), 1))
        return DeviceState.CAPACITY
    return DeviceState.FREE


def _short_counter(usage: DeviceUsage, pool: Pool, device: PoolDevice) -> AmountShortage | None:
    for part in device.device.consumes:
        for name, amount in part.counters:
            total = pool.counters[part.name, name]
            left = total - usage.consumed_counter(pool.id, part.name, name)
            if amount > left:
                place = f"{part.name} of pool {pool.id.pool}"
                return AmountShortage(name=name, place=place, needed=amount, left=left, total=total)
    return None


def _short_capacity(
    held: DeviceHolding | None, device: PoolDevice, request: ReadyRequest
) -> AmountShortage | None:
    driver = device.id.driver
    asked = {
        name if "/" in name else f"{driver}/{name}": amount
        for name, amount in request.request.capacity
    }
    place = f"{device.id.pool}/{device.id.device}"
    known = {each.name: each for each in device.device.capacities}
    for name, wanted in asked.items():
        if name not in known:
            return AmountShortage(name=name, place=place, needed=wanted, left=0, total=0)
    for each in device.device.capacities:
        amount: int | None = asked.get(each.name, 0)
        left = each.amount
        if device.device.shareable:
            amount = share_of_capacity(each.amount, each.policy, asked.get(each.name))
            left -= held.consumed.get(each.name, 0) if held is not None else 0
        if amount is None or amount > left:
            needed = asked.get(each.name, 0) if amount is None else amount
            short = each.name.removeprefix(f"{driver}/")
            return AmountShortage(
                name=short, place=place, needed=needed, left=left, total=each.amount
            )
    return None


def _nearer_shortage(known: AmountShortage | None, other: AmountShortage) -> AmountShortage:
    """Of two shortages the one of which less is missing; the first where they are equal."""
    if known is None or other.needed - other.left < known.needed - known.left:
        return other
    return known


def _counter_holders(usage: DeviceUsage, found: _Counts, holders: Holders) -> Counter[str]:
    """Holders of devices that take of the counter sets that are short."""
    names: Counter[str] = Counter()
    pools = {id(pool): pool for pool in found.counter_sets.values()}
    for pool in pools.values():
        for device in pool.devices:
            takes = any(
                (pool.id, part.name) in found.counter_sets for part in device.device.consumes
            )
            if takes and usage.find_holding(device.id) is not None:
                names.update(dict.fromkeys(holders(device.id), 1))
    return names


def _most_first(names: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(names.items(), key=lambda item: (-item[1], item[0])))


# -- what would help -------------------------------------------------------------------------
@frozen(slots=True)
class Relief:
    """What one rule or request fewer would do.

    Attributes:
        without: what is left out, for people.
        pods: that find devices then.
        exact: whether no more do.
    """

    without: str
    pods: int
    exact: bool


def find_reliefs(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    nodes: Sequence[NodeDevices],
    claims: Sequence[ReadyClaim],
    *,
    most: int,
    counts: MutableMapping[Hashable, PodCount],
) -> tuple[Relief, ...]:
    """Which constraints, else which requests, keep pods from devices: more fit where one is left out.

    Args:
        inventory: with the classes.
        usage: of all devices.
        nodes: on which the pods may run; the first of them are looked at.
        claims: of one pod.
        most: pods that are asked about.
        counts: known numbers of pods by node signature and claims; new ones are added.
    """
    looked_at = nodes[:_NODES_MAX]

    def room(asked: Sequence[ReadyClaim]) -> tuple[int, bool]:
        found: dict[Hashable, int] = {}
        total, exact = 0, len(looked_at) == len(nodes)
        for node in looked_at:
            signature = node_signature(inventory, usage, node, asked)
            if signature not in found:
                if len(found) == _SIGNATURES_MAX:
                    exact = False
                    continue
                key = ("relief", signature, tuple((e.sort, e.requests) for e in asked), most)
                if key not in counts:
                    counts[key] = count_pods(
                        inventory, usage, node, asked, most=most, steps_max=_STEPS_MAX
                    )
                exact = exact and not counts[key].bounded
                found[signature] = counts[key].most
            total += found[signature]
        return min(most, total), exact or total >= most

    now, _ = room(claims)
    for variants in (_without_constraints(claims), _without_requests(claims)):
        helpful = []
        for text, variant in variants:
            pods, exact = room(variant)
            if pods > now:
                helpful.append(Relief(text, pods, exact))
        if helpful:
            return tuple(helpful)
    return ()


def _without_constraints(claims: Sequence[ReadyClaim]) -> list[tuple[str, list[ReadyClaim]]]:
    """The claims with each constraint left out, alone; all of one claim together at the end."""
    found = []
    for at, claim in enumerate(claims):
        for number, rule in enumerate(claim.constraints):
            kind = "matchAttribute" if rule.match else "distinctAttribute"
            text = f"{kind} {rule.match or rule.distinct} of claim {claim.name}"
            found.append((text, _replace_claim(claims, at, _keep_rules(claim, {number}))))
        if len(claim.constraints) > 1:
            every = set(range(len(claim.constraints)))
            found.append(
                (
                    f"the {len(every)} constraints of claim {claim.name}",
                    _replace_claim(claims, at, _keep_rules(claim, every)),
                )
            )
    return found


def _keep_rules(claim: ReadyClaim, dropped: set[int]) -> ReadyClaim:
    """The claim with all constraints but some; the others keep their numbers."""
    requests = tuple(
        tuple(
            attrs.evolve(
                each, constraints=tuple(at for at in each.constraints if at not in dropped)
            )
            for each in alternatives
        )
        for alternatives in claim.requests
    )
    return attrs.evolve(claim, requests=requests)


def _without_requests(claims: Sequence[ReadyClaim]) -> list[tuple[str, list[ReadyClaim]]]:
    """The claims with each request left out, where that leaves any."""
    if sum(len(claim.requests) for claim in claims) < 2:
        return []
    return [
        (
            f"request {alternatives[0].parent} of claim {claim.name}",
            _replace_claim(
                claims,
                at,
                attrs.evolve(
                    claim, requests=(*claim.requests[:number], *claim.requests[number + 1 :])
                ),
            ),
        )
        for at, claim in enumerate(claims)
        for number, alternatives in enumerate(claim.requests)
    ]


def _replace_claim(claims: Sequence[ReadyClaim], at: int, claim: ReadyClaim) -> list[ReadyClaim]:
    return [*claims[:at], claim, *claims[at + 1 :]]
