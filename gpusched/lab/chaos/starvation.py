"""I7 at the end of a run: gangs that wait though they could run, worked out by trying every place.

Nothing of the scheduler is used. A gang starves when its queues may hold what it still needs, the
nodes have room for that, and either no other gang waits that may have been given this room, or it is
told that there is no room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs

from gpusched.base.classes import define, frozen
from gpusched.lab.chaos.steps.objects import CARD, GPU, GROUPS, JOBS, QUEUES
from gpusched.testing.invariants import model, queues
from gpusched.testing.invariants.model import Obj

_NO_ROOM: Final = frozenset({"NoFeasibleNode", "InsufficientResources", "TopologyUnsatisfiable"})
_TRIES_MAX: Final = 20_000
_WHOLE: Final = 1000


@define
class _NodeRoom:
    """What is free on one node: whole GPUs, parts of those that are shared, cores, pods."""

    name: str
    rack: str
    gpus: int
    parts: list[Fraction]
    cpu: int
    pods: int


@frozen
class _PodNeed:
    """What one pod needs."""

    gpus: int
    share: Fraction
    cpu: int


@frozen(kw_only=True)
class _WaitingGang:
    """A gang that has not all that it needs to run.

    Attributes:
        asks: of the pods that it still needs.
        held: racks of those it has, where one rack is required.
        told: the reason that it is told.
        claims: whether its pods claim devices.
    """

    key: str
    queue: str
    asks: tuple[_PodNeed, ...]
    one_rack: bool
    held: frozenset[str]
    lasting: bool
    told: str
    charge: Counter[str]
    claims: bool = False


def starving_gangs(lists: Mapping[str, Sequence[Obj]]) -> Iterator[str]:
    """A sentence for each gang that waits though it could run.

    Args:
        lists: pods, nodes, PodGroups, queues and Jobs by the names of their kinds.
    """
    known = {each["metadata"]["name"]: each for each in lists[QUEUES]}
    held = queues.queue_usage(
        lists["pods"],
        known,
        groups={model.object_name(each): each for each in lists[GROUPS]},
        jobs={model.object_name(each): each for each in lists[JOBS]},
        namespaces={},
    )
    full = _rooms(lists["nodes"], lists["pods"])
    empty = _rooms(lists["nodes"], ())
    waiting = [gang for gang in _waiting(lists) if _open(gang, known)]
    rivals = [gang for gang in waiting if _fits(gang, empty)]
    for gang in waiting:
        if gang.claims or not _allowed(gang, known, held) or not _fits(gang, full):
            continue  # whether there are devices is not worked out here
        if _is_lasting(gang, lists, known):
            continue
        alone = all(other.key == gang.key for other in rivals)
        if alone or gang.told in _NO_ROOM:
            what = "nobody else waits" if alone else f"it is told {gang.told}"
            yield f"{gang.key} waits with room for its {len(gang.asks)} pods, and {what}"


# -- who waits -------------------------------------------------------------------------------
def _waiting(lists: Mapping[str, Sequence[Obj]]) -> Iterator[_WaitingGang]:
    racks = {
        node["metadata"]["name"]: model.label_value(node, "rack") for node in lists["nodes"]
    }  # fmt: skip
    members = model.members_by_group(lists["pods"])
    for group in lists[GROUPS]:
        found = _of_group(group, members.get(model.object_name(group), []), racks)
        if found is not None:
            yield found
    for job in lists[JOBS]:
        if job["spec"].get("suspend") and model.label_value(job, model.QUEUE_LABEL):
            yield _of_job(job)


def _of_group(group: Obj, mine: Sequence[Obj], racks: Mapping[str, str]) -> _WaitingGang | None:
    spec = group["spec"]
    waits = [
        pod
        for pod in mine
        if not model.bound_node(pod)
        and not model.is_over(pod)
        and not pod["spec"].get("schedulingGates")
        and not pod["metadata"].get("deletionTimestamp")
    ]
    # Who is leaving is replaced: it counts until then.
    count = sum(1 for pod in mine if model.counts_for_minimum(pod))
    going = any(pod["metadata"].get("deletionTimestamp") for pod in mine)
    need = max(0, spec.get("minMember", 1) - count)
    parts = bool(spec.get("subGroups") or spec.get("minTaskMember"))
    if going or not need or need > len(waits) or not _parts_have_pods(spec, mine, waits):
        return None
    if parts:
        need = len(waits)
    # Which of them make up the minimum is the scheduler's choice: the largest are the hardest.
    waits.sort(key=lambda pod: (_ask(pod).gpus, _ask(pod).share, _ask(pod).cpu), reverse=True)
    asks = [_ask(pod) for pod in waits]
    if any((part.get("topology") or {}).get("required") for part in spec.get("subGroups") or ()):
        return None  # each in one rack: not worked out here
    charge: Counter[str] = Counter()
    for pod in waits[:need]:
        charge.update(queues.pod_charge(pod))
    required = (spec.get("topology") or {}).get("required") == "rack"
    return _WaitingGang(
        key=model.object_name(group),
        queue=spec.get("queue") or model.DEFAULT_QUEUE,
        asks=tuple(asks[:need]),
        one_rack=required,
        held=frozenset(
            racks.get(model.bound_node(pod), "") for pod in mine if model.holds_room(pod)
        ),
        lasting=spec.get("preemptible") is False,
        told=_scheduled_reason(group),
        charge=charge,
        claims=any(_needs_devices(pod) for pod in waits),
    )


def _needs_devices(pod: Obj) -> bool:
    return bool(pod["spec"].get("resourceClaims")) or CARD in model.pod_requests(pod)


def _parts_have_pods(spec: Obj, mine: Sequence[Obj], waits: Sequence[Obj]) -> bool:
    """Whether each role and sub-group has as many pods as it needs, with a node or waiting."""
    least = {("gpusched.io/role", name): n for name, n in (spec.get("minTaskMember") or {}).items()}
    for part in spec.get("subGroups") or ():
        least[model.SUB_GROUP_LABEL, part["name"]] = part.get("minMember", 1)
    pods = [*waits, *(pod for pod in mine if model.counts_for_minimum(pod))]
    return all(
        sum(1 for pod in pods if model.label_value(pod, key) == name) >= n
        for (key, name), n in least.items()
    )


def _of_job(job: Obj) -> _WaitingGang:
    template = job["spec"]["template"]
    pod = {"metadata": template["metadata"], "spec": template["spec"]}
    count = int(job["spec"].get("parallelism", 1))
    charge: Counter[str] = Counter()
    for _ in range(count):
        charge.update(queues.pod_charge(pod))
    return _WaitingGang(
        key=model.object_name(job),
        queue=model.label_value(job, model.QUEUE_LABEL),
        asks=tuple(_ask(pod) for _ in range(count)),
        one_rack=False,
        held=frozenset(),
        lasting=False,
        told="",
        charge=charge,
    )


def _scheduled_reason(group: Obj) -> str:
    for each in (group.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Scheduled":
            return str(each.get("reason"))
    return ""


def _ask(pod: Obj) -> _PodNeed:
    asked = model.pod_requests(pod)
    return _PodNeed(
        gpus=asked.get(GPU, 0),
        share=model.gpu_share(pod, None) or Fraction(),
        cpu=asked.get("cpu", 0),
    )


# -- queues ----------------------------------------------------------------------------------
def _open(gang: _WaitingGang, known: Mapping[str, Obj]) -> bool:
    """Whether the gang's queue admits gangs, and none waits behind another by its ordering."""
    line = queues.queue_and_ancestors(gang.queue, known)
    if not line or any(each["spec"].get("parent") == gang.queue for each in known.values()):
        return False
    specs = [known[name]["spec"] for name in line]
    return not any(
        (spec.get("stopPolicy") or "None") != "None"
        or spec.get("weight") == 0
        or spec.get("ordering") == "StrictFifo"
        for spec in specs
    )


