"""How many pods of a class fit nodes whose kubelets keep them inside NUMA nodes.

While a session is pipelining nothing is limited: which GPUs the pods that leave will free is not
known until they are gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.placement.model.class_fit import Caps
from gpusched.topology.numa_admission import (
    NumaRoom,
    free_numa_room,
    numa_nodes_that_hold,
    pods_that_fit,
)


def make_numa_limit(node_usage: NodeUsage, pod_class: PodClass) -> Caps | None:
    """A limit that lowers how many pods fit such nodes; None where nothing is to be lowered."""
    if not pod_class.aligned or not node_usage.numa_rows:
        return None

    def lower(rows: Sequence[int] | slice, fits: Ints) -> None:
        if node_usage.later:
            return
        numbers = range(len(fits)) if isinstance(rows, slice) else rows
        for position, row in enumerate(numbers):
            numa = node_usage.nodes.nodes[row].cells
            if numa is None or not fits[position]:
                continue
            most = int(fits[position])
            room = _numa_usage(node_usage, row)
            fits[position] = pods_that_fit(numa, pod_class.aligned, room, most=most)

    return lower


def numa_slot_masks(node_usage: NodeUsage, pod_class: PodClass, row: int) -> tuple[int, ...]:
    """Masks of slots, one of which must hold all slots of a pod; empty for no such rule."""
    numa = node_usage.nodes.nodes[row].cells
    if numa is None or not pod_class.aligned:
        return ()
    return numa_nodes_that_hold(numa, pod_class.aligned, _numa_usage(node_usage, row))


def _numa_usage(node_usage: NodeUsage, row: int) -> NumaRoom:
    numa = node_usage.nodes.nodes[row].cells
    assert numa is not None
    names = {column: name for name, column in node_usage.nodes.columns.items()}
    taken = [
        (
            slots,
            dict(zip((names[c] for c in ask.columns.tolist()), ask.amounts.tolist(), strict=True)),
        )
        for slots, ask in node_usage.numa_rows[row]
    ]
    return free_numa_room(numa, node_usage.free_slots[row], taken)
