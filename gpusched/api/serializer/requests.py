"""The only writer of request bodies: entities and decisions in, JSON bytes out.

Every write names the UID it means, so that an object made again under the same name is never
touched. Patches hold only what differs from what the API showed last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpusched import API_VERSION
from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.identity import (
    UID,
    ObjectKey,
    ResourceVersion,
    format_micro_time,
    format_time,
)
from gpusched.base import limits
from gpusched.base.classes import frozen

CONTROLLER: Final = "gpusched"
REASON: Final = "gpusched.io/reason"
"""On events: the contract's reason why something waits."""
UNSCHEDULABLE: Final = "Unschedulable"
"""The reason by which autoscalers know a pod that more nodes would help."""
EVENT_NAMESPACE: Final = "default"
"""Where events about cluster-scoped objects go: the API server accepts no other."""
API_VERSIONS: Final = {
    "PodGroup": API_VERSION,
    "Queue": API_VERSION,
    "Topology": API_VERSION,
    "Reservation": API_VERSION,
    "Job": "batch/v1",
    "Lease": "coordination.k8s.io/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
}
_NAME_MAX: Final = 200
_json = msgspec.json.Encoder()


@frozen(slots=True)
class ObjectRef:
    """What an event is about."""

    kind: str
    key: ObjectKey
    uid: UID
    api_version: str = ""
    """Empty for the usual one of its kind."""

    @property
    def event_namespace(self) -> str:
        """Namespace of its events."""
        return self.key.namespace or EVENT_NAMESPACE


@frozen(slots=True, kw_only=True)
class EventNote:
    """One thing to tell about an object.

    Attributes:
        type: Normal or Warning.
        reason: one CamelCase word.
        action: what we were doing, one CamelCase word; the API insists on it.
        note: a sentence; cut at 1,024 bytes.
        why: reason of the contract where ``reason`` is another, for whom no condition tells it: a
            suspended Job. It goes into the annotation ``gpusched.io/reason``.
    """

    regarding: ObjectRef
    type: str
    reason: str
    action: str
    note: str
    why: str = ""

    @property
    def name(self) -> str:
        """The same for the same object, reason and note: a repeat meets the first one."""
        ref = self.regarding
        content = "\0".join((ref.uid, ref.kind, *ref.key, self.reason, self.note))
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        return f"{ref.key.name[:_NAME_MAX].rstrip('.-')}.{digest}"