def _allowed(
    gang: _WaitingGang, known: Mapping[str, Obj], held: Mapping[str, Mapping[str, int]]
) -> bool:
    for name in queues.queue_and_ancestors(gang.queue, known):
        after = Counter(held[name])
        after.update(gang.charge)
        asked = {resource for resource, amount in gang.charge.items() if amount}
        if next(queues.over_capability(known[name], after, asked=asked), None) is not None:
            return False
    return True


def _is_lasting(
    gang: _WaitingGang, lists: Mapping[str, Sequence[Obj]], known: Mapping[str, Obj]
) -> bool:
    """Whether it may never be evicted, which bounds it in ways that are not worked out here."""
    del lists, known
    return gang.lasting


# -- nodes -----------------------------------------------------------------------------------
def _rooms(nodes: Sequence[Obj], pods: Sequence[Obj]) -> list[_NodeRoom]:
    found = []
    for node in nodes:
        if not _usable(node):
            continue
        name = node["metadata"]["name"]
        have = model.base_amounts((node.get("status") or {}).get("allocatable"))
        here = [pod for pod in pods if model.bound_node(pod) == name and model.holds_room(pod)]
        asked: Counter[str] = Counter()
        for pod in here:
            asked.update(model.pod_requests(pod))
        parts: dict[str, Fraction] = {}
        for pod in here:
            share = model.gpu_share(pod, None)
            if share is not None:
                slot = model.annotation_value(pod, "slots")
                parts[slot] = parts.get(slot, Fraction(1)) - share
        gpus = have.get(GPU, 0) - asked[GPU] - len(parts)
        found.append(
            _NodeRoom(
                name=name,
                rack=model.label_value(node, "rack"),
                gpus=gpus,
                # Of a node whose pods hold more GPUs than it has nobody knows who uses which.
                parts=sorted(parts.values()) if gpus >= 0 else [],
                cpu=have.get("cpu", 0) - asked["cpu"],
                pods=have.get("pods", 0) - asked["pods"],
            )
        )
    return found


