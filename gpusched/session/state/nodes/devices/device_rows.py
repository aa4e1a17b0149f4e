"""Devices that each node of a session reaches, by its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusched.api.node.node import Node
from gpusched.devices.allocator import REPELS
from gpusched.devices.inventory import (
    REMEMBERED_MAX,
    DeviceId,
    DeviceInventory,
    NodeDevices,
    PoolDevice,
)
from gpusched.devices.requests import ReadyRequest


class DeviceRows:
    """See the module.

    Args:
        inventory: of the snapshot.
        nodes: of the snapshot, by row.
    """

    def __init__(self, inventory: DeviceInventory, nodes: Sequence[Node]) -> None:
        self.inventory = inventory
        self.nodes = nodes
        self._devices: dict[int, NodeDevices] = {}
        self._sharing: dict[int, bool] = {}

    def node_devices(self, row: int) -> NodeDevices:
        """Devices that a row reaches."""
        known = self._devices.get(row)
        if known is None:
            node = self.nodes[row]
            known = self._devices[row] = self.inventory.node_devices(node.name, node.labels)
        return known

    def shares_pools(self, row: int) -> bool:
        """Whether a row reaches devices that other nodes may reach too."""
        known = self._sharing.get(row)
        if known is None:
            name = self.nodes[row].name
            known = self._sharing[row] = self.inventory.shares_pools(name)
        return known

    def matching_devices(self, row: int, request: ReadyRequest) -> Iterator[PoolDevice]:
        """Devices that a row reaches and a request matches and tolerates, in use or not."""
        node = self.node_devices(row)
        for number in self.inventory.select_devices(node, request.selectors).chosen:
            device, pool = node.listed[number]
            if pool.is_usable and (
                not device.taints
                or all(
                    taint.effect not in REPELS
                    or any(each.tolerates(taint) for each in request.request.tolerations)
                    for taint in device.taints
                )
            ):
                yield device

    def matching_ids(self, row: int, request: ReadyRequest) -> frozenset[DeviceId]:
        """The same as ids, remembered for as long as the devices of the node are these."""
        known = self.node_devices(row).matching
        key = (request.selectors, request.request.tolerations)
        found = known.get(key)
        if found is None:
            if len(known) >= REMEMBERED_MAX:
                known.clear()
            found = known[key] = frozenset(each.id for each in self.matching_devices(row, request))
        return found
