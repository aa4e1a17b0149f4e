"""Queues, PodGroups and Topologies: from the wire to the entity.

The CRDs refuse most of what is refused here; this is the second look, for clusters whose CRDs
are older or whose rules were switched off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.limits import DOMAIN_DEPTH_MAX, GANG_PODS_MAX
from gpusched.objects import wire, wire_groups
from gpusched.objects.codec import KindCodec
from gpusched.objects.fields import (
    check_identity,
    decode_part,
    duration_ns,
    parse_resources,
    quoted,
    uid_of,
    version_of,
)
from gpusched.objects.group import (
    DEFAULT_QUEUE,
    ROOT,
    Condition,
    NodePool,
    PodGroup,
    Queue,
    SubGroup,
    Topology,
    TopologyWish,
    Usage,
)
from gpusched.objects.meta import Disbelief, parse_time
from gpusched.objects.move import parse_move
from gpusched.objects.resources import Resources
from gpusched.objects.rules import parse_selector
from gpusched.objects.selector import EVERYTHING

PENDING: Final = "Pending"
_NO_WISH: Final = TopologyWish()


class UsageStatus(msgspec.Struct, gc=False, rename="camel"):
    """What a queue used of late, in billionths."""

    as_of: str | None = None
    average: dict[str, int] | None = None
    share: dict[str, int] | None = None


class GroupStatus(msgspec.Struct, gc=False):
    """What is read of the status of a group or queue."""

    phase: str | None = None
    state: str | None = None
    conditions: list[wire.Condition] | None = None
    usage: UsageStatus | None = None
    moved: str | None = None


_STATUS: Final = msgspec.json.Decoder(GroupStatus)
_NO_STATUS: Final = GroupStatus()


def queue_of(parsed: wire_groups.Queue) -> Queue:
    """A parsed Queue as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire_groups.QueueSpec()
    check_identity(metadata, namespaced=False)
    parent = spec.parent or ROOT
    if metadata.name == ROOT:
        raise Disbelief("metadata.name", "the queue root exists by itself")
    if parent == metadata.name:
        raise Disbelief("spec.parent", "a queue cannot be its own parent")
    guarantee = parse_resources(
        spec.guarantee.resource if spec.guarantee else None, field="spec.guarantee.resource"
    )
    deserved = parse_resources(spec.deserved, field="spec.deserved")
    capability = parse_resources(spec.capability, field="spec.capability")
    _check_order(guarantee, deserved, field="spec.guarantee", above="deserved")
    _check_order(guarantee, capability, field="spec.guarantee", above="capability")
    _check_order(deserved, capability, field="spec.deserved", above="capability")
    status, canonical = read_status(parsed.status)
    selector = spec.namespace_selector
    return Queue(
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        generation=metadata.generation,
        created=parse_time(metadata.creation_timestamp or ""),
        parent=parent,
        weight=1 if spec.weight is None else spec.weight,
        priority=spec.priority or 0,
        guarantee=guarantee,
        deserved=deserved,
        capability=capability,
        reclaimable=spec.reclaimable is not False,
        ordering=spec.ordering or "Priority",
        stop_policy=spec.stop_policy or "None",
        min_runtime_ns=duration_ns(spec.min_runtime, field="spec.minRuntime"),
        max_runtime_ns=duration_ns(spec.max_runtime, field="spec.maxRuntime"),
        max_wait_ns=duration_ns(spec.max_wait, field="spec.maxWait"),
        namespaces=EVERYTHING
        if selector is None
        else parse_selector(
            selector.match_labels, selector.match_expressions, field="spec.namespaceSelector"
        ),
        node_pools=_node_pools(spec.node_pools),
        conditions=conditions_of(status),
        usage=_usage_of(status.usage),
        status=canonical,
    )


def _usage_of(usage: UsageStatus | None) -> Usage:
    if usage is None or not usage.as_of:
        return Usage()
    return Usage(
        parse_time(usage.as_of),
        tuple(sorted((usage.average or {}).items())),
        tuple(sorted((usage.share or {}).items())),
    )


def _check_order(low: Resources, high: Resources, *, field: str, above: str) -> None:
    for name, amount in low.items:
        if name in high and amount > high.get(name):
            raise Disbelief(field, f"exceeds {above} in {quoted(name)}")


def _node_pools(pools: Iterable[wire_groups.NodePool] | None) -> tuple[NodePool, ...]:
    made: list[NodePool] = []
    for pool in pools or ():
        if any(pool.name == known.name for known in made):
            raise Disbelief("spec.nodePools[].name", f"{quoted(pool.name)} is there twice")
        made.append(
            NodePool(
                name=pool.name,
                node_selector=tuple(sorted((pool.node_selector or {}).items())),
                deserved=parse_resources(pool.deserved, field="spec.nodePools[].deserved"),
                capability=parse_resources(pool.capability, field="spec.nodePools[].capability"),
            )
        )
    return tuple(made)


