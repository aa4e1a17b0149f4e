"""Why a gang waits, told from the objects of the API alone: pure, JSON in, text or JSON out.

The daemon writes its reasons into conditions and events; nothing is decided again here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

import attrs

from gpusched.api.devices import device_match
from gpusched.api.devices.gpu_types import ANNOTATION, ANNOTATION_FIELD, FIELD, parse_gpu_types
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.turn_record import TURN, parse_turn
from gpusched.api.meta.identity import InvalidObject, format_time, parse_time
from gpusched.api.meta.quantity import QuantityError, format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.gang_annotations import read_queue_name
from gpusched.cli.command import age, table
from gpusched.cli.inspect.devices.device_story import render_claims
from gpusched.cli.inspect.group_tree import render_tree
from gpusched.cli.inspect.owners import CountedGang
from gpusched.cli.inspect.unknown_keys import unknown_keys
from gpusched.config.model import DEFAULT
from gpusched.session.framework.reasons import gates_text

_EVENTS_SHOWN: Final = 8
_MEMBERS_NAMED: Final = 3
_GATED: Final = "SchedulingGated"
_WAITS: Final = "FailedScheduling"
_MOVES: Final = frozenset({"Preempted", "Reclaimed", "QueueStopped", "StaleGang", "BackOff"})
_COUNTED: Final = frozenset({"SuccessfulCreate", "SuccessfulDelete"})
"""Of a Job's controller, one for each pod: the number of pods says it already."""
_GROUP_KINDS: Final = frozenset({"PodGroup", COMPOSITE})
_SEE_WHY: Final = "(see why)"
_NOTHING_SAID: Final = [
    "nothing was said about it yet: is the daemon running, and is it the leader?"
]


