"""What tells nodes apart for some claims: nodes with one signature take equally many pods.

Names of devices do not count, nor attributes that no selector and no constraint of the claims looks at;
so a thousand nodes of one sort, each with its own serial numbers, have one signature when they are empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gpusched.devices.allocator import looked_at_by
from gpusched.devices.inventory import DeviceInventory, NodeDevices, PoolDevice
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.usage import DeviceUsage


def node_signature(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    claims: Sequence[ReadyClaim],
) -> Hashable:
    """A value that is equal for nodes on which the claims of equally many pods can be served.

    Nodes that reach devices of others are equal to themselves alone.
    """
    looked_at = looked_at_by(claims)
    parts: list[Hashable] = []
    for part in node.pools:
        pool = part.pool
        if any(not each.reach.node for each in part.devices):
            parts.append((node.node, pool.id))
        states = tuple(
            (inventory.kind(device, looked_at), _state(usage, device)) for device in part.devices
        )
        used = tuple(
            (place, total, usage.counter(pool.id, *place))
            for place, total in sorted(pool.counters.items())
        )
        parts.append((pool.complete, bool(pool.fault), states, used))
    return tuple(parts)


def _state(usage: DeviceUsage, device: PoolDevice) -> Hashable:
    held = usage.holding(device.id)
    if held is None:
        return None
    return (held.whole, held.shares, tuple(sorted(held.consumed.items())))
