"""Where inside its node a pod's devices from claims are: GPU slots and NUMA nodes, for its annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpusched.api.devices.published_devices import gpu_slice
from gpusched.api.devices.slots import slot_mask
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.limits import SLOTS_PER_NODE_MAX
from gpusched.devices.inventory import DeviceId, DeviceInventory
from gpusched.devices.nearness import read_locality
from gpusched.session.state.plan import ClaimBind
from gpusched.session.state.session import Session
from gpusched.topology.published_layout import number_devices


def device_places(
    session: Session, node: str, claims: Iterable[ClaimBind]
) -> tuple[int, tuple[int, ...]]:
    """GPU slots, as a bitmask, and sorted NUMA nodes of the devices of some claims on a node.

    Partitions and shares of a GPU are no slots. NUMA nodes are those that the devices' drivers name.

    Args:
        session: whose devices they are.
        node: of the pod.
        claims: as the plan has them.
    """
    inventory = session.devices.inventory
    slots: set[int] = set()
    numa: set[int] = set()
    for bind in claims:
        allocation = session.devices.allocation_of(bind)
        for each in () if allocation is None else allocation.devices:
            key = DeviceId(each.driver, each.pool, each.device)
            slot = _slots_of(inventory, node).get(key)
            if slot is not None and slot < SLOTS_PER_NODE_MAX and not (each.share or each.admin):
                slots.add(slot)
            device = inventory.device(key)
            place = read_locality(device)[0] if device is not None else ""
            if place.isascii() and place.isdigit() and len(place) < 6:
                numa.add(int(place))
    return slot_mask(tuple(sorted(slots))), tuple(sorted(numa))


def _slots_of(inventory: DeviceInventory, node: str) -> Mapping[tuple[str, str, str], int]:
    """Slot of each whole GPU of a node by driver, pool and name; kept while its slices are the same."""
    _, devices = inventory.nodes().get(node, ({}, None))
    names = gpu_resources()
    if devices is not None and devices.slots is not None and devices.slots[0] is names:
        return devices.slots[1]
    slots = number_devices(map(gpu_slice, inventory.node_slices(node)))
    if devices is not None:
        devices.slots = (names, slots)
    return slots