def group_of(parsed: wire_groups.PodGroup) -> PodGroup:
    """A parsed PodGroup as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire_groups.PodGroupSpec()
    check_identity(metadata, namespaced=True)
    sub_groups = _sub_groups(spec.sub_groups)
    tasks = tuple(sorted((spec.min_task_member or {}).items()))
    min_sub_groups = len(sub_groups) if spec.min_sub_groups is None else spec.min_sub_groups
    if min_sub_groups > len(sub_groups):
        raise Disbelief(
            "spec.minSubGroups", f"asks for {min_sub_groups} of {len(sub_groups)} subGroups"
        )
    status, canonical = read_status(parsed.status)
    return PodGroup(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        generation=metadata.generation,
        created=parse_time(metadata.creation_timestamp or ""),
        queue=spec.queue or DEFAULT_QUEUE,
        min_member=_min_member(spec.min_member, tasks),
        min_task_member=tasks,
        min_resources=parse_resources(spec.min_resources, field="spec.minResources"),
        priority_class=spec.priority_class_name or "",
        preemptible=spec.preemptible,
        sub_groups=sub_groups,
        min_sub_groups=min_sub_groups,
        topology=_wish(spec.topology, field="spec.topology"),
        expected_duration_ns=duration_ns(spec.expected_duration, field="spec.expectedDuration"),
        min_runtime_ns=duration_ns(spec.min_runtime, field="spec.minRuntime"),
        schedule_timeout_ns=duration_ns(spec.schedule_timeout, field="spec.scheduleTimeout"),
        disruption=_disruption_mode(spec.disruption),
        checkpoint_ns=duration_ns(
            spec.disruption.checkpoint_interval if spec.disruption else None,
            field="spec.disruption.checkpointInterval",
        ),
        phase=status.phase or PENDING,
        conditions=conditions_of(status),
        status=canonical,
        deleting=metadata.deletion_timestamp is not None,
        move=parse_move(status.moved),
    )


def _disruption_mode(wish: wire_groups.Disruption | None) -> str:
    mode = (wish.mode if wish else None) or "Pod"
    if mode not in {"Group", "Pod"}:
        raise Disbelief("spec.disruption.mode", f"{quoted(mode)} is neither Group nor Pod")
    return mode


def _min_member(own: int | None, tasks: tuple[tuple[str, int], ...]) -> int:
    """Left out, it is what the roles add up to."""
    by_role = sum(count for _, count in tasks)
    if by_role > GANG_PODS_MAX:
        raise Disbelief(
            "spec.minTaskMember", f"adds up to {by_role:,}, more than {GANG_PODS_MAX:,}"
        )
    if own is None:
        return max(1, by_role)
    if by_role > own:
        raise Disbelief("spec.minTaskMember", f"adds up to {by_role}, more than minMember {own}")
    return own


def _sub_groups(parts: Iterable[wire_groups.SubGroup] | None) -> tuple[SubGroup, ...]:
    made: dict[str, SubGroup] = {}
    for part in parts or ():
        if not part.name or part.name in made:
            raise Disbelief("spec.subGroups[].name", f"{quoted(part.name)} is empty or there twice")
        wish = _wish(part.topology, field="spec.subGroups[].topology")
        made[part.name] = SubGroup(part.name, part.min_member or 1, wish)
    return tuple(made.values())


def _wish(wish: wire_groups.TopologyWish | None, *, field: str) -> TopologyWish:
    if wish is None:
        return _NO_WISH
    return TopologyWish(
        required=wish.required or "",
        preferred=wish.preferred or "",
        max_wait_ns=duration_ns(wish.max_wait, field=f"{field}.maxWait"),
    )


def read_status(raw: msgspec.Raw) -> tuple[GroupStatus, bytes]:
    """What is read of a status, and the whole of it as canonical JSON."""
    status = decode_part(_STATUS, bytes(raw), field="status")
    if status is None:
        return _NO_STATUS, b"{}"
    return status, msgspec.json.encode(msgspec.json.decode(raw), order="sorted")


def conditions_of(status: GroupStatus) -> tuple[Condition, ...]:
    """The conditions that it carries."""
    return tuple(
        Condition(
            type=each.type,
            status=each.status,
            reason=each.reason or "",
            message=each.message or "",
            observed_generation=each.observed_generation,
            transition=parse_time(each.last_transition_time or ""),
        )
        for each in status.conditions or ()
    )


def topology_of(parsed: wire_groups.Topology) -> Topology:
    """A parsed Topology as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    levels = tuple((level.name, level.node_label) for level in parsed.spec.levels)
    if not 1 <= len(levels) <= DOMAIN_DEPTH_MAX:
        raise Disbelief("spec.levels", f"has {len(levels)} levels, not 1 to {DOMAIN_DEPTH_MAX}")
    for part, texts in (("name", {a for a, _ in levels}), ("nodeLabel", {b for _, b in levels})):
        if len(texts) != len(levels) or "" in texts:
            raise Disbelief(f"spec.levels[].{part}", "is empty or there twice")
    return Topology(
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        levels=levels,
        generation=metadata.generation,
        status=_shown(parsed.status),
    )


def _shown(raw: msgspec.Raw) -> bytes:
    """A status that is only written: one that cannot be read is written anew."""
    try:
        return read_status(raw)[1]
    except Disbelief:
        return b"{}"


QUEUES: Final = KindCodec("Queue", wire_type=wire_groups.Queue, entity=queue_of, ours=True)
POD_GROUPS: Final = KindCodec(
    "PodGroup", wire_type=wire_groups.PodGroup, entity=group_of, ours=True
)
TOPOLOGIES: Final = KindCodec(
    "Topology", wire_type=wire_groups.Topology, entity=topology_of, ours=True
)
