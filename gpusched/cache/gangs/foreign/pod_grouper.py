"""Gangs of other projects: what their groups leave open, and those of their controllers."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.api.devices.device_match import NO_DEVICE_MATCH
from gpusched.api.devices.gpu_types import NO_GPU_TYPE_REQUEST
from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.foreign.workload import ForeignWorkload
from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, PodGroup, TopologyRequest
from gpusched.api.meta.fields import quoted
from gpusched.api.meta.identity import UID, GangKey, Rejected
from gpusched.api.pod.gang_membership import NATIVE_WORKLOAD, PART, WITHOUT_OBJECT
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, Pod
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import GangSpec, terms_without_group
from gpusched.cache.gangs.priority import CountedPriority

CONTROLLER_KINDS = frozenset(WORKLOADS) | WITHOUT_OBJECT
"""Kinds of gangs whose members are known by labels of their controllers."""


STAGE = "/"
"""Between the name of a gang and that of a late stage of it, as between UIDs."""
Members = tuple[GangSpec, Sequence[Pod]]


def oldest_member(pods: Sequence[Pod]) -> Pod | None:
    """The oldest member: it speaks for all where they differ."""
    return min(pods, key=lambda pod: (pod.created, pod.key), default=None)


@frozen
class Above:
    """What objects above a group say, its Workload and its owners: the first that says something.

    Attributes:
        queue: empty for none.
        hints: annotations that stand in for fields of a PodGroup.
    """

    queue: str = ""
    hints: GangAnnotations = NO_GANG_ANNOTATIONS


NOTHING_ABOVE = Above()


def complete_foreign_spec(
    origin: GangSpec,
    group: PodGroup,
    pods: Sequence[Pod],
    *,
    queue: str,
    above: Above = NOTHING_ABOVE,
) -> GangSpec:
    """A foreign PodGroup's gang; what the group does not say, its pods and namespace do.

    Args:
        origin: as the group describes it.
        group: the group.
        pods: its members.
        queue: of the namespace, empty for none.
        above: what its Workload and owners say.
    """
    first = oldest_member(pods)
    wishes = above.hints
    if first is not None and first.hints != NO_GANG_ANNOTATIONS:
        wishes = first.hints
    topology = origin.topology
    if topology == NO_TOPOLOGY_REQUEST:
        topology = TopologyRequest(wishes.topology_required, wishes.topology_preferred)
    terms = origin.terms
    if group.terms.preemptible is None and wishes.preemptible is not None:
        priority = origin.priority or (first.priority if first else 0)
        own = terms_without_group(wishes, by_class=None, priority=priority)
        terms = attrs.evolve(terms, preemptible=own.preemptible)
    if not terms.min_runtime_ns:
        terms = attrs.evolve(terms, min_runtime_ns=wishes.min_runtime_ns)
    if not terms.expected_duration_ns:
        terms = attrs.evolve(terms, expected_duration_ns=wishes.expected_duration_ns)
    if terms.gpu_types == NO_GPU_TYPE_REQUEST:
        terms = attrs.evolve(terms, gpu_types=wishes.gpu_types)
    if terms.devices == NO_DEVICE_MATCH:
        terms = attrs.evolve(terms, devices=wishes.devices)
    return attrs.evolve(
        origin,
        queue=group.queue or above.queue or (first.queue if first else "") or queue,
        topology=topology,
        terms=terms,
        warning="; ".join(text for text in (group.warning, origin.warning) if text),
    )


@frozen(kw_only=True)
class ControllerView:
    """What is known of a gang's controller.

    Attributes:
        workload: its object; None when it has not been seen.
        rejected: its object, when that cannot be believed.
        read: whether objects of its kind are read at all.
        counted: the priority class that the object names; None when there is none.
        queue: of the namespace, empty for none.
        by_class: whether the pods' priority class lets them be evicted; None for no word.
    """

    workload: ForeignWorkload | None
    rejected: Rejected | None
    read: bool
    counted: CountedPriority | None
    queue: str
    by_class: bool | None


def group_pods_of_controller(
    key: GangKey, pods: Sequence[Pod], source: ControllerView
) -> tuple[Members, ...]:
    """The gangs of pods that name theirs by labels of their controller: one, or one a stage.

    Args:
        key: of the gang.
        pods: all members that exist, at least one.
        source: what is known of the controller.
    """
    first = oldest_member(pods)
    assert first is not None
    workload = source.workload
    hints = first.hints
    if workload is not None and workload.hints != NO_GANG_ANNOTATIONS:
        hints = workload.hints
    counted = source.counted
    named = counted.named if counted else None
    priority = counted.priority if counted else first.priority
    by_class = named.preemptible if named and named.preemptible is not None else source.by_class
    origin = GangSpec(
        key=key,
        uid=_gang_uid(key, workload),
        created=first.created,
        queue=(workload.queue if workload else "") or first.queue or source.queue,
        hints=hints,
        topology=TopologyRequest(hints.topology_required, hints.topology_preferred),
        priority=counted.priority if counted else None,
        warning=counted.warning if counted else "",
        counts_succeeded=True,
        terms=terms_without_group(hints, by_class=by_class, priority=priority),
    )
    own = max(hints.min_member, *(pod.hints.min_member for pod in pods))
    if source.rejected is not None:
        why = f"{source.rejected.field}: {source.rejected.why}"
        message = f"{key.kind} {_owner_name(key, first)} cannot be used: {why}"
        return ((attrs.evolve(origin, error=("InvalidSpec", message)), pods),)
    if workload is not None:
        return _sized_by_workload(origin, workload, pods, own=own)
    if source.read:
        message = f"{key.kind} {_owner_name(key, first)}: it has not been seen yet"
        return ((attrs.evolve(origin, error=("InvalidSpec", message)), pods),)
    return ((_sized_by_pods(origin, pods, own=own), pods),)


def _sized_by_workload(
    origin: GangSpec, workload: ForeignWorkload, pods: Sequence[Pod], *, own: int
) -> tuple[Members, ...]:
    """With the size that the controller's object tells; one gang for each stage of its start."""
    if origin.key.kind == NATIVE_WORKLOAD:
        return ((_sized_by_part(origin, workload), pods),)
    remarks = [workload.warning, origin.warning]
    if workload.priority_class and origin.priority is None:
        remarks.append(
            f"priorityClass {workload.priority_class} does not exist, its pods' priority counts"
        )
    origin = attrs.evolve(origin, warning="; ".join(text for text in remarks if text))
    if own:
        return ((attrs.evolve(origin, min_member=own), pods),)
    stages = workload.stages()
    if len(stages) < 2:
        need = stages[0][1] if stages else 1
        whole = attrs.evolve(
            origin,
            # A JobSet is as old as its object; groups of a LeaderWorkerSet come one by one.
            created=workload.created if workload.name == origin.key.name else origin.created,
            min_member=need,
            min_roles=workload.min_roles,
            succeeded_known=workload.finished,
        )
        return ((whole, pods),)
    late = {part.role for part in workload.parts if part.late}
    found = []
    for parts, need in stages:
        role = parts[0].role if parts[0].late else ""
        members = [pod for pod in pods if (pod.role if pod.role in late else "") == role]
        if not members:
            continue
        stage = attrs.evolve(
            origin, min_member=need, succeeded_known=sum(part.finished for part in parts)
        )
        if role:
            key = origin.key._replace(name=f"{origin.key.name}{STAGE}{role}")
            stage = attrs.evolve(stage, key=key, uid=UID(f"{origin.uid}{STAGE}{role}"))
        found.append((stage, members))
    return tuple(found)


