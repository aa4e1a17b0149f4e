"""I15 of what waits: each pod and each PodGroup has a current reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpusched.api.meta.identity import parse_time
from gpusched.testing.invariants.model import (
    Finding,
    Obj,
    bound_node,
    is_over,
    members_by_group,
    object_name,
)

TOLD_WITHIN_S: Final = 60.0
"""Seconds after its creation within which an object needs no reason yet."""


def waits_for_us(pod: Obj, schedulers: Sequence[str]) -> bool:
    """Whether it waits for us: it asks for us, has no node, no gate, and is not on its way out."""
    return (
        pod["spec"].get("schedulerName") in schedulers
        and not bound_node(pod)
        and not pod["spec"].get("schedulingGates")
        and not pod["metadata"].get("deletionTimestamp")
        and not is_over(pod)
    )


def pod_reason_findings(pod: Obj) -> Iterator[Finding]:
    """A pod that waits has a condition with a reason and a sentence."""
    said = _condition(pod, "PodScheduled")
    reason, message = said.get("reason"), said.get("message")
    if said.get("status") == "False" and reason and message and reason != "SchedulingGated":
        return
    name = object_name(pod)
    yield Finding(
        invariant="I15",
        kind="Pod",
        name=name,
        sentence=f"pod {name} waits and is not told why",
    )


def group_reason_findings(group: Obj, waiting: Sequence[Obj]) -> Iterator[Finding]:
    """A PodGroup has a condition Scheduled; where members wait, one that knows its present spec.

    Args:
        group: the PodGroup.
        waiting: its pods that wait.
    """
    name, said = object_name(group), _condition(group, "Scheduled")
    if not (said.get("reason") and said.get("message")):
        yield _group_finding(name, f"PodGroup {name} is not told whether it starts")
        return
    seen, now = said.get("observedGeneration"), group["metadata"].get("generation")
    if waiting and isinstance(seen, int) and isinstance(now, int) and seen < now:
        yield _group_finding(
            name, f"PodGroup {name} waits with a reason for generation {seen}, it is at {now}"
        )


def wait_reason_findings(
    pods: Sequence[Obj],
    groups: Sequence[Obj],
    *,
    schedulers: Sequence[str],
    now: float | None,
) -> Iterator[Finding]:
    """I15 of all gangs that wait for longer than ``TOLD_WITHIN_S``.

    Args:
        pods: as the API lists them.
        groups: PodGroups, as the API lists them.
        schedulers: names under which we place pods.
        now: seconds since the epoch; None for no patience.
    """
    waiting = [pod for pod in pods if waits_for_us(pod, schedulers)]
    for pod in waiting:
        if _is_old(pod, now):
            yield from pod_reason_findings(pod)
    by_group = members_by_group(waiting)
    for group in groups:
        if _is_old(group, now) and not group["metadata"].get("deletionTimestamp"):
            yield from group_reason_findings(group, by_group.get(object_name(group), ()))


def _is_old(obj: Obj, now: float | None) -> bool:
    created = parse_time(obj["metadata"].get("creationTimestamp") or "")
    return now is None or now - created > TOLD_WITHIN_S


def _condition(obj: Obj, kind: str) -> Mapping[str, Any]:
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            found: Mapping[str, Any] = each
            return found
    return {}


def _group_finding(name: str, sentence: str) -> Finding:
    return Finding(invariant="I15", kind="PodGroup", name=name, sentence=sentence)
