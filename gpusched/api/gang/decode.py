"""Queues, PodGroups and Topologies: from the wire to the entity.

The CRDs refuse most of what is refused here; this is the second look, for clusters whose CRDs
are older or whose rules were switched off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.api.affinity.decode import parse_selector
from gpusched.api.affinity.selector import EVERYTHING
from gpusched.api.gang import wire as wire_groups
from gpusched.api.gang.move_record import parse_move
from gpusched.api.gang.pod_group import (
    DEFAULT_QUEUE,
    ROOT_QUEUE,
    Condition,
    NodePool,
    PodGroup,
    Queue,
    QueueUsage,
    SubGroup,
    Topology,
    TopologyRequest,
)
from gpusched.api.meta import wire
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    decode_part,
    parse_duration_ns,
    parse_resources,
    quoted,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.resources import Resources
from gpusched.base.limits import DOMAIN_DEPTH_MAX, GANG_PODS_MAX

PENDING: Final = "Pending"
_NO_WIRE_REQUEST: Final = TopologyRequest()


class UsageStatus(msgspec.Struct, gc=False, rename="camel"):
    """What a queue used of late, in billionths."""

    as_of: str | None = None
    average: dict[str, int] | None = None
    share: dict[str, int] | None = None


class GroupStatus(msgspec.Struct, gc=False):
    """What is read of the status of a group or queue."""

    phase: str | None = None
    state: str | None = None
    conditions: list[wire.WireCondition] | None = None
    usage: UsageStatus | None = None
    moved: str | None = None


_STATUS: Final = msgspec.json.Decoder(GroupStatus)
_NO_STATUS: Final = GroupStatus()


def decode_queue(parsed: wire_groups.WireQueue) -> Queue:
    """A parsed Queue as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire_groups.QueueSpec()
    check_identity(metadata, namespaced=False)
    parent = spec.parent or ROOT_QUEUE
    if metadata.name == ROOT_QUEUE:
        raise InvalidObject("metadata.name", "the queue root exists by itself")
    if parent == metadata.name:
        raise InvalidObject("spec.parent", "a queue cannot be its own parent")
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
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
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
        min_runtime_ns=parse_duration_ns(spec.min_runtime, field="spec.minRuntime"),
        max_runtime_ns=parse_duration_ns(spec.max_runtime, field="spec.maxRuntime"),
        max_wait_ns=parse_duration_ns(spec.max_wait, field="spec.maxWait"),
        namespaces=EVERYTHING
        if selector is None
        else parse_selector(
            selector.match_labels, selector.match_expressions, field="spec.namespaceSelector"
        ),
        node_pools=_node_pools(spec.node_pools),
        conditions=decode_conditions(status),
        usage=_usage_of(status.usage),
        status=canonical,
    )


def _usage_of(usage: UsageStatus | None) -> QueueUsage:
    if usage is None or not usage.as_of:
        return QueueUsage()
    return QueueUsage(
        parse_time(usage.as_of),
        tuple(sorted((usage.average or {}).items())),
        tuple(sorted((usage.share or {}).items())),
    )


def _check_order(low: Resources, high: Resources, *, field: str, above: str) -> None:
    for name, amount in low.items:
        if name in high and amount > high.get(name):
            raise InvalidObject(field, f"exceeds {above} in {quoted(name)}")


def _node_pools(pools: Iterable[wire_groups.WireNodePool] | None) -> tuple[NodePool, ...]:
    made: list[NodePool] = []
    for pool in pools or ():
        if any(pool.name == known.name for known in made):
            raise InvalidObject("spec.nodePools[].name", f"{quoted(pool.name)} is there twice")
        made.append(
            NodePool(
                name=pool.name,
                node_selector=tuple(sorted((pool.node_selector or {}).items())),
                deserved=parse_resources(pool.deserved, field="spec.nodePools[].deserved"),
                capability=parse_resources(pool.capability, field="spec.nodePools[].capability"),
            )
        )
    return tuple(made)