def clip_text(text: str, size: int = limits.TEXT_MAX) -> str:
    """``text`` on one line, cut to so many bytes of UTF-8, which is how the API server measures it.

    Whatever users wrote into names and annotations may stand in it: what a terminal would obey,
    and what turns the direction of writing, is spelled out.
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return text
    return raw[: size - 3].decode("utf-8", "ignore") + "..."


def binding_body(
    key: ObjectKey,
    uid: UID,
    *,
    node: str,
    slots: int,
    rank: int,
    plan: str,
    fence: str,
    proof: str = "",
    seal: str = "",
    charged: str = "",
    numa: str | None = None,
) -> bytes:
    """A Binding; its annotations reach the pod in the same write as the node's name.

    All that are ours are written, empty where there is nothing to say: a Binding replaces
    annotations and cannot remove them, and what was written there before must not outlive it.

    Args:
        key: of the pod.
        uid: of the pod; the server refuses another.
        node: by name.
        slots: bitmask, 0 for none.
        rank: index inside the gang; -1 for none.
        plan: id of the decision.
        fence: ``holder/transitions`` of our leadership.
        proof: how good the gang's places are; empty when nothing is known.
        seal: over all that is read back from here, see ``api.serializer.seal``.
        charged: the record of who pays for it; empty where it says so itself.
        numa: NUMA nodes of the devices of its claims, empty for none known; None without claims.
    """
    annotations = {
        "gpusched.io/charged": charged,
        "gpusched.io/fence": fence,
        "gpusched.io/plan": plan,
        "gpusched.io/proof": proof,
        "gpusched.io/rank": str(rank) if rank >= 0 else "",
        "gpusched.io/seal": seal,
        "gpusched.io/slots": format_slots(slots),
    }
    if numa is not None:
        annotations["gpusched.io/numa"] = numa
    return _json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "uid": uid,
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )


def eviction_body(key: ObjectKey, uid: UID, *, fence: str) -> bytes:
    """An Eviction of exactly this pod; the fence is there for an admission policy."""
    return _json.encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "annotations": {"gpusched.io/fence": fence},
            },
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
    )


def pod_unscheduled_patch(
    uid: UID,
    version: ResourceVersion,
    *,
    reason: str,
    message: str,
    since: float | None,
    withdraw: bool = False,
) -> bytes:
    """A strategic merge patch of pods/status: PodScheduled is False, and why.

    Args:
        uid: of the pod.
        version: of the pod as last seen: a pod bound meanwhile must not be called unscheduled.
        reason: ``Unschedulable`` or one of the contract's.
        message: cut at 1,024 bytes.
        since: seconds since the epoch when the condition is new; None keeps the time it has.
        withdraw: whether a node that was promised to it is promised no more.
    """
    condition: dict[str, object] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": clip_text(message),
    }
    if since is not None:
        condition["lastTransitionTime"] = format_time(since)
    status: dict[str, object] = {"conditions": [condition]}
    if withdraw:
        status["nominatedNodeName"] = None
    return _json.encode({"metadata": {"uid": uid, "resourceVersion": version}, "status": status})


@frozen(slots=True, kw_only=True)
class ConditionUpdate:
    """One condition as it should be; when it last changed is found out when writing."""

    type: str
    holds: bool
    reason: str
    message: str
    generation: int


def status_patch(
    uid: UID,
    current: bytes,
    fields: Mapping[str, object],
    *,
    says: Sequence[ConditionUpdate],
    now: float,
) -> bytes | None:
    """A merge patch of the status of one of our own kinds; None when it says so already.

    Args:
        uid: of the object.
        current: its status as last seen, JSON.
        fields: what we write; None removes a field, mappings are written as a whole.
        says: all conditions of ours. Those of other types stay as they are.
        now: seconds since the epoch, the time of conditions that change.
    """
    known = msgspec.json.decode(current)
    conditions = _conditions(known.get("conditions") or [], says, now)
    return merge_status(uid, known, fields, conditions)


def merge_status(
    uid: UID,
    known: Mapping[str, object],
    fields: Mapping[str, object],
    conditions: Sequence[Mapping[str, object]] | None,
) -> bytes | None:
    """A merge patch of a status; None when it says so already.

    Args:
        uid: of the object.
        known: its status as last seen.
        fields: what we write; None removes a field, mappings are written as a whole.
        conditions: all of them as they shall be; None leaves them as they are.
    """
    patch: dict[str, object] = {}
    for name, value in fields.items():
        before = known.get(name)
        if value == before:
            continue
        if isinstance(value, Mapping) and isinstance(before, dict):
            # A merge patch joins mappings, so what goes must be named.
            patch[name] = {key: value.get(key) for key in sorted({*before, *value})}
        else:
            patch[name] = value
    if conditions is not None and conditions != known.get("conditions"):
        patch["conditions"] = conditions
    if not patch:
        return None
    return _json.encode({"metadata": {"uid": uid}, "status": patch})


def _conditions(
    known: list[dict[str, object]], says: Sequence[ConditionUpdate], now: float
) -> list[dict[str, object]]:
    """In the order they have, new ones last; the time stays while the status does."""
    wanted = {say.type: say for say in says}
    out = []
    for old in known:
        say = wanted.pop(str(old.get("type")), None)
        out.append(old if say is None else _condition(say, old, now))
    out.extend(_condition(say, {}, now) for say in wanted.values())
    return out


def _condition(say: ConditionUpdate, old: Mapping[str, object], now: float) -> dict[str, object]:
    status = "True" if say.holds else "False"
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    return {
        "type": say.type,
        "status": status,
        "observedGeneration": say.generation,
        "lastTransitionTime": since or format_time(now),
        "reason": say.reason,
        "message": clip_text(say.message),
    }


def event_body(note: EventNote, *, instance: str, now: float) -> bytes:
    """A new events.k8s.io/v1 Event.

    Args:
        note: what to tell.
        instance: which process tells it.
        now: seconds since the epoch.
    """
    ref = note.regarding
    regarding = {
        "apiVersion": ref.api_version or API_VERSIONS.get(ref.kind, "v1"),
        "kind": ref.kind,
        "name": ref.key.name,
        "uid": ref.uid,
    }
    if ref.key.namespace:
        regarding["namespace"] = ref.key.namespace
    meta: dict[str, object] = {"name": note.name, "namespace": ref.event_namespace}
    if note.why:
        meta["annotations"] = {REASON: note.why}
    return _json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": meta,
            "eventTime": format_micro_time(now),
            "reportingController": CONTROLLER,
            "reportingInstance": instance[:128] or CONTROLLER,
            "action": note.action,
            "reason": note.reason,
            "regarding": regarding,
            "note": clip_text(note.note),
            "type": note.type,
        }
    )


def event_series_patch(*, count: int, now: float) -> bytes:
    """A merge patch of an Event that was told again, so often in all."""
    return _json.encode({"series": {"count": count, "lastObservedTime": format_micro_time(now)}})
