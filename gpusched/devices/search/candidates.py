"""Devices that a search may take, those first whose use leaves the most for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from gpusched.base.classes import frozen
from gpusched.devices.inventory import DeviceInventory, NodeDevices, Pool, PoolDevice
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.selector_verdicts import LookedAt, Mismatch
from gpusched.devices.usage import DeviceUsage


@frozen(slots=True, eq=False)
class Candidate:
    """A device that a request may take.

    Attributes:
        number: in the order in which candidates of this search are tried.
        place: in ``NodeDevices.usable``.
        kind: what rules see of it beside what is taken; equal devices have equal ones.
    """

    number: int
    place: int
    device: PoolDevice
    pool: Pool
    kind: int


def looked_at_by(claims: Sequence[ReadyClaim]) -> LookedAt:
    """What the requests and constraints of some claims look at."""
    selectors = {
        read: None
        for claim in claims
        for alternatives in claim.requests
        for request in alternatives
        for read in ((request.selectors, request.must) if request.must else (request.selectors,))
    }
    compared = {rule.match or rule.distinct: None for claim in claims for rule in claim.constraints}
    return tuple(selectors), tuple(compared)


def ordered_candidates(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    claims: Sequence[ReadyClaim],
    *,
    looked_at: LookedAt,
    listed: bool,
) -> list[Candidate]:
    """All devices that can be used on a node, those first whose use leaves the most for others.

    Args:
        inventory: with the kinds of devices.
        usage: of all devices.
        node: its devices.
        claims: that are to be served.
        looked_at: what these read of devices.
        listed: whether devices stay in the order in which drivers list them.
    """
    every = node.usable
    places: Sequence[int] = range(len(every))
    # Where a selector fails the answer depends on the order that Kubernetes has.
    if not listed and not _fails_on_any(every, looked_at):
        groups = _group_sizes(every, usage, claims, looked_at)
        keys = [_leftover_key(device, pool, usage, groups, looked_at) for device, pool in every]
        # The last first: kube-scheduler beside us takes the first, so that both seldom meet.
        places = sorted(range(len(every) - 1, -1, -1), key=keys.__getitem__)
    kinds: dict[object, int] = {}
    return [
        Candidate(
            number,
            place,
            *every[place],
            kinds.setdefault(_kind(inventory, looked_at, *every[place]), len(kinds)),
        )
        for number, place in enumerate(places)
    ]


def _fails_on_any(every: Sequence[tuple[PoolDevice, Pool]], looked_at: LookedAt) -> bool:
    return any(
        isinstance(device.matches_selectors(selectors), Mismatch)
        for selectors in looked_at[0]
        for device, _ in every
    )


def _group_sizes(
    every: Sequence[tuple[PoolDevice, Pool]],
    usage: DeviceUsage,
    claims: Sequence[ReadyClaim],
    looked_at: LookedAt,
) -> Counter[object]:
    """Free devices by value of each attribute that is to match."""
    matched = [
        name
        for name in looked_at[1]
        if any(rule.match == name for claim in claims for rule in claim.constraints)
    ]
    sizes: Counter[object] = Counter()
    for device, _ in every:
        if usage.find_holding(device.id) is None:
            for name in matched:
                for value in device.compared_values(name) or ():
                    sizes[name, value] += 1
    return sizes


def _leftover_key(
    device: PoolDevice,
    pool: Pool,
    usage: DeviceUsage,
    groups: Counter[object],
    looked_at: LookedAt,
) -> tuple[bool, int, int, int, int]:
    """A key by which devices come first that are worth least to others."""
    held = usage.find_holding(device.id)
    rest = 0
    if device.device.shareable and held is not None:
        rest = sum(
            (each.amount - held.consumed.get(each.name, 0)) * 1000 // max(1, each.amount)
            for each in device.device.capacities
        )
    broken, room, size = False, 0, 0
    for part in device.device.consumes:
        for name, amount in part.counters:
            total = pool.counters[part.name, name]
            used = usage.consumed_counter(pool.id, part.name, name)
            broken = broken or used > 0
            room += (total - used) * 1000 // max(1, total)
            size += amount * 1000 // max(1, total)
    group = min(
        (
            groups[name, value]
            for name in looked_at[1]
            for value in device.compared_values(name) or ()
            if (name, value) in groups
        ),
        default=0,
    )
    fresh = (bool(device.device.consumes) and not broken) or (
        device.device.shareable and held is None
    )
    return (fresh, group, room, rest, size)


def _kind(
    inventory: DeviceInventory, looked_at: LookedAt, device: PoolDevice, pool: Pool
) -> Hashable:
    """Everything that this search reads of a device but its name."""
    number = inventory.kind_number(device, looked_at)
    if device.reach.node and not device.device.consumes:
        return number
    return (number, pool.id, device.reach)
