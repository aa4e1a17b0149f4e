"""The last look before a plan is carried out: is the world still as it was decided on?

``recheck`` and ``assume`` are called in one step of the event loop, with nothing in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.arrays.columns import NodeColumns
from gpusched.cache.cache import Cache
from gpusched.cache.nodes.gpu_share_room import requests_beside_share, share_error, share_on_node
from gpusched.cache.verify.reservations import reservation_error

Move = tuple[ObjectKey, UID, str, UID, int]
"""Pod, its UID, node, the node's UID, slots."""


def recheck_placements(
    cache: Cache,
    gang: GangKey,
    *,
    generation: int,
    moves: list[Move],
    decided_on: NodeColumns,
    reservations: Sequence[AdvanceReservation],
) -> str:
    """Whether the moves may still be made.

    Args:
        cache: as it is now.
        gang: whose members are moved.
        generation: of its PodGroup when it was decided.
        moves: what was decided.
        decided_on: the nodes as they were then.
        reservations: as they were then.

    Returns:
        Empty, or why not: the whole gang is then dropped and decided again.
    """
    error = group_error(cache, gang, generation)
    if error:
        return error
    if cache.is_being_evicted(gang):
        # It may stay where it is: only when its pods are being deleted is it free to go elsewhere.
        return f"pods of {gang} are being evicted, which is not answered yet"
    error = reservation_error(cache, (node for _, _, node, _, _ in moves), reservations)
    if error:
        return error
    wanted: dict[str, Resources] = {}
    taken: dict[str, int] = {}
    parts: dict[str, dict[int, int]] = {}
    for key, uid, node, node_uid, slots in moves:
        pod = cache.find_pod(uid)
        error = pod_error(cache, pod, key) or node_error(cache, node, node_uid, decided_on)
        if error or pod is None:
            return error
        wanted[node] = wanted.get(node, Resources()).plus(requests_beside_share(pod.pod_class))
        if pod.pod_class.share is not None:
            on = parts.setdefault(node, {})
            there = cache.rows.get(node)
            part = share_on_node(pod.pod_class, there.labels) if there is not None else 0
            if not part:
                return f"node {node} has no GPU for a share"
            on[slots] = on.get(slots, 0) + part
            continue
        if taken.get(node, 0) & slots:
            return f"GPU slots on node {node} are promised twice"
        taken[node] = taken.get(node, 0) | slots
    for node, requests in wanted.items():
        error = _room_error(
            cache, node, requests, slots=taken.get(node, 0), parts=parts.get(node, {})
        )
        if error:
            return error
    return ""


def start_error(cache: Cache, gang: GangKey, path: tuple[str, ...], moves: Iterable[Move]) -> str:
    """Why pods of a gang must not be bound by this daemon now; empty when their start is counted.

    Args:
        cache: as it is now.
        gang: whose members they are.
        path: names of its queue and the queues above it.
        moves: what was decided, after ``recheck_placements``.
    """
    pods = [
        (pod.pod_class, node)
        for _, uid, node, _, _ in moves
        if (pod := cache.find_pod(uid)) is not None
    ]
    return cache.part.start_gang(gang, path, pods)


def group_error(cache: Cache, gang: GangKey, generation: int) -> str:
    """Why a gang's PodGroup is not as decided on; empty when it is, or has none."""
    if gang.kind == "PodGroup":
        group = cache.groups.items.get(ObjectKey(gang.namespace, gang.name))
        if group is None or group.deleting:
            return f"PodGroup {gang} is gone"
        if group.generation != generation:
            return f"PodGroup {gang} was changed"
    return ""


def victim_group_error(cache: Cache, gang: GangKey, generation: int) -> str:
    """Why the PodGroup of a gang that is evicted is not as decided on; empty when it is.

    One that is gone, is being deleted or cannot be used was so when it was decided: pods that it
    left behind may be evicted like any others.
    """
    if gang.kind == "PodGroup":
        group = cache.groups.items.get(ObjectKey(gang.namespace, gang.name))
        if generation != (group.generation if group is not None else 0):
            return f"PodGroup {gang} was changed"
    return ""


def pod_error(cache: Cache, pod: Pod | None, key: ObjectKey) -> str:
    """Why a pod cannot be given a place; empty when it can."""
    if pod is None:
        return f"pod {key} is gone"
    if pod.node or pod.deleting or pod.finished or pod.gated:
        return f"pod {key} is bound, gated, finished or being deleted"
    if cache.ledger.get(pod.uid) is not None:
        return f"pod {key} has a place already"
    if pod.scheduler not in cache.schedulers:
        return f"pod {key} is not ours"
    return ""


def node_error(cache: Cache, name: str, uid: UID, decided_on: NodeColumns) -> str:
    """Why a node is not as decided on; empty when it is."""
    node = cache.rows.get(name)
    if node is None or node.uid != uid:
        return f"node {name} is gone"
    if node.not_ready:
        return f"node {name} is not ready: {node.not_ready}"
    before = decided_on.nodes[decided_on.row[name]] if name in decided_on.row else None
    if before is not None and before is not node and _node_terms(before) != _node_terms(node):
        return f"node {name} was cordoned, tainted, labelled or rearranged"
    return ""


def _node_terms(node: Node) -> tuple[object, ...]:
    """What filters and placement read of a node, beside its room."""
    return (node.unschedulable, node.taints, node.labels, node.layout, node.avoided, node.cells)


def _room_error(
    cache: Cache, name: str, requests: Resources, *, slots: int, parts: Mapping[int, int]
) -> str:
    node = cache.rows.get(name)
    assert node is not None
    use = cache.ledger.look_up_sums(name, node.allocatable, node.labels)
    opened = [mask for mask in parts if mask & use.free_slots]
    if any(mask & slots for mask in parts):
        return f"GPU slots on node {name} are promised twice"
    requests = requests.plus(
        Resources.of({shared_resource(): DEVICE * len(opened)}) if opened else NOTHING
    )
    for resource, amount in requests.items:
        if use.amounts.get(resource, 0) + amount > node.allocatable.get(resource):
            wanted = format_quantity(amount, resource=resource)
            return f"node {name} has no room for {wanted} {resource} any more"
    # Which GPUs a pod has of those that are devices is said by its claim, not by slots.
    if slots & ~use.free_slots and not node.devices_only:
        return f"GPU slots on node {name} are taken"
    return share_error(node, use, parts)