def _usable(node: Obj) -> bool:
    if node["spec"].get("unschedulable") or node["spec"].get("taints"):
        return False
    return any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in (node.get("status") or {}).get("conditions") or ()
    )


def _fits(gang: _WaitingGang, rooms: Sequence[_NodeRoom]) -> bool:
    if not gang.one_rack:
        return _places(gang.asks, rooms)
    racks = {room.rack for room in rooms if room.rack}
    for rack in sorted(racks):
        if gang.held and gang.held != {rack}:
            continue
        if _places(gang.asks, [room for room in rooms if room.rack == rack]):
            return True
    return False


def _places(asks: Sequence[_PodNeed], rooms: Sequence[_NodeRoom]) -> bool:
    """Whether all find a place, by trying; what takes too many tries counts as no."""
    copies = [attrs.evolve(room, parts=list(room.parts)) for room in rooms]
    order = sorted(asks, key=lambda ask: (ask.gpus, ask.share, ask.cpu), reverse=True)
    tries = [_TRIES_MAX]
    return _place(order, 0, copies, tries)


def _place(asks: Sequence[_PodNeed], index: int, rooms: list[_NodeRoom], tries: list[int]) -> bool:
    if index == len(asks):
        return True
    ask, seen = asks[index], set[Any]()
    for room in rooms:
        shape = (room.gpus, tuple(room.parts), room.cpu, room.pods)
        if shape in seen or room.pods < 1 or room.cpu < ask.cpu or room.gpus < ask.gpus:
            continue
        seen.add(shape)
        tries[0] -= 1
        if tries[0] < 0:
            return False
        before = attrs.evolve(room, parts=list(room.parts))
        if _take(room, ask) and _place(asks, index + 1, rooms, tries):
            return True
        room.gpus, room.parts, room.cpu, room.pods = (
            before.gpus, before.parts, before.cpu, before.pods,
        )  # fmt: skip
    return False


def _take(room: _NodeRoom, ask: _PodNeed) -> bool:
    room.cpu -= ask.cpu
    room.pods -= 1
    room.gpus -= ask.gpus
    if not ask.share:
        return True
    for number, part in enumerate(sorted(room.parts)):
        if part >= ask.share:
            room.parts.sort()
            room.parts[number] -= ask.share
            return True
    if room.gpus < 1:
        return False
    room.gpus -= 1
    room.parts.append(Fraction(1) - ask.share)
    return True
