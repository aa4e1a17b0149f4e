"""What tells nodes apart for some claims: nodes with one signature take equally many pods.

Names of devices do not count, nor attributes that no selector and no constraint of the claims looks at;
so a thousand nodes of one sort, each with its own serial numbers, have one signature when they are empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gpusched.devices.allocator import attribute_values
from gpusched.devices.inventory import NodeDevices, PoolDevice
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.usage import DeviceUsage


class NodeSignatures:
    """Kinds of devices by what claims look at, remembered for each device."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, int] = {}
        self._of_device: dict[tuple[int, Hashable], tuple[PoolDevice, int]] = {}

    def clear(self) -> None:
        """Forget devices of an earlier inventory."""
        self._of_device.clear()

    def signature(
        self, node: NodeDevices, usage: DeviceUsage, claims: Sequence[ReadyClaim]
    ) -> Hashable:
        """A value that is equal for nodes on which the claims of equally many pods can be served.

        Nodes that reach devices of others are equal to themselves alone.
        """
        selectors = tuple(
            dict.fromkeys(
                request.selectors
                for claim in claims
                for alternatives in claim.requests
                for request in alternatives
            )
        )
        compared = tuple(
            dict.fromkeys(
                rule.match or rule.distinct for claim in claims for rule in claim.constraints
            )
        )
        looked_at = (selectors, compared)
        parts: list[Hashable] = []
        for part in node.pools:
            pool = part.pool
            if any(not each.reach.node for each in part.devices):
                parts.append((node.node, pool.id))
            states = tuple(
                (self._kind(device, looked_at), _state(usage, device)) for device in part.devices
            )
            used = tuple(
                (place, total, usage.counter(pool.id, *place))
                for place, total in sorted(pool.counters.items())
            )
            parts.append((pool.id.driver, pool.complete, bool(pool.fault), states, used))
        return tuple(parts)

    def _kind(
        self,
        device: PoolDevice,
        looked_at: tuple[tuple[tuple[str, ...], ...], tuple[str, ...]],
    ) -> int:
        known = self._of_device.get((id(device), looked_at))
        if known is None or known[0] is not device:
            selectors, compared = looked_at
            content = device.device
            kind = (
                tuple(
                    found if isinstance(found := device.selected(each), bool) else found.message
                    for each in selectors
                ),
                tuple(attribute_values(device, name) for name in compared),
                content.capacities,
                content.consumes,
                device.taints,
                content.shareable,
                content.binding_conditions,
            )
            number = self._kinds.setdefault(kind, len(self._kinds))
            known = self._of_device[id(device), looked_at] = (device, number)
        return known[1]


def _state(usage: DeviceUsage, device: PoolDevice) -> Hashable:
    held = usage.holding(device.id)
    if held is None:
        return None
    return (held.whole, held.shares, tuple(sorted(held.consumed.items())))
