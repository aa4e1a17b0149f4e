"""What tells nodes apart for some claims: nodes with one signature take equally many pods.

Names of devices do not count, nor attributes that no selector and no constraint of the claims looks at;
so a thousand nodes of one sort, each with its own serial numbers, have one signature when they are empty.
Of an attribute that is compared, and of where a device is inside its node, counts which devices have a
value in common, not the value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

from gpusched.devices.inventory import (
    REMEMBERED_MAX,
    DeviceInventory,
    NodeDevices,
    PoolDevice,
    ReachablePool,
    device_content,
)
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.search.candidates import looked_at_by
from gpusched.devices.search.nearness import link_places, locality_of
from gpusched.devices.selector_verdicts import AttributeFrame, LookedAt
from gpusched.devices.usage import DeviceUsage

NodeSignature: TypeAlias = "tuple[int, tuple[Hashable, ...]]"
"""What a node has, as a number, and what is taken of each of its pools."""


def node_signature(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    claims: Sequence[ReadyClaim],
) -> NodeSignature:
    """A value that is equal for nodes on which the claims of equally many pods can be served.

    Nodes that reach devices of others are equal to themselves alone.
    """
    return signature_by(inventory, usage, node, looked_at_by(claims))


def signature_by(
    inventory: DeviceInventory, usage: DeviceUsage, node: NodeDevices, looked_at: LookedAt
) -> NodeSignature:
    """The same by what claims look at."""
    number = node.kinds.get(looked_at)
    if number is None:
        if len(node.kinds) >= REMEMBERED_MAX:
            node.kinds.clear()
        number = node.kinds[looked_at] = _signature_number(inventory, node, looked_at)
    taken = [
        None if (used := usage.find_pool(part.pool.id)) is None else used.state_key(part)
        for part in node.pools
    ]
    return number, tuple(taken)


def _signature_number(inventory: DeviceInventory, node: NodeDevices, looked_at: LookedAt) -> int:
    """A number that nodes share of which claims see the same."""
    numbers = inventory.kind_numbers
    read = ("read", looked_at, tuple([_read(node, part, looked_at) for part in node.pools]))
    known = numbers.same.get(read)
    if known is None:
        known = numbers.number_content(_signature_content(inventory, node, looked_at))
        numbers.note_same(read, known)
    return known


def _read(node: NodeDevices, part: ReachablePool, looked_at: LookedAt) -> Hashable:
    """All that is read of a node's devices of one pool, as it stands; quicker to tell than what it means."""
    pool = part.pool
    found: list[Hashable] = []
    own = True
    frame: AttributeFrame | None = None
    places: tuple[int, ...] = ()
    for each in part.devices:
        device = each.device
        if each.frame is not frame:  # mostly one for all devices of a pool
            frame = each.frame
            links = [place for place in link_places(device.schema) if place is not None]
            places = (*frame.read_places(looked_at), *links)
        attributes = device.attributes
        own = own and bool(each.reach.node)
        found.append(
            (
                frame,
                tuple([attributes[place][1] for place in places]),
                device.capacities,
                device.consumes,
                each.taints,
                device.shareable,
                device.binds_to_node,
                device.binding_conditions,
            )
        )
    where = (None, pool.id.driver) if own else (node.node, pool.id)
    return (where, pool.complete, pool.fault, tuple(sorted(pool.counters.items())), tuple(found))


def _signature_content(
    inventory: DeviceInventory, node: NodeDevices, looked_at: LookedAt
) -> Hashable:
    """What claims see of a node that nothing is taken of."""
    selectors, compared = looked_at
    alone: LookedAt = (selectors, ())
    number = inventory.kind_numbers.number_content
    groups: dict[tuple[object, object], int] = {}
    parts: list[Hashable] = []
    for part in node.pools:
        pool = part.pool
        own = all(each.reach.node for each in part.devices)
        parts.append(
            (
                None if own else (node.node, pool.id),
                pool.complete,
                bool(pool.fault),
                tuple(sorted(pool.counters.items())),
                tuple(
                    (number(device_content(each, alone)), _groups_of(each, compared, groups))
                    for each in part.devices
                ),
            )
        )
    return ("node", looked_at, tuple(parts))


def _groups_of(
    device: PoolDevice, compared: Iterable[str], groups: dict[tuple[object, object], int]
) -> Hashable:
    """Groups of devices with a common value that a device is in, by attribute and by kind of link."""
    found: list[Hashable] = [
        groups.setdefault(each, len(groups)) for each in enumerate(locality_of(device))
    ]
    for name in compared:
        values = device.compared_values(name)
        if values is None:
            found.append(None)
            continue
        ordered = values if len(values) < 2 else sorted(values, key=repr)
        found.append(tuple([groups.setdefault((name, each), len(groups)) for each in ordered]))
    return tuple(found)