@attrs.frozen(kw_only=True)
class GangObjects:
    """What the API shows about one gang.

    Attributes:
        kind: PodGroup, Job or Pod; for the last two the gang is derived.
        owner: the object of that kind.
        pods: members, sorted by name.
        events: about the owner, then about members.
        now: seconds since the Unix epoch, for ages.
        tree: of a group of Kubernetes in a tree, each group of it with what it needs and has.
        claims: of members for devices, see ``device_story.describe_claims``.
        served: names of the schedulers that the daemon's configuration serves.
        gangs: that its pods form, as the daemon counts them; none for PodGroups, which tell their
            size themselves, and for what the daemon does not know or believe.
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
    gangs: tuple[CountedGang, ...] = ()


def explain_gang(evidence: GangObjects) -> dict[str, Any]:
    """The whole story as JSON; ``tell`` prints it."""
    spec = _mapping(evidence.owner, "spec")
    status = _mapping(evidence.owner, "status")
    counts = Counter(_state(pod) for pod in evidence.pods)
    minimum = _minimum(evidence)
    waiting = [_waiting(pod) for pod in evidence.pods if _state(pod) == "pending"]
    conditions = [_condition(item, evidence.now) for item in _objects(status, "conditions")]
    groups = evidence.kind in _GROUP_KINDS
    return {
        "kind": evidence.kind,
        "namespace": evidence.namespace,
        "name": evidence.name,
        "queue": (groups and _text(spec.get("queue"))) or _queue_label(evidence),
        "phase": _text(status.get("phase")) if groups else _phase(evidence, counts),
        "queuePosition": status.get("queuePosition"),
        "estimatedStartTime": status.get("estimatedStartTime"),
        "minMember": minimum,
        "pods": {"total": len(evidence.pods), **dict(sorted(counts.items()))},
        "needs": _needs(evidence, minimum) + _gpu_types(evidence) + _devices(evidence),
        "schedulers": sorted(
            {_text(_mapping(pod, "spec").get("schedulerName")) for pod in evidence.pods}
        ),
        "servedSchedulers": list(evidence.served),
        "unknownKeys": unknown_keys([*_described(evidence.owner), *evidence.pods]),
        "notes": sorted({_text(gang.note) for gang in evidence.gangs if gang.note}),
        "turn": _turn(evidence),
        "tree": list(evidence.tree),
        "conditions": conditions,
        "pendingPods": waiting,
        "promised": _promised(evidence),
        "proofs": _proofs(evidence),
        "leaving": _leaving(evidence),
        "claims": list(evidence.claims),
        "events": _events(evidence),
    }


def render_explanation(story: dict[str, Any]) -> str:
    """The story as text, for a person."""
    lines = [_headline(story)]
    facts = [("needs", need) for need in story["needs"]]
    facts.append(("has", _census(story["pods"])))
    if story["estimatedStartTime"]:
        facts.append(("starts", f"about {_text(story['estimatedStartTime'])}"))
    if story["turn"]:
        seconds, ended = story["turn"]["seconds"], story["turn"]["ended"]
        facts.append(
            (
                "turns",
                f"{seconds} s in all under maxRuntime; it waits anew since {ended}, the end of the last",
            )
        )
    facts += [("held", held) for held in _held(story["promised"])]
    facts += [("places", proof) for proof in _proof_texts(story["proofs"])]
    reasons = _reasons(story)
    facts += [("why", why) for why in reasons]
    facts += [("leaving", why) for why in _grouped_reasons(story["leaving"])]
    notes = (_text(note) for note in (*story["unknownKeys"], *story["notes"]))
    facts += [("note", note) for note in notes if not any(note in each for each in reasons)]
    lines.append(table(facts, indent="  "))
    if story["tree"]:
        lines += ["", render_tree([_printable(row) for row in story["tree"]])]
    if story["conditions"]:
        header = ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
        keys = ("type", "status", "reason", "age", "message")
        rows = [tuple(str(item[key]) for key in keys) for item in story["conditions"]]
        lines += ["", table([header, *(_once(row, reasons) for row in rows)])]
    if story["pendingPods"]:
        lines += [
            "",
            table(
                [
                    ("PENDING POD", "REASON", "MESSAGE"),
                    *(_once(row, reasons) for row in _grouped(story["pendingPods"])),
                ]
            ),
        ]
    if story["claims"]:
        lines += ["", render_claims(story["claims"])]
    if story["events"]:
        header = ("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")
        rows = [_once(row, reasons) for row in _events_told_once(story["events"])]
        lines += ["", table([header, *rows])]
    return "\n".join(lines)


def _once(row: tuple[str, ...], reasons: Sequence[str]) -> tuple[str, ...]:
    """A row whose last cell is not told again where a reason has said it."""
    message = row[-1]
    said = [each.partition(": ")[2] for each in reasons]
    return (*row[:-1], _SEE_WHY) if message and _says_no_more(message, said) else row


def _says_no_more(message: str, said: Sequence[str]) -> bool:
    """Whether a message is one of those, or one of them after the name of what it is about."""
    return any(text and (message == text or message.endswith(f": {text}")) for text in said)


def _events_told_once(events: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """One row for all events that say the same, at the place of the newest."""
    last: dict[tuple[str, ...], int] = {}
    for at, event in enumerate(events):
        last[_what_it_says(event)] = at
    for at, event in enumerate(events):
        says = _what_it_says(event)
        if last[says] != at:
            continue
        about = [each["object"] for each in events if _what_it_says(each) == says]
        owners = [each for each in dict.fromkeys(about) if not each.startswith("Pod/")]
        pods = [each for each in dict.fromkeys(about) if each.startswith("Pod/")]
        told = [*owners, *(pods if len(pods) < 2 else ["its pods"])]
        message = says[-1] if len(told) > 1 or len(pods) > 1 else str(event["message"])
        yield (str(event["age"]), *says[:2], " and ".join(told), message)


def _what_it_says(event: dict[str, Any]) -> tuple[str, ...]:
    """Type, reason and message of an event, without the name of what it is about."""
    kind, _, name = str(event["object"]).partition("/")
    message = str(event["message"])
    start, colon, rest = message.partition(": ")
    about = colon and start.startswith(f"{kind} ") and start.endswith(f"/{name}")
    return str(event["type"]), str(event["reason"]), rest if about else message


def _described(owner: dict[str, Any]) -> list[dict[str, Any]]:
    """An object, and the template of its pods where it has one."""
    return [owner, _mapping(_mapping(owner, "spec"), "template")]


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    """A group of a tree, its level without anything that a terminal would obey."""
    return {**row, "level": _text(row["level"])}


def _turn(evidence: GangObjects) -> dict[str, Any] | None:
    """Turns that the gang has had under its queue's maxRuntime; None for none."""
    if evidence.kind == "PodGroup":
        told = _mapping(_mapping(evidence.owner, "status"), "turn")
        text = json.dumps(told) if told else None
    else:
        notes = _mapping(_mapping(evidence.owner, "metadata"), "annotations")
        text = _text(notes.get(TURN)) or None
    turn = parse_turn(text)
    return {"ended": format_time(turn.ended), "seconds": turn.seconds} if turn else None


