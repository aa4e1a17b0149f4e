"""I5: what pods hold leaves every queue above them within its capability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.testing.invariants.model import (
    DEFAULT_QUEUE,
    GROUP_LABEL,
    QUEUE_LABEL,
    Finding,
    Obj,
    gpu_share,
    holds_room,
    label_value,
    object_name,
    pod_requests,
)

_ROOT: Final = "root"
_WHOLE: Final = 1000


def queue_of(
    pod: Obj, groups: Mapping[str, Obj], jobs: Mapping[str, Obj], namespaces: Mapping[str, Obj]
) -> str:
    """The queue that a pod is charged to.

    Args:
        pod: it names its PodGroup, or its queue, or is a Job's.
        groups: PodGroups by ``namespace/name``.
        jobs: the same.
        namespaces: by name.
    """
    place = pod["metadata"].get("namespace", "")
    if group := label_value(pod, GROUP_LABEL):
        found = groups.get(f"{place}/{group}")
        return (found or {"spec": {}})["spec"].get("queue") or DEFAULT_QUEUE
    if own := label_value(pod, QUEUE_LABEL):
        return own
    for owner in pod["metadata"].get("ownerReferences") or ():
        job = jobs.get(f"{place}/{owner['name']}") if owner["kind"] == "Job" else None
        if job is not None and (own := label_value(job, QUEUE_LABEL)):
            return own
    home = namespaces.get(place)
    return (label_value(home, QUEUE_LABEL) if home is not None else "") or DEFAULT_QUEUE


def queue_and_ancestors(queue: str, queues: Mapping[str, Obj]) -> list[str]:
    """The queue and those above it that are there; none of them twice."""
    found: list[str] = []
    while queue in queues and queue not in found:
        found.append(queue)
        queue = queues[queue]["spec"].get("parent") or _ROOT
    return found


def pod_charge(pod: Obj, memory: int | None = None) -> dict[str, int]:
    """What a pod takes of its queue, each resource in thousandths, shares of GPUs included."""
    asks = {
        name: amount * (1 if name == "cpu" else _WHOLE)
        for name, amount in pod_requests(pod).items()
    }
    if (share := gpu_share(pod, memory)) is not None:
        asks[shared_resource()] = asks.get(shared_resource(), 0) + int(share * _WHOLE)
    return asks


def queue_usage(
    pods: Sequence[Obj],
    queues: Mapping[str, Obj],
    *,
    groups: Mapping[str, Obj],
    jobs: Mapping[str, Obj],
    namespaces: Mapping[str, Obj],
) -> dict[str, Counter[str]]:
    """Thousandths held by each queue, subtrees included; a pod that was evicted counts no more."""
    held: dict[str, Counter[str]] = {name: Counter() for name in queues}
    for pod in pods:
        if not holds_room(pod) or pod["metadata"].get("deletionTimestamp"):
            continue
        for name in queue_and_ancestors(queue_of(pod, groups, jobs, namespaces), queues):
            held[name].update(pod_charge(pod))
    return held


def over_capability(
    queue: Obj, held: Mapping[str, int], *, asked: Collection[str] | None = None
) -> Iterator[Finding]:
    """I5: a queue holds what it may.

    Args:
        queue: with the capability as it was when the last binding was decided: who cuts it
            later is told so, and nobody is evicted for it.
        held: thousandths of each resource.
        asked: resources that count, as what asks for none of a resource may start whatever the
            queue holds of it; None for all.
    """
    name = queue["metadata"]["name"]
    for resource, text in sorted((queue["spec"].get("capability") or {}).items()):
        if asked is not None and resource not in asked:
            continue
        try:
            limit = parse_quantity(str(text), power=3)
        except QuantityError:
            continue
        if held.get(resource, 0) > limit:
            has, may = held[resource] / _WHOLE, limit / _WHOLE
            yield Finding(
                invariant="I5",
                kind="Queue",
                name=name,
                sentence=f"queue {name} holds {has:g} {resource}, its capability is {may:g}",
            )


def queue_findings(
    pods: Sequence[Obj],
    queues: Sequence[Obj],
    *,
    groups: Sequence[Obj],
    jobs: Sequence[Obj] = (),
    namespaces: Sequence[Obj] = (),
) -> Iterator[Finding]:
    """I5 of every queue."""
    by_name = {each["metadata"]["name"]: each for each in queues}
    held = queue_usage(
        pods,
        by_name,
        groups={object_name(each): each for each in groups},
        jobs={object_name(each): each for each in jobs},
        namespaces={object_name(each): each for each in namespaces},
    )
    for name, queue in by_name.items():
        yield from over_capability(queue, held[name])