def _sized_by_part(origin: GangSpec, workload: ForeignWorkload) -> GangSpec:
    """A gang of 1.35: with the minimum of the group of its Workload that its pods name."""
    named = origin.key.name.split(PART)[1]
    part = next((each for each in workload.parts if each.role == named), None)
    if part is None:
        known = ", ".join(sorted(each.role for each in workload.parts)) or "none"
        message = f"Workload {workload.key} has no pod group {quoted(named)}; it has {known}"
        return attrs.evolve(origin, error=("InvalidSpec", message))
    return attrs.evolve(origin, min_member=part.size)


def _sized_by_pods(origin: GangSpec, pods: Sequence[Pod], *, own: int) -> GangSpec:
    """With the size that the pods themselves tell; else those that exist start together."""
    families = [pod.family for pod in pods if pod.family is not None]
    size = own or max((family.size for family in families), default=0)
    if size:
        return attrs.evolve(origin, min_member=size)
    key = origin.key
    parts: dict[str, int] = {}
    for pod in pods:
        if pod.family is not None:
            parts[pod.role] = max(parts.get(pod.role, 0), pod.family.part)
    alive = sum(not pod.deleting and not pod.finished for pod in pods)
    least = max(1, alive, sum(parts.values()))
    what = "no annotation tells its size"
    if key.kind in WORKLOADS:
        what = f"{WORKLOADS[key.kind].name} cannot be read here"
    remark = f"the size of {key.kind} {key} is unknown ({what}): members that exist start together"
    return attrs.evolve(origin, min_member=least, warning=remark)


def _owner_name(key: GangKey, first: Pod) -> str:
    owner = first.family.owner if first.family is not None else ""
    return f"{key.namespace}/{owner or key.name}"


def _gang_uid(key: GangKey, workload: ForeignWorkload | None) -> UID:
    """The controller's; its groups add their names, and where no object is, names must do."""
    if workload is None:
        return UID(f"/{key.kind}/{key.namespace}/{key.name}")
    if workload.name == key.name:
        return workload.uid
    return UID(f"{workload.uid}/{key.name}")
