"""The last look at shares of GPUs: what each takes of its slot, and whether the slot has room."""

from __future__ import annotations

from collections.abc import Mapping

from gpusched.api.devices.gpu_share import gpu_memory_of_labels, offers_gpu_slices, shared_resource
from gpusched.api.devices.slots import slot_mask, slot_ranges
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import PodClass
from gpusched.cache.ledger import NodeHoldings


def share_on_node(pod_class: PodClass, labels: Mapping[str, str]) -> int:
    """Thousandths of a GPU that a share takes on a node with these labels; 0: it cannot be there."""
    assert pod_class.share is not None
    return (
        0
        if offers_gpu_slices(labels)
        else pod_class.share.thousandths_of(gpu_memory_of_labels(labels))
    )


def node_requests_of(pod_class: PodClass, labels: Mapping[str, str]) -> Resources:
    """What a pod takes of a node with these labels, where queues may be charged otherwise."""
    if pod_class.share is None:
        return pod_class.requests
    part = share_on_node(pod_class, labels) or DEVICE
    return pod_class.requests.replaced_by(Resources.of({shared_resource(): part}))


def requests_beside_share(pod_class: PodClass) -> Resources:
    """What a pod takes of its node beside a share."""
    if pod_class.share is None:
        return pod_class.requests
    return Resources(
        tuple(item for item in pod_class.requests.items if item[0] != shared_resource())
    )


def usage_after_release(use: NodeHoldings, resource: str) -> int:
    """Amount held of a resource once pods that are leaving have left; shares are not rounded up."""
    held = use.amounts.get(resource, 0) - use.leaving.get(resource, 0)
    if resource == shared_resource():
        for now, going in use.shared.values():
            held -= max(0, DEVICE - (now - going)) if now > going else 0
    return held


def share_error(node: Node, use: NodeHoldings, parts: Mapping[int, int]) -> str:
    """Why slots of a node cannot take so much more each; empty when they can.

    Args:
        node: as it is now.
        use: of it.
        parts: thousandths that are wanted, by slot mask of one share.
    """
    if not parts:
        return ""
    held, offered = use.amounts.get(shared_resource(), 0), node.allocatable.get(shared_resource())
    if shared_resource() in node.devices_only:
        return f"node {node.name} has its GPUs as devices of claims, which shares by annotation cannot use"
    if held > offered:
        return f"pods on node {node.name} hold more GPUs than it offers"
    slots = slot_mask(tuple(slot_ranges(node.allocatable).get(shared_resource(), ())))
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
