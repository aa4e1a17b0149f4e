"""I3, I4, I11 and I15: gangs are whole, in one domain, asked for us, and told about as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpusched.testing.invariants.model import (
    RECOVERY_S,
    SUB_GROUP_LABEL,
    Finding,
    Obj,
    counts,
    holds,
    is_ours,
    is_over,
    label,
    members,
    name_of,
    node_of,
    scheduled_at,
)

_STARTED: Final = ("Running", "Unknown", "Completed")
_HOST: Final = "kubernetes.io/hostname"
Levels = Mapping[str, tuple[str, ...]]
"""Of each level its node label, after those of all wider levels."""


def atomic(group: Obj, mine: Sequence[Obj], now: float | None) -> Iterator[Finding]:
    """I3: no gang is bound in part for longer than the recovery time.

    Args:
        group: the PodGroup.
        mine: its pods.
        now: seconds since the epoch; None for no patience.
    """
    needed = group["spec"].get("minMember", 1)
    count = sum(1 for pod in mine if counts(pod))
    live = [pod for pod in mine if holds(pod)]
    started = (group.get("status") or {}).get("phase") in _STARTED
    if not live or count >= needed or started:
        return
    since = min(scheduled_at(pod) for pod in live)
    if now is None or now - since > RECOVERY_S:
        name = group["metadata"]["name"]
        yield _of(group, "I3", f"{count} of {needed} pods of PodGroup {name} are bound")


def levels(topologies: Sequence[Obj]) -> dict[str, tuple[str, ...]]:
    """Levels by name; of several Topologies with one name of a level the first by its own name."""
    found: dict[str, tuple[str, ...]] = {}
    for topology in sorted(topologies, key=lambda each: str(each["metadata"]["name"])):
        wider: tuple[str, ...] = ()
        for each in topology["spec"].get("levels") or ():
            wider = (*wider, each["nodeLabel"])
            found.setdefault(each["name"], wider)
    return found


def together(
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
            node = nodes.get(node_of(pod))
            if node is None or not (is_ours(pod) and holds(pod)):
                continue
            if part and label(pod, SUB_GROUP_LABEL) != part:
                continue
            values = tuple(label(node, key) for key in keys)
            if all(values):
                domains.setdefault(values, node_of(pod))
        if len(domains) > 1:
            where = " and ".join(sorted(domains.values())[:2])
            what = f"sub-group {part} of PodGroup" if part else "PodGroup"
            name = group["metadata"]["name"]
            yield _of(group, "I4", f"{what} {name} requires one {level} and has pods on {where}")


def ours(pod: Obj, schedulers: Sequence[str]) -> Iterator[Finding]:
    """I11: we bind pods that ask for us, and none that is gated."""
    if not is_ours(pod):
        return
    name = name_of(pod)
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


def honest(group: Obj, mine: Sequence[Obj]) -> Iterator[Finding]:
    """I15: what runs has its minimum; who waits has a reason and a sentence."""
    name = group["metadata"]["name"]
    conditions = (group.get("status") or {}).get("conditions") or []
    for each in conditions:
        if not (each.get("reason") and each.get("message")):
            yield _of(group, "I15", f"condition {each.get('type')} of {name} does not say why")
    said = next((each for each in conditions if each.get("type") == "Scheduled"), None)
    if said is None or said["status"] != "True":
        return
    # Members that ended or were deleted since have been there: only waiting ones betray.
    waiting = [pod for pod in mine if not node_of(pod) and not is_over(pod)]
    count = sum(1 for pod in mine if node_of(pod))
    lacks = waiting and count < group["spec"].get("minMember", 1)
    if lacks and (group.get("status") or {}).get("phase") == "Running":
        yield _of(group, "I15", f"{name} is said to run with {count} pods bound")


def of_gangs(
    pods: Sequence[Obj],
    groups: Sequence[Obj],
    *,
    nodes: Sequence[Obj],
    topologies: Sequence[Obj],
    now: float | None,
) -> Iterator[Finding]:
    """I3, I4 and I15 of every PodGroup."""
    by_group, known = members(pods), levels(topologies)
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for group in groups:
        mine = by_group.get(name_of(group), [])
        yield from atomic(group, mine, now)
        yield from together(group, mine, by_name, known)
        yield from honest(group, mine)


def _of(group: Obj, invariant: str, sentence: str) -> Finding:
    return Finding(invariant=invariant, kind="PodGroup", name=name_of(group), sentence=sentence)
