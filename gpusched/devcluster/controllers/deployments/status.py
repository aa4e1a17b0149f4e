"""What a Deployment's status says of its replica sets, and whether a rollout still progresses.

NewReplicaSetCreated --> ReplicaSetUpdated --> NewReplicaSetAvailable
             (no progress for progressDeadlineSeconds) --> ProgressDeadlineExceeded
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.devcluster.apimachinery.times import parse_time, rfc3339
from gpusched.devcluster.controllers.deployments.rollout_sizes import (
    max_unavailable,
    total_reported,
    total_wanted,
    wanted_replicas,
)
from gpusched.devcluster.controllers.pod_state import Obj

PROGRESSING: Final = "Progressing"
COMPLETE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
_NO_DEADLINE: Final = 2**31 - 1


def find_condition(status: Obj | None, kind: str) -> Obj | None:
    """The condition of a type, None when there is none."""
    for one in (status or {}).get("conditions") or ():
        if one["type"] == kind:
            found: Obj = one
            return found
    return None


def new_condition(kind: str, status: str, reason: str, message: str, *, now: float) -> Obj:
    """A condition that begins now."""
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
        "reason": reason,
        "message": message,
    }


def set_condition(status: Obj, fresh: Obj) -> None:
    """Set a condition, in place; the same status and reason as before changes nothing."""
    have = find_condition(status, fresh["type"])
    if have is not None and have["status"] == fresh["status"]:
        if have.get("reason") == fresh["reason"]:
            return
        fresh = {**fresh, "lastTransitionTime": have.get("lastTransitionTime")}
    remove_condition(status, fresh["type"])
    status["conditions"] = [*(status.get("conditions") or ()), fresh]


def remove_condition(status: Obj, kind: str) -> None:
    """Take a condition away, in place."""
    left = [one for one in status.get("conditions") or () if one["type"] != kind]
    status.pop("conditions", None)
    if left:
        status["conditions"] = left


def has_deadline(deployment: Obj) -> bool:
    """Tell whether a rollout may be too slow."""
    return bool(deployment["spec"].get("progressDeadlineSeconds", _NO_DEADLINE) != _NO_DEADLINE)


def status_of(deployment: Obj, sets: Sequence[Obj], newest: Obj | None, *, now: float) -> Obj:
    """Counts and availability; other conditions are those it has."""
    before = deployment.get("status") or {}
    fresh = [] if newest is None else [newest]
    available = total_reported(sets, "availableReplicas")
    counts = {
        "replicas": total_reported(sets),
        "updatedReplicas": total_reported(fresh),
        "readyReplicas": total_reported(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(total_wanted(sets) - available, 0),
    }
    status: Obj = {"observedGeneration": deployment["metadata"].get("generation", 0)}
    status.update({key: number for key, number in counts.items() if number})
    known = ["terminatingReplicas" in (one.get("status") or {}) for one in sets]
    if all(known):
        status["terminatingReplicas"] = total_reported(sets, "terminatingReplicas")
    for key in ("collisionCount", "conditions"):
        if key in before:
            status[key] = before[key]
    enough = available >= wanted_replicas(deployment) - max_unavailable(deployment)
    set_condition(
        status,
        new_condition(
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            now=now,
        ),
    )
    return status


def is_complete(deployment: Obj, status: Obj) -> bool:
    """Tell whether every pod is of the current template, and available, and no other is left."""
    replicas = wanted_replicas(deployment)
    keys = ("updatedReplicas", "replicas", "availableReplicas")
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return seen and all(status.get(key, 0) == replicas for key in keys)


def judge_progress(deployment: Obj, status: Obj, newest: Obj | None, *, now: float) -> None:
    """Bring the Progressing condition up to date, in place."""
    before = deployment.get("status") or {}
    if not has_deadline(deployment):
        remove_condition(status, PROGRESSING)
        return
    have = find_condition(before, PROGRESSING)
    done = have is not None and have.get("reason") == COMPLETE
    if done and status.get("replicas", 0) == status.get("updatedReplicas", 0):
        return
    subject = f'Deployment "{deployment["metadata"]["name"]}"'
    if newest is not None:
        subject = f'ReplicaSet "{newest["metadata"]["name"]}"'
    if is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        set_condition(status, new_condition(PROGRESSING, "True", COMPLETE, message, now=now))
    elif _progressed(before, status):
        message = f"{subject} is progressing."
        fresh = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now=now)
        if have is not None:
            if have["status"] == "True":
                fresh["lastTransitionTime"] = have.get("lastTransitionTime")
            remove_condition(status, PROGRESSING)
        set_condition(status, fresh)
    elif _timed_out(deployment, status, now):
        message = f"{subject} has timed out progressing."
        set_condition(status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now=now))


def _progressed(before: Obj, status: Obj) -> bool:
    """Tell whether more pods are updated, ready or available, or fewer are old, than before."""

    def old(one: Obj) -> int:
        return int(one.get("replicas", 0)) - int(one.get("updatedReplicas", 0))

    keys = ("updatedReplicas", "readyReplicas", "availableReplicas")
    more = any(status.get(key, 0) > before.get(key, 0) for key in keys)
    return more or old(status) < old(before)


def _timed_out(deployment: Obj, status: Obj, now: float) -> bool:
    have = find_condition(status, PROGRESSING)
    if have is None or have.get("reason") == COMPLETE:
        return False
    if have.get("reason") == TIMED_OUT:
        return True
    since = have.get("lastUpdateTime")
    return since is not None and _deadline(deployment, since) < now


def _deadline(deployment: Obj, since: str) -> float:
    return parse_time(since) + int(deployment["spec"]["progressDeadlineSeconds"])


def seconds_to_deadline(deployment: Obj, status: Obj, *, now: float) -> float | None:
    """Seconds until a rollout without progress is too slow; None when it cannot be."""
    have = find_condition(status, PROGRESSING)
    if not has_deadline(deployment) or have is None or is_complete(deployment, status):
        return None
    since = have.get("lastUpdateTime")
    if not since or have.get("reason") in {TIMED_OUT, COMPLETE}:
        return None
    return max(_deadline(deployment, since) - now, 0.0) + 1.0


def replica_failure(sets: Sequence[Obj], newest: Obj | None) -> Obj | None:
    """Why pods cannot be made: of the newest set first, then of any other."""
    for one in ([] if newest is None else [newest], sets):
        for owner in one:
            have = find_condition(owner.get("status"), "ReplicaFailure")
            if have is not None:
                begun = have.get("lastTransitionTime")
                return {
                    "type": "ReplicaFailure",
                    "status": have["status"],
                    "lastUpdateTime": begun,
                    "lastTransitionTime": begun,
                    "reason": have.get("reason", ""),
                    "message": have.get("message", ""),
                }
    return None
