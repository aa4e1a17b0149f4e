"""I3, I4, I11 and I15: gangs are whole, in one domain, asked for us, and told about as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpusched.testing.invariants.model import (
    RECOVERY_S,
    SUB_GROUP_LABEL,
    Finding,
    Obj,
    bound_node,
    counts_for_minimum,
    holds_room,
    is_ours,
    is_over,
    label_value,
    members_by_group,
    object_name,
    scheduled_at,
)

_STARTED: Final = ("Running", "Unknown", "Completed")
_HOST: Final = "kubernetes.io/hostname"
Levels = Mapping[str, tuple[str, ...]]
"""Of each level its node label, after those of all wider levels."""


def partially_bound_gangs(group: Obj, mine: Sequence[Obj], now: float | None) -> Iterator[Finding]:
    """I3: no gang is bound in part for longer than the recovery time.

    Args:
        group: the PodGroup.
        mine: its pods.
        now: seconds since the epoch; None for no patience.
    """
    needed = group["spec"].get("minMember", 1)
    count = sum(1 for pod in mine if counts_for_minimum(pod))
    live = [pod for pod in mine if holds_room(pod)]
    started = (group.get("status") or {}).get("phase") in _STARTED
    if not live or count >= needed or started:
        return
    since = min(scheduled_at(pod) for pod in live)
    if now is None or now - since > RECOVERY_S:
        name = group["metadata"]["name"]
        yield _group_finding(group, "I3", f"{count} of {needed} pods of PodGroup {name} are bound")


def topology_levels(topologies: Sequence[Obj]) -> dict[str, tuple[str, ...]]:
    """Levels by name; of several Topologies with one name of a level the first by its own name."""
    found: dict[str, tuple[str, ...]] = {}
    for topology in sorted(topologies, key=lambda each: str(each["metadata"]["name"])):
        wider: tuple[str, ...] = ()
        for each in topology["spec"].get("levels") or ():
            wider = (*wider, each["nodeLabel"])
            found.setdefault(each["name"], wider)
    return found


def split_gangs(
    group: Obj, mine: Sequence[Obj], nodes: Mapping[str, Obj], known: Levels
) -> Iterator[Finding]:
    """I4: pods that we bound are in one domain of the level that is required.

    Args:
        group: the PodGroup, whose sub-groups may require a level of their own.
        mine: its pods.
        nodes: by name; pods on nodes that are gone or not labelled prove nothing.
        known: see ``levels``; a level that is not there proves nothing.
    """
    spec = group["spec"]
    wishes = [("", (spec.get("topology") or {}).get("required"))]
    wishes += [
        (part["name"], (part.get("topology") or {}).get("required"))
        for part in spec.get("subGroups") or ()
    ]
    for part, level in wishes:
        keys = known.get(level or "")
        if keys is None:
            continue
        domains: dict[tuple[str, ...], str] = {}
        for pod in mine:
            node = nodes.get(bound_node(pod))
            if node is None or not (is_ours(pod) and holds_room(pod)):
                continue
            if pod["metadata"].get("deletionTimestamp"):
                continue  # it ends: pods that take its place may be in another domain
            if part and label_value(pod, SUB_GROUP_LABEL) != part:
                continue
            values = tuple(label_value(node, key) for key in keys)
            if all(values):
                domains.setdefault(values, bound_node(pod))
        if len(domains) > 1:
            where = " and ".join(sorted(domains.values())[:2])
            what = f"sub-group {part} of PodGroup" if part else "PodGroup"
            name = group["metadata"]["name"]
            yield _group_finding(
                group, "I4", f"{what} {name} requires one {level} and has pods on {where}"
            )


def unrequested_binds(pod: Obj, schedulers: Sequence[str]) -> Iterator[Finding]:
    """I11: we bind pods that ask for us, and none that is gated."""
    if not is_ours(pod):
        return
    name = object_name(pod)
    if pod["spec"].get("schedulerName") not in schedulers:
        yield Finding(
            invariant="I11",
            kind="Pod",
            name=name,
            sentence=f"pod {name} was placed and does not ask for us",
        )
    if pod["spec"].get("schedulingGates"):
        yield Finding(
            invariant="I11",
            kind="Pod",
            name=name,
            sentence=f"pod {name} was placed through its gate",
        )


def dishonest_statuses(group: Obj, mine: Sequence[Obj]) -> Iterator[Finding]:
    """I15: what runs has its minimum; a gang that waits has a reason and a message."""
    name = group["metadata"]["name"]
    conditions = (group.get("status") or {}).get("conditions") or []
    for each in conditions:
        if not (each.get("reason") and each.get("message")):
            yield _group_finding(
                group, "I15", f"condition {each.get('type')} of {name} does not say why"
            )
    said = next((each for each in conditions if each.get("type") == "Scheduled"), None)
    if said is None or said["status"] != "True":
        return
    # Members that ended or were deleted since have been there: only waiting ones betray.
    waiting = [pod for pod in mine if not bound_node(pod) and not is_over(pod)]
    count = sum(1 for pod in mine if bound_node(pod))
    lacks = waiting and count < group["spec"].get("minMember", 1)
    if lacks and (group.get("status") or {}).get("phase") == "Running":
        yield _group_finding(group, "I15", f"{name} is said to run with {count} pods bound")


def gang_findings(
    pods: Sequence[Obj],
    groups: Sequence[Obj],
    *,
    nodes: Sequence[Obj],
    topologies: Sequence[Obj],
    now: float | None,
) -> Iterator[Finding]:
    """I3, I4 and I15 of every PodGroup."""
    by_group, known = members_by_group(pods), topology_levels(topologies)
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for group in groups:
        mine = by_group.get(object_name(group), [])
        yield from partially_bound_gangs(group, mine, now)
        yield from split_gangs(group, mine, by_name, known)
        yield from dishonest_statuses(group, mine)


def _group_finding(group: Obj, invariant: str, sentence: str) -> Finding:
    return Finding(invariant=invariant, kind="PodGroup", name=object_name(group), sentence=sentence)
