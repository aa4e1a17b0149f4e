"""Why a gang waits and where it is, told from the view and the objects of the API: pure, JSON in, JSON out.

Reasons, positions, estimates and places are the view's; nothing is decided again here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpusched.api.devices import device_match
from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.devices.gpu_types import ANNOTATION, ANNOTATION_FIELD, FIELD, parse_gpu_types
from gpusched.api.gang.eviction_record import EVICTIONS, PastEviction, parse_evictions
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.turn_record import TURN, parse_turn
from gpusched.api.meta.identity import InvalidObject, Rejected, format_time, parse_time
from gpusched.api.meta.quantity import QuantityError, format_quantity
from gpusched.api.meta.resources import PODS, Resources
from gpusched.api.pod.gang_annotations import read_queue_name
from gpusched.base.classes import frozen
from gpusched.cli.command import age
from gpusched.cli.inspect.cluster_reader import read_entity
from gpusched.cli.inspect.explaining.unknown_keys import unknown_keys
from gpusched.config.model import DEFAULT
from gpusched.view.gang_story import GangStory
from gpusched.view.model import WAITING

_EVENTS_SHOWN: Final = 8
_SUB_GROUPS_NAMED: Final = 4
_COUNTED: Final = frozenset({"SuccessfulCreate", "SuccessfulDelete"})
"""Of a Job's controller, one for each pod: the number of pods says it already."""
_GROUP_KINDS: Final = frozenset({"PodGroup", COMPOSITE})
_SIZED: Final = _GROUP_KINDS | {"Job", "Pod"}
"""Kinds whose objects say how many pods start together."""


