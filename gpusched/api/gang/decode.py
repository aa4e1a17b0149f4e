"""PodGroups: from the wire to the entity.

The CRD refuses most of what is refused here; this is the second check, for clusters whose CRDs
are older or whose rules were switched off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from gpusched.api.devices.device_match import FIELD as DEVICES
from gpusched.api.devices.device_match import parse_device_match
from gpusched.api.devices.gpu_types import FIELD as GPU_TYPES
from gpusched.api.devices.gpu_types import parse_gpu_types
from gpusched.api.gang import wire
from gpusched.api.gang.eviction_record import evictions_of_wire
from gpusched.api.gang.move_record import parse_move
from gpusched.api.gang.pod_group import EXTRAS, GangTerms, PodGroup, SubGroup, TopologyRequest
from gpusched.api.gang.sub_group_tree import (
    split_sub_groups,
    sub_group_tree_error,
    with_default_minima,
)
from gpusched.api.gang.turn_record import turn_of_wire
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    parse_duration_ns,
    parse_resources,
    quoted,
    read_hold,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import InvalidObject, parse_time, read_creator
from gpusched.api.meta.status import (
    decode_conditions,
    read_status,
)
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.base.limits import GANG_PODS_MAX

PENDING: Final = "Pending"
_NO_WIRE_REQUEST: Final = TopologyRequest()
_NO_NOTES: Final = wire.PodGroupAnnotations()


def decode_pod_group(parsed: wire.WirePodGroup) -> PodGroup:
    """A parsed PodGroup as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire.PodGroupSpec()
    check_identity(metadata, namespaced=True)
    sub_groups = parse_sub_groups(spec.sub_groups, field="spec.subGroups")
    tasks = tuple(sorted((spec.min_task_member or {}).items()))
    top = sum(1 for part in sub_groups if not part.parent)
    min_sub_groups = top if spec.min_sub_groups is None else spec.min_sub_groups
    if min_sub_groups > top:
        raise InvalidObject("spec.minSubGroups", f"asks for {min_sub_groups} of {top} subGroups")
    status, canonical = read_status(parsed.status)
    notes = metadata.annotations or _NO_NOTES
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
        sub_groups=sub_groups,
        min_sub_groups=min_sub_groups,
        topology=_topology_request(spec.topology, field="spec.topology"),
        terms=_gang_terms(spec),
        phase=status.phase or PENDING,
        conditions=decode_conditions(status),
        status=canonical,
        deleting=metadata.deletion_timestamp is not None,
        move=parse_move(status.moved),
        turn=turn_of_wire(status.turn),
        evictions=evictions_of_wire(status.evictions),
        hold=read_hold(notes.hold),
        creator=read_creator(notes.user, notes.groups),
    )


def _gang_terms(spec: wire.PodGroupSpec) -> GangTerms:
    interval = spec.disruption.checkpoint_interval if spec.disruption else None
    return GangTerms(
        preemptible=spec.preemptible,
        expected_duration_ns=parse_duration_ns(
            spec.expected_duration, field="spec.expectedDuration"
        ),
        min_runtime_ns=parse_duration_ns(spec.min_runtime, field="spec.minRuntime"),
        schedule_timeout_ns=parse_duration_ns(spec.schedule_timeout, field="spec.scheduleTimeout"),
        disruption=_disruption_mode(spec.disruption),
        checkpoint_ns=parse_duration_ns(interval, field="spec.disruption.checkpointInterval"),
        gpu_types=parse_gpu_types(bytes(spec.gpu_types), field=GPU_TYPES),
        devices=parse_device_match(bytes(spec.devices), field=DEVICES),
    )


def _disruption_mode(wish: wire.WireDisruption | None) -> str:
    mode = (wish.mode if wish else None) or "Pod"
    if mode not in {"Group", "Pod", EXTRAS}:
        raise InvalidObject("spec.disruption.mode", f"{quoted(mode)} is none of Group, Pod, Extras")
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


def parse_sub_groups(
    parts: Iterable[wire.WireSubGroup] | None, *, field: str
) -> tuple[SubGroup, ...]:
    """Sub-groups as a list says them.

    Raises:
        InvalidObject: a name is empty or there twice, or a duration cannot be read.
    """
    made: dict[str, SubGroup] = {}
    for part in parts or ():
        if not part.name or part.name in made:
            raise InvalidObject(f"{field}[].name", f"{quoted(part.name)} is empty or there twice")
        wish = _topology_request(part.topology, field=f"{field}[].topology")
        made[part.name] = SubGroup(
            part.name, part.min_member or 0, wish, part.parent or "", part.min_sub_groups or 0
        )
    groups = tuple(made.values())
    wrong = sub_group_tree_error(groups)
    if wrong:
        raise InvalidObject(f"{field}[].parent", wrong)
    for holder in split_sub_groups(groups)[1]:
        if holder.min_member > 1:  # the CRD's default is 1
            raise InvalidObject(
                f"{field}[].minMember",
                f"{quoted(holder.name)} holds other sub-groups: minSubGroups says how many of them",
            )
    return with_default_minima(groups)


def _topology_request(wish: wire.WireTopologyRequest | None, *, field: str) -> TopologyRequest:
    if wish is None:
        return _NO_WIRE_REQUEST
    return TopologyRequest(
        required=wish.required or "",
        preferred=wish.preferred or "",
        max_wait_ns=parse_duration_ns(wish.max_wait, field=f"{field}.maxWait"),
    )


POD_GROUPS: Final = KindCodec(
    "PodGroup",
    wire_type=wire.WirePodGroup,
    entity=decode_pod_group,
    ours=True,
    note_keys=lambda group, said: attrs.evolve(group, strange_keys=said),
)
