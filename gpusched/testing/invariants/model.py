"""What the checks share: one finding, and what they read of API objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import parse_time
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.base.classes import frozen

Obj = Mapping[str, Any]
GROUP_LABEL: Final = "gpusched.io/pod-group"
SUB_GROUP_LABEL: Final = "gpusched.io/sub-group"
QUEUE_LABEL: Final = "gpusched.io/queue"
DEFAULT_QUEUE: Final = "default"
RECOVERY_S: Final = 120.0
_OVER: Final = ("Succeeded", "Failed")

EXTENDED: Final = "extendedResourceClaimStatus"
"""Where a pod's status tells its claim for extended resources."""


@frozen(kw_only=True)
class Finding:
    """One violation.

    Attributes:
        invariant: its number in the list of invariants: ``I1`` to ``I19``.
        kind: of the object that shows it.
        name: of that object, ``namespace/name`` or ``name``.
        sentence: what is wrong, with numbers.
    """

    invariant: str
    kind: str
    name: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.sentence}"


def pod_requests(pod: Obj) -> dict[str, int]:
    """What a pod takes from its node, in base units; what is no quantity is left out."""
    spec = pod["spec"]
    total: Counter[str] = Counter({"pods": 1})
    for container in spec["containers"]:
        total.update(_amounts(container))
    largest: dict[str, int] = dict(total)
    for container in spec.get("initContainers") or ():
        for name, number in _amounts(container).items():
            largest[name] = max(largest.get(name, 0), number)
    for name, number in base_amounts(spec.get("overhead")).items():
        largest[name] = largest.get(name, 0) + number
    return largest


def base_amounts(listed: Any) -> dict[str, int]:
    """A ResourceList in base units, ``cpu`` in thousandths; what is no quantity is left out."""
    found = {}
    for name, text in (listed or {}).items():
        try:
            found[name] = parse_quantity(str(text), power=3 if name == "cpu" else 0)
        except QuantityError:
            continue
    return found


def _amounts(container: Obj) -> dict[str, int]:
    stated = container.get("resources") or {}
    return base_amounts({**(stated.get("limits") or {}), **(stated.get("requests") or {})})


def gpu_share(pod: Obj, gpu_memory: int | None) -> Fraction | None:
    """The part of one GPU that a pod asks for, rounded up to thousandths; None for none."""
    meta = pod["metadata"]
    said = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    try:
        if "gpusched.io/gpu-fraction" in said:
            return Fraction(parse_quantity(said["gpusched.io/gpu-fraction"], power=3), 1000)
        if "gpusched.io/gpu-memory" in said:
            wanted = parse_quantity(said["gpusched.io/gpu-memory"])
            return _share_of_gpu(wanted, gpu_memory)
        notes = meta.get("annotations") or {}  # KAI's
        if "gpu-fraction" in notes:
            return Fraction(parse_quantity(notes["gpu-fraction"], power=3), 1000)
        if "gpu-memory" in notes:
            return _share_of_gpu(parse_quantity(notes["gpu-memory"]) * 2**20, gpu_memory)
    except QuantityError:
        return None
    return None


def _share_of_gpu(wanted: int, gpu_memory: int | None) -> Fraction:
    """So many bytes of one GPU, rounded up to thousandths; all of it where its size is unknown."""
    return Fraction(-(-wanted * 1000 // gpu_memory), 1000) if gpu_memory else Fraction(1)


def node_gpu_memory(node: Obj) -> int | None:
    """Bytes of one GPU of a node; None where it is not said."""
    text = (node["metadata"].get("labels") or {}).get(gpu_resources().main.memory_label, "")
    return int(text) * 2**20 if text.isdecimal() else None


def object_name(obj: Obj) -> str:
    """``namespace/name``, or the name where there is no namespace."""
    meta = obj["metadata"]
    place = meta.get("namespace", "")
    return f"{place}/{meta['name']}" if place else str(meta["name"])


def label_value(obj: Obj, key: str) -> str:
    """A label; empty for none."""
    text: str = (obj["metadata"].get("labels") or {}).get(key, "")
    return text


def annotation_value(pod: Obj, key: str) -> str:
    """An annotation of ours; empty for none."""
    text: str = (pod["metadata"].get("annotations") or {}).get(f"gpusched.io/{key}", "")
    return text


def bound_node(pod: Obj) -> str:
    """The name of the node that it is bound to; empty for none."""
    return pod["spec"].get("nodeName") or ""


def is_over(pod: Obj) -> bool:
    """Whether it has ended."""
    return (pod.get("status") or {}).get("phase") in _OVER


def holds_room(pod: Obj) -> bool:
    """Whether it takes room of a node."""
    return bool(bound_node(pod)) and not is_over(pod)


def is_ours(pod: Obj) -> bool:
    """Whether we bound it: the plan is written with the binding."""
    return bool(annotation_value(pod, "plan")) and bool(bound_node(pod))


def counts_for_minimum(pod: Obj) -> bool:
    """Whether it is one of those that its gang's minimum needs."""
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Succeeded" or (bool(bound_node(pod)) and phase != "Failed")


def scheduled_at(pod: Obj) -> float:
    """When it was bound, seconds since the epoch; 0 where it is not said."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "True":
            return parse_time(each.get("lastTransitionTime", ""))
    return 0.0


def binding_term(fence: str) -> int:
    """The number of the term in which a binding was made; -1 where it is not said."""
    text = fence.rpartition("/")[2]
    return int(text) if text.isdecimal() else -1


def fence_shard(fence: str) -> str:
    """The shard by whose Lease a binding was made, whose terms are counted apart; empty without shards."""
    return fence.partition(":")[0] if ":" in fence else ""


def members_by_group(pods: Iterable[Obj]) -> dict[str, list[Obj]]:
    """Pods by the PodGroup that they name, as ``namespace/name``."""
    found: dict[str, list[Obj]] = {}
    for pod in pods:
        if group := label_value(pod, GROUP_LABEL):
            found.setdefault(f"{pod['metadata']['namespace']}/{group}", []).append(pod)
    return found


def served_by_claim(pod: Obj) -> set[str]:
    """Extended resources of a pod that its status says are served by devices of a claim."""
    told = (pod.get("status") or {}).get(EXTENDED) or {}
    return {each["resourceName"] for each in told.get("requestMappings") or ()}
