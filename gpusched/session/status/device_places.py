"""Where inside its node a pod's devices from claims are: GPU slots and NUMA nodes, for its annotations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from gpusched.api.devices.published_devices import gpu_slice
from gpusched.api.devices.slots import slot_mask
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.limits import SLOTS_PER_NODE_MAX
from gpusched.devices.inventory import DeviceId, DeviceInventory, NodeDevices
from gpusched.devices.search.nearness import locality_of, read_locality
from gpusched.devices.selector_verdicts import AttributeFrame
from gpusched.session.state.plan import ClaimBind
from gpusched.session.state.session import Session
from gpusched.topology.published_layout import NUMBERING, number_devices

_ORDERS_MAX: Final = 256
_POOLS_MAX: Final = 16


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
        allocation = session.devices.pod_claims.allocation_of(bind)
        for each in () if allocation is None else allocation.devices:
            key = DeviceId(each.driver, each.pool, each.device)
            slot = _slots_of(inventory, node).get(key)
            if slot is not None and slot < SLOTS_PER_NODE_MAX and not (each.share or each.admin):
                slots.add(slot)
            place = _numa_node(inventory, node, key)
            if place.isascii() and place.isdigit() and len(place) < 6:
                numa.add(int(place))
    return slot_mask(tuple(sorted(slots))), tuple(sorted(numa))


def _numa_node(inventory: DeviceInventory, node: str, key: DeviceId) -> str:
    """The NUMA node of a device as its driver names it, empty where it does not."""
    _, devices = inventory.asked_nodes().get(node, ({}, None))
    found = None if devices is None else devices.find_device(key)
    if found is not None:
        return locality_of(found)[0]
    device = inventory.find_device(key)
    return "" if device is None else read_locality(device)[0]


def _slots_of(inventory: DeviceInventory, node: str) -> Mapping[tuple[str, str, str], int]:
    """Slot of each whole GPU of a node by driver, pool and name; kept while its slices are the same."""
    _, devices = inventory.asked_nodes().get(node, ({}, None))
    names = gpu_resources()
    if devices is not None and devices.slots is not None and devices.slots[0] is names:
        return devices.slots[1]
    content = None if devices is None else _numbered_content(devices)
    orders = inventory.kind_numbers.slot_orders
    order = orders.get(content)
    if devices is not None and order is not None:
        slots: Mapping[tuple[str, str, str], int] = {
            devices.usable[place][0].id: slot for slot, place in enumerate(order)
        }
        devices.slots = (names, slots)
        return slots
    numbered = number_devices(map(gpu_slice, inventory.node_slices(node)))
    if devices is not None:
        devices.slots = (names, numbered)
        if content is not None:
            places = {each.id: place for place, (each, _) in enumerate(devices.usable)}
            if len(orders) >= _ORDERS_MAX:
                orders.clear()
            orders[content] = tuple([places[DeviceId(*key)] for key in numbered])
    return numbered


def _numbered_content(node: NodeDevices) -> Hashable:
    """All of a node's devices that the order of its slots depends on; None where that is not so simple."""
    found: list[Hashable] = [gpu_resources().drivers]
    for part in node.pools:
        pool = part.pool
        if len(pool.slices) > 1 or not pool.complete or pool.fault or len(node.pools) > _POOLS_MAX:
            return None
        if len(part.devices) > SLOTS_PER_NODE_MAX or len(part.devices) != len(pool.devices):
            return None
        devices = [
            (
                each.id.device,
                tuple([each.device.attributes[at][1] for at in _told_places(each.frame)]),
            )
            for each in part.devices
        ]
        found.append((pool.id.driver, tuple(devices)))
    drivers = {part.pool.id.driver for part in node.pools}
    return tuple(found) if len(drivers) == len(node.pools) else None


@lru_cache(maxsize=4096)
def _told_places(frame: AttributeFrame) -> tuple[int, ...]:
    """Places of the attributes that tell whether a device is a whole GPU, and its number."""
    return tuple(
        place
        for name, place in frame.places.items()
        if name.rpartition("/")[2].lower() in NUMBERING
    )
