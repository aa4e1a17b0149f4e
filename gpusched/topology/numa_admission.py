"""How many pods a kubelet takes whose topology manager keeps them inside NUMA nodes, and where.

    container or pod --smallest number of NUMA nodes that could ever hold it--> needed
    single-numa-node: needed must be one;  restricted: so many must hold it now

Counted as the kubelet admits: pod after pod, container after container, in the first NUMA nodes
that have room. What is counted is exact for containers that ask for the same; for others it is
what a kubelet that fills NUMA nodes in their order does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, combinations
from typing import Final

from gpusched.api.devices.gpu_layout import GpuLayout
from gpusched.api.devices.numa import RESTRICTED, SINGLE, NumaNode, NumaTopology
from gpusched.api.devices.published_devices import NumaZones
from gpusched.api.devices.slots import slot_mask
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.resources import Resources, total
from gpusched.api.meta.units import DEVICE

NUMA_NODES_MAX: Final = 8
"""NUMA nodes up to which sets of several are looked at; the kubelet itself takes no more."""

NumaRoom = list[dict[str, int]]
"""What is free in each NUMA node, by resource; GPUs of whatever kind as thousandths."""
_GPUS: Final = "gpus"


def build_numa_topology(
    zones: NumaZones, layout: GpuLayout, ranges: Mapping[str, range]
) -> NumaTopology | None:
    """The NUMA nodes of a node; None where its kubelet refuses no pod for them.

    Which GPUs are in which NUMA node is the layout's to say, where its numbers agree with the
    report; else GPUs are counted off in the order of NUMA nodes, as drivers number them.

    Args:
        zones: what an agent on the node reports.
        layout: of its GPUs.
        ranges: slot numbers by kind of GPU.
    """
    if zones.policy not in (SINGLE, RESTRICTED) or not zones.zones:
        return None
    sizes = [sum(_gpus_of(zone.offered)) // DEVICE for zone in zones.zones]
    count = sum(len(numbers) for numbers in ranges.values())
    own = [sum(1 for slot in cell if slot < count) for cell in layout.numa]
    if own == sizes:
        masks = [slot_mask(tuple(slot for slot in cell if slot < count)) for cell in layout.numa]
    else:
        ends = list(accumulate(sizes))
        masks = [slot_mask(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    cells = tuple(
        NumaNode(mask, _other_resources(zone.offered), _other_resources(zone.free))
        for mask, zone in zip(masks, zones.zones, strict=True)
    )
    return NumaTopology(zones.policy, zones.scope == "pod", cells)


def _gpus_of(amounts: Resources) -> list[int]:
    return [amounts.get(name) for name in gpu_resources().names]


def _other_resources(amounts: Resources) -> Resources:
    return Resources(tuple(item for item in amounts.items if item[0] not in gpu_resources().whole))


def free_numa_room(
    numa: NumaTopology, free_slots: int, taken: Sequence[tuple[int, Mapping[str, int]]] = ()
) -> NumaRoom:
    """What is free now.

    Args:
        numa: of the node.
        free_slots: bitmask.
        taken: slots of pods that came since the agent reported, with what they ask for.
    """
    room = []
    gpus = _reports_gpus(numa)
    for cell in numa.cells:
        free = dict(cell.free.items)
        for slots, amounts in taken:
            if slots and slots & ~cell.slots == 0:
                for name in free:
                    free[name] -= amounts.get(name, 0)
        if gpus:
            free[_GPUS] = (cell.slots & free_slots).bit_count() * DEVICE
        room.append(free)
    return room


def pods_that_fit(
    numa: NumaTopology, needs: Sequence[Resources], room: NumaRoom, *, most: int
) -> int:
    """How many pods of one kind the kubelet takes one after the other, at most ``most``.

    Args:
        numa: of the node.
        needs: of each container, see ``objects.numa.aligned_needs``.
        room: free now; it is not changed.
        most: where counting may stop.
    """
    left = [dict(free) for free in room]
    parts = _aligned_parts(numa, needs)
    for count in range(most):
        for part in parts:
            cells = _numa_nodes_for(numa, part, left)
            if cells is None:
                return count
            _take_room(part, left, cells)
    return most


def numa_nodes_that_hold(
    numa: NumaTopology, needs: Sequence[Resources], room: NumaRoom
) -> tuple[int, ...]:
    """Bitmasks of slots of which one must hold all GPUs of a pod; empty where none must.

    Args:
        numa: of the node.
        needs: of each container.
        room: free now.
    """
    parts = [part for part in _aligned_parts(numa, needs) if part.get(_GPUS)]
    if len(parts) != 1 or not _reports_gpus(numa) or _fewest_numa_nodes(numa, parts[0]) != 1:
        return ()
    return tuple(
        cell.slots
        for cell, free in zip(numa.cells, room, strict=True)
        if _have_room(parts[0], [free])
    )


def _aligned_parts(numa: NumaTopology, needs: Sequence[Resources]) -> list[dict[str, int]]:
    """What has to be kept together: the whole pod, or each container."""
    together = [total(needs)] if numa.whole_pods and needs else needs
    parts = []
    for need in together:
        part: dict[str, int] = {}
        for name, amount in need.items:
            key = _GPUS if name in gpu_resources().whole else name
            part[key] = part.get(key, 0) + amount
        parts.append(part)
    return parts


def _fewest_numa_nodes(numa: NumaTopology, part: Mapping[str, int]) -> int:
    """The fewest NUMA nodes that hold it when they are empty; more than there are for none."""
    if numa.policy == SINGLE:
        return 1
    gpus = _reports_gpus(numa)
    offered = [_offered_amounts(cell, gpus) for cell in numa.cells]
    for size in range(1, min(len(offered), NUMA_NODES_MAX) + 1):
        if any(_have_room(part, some) for some in combinations(offered, size)):
            return size
    return len(offered) + 1


def _reports_gpus(numa: NumaTopology) -> bool:
    """Where no NUMA node has GPUs, they are kept nowhere: any may be given to any pod."""
    return any(cell.slots for cell in numa.cells)


def _offered_amounts(cell: NumaNode, gpus: bool) -> dict[str, int]:
    amounts = dict(cell.offered.items)
    return {**amounts, _GPUS: cell.slots.bit_count() * DEVICE} if gpus else amounts


def _numa_nodes_for(
    numa: NumaTopology, part: Mapping[str, int], room: NumaRoom
) -> tuple[int, ...] | None:
    """The first set of NUMA nodes that the kubelet would admit it to."""
    needed = _fewest_numa_nodes(numa, part)
    for some in combinations(range(len(room)), needed):
        if _have_room(part, [room[each] for each in some]):
            return some
    return None


def _have_room(part: Mapping[str, int], some: Sequence[Mapping[str, int]]) -> bool:
    """Whether these have room together; what none of them reports is kept nowhere."""
    for name, amount in part.items():
        known = [free[name] for free in some if name in free]
        if known and sum(known) < amount:
            return False
    return True


def _take_room(part: Mapping[str, int], room: NumaRoom, cells: Sequence[int]) -> None:
    for name, amount in part.items():
        left = amount
        for cell in cells:
            if name in room[cell]:
                some = min(left, max(0, room[cell][name]))
                room[cell][name] -= some
                left -= some