def decode_pod_group(parsed: wire_groups.WirePodGroup) -> PodGroup:
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
        raise InvalidObject(
            "spec.minSubGroups", f"asks for {min_sub_groups} of {len(sub_groups)} subGroups"
        )
    status, canonical = read_status(parsed.status)
    return PodGroup(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
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
        topology=_topology_request(spec.topology, field="spec.topology"),
        expected_duration_ns=parse_duration_ns(
            spec.expected_duration, field="spec.expectedDuration"
        ),
        min_runtime_ns=parse_duration_ns(spec.min_runtime, field="spec.minRuntime"),
        schedule_timeout_ns=parse_duration_ns(spec.schedule_timeout, field="spec.scheduleTimeout"),
        disruption=_disruption_mode(spec.disruption),
        checkpoint_ns=parse_duration_ns(
            spec.disruption.checkpoint_interval if spec.disruption else None,
            field="spec.disruption.checkpointInterval",
        ),
        phase=status.phase or PENDING,
        conditions=decode_conditions(status),
        status=canonical,
        deleting=metadata.deletion_timestamp is not None,
        move=parse_move(status.moved),
    )


def _disruption_mode(wish: wire_groups.WireDisruption | None) -> str:
    mode = (wish.mode if wish else None) or "Pod"
    if mode not in {"Group", "Pod"}:
        raise InvalidObject("spec.disruption.mode", f"{quoted(mode)} is neither Group nor Pod")
    return mode


def _min_member(own: int | None, tasks: tuple[tuple[str, int], ...]) -> int:
    """Left out, it is what the roles add up to."""
    by_role = sum(count for _, count in tasks)
    if by_role > GANG_PODS_MAX:
        raise InvalidObject(
            "spec.minTaskMember", f"adds up to {by_role:,}, more than {GANG_PODS_MAX:,}"
        )
    if own is None:
        return max(1, by_role)
    if by_role > own:
        raise InvalidObject(
            "spec.minTaskMember", f"adds up to {by_role}, more than minMember {own}"
        )
    return own


def _sub_groups(parts: Iterable[wire_groups.WireSubGroup] | None) -> tuple[SubGroup, ...]:
    made: dict[str, SubGroup] = {}
    for part in parts or ():
        if not part.name or part.name in made:
            raise InvalidObject(
                "spec.subGroups[].name", f"{quoted(part.name)} is empty or there twice"
            )
        wish = _topology_request(part.topology, field="spec.subGroups[].topology")
        made[part.name] = SubGroup(part.name, part.min_member or 1, wish)
    return tuple(made.values())


def _topology_request(
    wish: wire_groups.WireTopologyRequest | None, *, field: str
) -> TopologyRequest:
    if wish is None:
        return _NO_WIRE_REQUEST
    return TopologyRequest(
        required=wish.required or "",
        preferred=wish.preferred or "",
        max_wait_ns=parse_duration_ns(wish.max_wait, field=f"{field}.maxWait"),
    )


def read_status(raw: msgspec.Raw) -> tuple[GroupStatus, bytes]:
    """What is read of a status, and the whole of it as canonical JSON."""
    status = decode_part(_STATUS, bytes(raw), field="status")
    if status is None:
        return _NO_STATUS, b"{}"
    return status, msgspec.json.encode(msgspec.json.decode(raw), order="sorted")


def decode_conditions(status: GroupStatus) -> tuple[Condition, ...]:
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


def decode_topology(parsed: wire_groups.WireTopology) -> Topology:
    """A parsed Topology as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    levels = tuple((level.name, level.node_label) for level in parsed.spec.levels)
    if not 1 <= len(levels) <= DOMAIN_DEPTH_MAX:
        raise InvalidObject("spec.levels", f"has {len(levels)} levels, not 1 to {DOMAIN_DEPTH_MAX}")
    for part, texts in (("name", {a for a, _ in levels}), ("nodeLabel", {b for _, b in levels})):
        if len(texts) != len(levels) or "" in texts:
            raise InvalidObject(f"spec.levels[].{part}", "is empty or there twice")
    return Topology(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        levels=levels,
        generation=metadata.generation,
        status=_shown_status(parsed.status),
    )


def _shown_status(raw: msgspec.Raw) -> bytes:
    """A status that is only written: one that cannot be read is written anew."""
    try:
        return read_status(raw)[1]
    except InvalidObject:
        return b"{}"


QUEUES: Final = KindCodec("Queue", wire_type=wire_groups.WireQueue, entity=decode_queue, ours=True)
POD_GROUPS: Final = KindCodec(
    "PodGroup", wire_type=wire_groups.WirePodGroup, entity=decode_pod_group, ours=True
)
TOPOLOGIES: Final = KindCodec(
    "Topology", wire_type=wire_groups.WireTopology, entity=decode_topology, ours=True
)
