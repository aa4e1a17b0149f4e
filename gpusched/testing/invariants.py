"""Invariants of a cluster, read from API objects alone: a witness that shares no logic with us.

``check`` looks at one moment, ``check_journal`` at a list of writes. Both return sentences, one
for each violation; an empty list is good.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs

from gpusched.objects.meta import parse_time
from gpusched.objects.quantity import parse_quantity

Obj = Mapping[str, Any]
GROUP_LABEL: Final = "gpusched.io/pod-group"
_OVER: Final = ("Succeeded", "Failed")
_STARTED: Final = ("Running", "Unknown", "Completed")
RECOVERY_S: Final = 120.0


def check(
    objects: Mapping[str, Sequence[Obj]],
    *,
    schedulers: Sequence[str] = ("gpusched",),
    now: float | None = None,
) -> list[str]:
    """What is wrong at this moment.

    Args:
        objects: ``pods``, ``nodes`` and ``podgroups``, as the API lists them.
        schedulers: names under which we place pods.
        now: seconds since the epoch, so that a gang bound in part is given its recovery time
            (I3); None for no patience.
    """
    pods = objects.get("pods", ())
    return [
        *_room(pods, objects.get("nodes", ())),
        *_slots(pods, objects.get("nodes", ())),
        *_atomic(pods, objects.get("podgroups", ()), now),
        *_ours(pods, schedulers),
        *_honest(pods, objects.get("podgroups", ())),
    ]


# -- I1, I2 --------------------------------------------------------------------------------
def _room(pods: Sequence[Obj], nodes: Sequence[Obj]) -> Iterable[str]:
    """I1: no node is over its allocatable where a pod of ours sits on it."""
    offers = {node["metadata"]["name"]: node["status"].get("allocatable", {}) for node in nodes}
    for name, offer in offers.items():
        here = [pod for pod in pods if _holds(pod) and pod["spec"]["nodeName"] == name]
        asked: Counter[str] = Counter()
        for pod in here:
            asked.update(requests(pod))
        # A GPU that is shared is no other pod's, whatever part of it is free.
        opened = {_note(pod, "slots") for pod in here if _share(pod, None) is not None}
        if opened:
            asked["nvidia.com/gpu"] += len(opened)
        ours = {resource for pod in here if _note(pod, "plan") for resource in requests(pod)}
        for resource, amount in sorted(asked.items()):
            have = _amount(resource, offer.get(resource, "0"))
            if resource in ours and amount > have:
                yield f"I1: node {name} offers {have} {resource}, its pods ask for {amount}"


def _slots(pods: Sequence[Obj], nodes: Sequence[Obj]) -> Iterable[str]:
    """I2: no slot has two pods, and a pod that we placed has as many slots as GPUs and slices.

    Shares: each has one slot, and those on one slot are one GPU together at most.
    """
    taken: dict[tuple[str, str], str] = {}
    parts: dict[tuple[str, str], Fraction] = {}
    memory = {node["metadata"]["name"]: _gpu_memory(node) for node in nodes}
    for pod in pods:
        if not _holds(pod):
            continue
        name, node = _name(pod), pod["spec"]["nodeName"]
        slots = [each for each in _note(pod, "slots").split(",") if each]
        share = _share(pod, memory.get(node))
        if share is not None:
            if _note(pod, "plan") and len(slots) != 1:
                yield f"I2: pod {name} asks for a share of one GPU and has slots {slots}"
            for slot in slots:
                parts[node, slot] = parts.get((node, slot), Fraction()) + share
            continue
        for slot in slots:
            other = taken.setdefault((node, slot), name)
            if other != name:
                yield f"I2: slot {slot} of node {node} has pods {other} and {name}"
        gpus = sum(
            amount
            for key, amount in requests(pod).items()
            if key.endswith("/gpu") or key.startswith("nvidia.com/mig-")
        )
        if _note(pod, "plan") and gpus != len(slots):
            yield f"I2: pod {name} asks for {gpus} GPUs and has slots {slots}"
    for (node, slot), sum_ in sorted(parts.items()):
        if (node, slot) in taken:
            yield f"I2: slot {slot} of node {node} has shares and pod {taken[node, slot]}"
        if sum_ > 1:
            yield f"I2: slot {slot} of node {node} has {float(sum_)} GPUs of shares"


def _share(pod: Obj, gpu_memory: int | None) -> Fraction | None:
    """The part of one GPU that a pod asks for, rounded up to thousandths; None for none."""
    meta = pod["metadata"]
    said = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    if "gpusched.io/gpu-fraction" in said:
        return Fraction(said["gpusched.io/gpu-fraction"])
    if "gpusched.io/gpu-memory" in said:
        wanted = parse_quantity(said["gpusched.io/gpu-memory"])
        return Fraction(-(-wanted * 1000 // gpu_memory), 1000) if gpu_memory else Fraction(1)
    return None


def _gpu_memory(node: Obj) -> int | None:
    text = (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.memory")
    return int(text) * 2**20 if text else None


# -- I3 ------------------------------------------------------------------------------------
def _atomic(pods: Sequence[Obj], groups: Sequence[Obj], now: float | None) -> Iterable[str]:
    """I3: no gang is bound in part for longer than the recovery time."""
    members: dict[tuple[str, str], list[Obj]] = {}
    for pod in pods:
        label = (pod["metadata"].get("labels") or {}).get(GROUP_LABEL, "")
        if label:
            members.setdefault((pod["metadata"]["namespace"], label), []).append(pod)
    for group in groups:
        meta = group["metadata"]
        needed = group["spec"].get("minMember", 1)
        mine = members.get((meta["namespace"], meta["name"]), [])
        count = sum(1 for pod in mine if _counts(pod))
        live = [pod for pod in mine if _holds(pod)]
        started = (group.get("status") or {}).get("phase") in _STARTED
        if not live or count >= needed or started:
            continue
        since = min(_scheduled(pod) for pod in live)
        if now is None or now - since > RECOVERY_S:
            yield f"I3: {count} of {needed} pods of PodGroup {meta['name']} are bound"


# -- I11, I15 ------------------------------------------------------------------------------
def _ours(pods: Sequence[Obj], schedulers: Sequence[str]) -> Iterable[str]:
    """I11: we bind pods that ask for us, and none that is gated."""
    for pod in pods:
        if not _note(pod, "plan") or not pod["spec"].get("nodeName"):
            continue
        if pod["spec"].get("schedulerName") not in schedulers:
            yield f"I11: pod {_name(pod)} was placed and does not ask for us"
        if pod["spec"].get("schedulingGates"):
            yield f"I11: pod {_name(pod)} was placed through its gate"


def _honest(pods: Sequence[Obj], groups: Sequence[Obj]) -> Iterable[str]:
    """I15: what runs has its minimum; who waits has a reason and a sentence."""
    for group in groups:
        meta = group["metadata"]
        conditions = (group.get("status") or {}).get("conditions") or []
        for each in conditions:
            if not (each.get("reason") and each.get("message")):
                yield f"I15: condition {each.get('type')} of {meta['name']} does not say why"
        said = next((each for each in conditions if each.get("type") == "Scheduled"), None)
        if said is None or said["status"] != "True":
            continue
        mine = [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] == meta["namespace"]
            and (pod["metadata"].get("labels") or {}).get(GROUP_LABEL) == meta["name"]
        ]
        # Members that ended or were deleted since have been there: only waiting ones betray.
        waiting = [pod for pod in mine if not pod["spec"].get("nodeName") and not _over(pod)]
        count = sum(1 for pod in mine if pod["spec"].get("nodeName"))
        if waiting and count < group["spec"].get("minMember", 1):
            phase = (group.get("status") or {}).get("phase")
            if phase == "Running":
                yield f"I15: {meta['name']} is said to run with {count} pods bound"


# -- journal -------------------------------------------------------------------------------
@attrs.frozen
class Write:
    """One request that was accepted."""

    method: str
    path: str
    body: bytes


def check_journal(writes: Iterable[Write]) -> list[str]:
    """What is wrong in a list of accepted writes, in their order.

    I8: no binding carries a fence older than one before it. Also: no pod is bound twice, and
    no status patch repeats the one before it on the same object.
    """
    wrong: list[str] = []
    bound: set[str] = set()
    last: dict[str, bytes] = {}
    newest = -1
    for write in writes:
        if write.path.endswith("/binding"):
            said = json.loads(write.body)["metadata"]
            if said.get("uid") in bound:
                wrong.append(f"pod {said['name']} was bound twice")
            bound.add(said.get("uid"))
            fence = (said.get("annotations") or {}).get("gpusched.io/fence", "")
            term = int(fence.rpartition("/")[2] or -1)
            if term < newest:
                wrong.append(f"I8: pod {said['name']} was bound under fence {fence}")
            newest = max(newest, term)
        elif write.method == "PATCH" and write.path.endswith("/status"):
            if last.get(write.path) == write.body:
                wrong.append(f"{write.path} was written twice with the same content")
            last[write.path] = write.body
    return wrong


# -- reading objects -----------------------------------------------------------------------
def requests(pod: Obj) -> dict[str, int]:
    """What a pod takes from its node, in base units."""
    spec = pod["spec"]
    total: Counter[str] = Counter({"pods": 1})
    for container in spec["containers"]:
        total.update(_amounts(container))
    largest: dict[str, int] = dict(total)
    for container in spec.get("initContainers") or ():
        for name, amount in _amounts(container).items():
            largest[name] = max(largest.get(name, 0), amount)
    over = {name: _amount(name, text) for name, text in (spec.get("overhead") or {}).items()}
    return {name: largest.get(name, 0) + over.get(name, 0) for name in {*largest, *over}}


def _amounts(container: Obj) -> dict[str, int]:
    stated = container.get("resources") or {}
    merged = {**(stated.get("limits") or {}), **(stated.get("requests") or {})}
    return {name: _amount(name, text) for name, text in merged.items()}


def _amount(name: str, text: Any) -> int:
    return parse_quantity(str(text), power=3 if name == "cpu" else 0)


def _name(pod: Obj) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _note(pod: Obj, key: str) -> str:
    text: str = (pod["metadata"].get("annotations") or {}).get(f"gpusched.io/{key}", "")
    return text


def _over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in _OVER


def _holds(pod: Obj) -> bool:
    return bool(pod["spec"].get("nodeName")) and not _over(pod)


def _counts(pod: Obj) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Succeeded" or (bool(pod["spec"].get("nodeName")) and phase != "Failed")


def _scheduled(pod: Obj) -> float:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "True":
            return parse_time(each.get("lastTransitionTime", ""))
    return 0.0
