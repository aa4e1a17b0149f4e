"""The last look before room is made: are victims, nodes and waiting pods still as decided?

Called in one step of the event loop with the marks that follow, with nothing in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.arrays.columns import NodeColumns
from gpusched.cache.cache import Cache
from gpusched.cache.ledger import NO_LABELS
from gpusched.cache.nodes.gpu_share_room import node_requests_of, usage_after_release
from gpusched.cache.verify.placements import group_error, node_error, pod_error
from gpusched.cache.verify.reservations import reservation_error

Nominee = tuple[ObjectKey, UID, str]
"""Pod, its UID, and the name of the node that it is promised."""


def recheck_preemption(
    cache: Cache,
    gang: GangKey,
    *,
    generation: int,
    nominees: Sequence[Nominee],
    victims: Iterable[Nominee],
    decided_on: NodeColumns,
    reservations: Sequence[AdvanceReservation],
    moved: Iterable[tuple[str, Resources]] = (),
) -> str:
    """Whether room may still be made for a gang.

    Args:
        cache: as it is now.
        gang: for which room is made.
        generation: of its PodGroup when it was decided.
        nominees: waiting pods and the node nominated for each.
        victims: pods to be evicted, with the node of each.
        decided_on: the nodes as they were then.
        reservations: as they were then.
        moved: node by node, room that is held for moved pods.

    Returns:
        Empty, or why not: the whole claim is then dropped and decided again.
    """
    error = group_error(cache, gang, generation)
    if error:
        return error
    wanted: dict[str, Resources] = {}
    for key, uid, node in nominees:
        pod = cache.find_pod(uid)
        error = pod_error(cache, pod, key)
        if error or pod is None:
            return error
        wanted[node] = wanted.get(node, NOTHING).plus(_requests_on_node(cache, pod, node))
    for node, requests in moved:
        wanted[node] = wanted.get(node, NOTHING).plus(requests)
    error = reservation_error(cache, wanted, reservations)
    if error:
        return error
    leaving: dict[str, Resources] = {}
    for key, uid, node in victims:
        error = victim_error(cache, key, uid, node)
        if error:
            return error
        pod = cache.find_pod(uid)
        assert pod is not None
        leaving[node] = leaving.get(node, NOTHING).plus(_requests_on_node(cache, pod, node))
    for node, requests in wanted.items():
        row = decided_on.row.get(node)
        if row is None:
            return f"node {node} was not there"
        error = node_error(cache, node, decided_on.nodes[row].uid, decided_on)
        error = error or _nominated_room_error(cache, node, requests, leaving.get(node, NOTHING))
        if error:
            return error
    return ""


def _requests_on_node(cache: Cache, pod: Pod, name: str) -> Resources:
    node = cache.rows.get(name)
    return node_requests_of(pod.pod_class, node.labels if node is not None else NO_LABELS)


def victim_error(cache: Cache, key: ObjectKey, uid: UID, node: str) -> str:
    """Why a pod cannot be evicted as decided; empty when it can."""
    pod = cache.find_pod(uid)
    if pod is None or pod.key != key:
        return f"pod {key} is gone"
    if pod.node != node or pod.deleting or pod.finished:
        return f"pod {key} is finished, being deleted, or not on node {node}"
    return ""


def _nominated_room_error(cache: Cache, name: str, wanted: Resources, leaving: Resources) -> str:
    """Whether a node will hold what is promised once all that leave it have left."""
    node = cache.rows.get(name)
    assert node is not None
    use = cache.ledger.sum_holdings(name, node.allocatable, node.labels)
    for resource, amount in wanted.items:
        if usage_after_release(use, resource) - leaving.get(
            resource
        ) + amount > node.allocatable.get(resource):
            text = format_quantity(amount, resource=resource)
            return f"node {name} will have no room for {text} {resource}"
    return ""
