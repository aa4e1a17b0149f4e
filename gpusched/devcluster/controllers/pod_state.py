"""What a pod's metadata and status say about it; half-filled objects say as little as they can."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpusched.devcluster.apimachinery.times import parse_time

Obj = dict[str, Any]


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference of the controlling owner, if any."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None


def pod_phase(pod: Obj) -> str:
    """Return a pod's phase, Pending when it has none."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: Obj) -> bool:
    """Whether the pod has ended by itself."""
    return pod_phase(pod) in {"Succeeded", "Failed"}


def is_deleting(pod: Obj) -> bool:
    """Whether the pod is marked for deletion."""
    return "deletionTimestamp" in pod["metadata"]


def is_active(pod: Obj) -> bool:
    """Whether the pod does or will do work."""
    return not is_terminal(pod) and not is_deleting(pod)


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def ready_since(pod: Obj) -> str | None:
    """When the pod became Ready, as its condition says; None when it is not or does not say."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            since: str | None = condition.get("lastTransitionTime")
            return since
    return None


def available_in(pod: Obj, least_ready_s: int, now: float) -> float | None:
    """Seconds until a ready pod counts as available, not above 0 when it does; else None."""
    if not is_ready(pod):
        return None
    if not least_ready_s:
        return 0.0
    since = ready_since(pod)
    return parse_time(since) + least_ready_s - now if since else None


def ended_at(pod: Obj, now: float) -> float:
    """When the pod's work ended, in epoch seconds, as well as the pod tells; never after now.

    Its containers' ends count most, then the end of its readiness, its deletion, its creation.
    """
    status, metadata = pod.get("status") or {}, pod["metadata"]
    containers = status.get("containerStatuses") or ()
    states = [(container.get("state") or {}).get("terminated") or {} for container in containers]
    ends = [end for state in states if (end := state.get("finishedAt"))]
    unready = [
        c.get("lastTransitionTime")
        for c in status.get("conditions") or ()
        if c.get("type") == "Ready" and c.get("status") == "False"
    ]
    texts = ends or [text for text in unready if text]
    texts = texts or [metadata.get("deletionTimestamp") or metadata.get("creationTimestamp")]
    return min(max((parse_time(text) for text in texts if text), default=now), now)


def restart_count(pods: Iterable[Obj]) -> int:
    """Container restarts of pods, which count as failures where pods are restarted in place."""
    total = 0
    for pod in pods:
        status = pod.get("status") or {}
        for key in ("initContainerStatuses", "containerStatuses"):
            total += sum(container.get("restartCount", 0) for container in status.get(key) or ())
    return total