@frozen(kw_only=True)
class GangObjects:
    """What is known about one gang, or about the gangs of one object.

    Attributes:
        kind: of the object, such as PodGroup, Job or Pod.
        owner: the object of that kind.
        pods: members, sorted by name.
        events: about the owner, then about members.
        now: seconds since the Unix epoch, for ages.
        tree: of a group of Kubernetes in a tree, each group of it with what it needs and has.
        claims: of members for devices, see ``device_story.describe_claims``.
        served: names of the schedulers that the daemon's configuration serves.
        gangs: of the view; none for what the daemon does not know or believe.
        kept: windows of Reservations into which it runs, one sentence each.
        refused: events which tell that members could not be created.
        leader: whether a daemon leads; empty where that may not be read.
        notes: where the view was read from, if not from the daemon.
    """

    kind: str
    namespace: str
    name: str
    owner: dict[str, Any]
    pods: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    now: float
    tree: tuple[dict[str, Any], ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    served: tuple[str, ...] = tuple(sorted(DEFAULT.scheduler_names))
    gangs: tuple[GangStory, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[dict[str, Any], ...] = ()
    leader: str = ""
    notes: tuple[str, ...] = ()


def lacks_pods(evidence: GangObjects) -> bool:
    """Whether fewer pods exist than the gang needs at once."""
    return len(evidence.pods) < _minimum(evidence)


def explain_gang(evidence: GangObjects) -> dict[str, Any]:
    """The whole story as JSON; ``explanation_text`` prints it."""
    spec = _mapping(evidence.owner, "spec")
    status = _mapping(evidence.owner, "status")
    counts = Counter(_state(pod) for pod in evidence.pods)
    minimum = _minimum(evidence)
    views = evidence.gangs
    position = min((each.position for each in views if each.position), default=0)
    start = min(filter(None, (each.estimated_start_time for each in views)), default="")
    waiting = [_waiting(pod) for pod in evidence.pods if _state(pod) == "pending"]
    conditions = [_condition(item, evidence.now) for item in _objects(status, "conditions")]
    groups = evidence.kind in _GROUP_KINDS
    return {
        "kind": evidence.kind,
        "namespace": evidence.namespace,
        "name": evidence.name,
        "queue": (groups and printable_line(spec.get("queue"))) or _queue_label(evidence),
        "phase": printable_line(status.get("phase")) if groups else _phase(evidence, counts),
        "queuePosition": position or status.get("queuePosition"),
        "estimatedStartTime": start or status.get("estimatedStartTime"),
        "estimatedStartRange": _start_range(views, start),
        "estimateChanges": list(
            dict.fromkeys(each.estimate_change for each in views if each.estimate_change)
        ),
        "reasons": _reasons(views),
        "gangs": [msgspec.to_builtins(each) for each in views],
        "minMember": minimum,
        "failures": int(status.get("failed") or 0) if evidence.kind == "Job" else 0,
        "pods": {"total": len(evidence.pods), **dict(sorted(counts.items()))},
        "needs": [
            *_needs(evidence, minimum),
            *_parts(evidence),
            *_gpu_types(evidence),
            *_devices(evidence),
        ],
        "schedulers": sorted(
            {printable_line(_mapping(pod, "spec").get("schedulerName")) for pod in evidence.pods}
        ),
        "servedSchedulers": list(evidence.served),
        "leader": evidence.leader,
        "unknownKeys": unknown_keys([*_described(evidence.owner), *evidence.pods]),
        "refusedPods": _refused_pods(evidence),
        "notes": sorted({printable_line(gang.warning) for gang in views if gang.warning}),
        "turn": _turn(evidence),
        "evictions": _past_evictions(evidence),
        "tree": list(evidence.tree),
        "conditions": conditions,
        "pendingPods": waiting,
        "promised": _promised(evidence),
        "keptNodes": list(evidence.kept),
        "proofs": _proofs(evidence),
        "leaving": _leaving(evidence),
        "claims": list(evidence.claims),
        "decisions": _decisions(evidence),
        "events": _events(evidence),
    }


def _start_range(gangs: Sequence[GangStory], start: str) -> list[str]:
    """The earliest and the latest start of the gang that is expected first; empty where not known."""
    first = next((each for each in gangs if start and each.estimated_start_time == start), None)
    if first is None:
        return ["", ""]
    return [first.estimated_start_earliest, first.estimated_start_latest]


def _reasons(gangs: Sequence[GangStory]) -> list[dict[str, str]]:
    """Why its gangs wait, each sentence once."""
    told = [
        (printable_line(each.reason), printable_line(each.message))
        for each in gangs
        if each.reason and (each.state == WAITING or each.waiting)
    ]
    return [{"reason": reason, "message": message} for reason, message in dict.fromkeys(told)]


def _decisions(evidence: GangObjects) -> list[dict[str, str]]:
    """The newest decisions about its gangs, oldest of them first."""
    found = sorted(
        (each for gang in evidence.gangs for each in gang.story), key=lambda each: each.time
    )
    return [
        {
            "time": printable_line(each.time),
            "age": _since(printable_line(each.time), evidence.now),
            "event": printable_line(each.event),
            "message": printable_line(each.message),
        }
        for each in found[-_EVENTS_SHOWN:]
    ]


def _described(owner: dict[str, Any]) -> list[dict[str, Any]]:
    """An object, and the template of its pods where it has one."""
    return [owner, _mapping(_mapping(owner, "spec"), "template")]


def _turn(evidence: GangObjects) -> dict[str, Any] | None:
    """Turns that the gang has had under its queue's maxRuntime; None for none."""
    if evidence.kind == "PodGroup":
        told = _mapping(_mapping(evidence.owner, "status"), "turn")
        text = json.dumps(told) if told else None
    else:
        notes = _mapping(_mapping(evidence.owner, "metadata"), "annotations")
        text = printable_line(notes.get(TURN)) or None
    turn = parse_turn(text)
    return {"ended": format_time(turn.ended), "seconds": turn.seconds} if turn else None


def _past_evictions(evidence: GangObjects) -> list[dict[str, Any]]:
    """The last times that the gang was evicted, as its object has them, oldest first."""
    if evidence.kind == "PodGroup":
        told = _mapping(evidence.owner, "status").get("evictions")
        text = json.dumps({"evictions": told}) if told else None
    else:
        notes = _mapping(_mapping(evidence.owner, "metadata"), "annotations")
        text = notes.get(EVICTIONS) if isinstance(notes.get(EVICTIONS), str) else None
    return [_told_eviction(each, evidence.now) for each in parse_evictions(text).past]


def _told_eviction(past: PastEviction, now: float) -> dict[str, Any]:
    time = format_time(past.at)
    return {
        "time": time,
        "age": _since(time, now),
        "action": printable_line(past.action),
        "reason": printable_line(past.reason),
        "for": printable_line(past.claimant_name),
        "gpuSeconds": past.gpu_seconds,
    }


def _promised(evidence: GangObjects) -> list[dict[str, str]]:
    """Pods that wait, with the node on which room is being freed for each."""
    return [
        {"pod": printable_line(_mapping(pod, "metadata").get("name")), "node": node}
        for pod in evidence.pods
        if _state(pod) == "pending"
        and (node := printable_line(_mapping(pod, "status").get("nominatedNodeName")))
    ]


def _proofs(evidence: GangObjects) -> list[dict[str, Any]]:
    """What is proven of the places of pods that have some, and of how many; empty for nothing."""
    counts = Counter(
        printable_line(_mapping(pod, "metadata", "annotations").get("gpusched.io/proof"))
        for pod in evidence.pods
        if _state(pod) in {"starting", "running"}
    )
    return [{"proof": proof, "pods": count} for proof, count in sorted(counts.items())]


def _refused_pods(evidence: GangObjects) -> str:
    """That members could not be created, as was told last; empty where they can."""
    if not evidence.refused:
        return ""
    last = max(evidence.refused, key=lambda each: _moment(_event_time(each)))
    about = _mapping(last, "involvedObject")
    who = f"{printable_line(about.get('kind'))} {printable_line(about.get('name'))}"
    return f"FailedCreate: {who}: {printable_line(last.get('message'))}"


def _leaving(evidence: GangObjects) -> list[dict[str, str]]:
    """Pods that were told to go, and why."""
    return [
        {
            "pod": printable_line(_mapping(pod, "metadata").get("name")),
            "message": printable_line(item.get("message")),
        }
        for pod in evidence.pods
        for item in _objects(_mapping(pod, "status"), "conditions")
        if item.get("type") == "DisruptionTarget" and item.get("status") == "True"
    ]


# -- reading --------------------------------------------------------------------------------


def _minimum(evidence: GangObjects) -> int:
    """How many pods start together: as the daemon counts, else by the owner's kind."""
    spec = _mapping(evidence.owner, "spec")
    if evidence.gangs:
        least = max(gang.min_member for gang in evidence.gangs)
        return max(least, _fewest_of_sub_groups(spec) if evidence.kind == "PodGroup" else 0)
    given: Any = 1
    if evidence.kind == "PodGroup":
        given = max(_int_or(spec.get("minMember"), 1), _fewest_of_sub_groups(spec))
    elif evidence.kind == "Job":
        annotations = _mapping(evidence.owner, "metadata", "annotations")
        text = printable_line(annotations.get("gpusched.io/min-member"))
        if text.isascii() and text.isdigit():
            return int(text)
        parallel, completions = spec.get("parallelism", 1), spec.get("completions")
        gang = spec.get("completionMode") == "Indexed" or parallel == completions
        given = parallel if gang else 1
    return _int_or(given, 1)


def _int_or(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _top_sub_groups(spec: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """How many of a PodGroup's sub-groups must be complete, and those that are in no other one."""
    top = [part for part in _objects(spec, "subGroups") if not part.get("parent")]
    return min(len(top), _int_or(spec.get("minSubGroups"), len(top))), top


def _fewest_of_sub_groups(spec: dict[str, Any]) -> int:
    """The fewest pods with which enough sub-groups are complete; 0 where some hold others."""
    need, top = _top_sub_groups(spec)
    if len(top) != len(_objects(spec, "subGroups")):
        return 0
    return sum(sorted(_int_or(part.get("minMember"), 1) for part in top)[:need])


def _parts(evidence: GangObjects) -> list[str]:
    """What sub-groups and roles of a PodGroup need beside its minimum."""
    spec = _mapping(evidence.owner, "spec") if evidence.kind == "PodGroup" else {}
    found = []
    need, top = _top_sub_groups(spec)
    if top:
        holders = {part.get("parent") for part in _objects(spec, "subGroups")}
        named = [
            printable_line(part.get("name"))
            + ("" if part.get("name") in holders else f" with {_int_or(part.get('minMember'), 1)}")
            for part in top[:_SUB_GROUPS_NAMED]
        ]
        more = ["and others"] if len(top) > _SUB_GROUPS_NAMED else []
        found.append(f"{need} of its {len(top)} sub-groups complete: {', '.join(named + more)}")
    found += [
        f"{_int_or(least, 1)} of role {printable_line(role)} among them"
        for role, least in sorted(_mapping(spec, "minTaskMember").items())
    ]
    return found


def _needs(evidence: GangObjects, minimum: int) -> list[str]:
    """One sentence for each kind of pod that still waits, with amounts; none where the size is not known."""
    if not evidence.pods and not evidence.gangs and evidence.kind not in _SIZED:
        return []
    together = _together(evidence, minimum)
    asked = Counter(
        (_asked_text(pod), _claims_text(pod)) for pod in evidence.pods if _state(pod) == "pending"
    )
    if not asked:
        return [together]
    sentences = []
    for (amounts, claims), count in asked.most_common():
        asked_each = ", ".join(filter(None, (amounts, claims)))
        what = f"with {asked_each} each" if asked_each else "without requests"
        sentences.append(f"{count} waiting pod{'s' if count != 1 else ''} {what}")
    return [together, *sentences]


def _together(evidence: GangObjects, minimum: int) -> str:
    """How many pods start at once."""
    least = _mapping(evidence.owner, "spec").get("minGroups")
    if least:
        return f"{least} of its groups at once, each with what it needs itself"
    count, fewest = (
        len(evidence.gangs),
        min((each.min_member for each in evidence.gangs), default=1),
    )
    if count < 2:
        return (
            f"{minimum} pods that start together"
            if minimum > 1
            else "1 pod, which starts by itself"
        )
    if minimum < 2:
        return f"{count} pods, each of which starts by itself"
    size = f"{minimum}" if fewest == minimum else f"{fewest} to {minimum}"
    return f"{count} gangs, each of {size} pods that start together"


def _claims_text(pod: dict[str, Any]) -> str:
    """Names of a pod's claims for devices, empty for none."""
    names = [
        printable_line(each.get("name"))
        for each in _objects(_mapping(pod, "spec"), "resourceClaims")
    ]
    return f"claim{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _said(evidence: GangObjects, field: str, annotation: str) -> tuple[bytes, bool]:
    """JSON of a field of its PodGroup, else of an annotation, and whether it is the field's."""
    said = _mapping(evidence.owner, "spec").get(field) if evidence.kind == "PodGroup" else None
    raw = json.dumps(said) if said is not None else ""
    for each in (evidence.owner, *evidence.pods[:1]):
        raw = raw or printable_line(
            _mapping(_mapping(each, "metadata"), "annotations").get(annotation)
        )
    return raw.encode(), said is not None


def _devices(evidence: GangObjects) -> list[str]:
    """What the devices of all its members are to have in common, as sentences."""
    raw, by_field = _said(evidence, "devices", device_match.ANNOTATION)
    field = device_match.FIELD if by_field else device_match.ANNOTATION_FIELD
    request = device_match.parse_device_match(raw, field=field)
    if request.error:
        return [f"devices that cannot be read: {request.error}"]
    whose = f" (requests {', '.join(request.requests)})" if request.requests else ""
    found = []
    if request.match_attribute:
        found.append(f"devices of all members with one {request.match_attribute}{whose}")
    if request.same_type:
        found.append(f"devices of all members of one type{whose}")
    return found


def _gpu_types(evidence: GangObjects) -> list[str]:
    """What it says about types of GPUs, as a sentence; none where it says nothing."""
    raw, by_field = _said(evidence, "gpuTypes", ANNOTATION)
    request = parse_gpu_types(raw, field=FIELD if by_field else ANNOTATION_FIELD)
    if request.error:
        return [f"types of GPUs that cannot be read: {request.error}"]
    found = []
    if request.speeds:
        speeds = ", ".join(f"{name} at speed {speed / 1000:g}" for name, speed in request.speeds)
        found.append(f"GPUs of type {speeds}")
    if request.same_type is not None:
        found.append("GPUs of one type" if request.same_type else "GPUs of one type or several")
    return found


def _asked_text(pod: dict[str, Any]) -> str:
    """What a pod takes at most, as the daemon counts it: with init containers, overhead and GPU shares."""
    entity = read_entity("pods", pod)
    if isinstance(entity, Rejected):
        return _amounts(_requests(pod))
    share = entity.pod_class.share
    asked = {name: amount for name, amount in entity.pod_class.requests.items if name != PODS}
    if share is None or not share.memory:
        return _amounts(Resources.of(asked))
    asked.pop(shared_resource(), None)  # what it counts as in quotas is not what it requests
    part = f"{format_quantity(share.memory, resource='memory')} of the memory of one GPU"
    return ", ".join(filter(None, (part, _amounts(Resources.of(asked)))))


def _requests(pod: dict[str, Any]) -> Resources | None:
    """Containers' requests (limits where no request is given), None when unreadable."""
    total: Counter[str] = Counter()
    try:
        for container in _objects(_mapping(pod, "spec"), "containers"):
            resources = _mapping(container, "resources")
            wanted = {**_mapping(resources, "limits"), **_mapping(resources, "requests")}
            total.update(dict(Resources.parse(wanted, field="requests").items))
    except QuantityError:
        return None
    return Resources.of(total)


def _amounts(requests: Resources | None) -> str:
    if requests is None:
        return "amounts that cannot be read"
    return ", ".join(
        f"{name} {format_quantity(amount, resource=name)}" for name, amount in requests.items
    )


def _state(pod: dict[str, Any]) -> str:
    phase = printable_line(_mapping(pod, "status").get("phase")).lower()
    if _mapping(pod, "metadata").get("deletionTimestamp"):
        return "terminating"
    if phase in {"", "pending"}:
        return "starting" if _mapping(pod, "spec").get("nodeName") else "pending"
    return phase


_GOING_ON: Final = ("pending", "starting", "running")


def _phase(evidence: GangObjects, counts: Counter[str]) -> str:
    if _mapping(evidence.owner, "spec").get("suspend") is True:
        return "Suspended"
    ended = {
        printable_line(item.get("type"))
        for item in _objects(_mapping(evidence.owner, "status"), "conditions")
        if item.get("status") == "True"
    }
    if evidence.kind == "Job" and ended & {"Complete", "Failed"}:
        return "Failed" if "Failed" in ended else "Completed"
    if evidence.kind == "Job" and not any(counts[each] for each in _GOING_ON):
        return "Pending"  # of its pods some may have failed, and it makes others
    for state, phase in (
        ("pending", "Pending"), ("starting", "Running"), ("running", "Running"),
        ("failed", "Failed"), ("succeeded", "Completed"),
    ):  # fmt: skip
        if counts[state]:
            return phase
    return ""


def _queue_label(evidence: GangObjects) -> str:
    """The queue that is charged: as the daemon counts, else as labels say."""
    counted = {gang.queue for gang in evidence.gangs}
    if len(counted) == 1:
        return printable_line(counted.pop())
    for holder in (evidence.owner, *evidence.pods):
        label = read_queue_name(_mapping(holder, "metadata", "labels"), None)
        if label:
            return printable_line(label)
    return ""


def _waiting(pod: dict[str, Any]) -> dict[str, str]:
    for condition in _objects(_mapping(pod, "status"), "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
            reason, message = (
                printable_line(condition.get("reason")),
                printable_line(condition.get("message")),
            )
            break
    else:
        reason = message = ""
    return {
        "name": printable_line(_mapping(pod, "metadata").get("name")),
        "reason": reason,
        "message": message,
    }


def _condition(item: dict[str, Any], now: float) -> dict[str, Any]:
    keys = ("type", "status", "reason", "message", "lastTransitionTime")
    found: dict[str, Any] = {key: printable_line(item.get(key)) for key in keys}
    return {**found, "age": _since(found["lastTransitionTime"], now)}


def _events(evidence: GangObjects) -> list[dict[str, Any]]:
    """The newest, oldest of them first."""
    dated = [
        (_moment(_event_time(event)), event)
        for event in evidence.events
        if event.get("reason") not in _COUNTED and not _of_namesake(evidence, event)
    ]
    dated.sort(key=lambda pair: pair[0])
    return [
        {
            "time": _event_time(event),
            "age": _since(_event_time(event), evidence.now),
            "type": printable_line(event.get("type")),
            "reason": printable_line(event.get("reason")),
            "object": "/".join(
                printable_line(_mapping(event, "involvedObject").get(key))
                for key in ("kind", "name")
            ),
            "message": printable_line(event.get("message")),
        }
        for _, event in dated[-_EVENTS_SHOWN:]
    ]


def _of_namesake(evidence: GangObjects, event: dict[str, Any]) -> bool:
    """Whether it was told of an earlier object of the same name."""
    about = _mapping(event, "involvedObject")
    theirs, ours = about.get("uid"), _mapping(evidence.owner, "metadata").get("uid")
    owner = (about.get("kind"), about.get("name")) == (evidence.kind, evidence.name)
    return owner and bool(theirs and ours) and theirs != ours


def _event_time(event: dict[str, Any]) -> str:
    series = _mapping(event, "series").get("lastObservedTime")
    created = _mapping(event, "metadata").get("creationTimestamp")
    return printable_line(series or event.get("lastTimestamp") or event.get("eventTime") or created)


def _moment(text: str) -> float:
    try:
        return parse_time(text)
    except InvalidObject:
        return 0.0


def _since(text: str, now: float) -> str:
    return age(now - _moment(text)) if text else "<unknown>"


def _mapping(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """The mapping at a path, empty where there is none."""
    found: Any = value
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _objects(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = value.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def printable_line(value: Any) -> str:
    """Foreign text on one line, without anything a terminal would obey."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " for c in text)