def _promised(evidence: GangObjects) -> list[dict[str, str]]:
    """Pods that wait, with the node on which room is being freed for each."""
    return [
        {"pod": _text(_mapping(pod, "metadata").get("name")), "node": node}
        for pod in evidence.pods
        if _state(pod) == "pending"
        and (node := _text(_mapping(pod, "status").get("nominatedNodeName")))
    ]


def _proofs(evidence: GangObjects) -> list[dict[str, Any]]:
    """What is proven of the places of pods that have some, and of how many; empty for nothing."""
    counts = Counter(
        _text(_mapping(pod, "metadata", "annotations").get("gpusched.io/proof"))
        for pod in evidence.pods
        if _state(pod) in {"starting", "running"}
    )
    return [{"proof": proof, "pods": count} for proof, count in sorted(counts.items())]


def _proof_texts(proofs: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each proof, with the pods that it is about."""
    if not any(each["proof"] for each in proofs):
        return []
    texts = []
    for each in proofs:
        proof, count = each["proof"], each["pods"]
        pods = f"{count} pod{'s' if count != 1 else ''}"
        if not proof:
            texts.append(f"nothing proven of {pods}")
        else:
            texts.append(proof if " for " in proof else f"{proof} for {pods}")
    return texts


def _leaving(evidence: GangObjects) -> list[dict[str, str]]:
    """Pods that were told to go, and why."""
    return [
        {"pod": _text(_mapping(pod, "metadata").get("name")), "message": _text(item.get("message"))}
        for pod in evidence.pods
        for item in _objects(_mapping(pod, "status"), "conditions")
        if item.get("type") == "DisruptionTarget" and item.get("status") == "True"
    ]


def _held(promised: Sequence[dict[str, str]]) -> list[str]:
    if not promised:
        return []
    nodes = sorted({each["node"] for each in promised})
    shown = ", ".join(nodes[:_MEMBERS_NAMED])
    more = len(nodes) - _MEMBERS_NAMED
    where = f"{shown} and {more} more" if more > 0 else shown
    count = len(promised)
    return [f"room for {count} pod{'s' if count != 1 else ''} on {where}, once it is free"]


def _grouped_reasons(leaving: Sequence[dict[str, str]]) -> list[str]:
    """One line a reason, with the number of pods."""
    counts = Counter(each["message"] for each in leaving)
    return [
        f"{count} pod{'s' if count != 1 else ''}: {message}"
        for message, count in sorted(counts.items())
    ]


def _headline(story: dict[str, Any]) -> str:
    line = (
        f"{story['kind']} {story['namespace']}/{story['name']}: {story['phase'] or 'not seen yet'}"
    )
    if story["queue"]:
        line += f" in queue {story['queue']}"
    if story["queuePosition"]:
        line += f", place {story['queuePosition']}"
    return line


def _census(counts: dict[str, int]) -> str:
    total = counts["total"]
    if not total:
        return "no pods yet"
    parts = [f"{count} {state}" for state, count in counts.items() if state != "total"]
    return f"{total} pod{'s' if total != 1 else ''}: {', '.join(parts)}"


def _reasons(story: dict[str, Any]) -> list[str]:
    """The sentence of what is false or was taken away; else that of the pods."""
    if story["phase"] in {"Running", "Completed"}:
        return []
    refused = [
        f"{item['reason']}: {item['message']}"
        for item in story["conditions"]
        if (item["type"] in {"Admitted", "Scheduled"} and item["status"] == "False")
        or (item["type"] == "Preempted" and item["status"] == "True")
    ]
    if refused:
        return list(dict.fromkeys(refused))
    said = [f"{pod['reason']}: {pod['message']}" for pod in story["pendingPods"] if pod["message"]]
    if said:
        return list(dict.fromkeys(said))[:_MEMBERS_NAMED]
    if story["phase"] == "Suspended":
        return _last_said(story)
    if story["phase"] == "Failed" and story["kind"] == "Job":
        return [f"{item['reason']}: {item['message']}" for item in story["conditions"]
                if item["type"] == "Failed"]  # fmt: skip
    if story["schedulers"] and not set(story["schedulers"]) & set(story["servedSchedulers"]):
        return [_for_others(story["schedulers"], story["servedSchedulers"])]
    if story["pendingPods"] or not story["pods"]["total"]:
        return _NOTHING_SAID
    return []


def _for_others(named: Sequence[str], served: Sequence[str]) -> str:
    """That pods name schedulers which are not served, and which one is most like them."""
    like = get_close_matches(named[0], served, n=1)
    meant = f"; did you mean {like[0]}?" if like else ""
    return (
        f"its pods are for {' and '.join(named)}, and {' and '.join(served)} is served here: "
        f"set schedulerName in the pod template{meant}"
    )


def _last_said(story: dict[str, Any]) -> list[str]:
    """Of a suspended Job: it has no pods, so the daemon's sentences are in its events alone."""
    if not story["queue"]:
        return [
            "it is suspended and names no queue: Jobs with the label gpusched.io/queue are started"
        ]
    told = [event for event in story["events"] if event["object"].startswith("Job/")]
    moves = [event for event in told if event["reason"] in _MOVES][-1:]
    waits = [event for event in told if event["reason"] == _WAITS][-1:]
    said = [f"{event['reason']}: {event['message']}" for event in (*waits, *moves)]
    return said or _NOTHING_SAID


def _grouped(pods: Sequence[dict[str, str]]) -> Iterable[tuple[str, str, str]]:
    """One row for all pods of which the same is said."""
    names: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        names.setdefault((pod["reason"], pod["message"]), []).append(pod["name"])
    for (reason, message), members in names.items():
        shown = ", ".join(members[:_MEMBERS_NAMED])
        more = len(members) - _MEMBERS_NAMED
        names_shown = f"{shown} and {more} more" if more > 0 else shown
        yield (names_shown, reason or "-", message or "nothing said yet")


# -- reading --------------------------------------------------------------------------------


def _minimum(evidence: GangObjects) -> int:
    """How many pods start together: as the daemon counts, else by the owner's kind."""
    if evidence.gangs:
        return max(gang.minimum for gang in evidence.gangs)
    spec = _mapping(evidence.owner, "spec")
    if evidence.kind == "PodGroup":
        given = spec.get("minMember")
    elif evidence.kind == "Job":
        annotations = _mapping(evidence.owner, "metadata", "annotations")
        text = _text(annotations.get("gpusched.io/min-member"))
        if text.isascii() and text.isdigit():
            return int(text)
        parallel, completions = spec.get("parallelism", 1), spec.get("completions")
        gang = spec.get("completionMode") == "Indexed" or parallel == completions
        given = parallel if gang else 1
    else:
        given = 1
    return given if isinstance(given, int) else 1


def _needs(evidence: GangObjects, minimum: int) -> list[str]:
    """One sentence for each kind of pod that still waits, with amounts."""
    together = _together(evidence, minimum)
    asked = Counter(
        (_requests(pod), _claims_text(pod)) for pod in evidence.pods if _state(pod) == "pending"
    )
    if not asked:
        return [together]
    sentences = []
    for (requests, claims), count in asked.most_common():
        each = ", ".join(filter(None, (_amounts(requests), claims))) or "nothing that is counted"
        sentences.append(f"{count} waiting pod{'s' if count != 1 else ''} with {each} each")
    return [together, *sentences]


def _together(evidence: GangObjects, minimum: int) -> str:
    """How many pods start at once."""
    least = _mapping(evidence.owner, "spec").get("minGroups")
    if least:
        return f"{least} of its groups at once, each with what it needs itself"
    count, fewest = len(evidence.gangs), min((each.minimum for each in evidence.gangs), default=1)
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
    names = [_text(each.get("name")) for each in _objects(_mapping(pod, "spec"), "resourceClaims")]
    return f"claim{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _said(evidence: GangObjects, field: str, annotation: str) -> tuple[bytes, bool]:
    """JSON of a field of its PodGroup, else of an annotation, and whether it is the field's."""
    said = _mapping(evidence.owner, "spec").get(field) if evidence.kind == "PodGroup" else None
    raw = json.dumps(said) if said is not None else ""
    for each in (evidence.owner, *evidence.pods[:1]):
        raw = raw or _text(_mapping(_mapping(each, "metadata"), "annotations").get(annotation))
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
    phase = _text(_mapping(pod, "status").get("phase")).lower()
    if _mapping(pod, "metadata").get("deletionTimestamp"):
        return "terminating"
    if phase in {"", "pending"}:
        return "starting" if _mapping(pod, "spec").get("nodeName") else "pending"
    return phase


def _phase(evidence: GangObjects, counts: Counter[str]) -> str:
    if _mapping(evidence.owner, "spec").get("suspend") is True:
        return "Suspended"
    ended = {
        _text(item.get("type"))
        for item in _objects(_mapping(evidence.owner, "status"), "conditions")
        if item.get("status") == "True"
    }
    if evidence.kind == "Job" and ended & {"Complete", "Failed"}:
        return "Failed" if "Failed" in ended else "Completed"
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
        return _text(counted.pop())
    for holder in (evidence.owner, *evidence.pods):
        label = read_queue_name(_mapping(holder, "metadata", "labels"), None)
        if label:
            return _text(label)
    return ""


def _waiting(pod: dict[str, Any]) -> dict[str, str]:
    for condition in _objects(_mapping(pod, "status"), "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
            reason, message = _text(condition.get("reason")), _text(condition.get("message"))
            break
    else:
        reason = message = ""
    gates = [_text(each.get("name")) for each in _objects(_mapping(pod, "spec"), "schedulingGates")]
    if reason == _GATED and any(gates):
        message = f"held by {gates_text(gates)}; it may start when what set that removes it"
    return {
        "name": _text(_mapping(pod, "metadata").get("name")),
        "reason": reason,
        "message": message,
    }


def _condition(item: dict[str, Any], now: float) -> dict[str, Any]:
    keys = ("type", "status", "reason", "message", "lastTransitionTime")
    found: dict[str, Any] = {key: _text(item.get(key)) for key in keys}
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
            "type": _text(event.get("type")),
            "reason": _text(event.get("reason")),
            "object": "/".join(
                _text(_mapping(event, "involvedObject").get(key)) for key in ("kind", "name")
            ),
            "message": _text(event.get("message")),
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
    return _text(series or event.get("lastTimestamp") or event.get("eventTime") or created)


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


def _text(value: Any) -> str:
    """Foreign text on one line, without anything a terminal would obey."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " for c in text)
