"""The last look at shares of GPUs: what each takes of its slot, and whether the slot has room."""

from __future__ import annotations

from collections.abc import Mapping

from gpusched.cache.ledger import NodeUse
from gpusched.objects.node import Node
from gpusched.objects.pod import PodClass
from gpusched.objects.resources import Resources
from gpusched.objects.share import SHARED, gpu_memory, sliced
from gpusched.objects.slot import mask_of, slot_ranges
from gpusched.objects.units import DEVICE


def part_on(pod_class: PodClass, labels: Mapping[str, str]) -> int:
    """Thousandths of a GPU that a share takes on a node with these labels; 0: it cannot be there."""
    assert pod_class.share is not None
    return 0 if sliced(labels) else pod_class.share.of(gpu_memory(labels))


def taken_by(pod_class: PodClass, labels: Mapping[str, str]) -> Resources:
    """What a pod takes of a node with these labels, where queues may be charged otherwise."""
    if pod_class.share is None:
        return pod_class.requests
    part = part_on(pod_class, labels) or DEVICE
    return pod_class.requests.replaced_by(Resources.of({SHARED: part}))


def beside_shares(pod_class: PodClass) -> Resources:
    """What a pod takes of its node beside a share."""
    if pod_class.share is None:
        return pod_class.requests
    return Resources(tuple(item for item in pod_class.requests.items if item[0] != SHARED))


def staying(use: NodeUse, resource: str) -> int:
    """What will be held of a resource when those who leave have left; shares not rounded up."""
    held = use.amounts.get(resource, 0) - use.leaving.get(resource, 0)
    if resource == SHARED:
        for now, going in use.shared.values():
            held -= max(0, DEVICE - (now - going)) if now > going else 0
    return held


def share_trouble(node: Node, use: NodeUse, parts: Mapping[int, int]) -> str:
    """Why slots of a node cannot take so much more each; empty when they can.

    Args:
        node: as it is now.
        use: of it.
        parts: thousandths that are wanted, by slot mask of one share.
    """
    slots = mask_of(tuple(slot_ranges(node.allocatable).get(SHARED, ())))
    for mask, part in sorted(parts.items()):
        slot = mask.bit_length() - 1
        if mask.bit_count() != 1 or not mask & slots or not part:
            return f"node {node.name} has no GPU for a share"
        if slot in use.shared:
            taken = use.shared[slot][0]
        else:
            taken = 0 if use.free_slots & mask else DEVICE
        if taken + part > DEVICE:
            return (
                f"{taken} thousandths of GPU slot {slot} on node {node.name} are taken, and "
                f"{part} more are wanted"
            )
    return ""
