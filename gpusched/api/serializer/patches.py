"""Bodies of the writes that make room: promises, disruption conditions, Jobs paused and started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpusched.api.gang.eviction_record import (
    EVICTIONS,
    GangEvictions,
    format_evictions,
    wire_evictions,
)
from gpusched.api.gang.move_record import MOVED
from gpusched.api.gang.turn_record import TURN, TurnRecord, format_turn
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion, format_time
from gpusched.api.pod.pod import GANG_WHOLE
from gpusched.api.serializer.requests import clip_text

DISRUPTION: Final = "DisruptionTarget"
BY_SCHEDULER: Final = "PreemptionByScheduler"
"""The reason that a Job's ``podFailurePolicy`` knows."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation that tells a provisioner on which node a volume is to be used."""
_json = msgspec.json.Encoder()


def nomination_patch(
    uid: UID,
    version: ResourceVersion,
    *,
    node: str,
    reason: str,
    message: str,
    since: float,
) -> bytes:
    """A strategic merge patch of pods/status: room on a node is promised from now on.

    Args:
        uid: of the pod.
        version: of the pod as last seen: one that was bound meanwhile is promised nothing.
        node: by name.
        reason: of PodScheduled=False, by which the promise is known.
        message: cut at 1,024 bytes.
        since: seconds since the epoch when the promise was made.
    """
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": clip_text(message),
        "lastTransitionTime": format_time(since),
    }
    return _json.encode(
        {
            "metadata": {"uid": uid, "resourceVersion": version},
            "status": {"nominatedNodeName": node, "conditions": [condition]},
        }
    )


def disruption_patch(uid: UID, *, message: str, since: float) -> bytes:
    """A strategic merge patch of pods/status: the pod is about to be evicted, and why."""
    condition = {
        "type": DISRUPTION,
        "status": "True",
        "reason": BY_SCHEDULER,
        "message": clip_text(message),
        "lastTransitionTime": format_time(since),
    }
    return _json.encode({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})


def gang_whole_patch(
    uid: UID, version: ResourceVersion, *, lost: str, reason: str, now: float
) -> bytes:
    """A strategic merge patch of pods/status: whether the gang of a bound pod has its minimum.

    Args:
        uid: of the pod.
        version: as last seen: what a paused leader was about to say replaces nothing.
        lost: what the gang lacks; empty when it is whole again.
        reason: of the condition while it lacks something.
        now: seconds since the epoch, from when it is so.
    """
    condition = {
        "type": GANG_WHOLE,
        "status": "False" if lost else "True",
        "reason": reason if lost else "Whole",
        "message": clip_text(lost) if lost else "its gang is whole again",
        "lastTransitionTime": format_time(now),
    }
    metadata = {"uid": uid, "resourceVersion": version}
    return _json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def job_suspend_patch(
    uid: UID,
    version: ResourceVersion,
    *,
    suspend: bool,
    parallelism: int | None,
    node_selector: Sequence[tuple[str, str]],
    annotations: Sequence[tuple[str, str]],
) -> bytes:
    """A merge patch of a Job that pauses or starts it.

    Args:
        uid: of the Job.
        version: as last seen: a write in between may have meant otherwise.
        suspend: what it becomes.
        parallelism: what that becomes too; None leaves it.
        node_selector: added to its pod template.
        annotations: set on the Job; an empty value removes one.
    """
    spec: dict[str, object] = {"suspend": suspend}
    if parallelism is not None:
        spec["parallelism"] = parallelism
    if node_selector:
        spec["template"] = {"spec": {"nodeSelector": dict(node_selector)}}
    metadata: dict[str, object] = {"uid": uid, "resourceVersion": version}
    if annotations:
        metadata["annotations"] = {name: value or None for name, value in annotations}
    return _json.encode({"metadata": metadata, "spec": spec})


def selected_node_patch(uid: UID, version: ResourceVersion, *, node: str) -> bytes:
    """A merge patch of a claim: the node of the first pod that uses it."""
    metadata = {"uid": uid, "resourceVersion": version, "annotations": {SELECTED_NODE: node}}
    return _json.encode({"metadata": metadata})


def volume_claim_ref_patch(
    uid: UID, version: ResourceVersion, *, claim: ObjectKey, claim_uid: UID
) -> bytes:
    """A merge patch of a volume: it is for this claim.

    Args:
        uid: of the volume.
        version: as last seen: one that was given to another claim meanwhile is not taken away.
        claim: for which it is.
        claim_uid: of that claim.
    """
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim_uid,
    }
    metadata = {"uid": uid, "resourceVersion": version}
    return _json.encode({"metadata": metadata, "spec": {"claimRef": reference}})


def turn_record_patch(uid: UID, turn: TurnRecord, *, seal: str, on_job: bool) -> bytes:
    """A merge patch of a Job or of a PodGroup's status: turns that the gang has had.

    Args:
        uid: of the object.
        turn: the record.
        seal: over it; only an annotation needs one.
        on_job: whether it is an annotation of a Job.
    """
    metadata: dict[str, object] = {"uid": uid}
    if on_job:
        metadata["annotations"] = {TURN: format_turn(turn, seal=seal)}
        return _json.encode({"metadata": metadata})
    told = {"ended": format_time(turn.ended), "seconds": turn.seconds}
    return _json.encode({"metadata": metadata, "status": {"turn": told}})


def evictions_patch(uid: UID, record: GangEvictions, *, seal: str, on_job: bool) -> bytes:
    """A merge patch of a Job or of a PodGroup's status: the last evictions of the gang.

    Args:
        uid: of the object.
        record: the evictions.
        seal: over it; only an annotation needs one.
        on_job: whether it is an annotation of a Job.
    """
    metadata: dict[str, object] = {"uid": uid}
    if on_job:
        metadata["annotations"] = {EVICTIONS: format_evictions(record, seal=seal)}
        return _json.encode({"metadata": metadata})
    return _json.encode({"metadata": metadata, "status": {"evictions": wire_evictions(record)}})


def move_record_patch(uid: UID, text: str, *, on_status: bool) -> bytes:
    """A merge patch of a PodGroup's status or of a Job: where it is moved to.

    It names no version: the status is written meanwhile, and no other writer writes the record.

    Args:
        uid: of the object.
        text: the record; empty takes it off.
        on_status: whether it is a field of the status, else an annotation.
    """
    metadata: dict[str, object] = {"uid": uid}
    if on_status:
        return _json.encode({"metadata": metadata, "status": {"moved": text or None}})
    metadata["annotations"] = {MOVED: text or None}
    return _json.encode({"metadata": metadata})
