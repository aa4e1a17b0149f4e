"""I1 and I2: what nodes offer and what their pods hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.testing.invariants.model import (
    Finding,
    Obj,
    annotation_value,
    base_amounts,
    bound_node,
    gpu_share,
    holds_room,
    is_ours,
    node_gpu_memory,
    object_name,
    pod_requests,
    served_by_claim,
)

_NOTHING: Final[Mapping[str, int]] = {}


def overcommitted_amounts(
    node: Obj,
    pods: Sequence[Obj],
    *,
    offer: Mapping[str, int] = _NOTHING,
    newcomer: Obj | None = None,
) -> Iterator[Finding]:
    """I1: a node is not over its allocatable where a pod of ours sits on it.

    Args:
        node: whose offer counts.
        pods: all that may be there.
        offer: what was offered when the binding was decided, where that is more.
        newcomer: the one of them that is being bound: only what it asks for is looked at, as
            what others are over in is not its doing.
    """
    name = node["metadata"]["name"]
    here = [pod for pod in pods if bound_node(pod) == name and holds_room(pod)]
    asked: Counter[str] = Counter()
    have = base_amounts((node.get("status") or {}).get("allocatable"))
    for pod in here:
        # What a node does not publish itself is served by devices: I17 looks at these.
        served = {each for each in served_by_claim(pod) if not have.get(each)}
        needs = pod_requests(pod).items()
        asked.update({key: amount for key, amount in needs if key not in served})
    # A GPU that is shared is no other pod's, whatever part of it is free.
    opened = {annotation_value(pod, "slots") for pod in here if gpu_share(pod, None) is not None}
    if opened:
        asked[shared_resource()] += len(opened)
    looked_at = here if newcomer is None else [newcomer]
    ours = {
        key for pod in looked_at if is_ours(pod) for key, asks in pod_requests(pod).items() if asks
    }
    if any(gpu_share(pod, None) is not None for pod in looked_at):
        ours.add(shared_resource())
    for resource, amount in sorted(asked.items()):
        most = max(have.get(resource, 0), offer.get(resource, 0))
        if resource in ours and amount > most:
            yield Finding(
                invariant="I1",
                kind="Node",
                name=name,
                sentence=f"node {name} offers {most} {resource}, its pods ask for {amount}",
            )


def slot_findings(
    node: str, pods: Sequence[Obj], *, memory: int | None = None
) -> Iterator[Finding]:
    """I2: no slot has two pods, and a pod that we placed has as many as GPUs and slices.

    Shares: each has one slot, and those on one slot are one GPU together at most.

    Args:
        node: name of the node.
        pods: all that may be there.
        memory: bytes of one of its GPUs.
    """
    taken: dict[str, str] = {}
    parts: dict[str, Fraction] = {}
    for pod in pods:
        if bound_node(pod) != node or not holds_room(pod) or _has_slots_of_claims(pod):
            continue
        name = object_name(pod)
        mine = [each for each in annotation_value(pod, "slots").split(",") if each]
        share = gpu_share(pod, memory)
        if share is not None:
            if is_ours(pod) and len(mine) != 1:
                yield _pod(name, f"pod {name} asks for a share of one GPU and has slots {mine}")
            for slot in mine:
                parts[slot] = parts.get(slot, Fraction()) + share
            continue
        for slot in mine:
            other = taken.setdefault(slot, name)
            if other != name:
                yield _slot(node, f"slot {slot} of node {node} has pods {other} and {name}")
        gpus = _gpus(pod)
        if is_ours(pod) and gpus != len(mine) and not pod["spec"].get("resourceClaims"):
            yield _pod(name, f"pod {name} asks for {gpus} GPUs and has slots {mine}")
    for slot, total in sorted(parts.items()):
        if slot in taken:
            yield _slot(node, f"slot {slot} of node {node} has shares and pod {taken[slot]}")
        if total > 1:
            yield _slot(node, f"slot {slot} of node {node} has {float(total):g} GPUs of shares")


def node_findings(pods: Sequence[Obj], nodes: Sequence[Obj]) -> Iterator[Finding]:
    """I1 and I2 of every node, and of pods on nodes that are gone."""
    by_node: dict[str, list[Obj]] = {}
    for pod in pods:
        if holds_room(pod):
            by_node.setdefault(bound_node(pod), []).append(pod)
    memory = {node["metadata"]["name"]: node_gpu_memory(node) for node in nodes}
    for node in nodes:
        yield from overcommitted_amounts(node, by_node.get(node["metadata"]["name"], ()))
    for name, here in by_node.items():
        yield from slot_findings(name, here, memory=memory.get(name))


def _has_slots_of_claims(pod: Obj) -> bool:
    """Whether its slots are told of devices from claims, which it may share with others."""
    if served_by_claim(pod):
        return True
    claims = pod["spec"].get("resourceClaims")
    return bool(claims) and not _gpus(pod) and gpu_share(pod, None) is None


def _gpus(pod: Obj) -> int:
    return sum(
        amount for key, amount in pod_requests(pod).items() if gpu_resources().is_accelerator(key)
    )


def _pod(name: str, sentence: str) -> Finding:
    return Finding(invariant="I2", kind="Pod", name=name, sentence=sentence)


def _slot(node: str, sentence: str) -> Finding:
    return Finding(invariant="I2", kind="Node", name=node, sentence=sentence)
