"""Nodes as people see them: what they have, what is free of it, and who holds each GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.devices.gpu_types import gpu_type_of
from gpusched.api.devices.slots import format_slots, slot_mask, slot_numbers, slot_ranges
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import format_time
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.units import DEVICE
from gpusched.api.node.node import Node
from gpusched.arrays.columns import NodeColumns
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.status.gpu_counts import GpuCounts
from gpusched.topology.islands import Isle, island_slots, node_islands
from gpusched.topology.levels import HOST, TopologyLevel
from gpusched.view.model import (
    DomainView,
    FreeView,
    GpuTotalsView,
    HolderView,
    NodeView,
    SlotView,
    ViewName,
)

Residents = Sequence[tuple[Gang, Placed]]
"""Members of our gangs with a place on one node."""


def node_view(
    nodes: NodeColumns,
    row: int,
    *,
    pods: int,
    residents: Residents,
    levels: Sequence[TopologyLevel] = (),
) -> NodeView:
    """One node.

    Args:
        nodes: of a snapshot.
        row: of the node.
        pods: that take anything of it.
        residents: members of our gangs on it.
        levels: of the topology, widest first.
    """
    node, names = nodes.nodes[row], gpu_resources()
    gpus = [name for name in names.names if node.allocatable.get(name)]
    return NodeView(
        metadata=ViewName(name=node.name, uid=node.uid),
        state=_state(node),
        gpu_type=gpu_type_of(node.labels, names) if gpus else "",
        gpus=_gpu_text(sum(node.allocatable.get(name) for name in gpus)),
        free_gpus=_gpu_text(sum(_free(nodes, row, name) for name in gpus)),
        free_slots=format_slots(nodes.free_slots[row]),
        slots=_slot_views(nodes, row, residents),
        domains=tuple(
            DomainView(level=level.name, name=level.names[level.domain[row]])
            for level in levels
            if level.label != HOST and level.domain[row] >= 0
        ),
        free=FreeView(
            cpu=format_quantity(_free(nodes, row, "cpu"), resource="cpu"),
            memory=format_quantity(_free(nodes, row, "memory"), resource="memory"),
        ),
        pods=pods,
        gangs=tuple(sorted({f"{g.key.namespace}/{g.key.kind}/{g.key.name}" for g, _ in residents})),
        created=format_time(node.created) if node.created else "",
    )


def gpu_totals_view(counts: GpuCounts | None) -> GpuTotalsView | None:
    """GPUs as the daemon's gauges have them; None where they were not counted yet."""
    if counts is None:
        return None
    by_reason: Counter[str] = Counter()
    for (_, reason), number in counts.stranded.items():
        by_reason[reason] += number
    return GpuTotalsView(
        total=sum(counts.total.values()),
        idle=sum(counts.idle.values()),
        stranded=by_reason.total(),
        stranded_by_reason={name: by_reason[name] for name in sorted(by_reason) if by_reason[name]},
    )


def _slot_views(nodes: NodeColumns, row: int, residents: Residents) -> tuple[SlotView, ...]:
    node = nodes.nodes[row]
    every = 0
    for numbers in slot_ranges(node.allocatable).values():
        every |= slot_mask(numbers)
    island_of = _islands_by_slot(node_islands(node.layout, every))
    shared: Mapping[int, tuple[int, int]] = nodes.shared.get(row, {})
    holders: dict[int, list[HolderView]] = {}
    for gang, member in residents:
        holder = HolderView(
            namespace=gang.key.namespace,
            kind=gang.key.kind,
            name=gang.key.name,
            share=_share_text(member.pod.pod_class.share),
        )
        for number in slot_numbers(member.slots):
            holders.setdefault(number, []).append(holder)
    return tuple(
        SlotView(
            index=number,
            island=island_of.get(number, 0),
            free=_free_of_slot(number, nodes.free_slots[row], shared),
            holders=tuple(
                sorted(holders.get(number, ()), key=lambda each: (each.namespace, each.name))
            ),
        )
        for number in slot_numbers(every)
    )


def _islands_by_slot(islands: Sequence[Isle]) -> dict[int, int]:
    """The number of the innermost island of each slot."""
    found: dict[int, int] = {}
    flat = _innermost(islands)
    for number, isle in enumerate(flat):
        for slot in slot_numbers(island_slots(isle)):
            found[slot] = number
    return found


def _innermost(islands: Sequence[Isle]) -> list[Isle]:
    flat: list[Isle] = []
    for isle in islands:
        flat += [isle] if isinstance(isle, int) else _innermost(isle)
    return flat


def _free_of_slot(number: int, free: int, shared: Mapping[int, tuple[int, int]]) -> str:
    if number in shared:
        return _gpu_text(max(0, DEVICE - shared[number][0]))
    return "1" if free >> number & 1 else "0"


def _share_text(share: GpuShare | None) -> str:
    if share is None:
        return "1"
    if share.thousandths:
        return _gpu_text(share.thousandths)
    return format_quantity(share.memory, resource="memory")


def _free(nodes: NodeColumns, row: int, resource: str) -> int:
    column = nodes.columns.get(resource)
    if column is None:
        return 0
    return max(0, int(nodes.allocatable[row, column] - nodes.used[row, column]))


def _state(node: Node) -> str:
    state = "NotReady" if node.not_ready else "Ready"
    return f"{state},SchedulingDisabled" if node.unschedulable else state


def _gpu_text(amount: int) -> str:
    names = gpu_resources().names
    return format_quantity(amount, resource=names[0]) if names else str(amount // DEVICE)
