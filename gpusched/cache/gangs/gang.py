"""Gangs: pods that start together, gathered from a PodGroup, a Job, or one lone pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs

from gpusched.api.gang.eviction_record import NO_EVICTIONS, GangEvictions
from gpusched.api.gang.pod_group import (
    EXTRAS,
    NO_TOPOLOGY_REQUEST,
    GangTerms,
    PodGroup,
    SubGroup,
    TopologyRequest,
)
from gpusched.api.gang.running_kind import RunningKind, shared_kind
from gpusched.api.gang.sub_group_tree import split_sub_groups
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.jobs.job import Job
from gpusched.api.jobs.job_failures import EvictionWarning
from gpusched.api.meta.identity import NO_CREATOR, UID, Creator, GangKey
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, Pod, PodClass
from gpusched.base.classes import former_names, frozen
from gpusched.cache.gangs.counting.job_successes import NO_SUCCESSES, JobSuccesses
from gpusched.cache.gangs.priority import CountedPriority

SYSTEM_PRIORITY = 2_000_000_000
"""The priority of system-cluster-critical: pods at or above it are never evicted by us."""


@frozen(slots=True, eq=False)
class PodSet:
    """Unbound pods of one class, role and sub-group, in the order in which they take places."""

    role: str
    pod_class: PodClass
    pods: tuple[Pod, ...]
    sub_group: str = ""


@frozen(slots=True)
class Placed:
    """A member that has its place, bound or assumed; ``slots`` are a bitmask, 0 for none or unknown."""

    pod: Pod
    node: str
    confirmed: bool
    slots: int = 0


DEFAULT_TERMS: Final = GangTerms(preemptible=True)
"""Terms of a gang that says nothing and whose priority class says nothing."""


@frozen(slots=True, kw_only=True, eq=False)
class Gang:
    """Pods that start together or not at all, as a session decides about them.

    Attributes:
        uid: of the PodGroup or Job, or of the lone pod.
        generation: of the PodGroup, 0 when there is none.
        queue: name of the queue that pays for it.
        min_member: members that it needs at once; ``succeeded`` members count where ``succeeded_counted``.
        min_roles: pairs of role and smallest number of members, sorted.
        ready_roles: members by role that count already, sorted; only where roles have minima.
        sub_groups: those that pods name.
        parent_groups: sub-groups that hold others.
        min_sub_groups: how many of the sub-groups at the top must be complete.
        ready_sub_groups: members by sub-group that count already, sorted.
        pod_sets: members without a place that may get one, a ``PodSet`` for each class of pods.
        placed: members with a place, sorted by pod.
        gated, leaving: numbers of members that cannot count: gated, or being deleted.
        gates: names of gates that hold members, sorted.
        running, succeeded, failed: numbers of members in that phase.
        succeeded_counted: succeeded members that count towards the minimum.
        allocated: requests of all members with a place, of those being deleted too.
        leaving_allocated: the part of ``allocated`` that belongs to members being deleted.
        leaving_placed: members being deleted that have a place, sorted by pod.
        terms: the terms on which it runs.
        job: the Job from which it was derived, None for others.
        expected_count: pods in ``pod_sets`` that do not exist yet, see ``cache.gangs.expected_pods``.
        pending_requests: requests of all pods in ``pod_sets``.
        created: seconds since the epoch; of the PodGroup or Job, else of the oldest pod.
        pod_group: the PodGroup that describes it, None when there is none.
        error: reason and message why no attempt makes sense, an empty reason for none.
        warning: a warning to its author that stops nothing; empty for none.
        key_warning: which labels and annotations of its objects mean nothing; empty for none.
        job_failure: why its Jobs make no more pods, as one has failed or they are too small; empty for none.
        eviction_warning: that a Job of it would fail by evictions; None where it would not.
        evictions: the last times that it was made to leave.
        turn: turns that it had under a queue's maxRuntime; None for none.
        tree: groups that are its sub-groups, where it is a CompositePodGroup.
        creator: of its group, else of its Job, else of its oldest member.
        accounts: names of accounts of its user and of groups of its user, where a queue on its path limits them.
    """

    key: GangKey
    uid: UID
    generation: int
    queue: str
    priority: int
    min_member: int
    min_roles: tuple[tuple[str, int], ...]
    ready_roles: tuple[tuple[str, int], ...]
    topology: TopologyRequest
    sub_groups: tuple[SubGroup, ...]
    min_sub_groups: int
    ready_sub_groups: tuple[tuple[str, int], ...]
    pod_sets: tuple[PodSet, ...]
    placed: tuple[Placed, ...]
    gated: int
    leaving: int
    running: int
    succeeded: int
    failed: int
    succeeded_counted: int
    allocated: Resources
    leaving_allocated: Resources
    pending_requests: Resources
    created: float
    pod_group: PodGroup | None
    error: tuple[str, str]
    warning: str
    terms: GangTerms = DEFAULT_TERMS
    gates: tuple[str, ...] = ()
    key_warning: str = ""
    job: Job | None = None
    expected_count: int = 0
    leaving_placed: tuple[Placed, ...] = ()
    job_failure: str = ""
    eviction_warning: EvictionWarning | None = None
    turn: TurnRecord | None = None
    evictions: GangEvictions = NO_EVICTIONS
    parent_groups: tuple[SubGroup, ...] = ()
    tree: tuple[PodGroup, ...] = ()
    creator: Creator = NO_CREATOR
    accounts: tuple[str, ...] = ()

    @cached_property
    def suspended(self) -> bool:
        """Whether it is a Job that waits to be started; its pods do not exist yet."""
        return bool(self.expected_count) and self.job is not None and self.job.suspended

    @property
    def requests_gpu_share(self) -> bool:
        """Whether a member that waits asks for a share of a GPU: models of ints know none."""
        return any(pod_set.pod_class.share is not None for pod_set in self.pod_sets)

    @cached_property
    def pending(self) -> int:
        """Number of members that wait for a place."""
        return sum(len(pod_set.pods) for pod_set in self.pod_sets)

    @property
    def active(self) -> bool:
        """Whether it has members that run, wait, or are on their way out."""
        return bool(self.placed or self.pod_sets or self.gated or self.leaving)

    @property
    def lacks_pods(self) -> bool:
        """Whether it is a PodGroup of ours that has no pods, or only such as are over, and needs others."""
        group = self.pod_group
        if self.active or self.done or group is None or group.source:
            return False
        return bool(self.missing_members)

    @property
    def done(self) -> bool:
        """Whether its status needs no more changes: it has no active members and is completed."""
        over = not self.active
        return over and (self.pod_group is None or self.pod_group.phase == "Completed")

    @property
    def is_told_admitted(self) -> bool:
        """Whether the status of its PodGroup tells that it is admitted."""
        return self.pod_group is not None and self.pod_group.phase == "Inqueue"

    @property
    def ready_members(self) -> int:
        """Number of members that count towards the minimum already."""
        return len(self.placed) + self.succeeded_counted

    @property
    def gives_extras(self) -> bool:
        """Whether members above its minimum may be evicted for others, and no others."""
        return self.terms.disruption == EXTRAS and not self.terms.preemptible

    @property
    def is_lasting(self) -> bool:
        """Whether what it is given next cannot be taken back: it is not preemptible, or its minimum is not."""
        if self.terms.preemptible:
            return False
        return not self.gives_extras or self.ready_members < self.min_member

    @cached_property
    def running_kind(self) -> RunningKind | None:
        """The kind of a gang whose one pod, which claims no devices, is all that it has and needs; None for others."""
        alone = len(self.placed) == 1 and self.min_member == 1 and not self.pod_sets
        if not alone or self.succeeded_counted or self.leaving or self.gated or self.expected_count:
            return None
        if self.min_roles or self.sub_groups or self.parent_groups or self.min_sub_groups:
            return None
        pod = self.placed[0].pod
        if not self.placed[0].confirmed or not pod.scheduled or pod.pod_class.claims:
            return None
        about = (self.queue, self.key.namespace, self.priority, self.terms)
        return shared_kind((*about, pod.priority, pod.pod_class.digest))

    @cached_property
    def has_nominated_pods(self) -> bool:
        """Whether the status of a member that waits names a node for it."""
        return any(pod.nominated for pod_set in self.pod_sets for pod in pod_set.pods)

    @cached_property
    def missing_members(self) -> int:
        """Members that must get a place at once, else none gets one."""
        missing = self.min_member - self.ready_members
        if self.min_roles:
            missing = max(missing, sum(count for _, count in self.missing_roles))
        if self.sub_groups:
            missing = max(missing, self._missing_sub_groups())
        return max(0, missing)

    @cached_property
    def members_at_start(self) -> int:
        """Members it starts with: those it needs, and at least one while no member has a place.

        A gang whose minimum succeeded asks for room for one member, or for the smallest sub-group that waits.
        """
        return self.missing_members or (0 if self.placed else self.fewest_next)

    @cached_property
    def fewest_next(self) -> int:
        """Fewest members that get a place together once the gang has its minimum.

        One where a member that waits is in no sub-group, or in a complete one: else the fewest that a sub-group lacks.
        """
        if not self.sub_groups:
            return min(1, self.pending)
        needed = (self.missing_by_sub_group.get(each.sub_group, 0) for each in self.pod_sets)
        return min((max(1, count) for count in needed), default=0)

    @property
    def topology_requests(self) -> tuple[TopologyRequest, ...]:
        """Its own request and those of all its sub-groups."""
        groups = (*self.sub_groups, *self.parent_groups)
        return (self.topology, *(each.topology for each in groups))

    @cached_property
    def preferences_end(self) -> tuple[float, ...]:
        """When it and its sub-groups stop holding out for levels that they prefer, seconds since the epoch."""
        return tuple(
            self.created + request.max_wait_ns / 1e9
            for request in self.topology_requests
            if request.preferred and request.max_wait_ns
        )

    def missing_in_sub_group(self, part: SubGroup) -> int:
        """Members that a sub-group needs before it is complete."""
        return self.missing_by_sub_group.get(part.name, 0)

    @cached_property
    def missing_by_sub_group(self) -> dict[str, int]:
        """Members with which each sub-group would be complete: of those in it the nearest ones.

        The gang itself has the empty name.
        """
        have = dict(self.ready_sub_groups)
        missing = {
            part.name: max(0, part.min_member - have.get(part.name, 0)) for part in self.sub_groups
        }

        def least(name: str, needed: int) -> int:
            lacking = []
            for child in self.sub_groups_in.get(name, ()):
                if child.name not in missing:
                    missing[child.name] = least(child.name, child.min_sub_groups)
                lacking.append(missing[child.name])
            # Where there are fewer than it needs, at least a pod of each has still to come.
            return sum(sorted(lacking)[:needed]) + max(0, needed - len(lacking))

        missing[""] = least("", self.min_sub_groups)
        return missing

    @cached_property
    def sub_groups_in(self) -> dict[str, tuple[SubGroup, ...]]:
        """Sub-groups by the name of the one that they are in, empty at the top."""
        found: dict[str, list[SubGroup]] = {}
        for each in (*self.sub_groups, *self.parent_groups):
            found.setdefault(each.parent, []).append(each)
        return {name: tuple(groups) for name, groups in found.items()}

    @cached_property
    def pod_groups_below(self) -> dict[str, frozenset[str]]:
        """Names of the sub-groups of pods inside of each sub-group; itself of one of pods."""
        names = {each.name for each in self.parent_groups}

        def below(name: str) -> frozenset[str]:
            if name not in names:
                return frozenset((name,))
            return frozenset().union(
                *(below(each.name) for each in self.sub_groups_in.get(name, ()))
            )

        return {each.name: below(each.name) for each in (*self.sub_groups, *self.parent_groups)}

    def nearest_sub_groups(self) -> tuple[SubGroup, ...]:
        """Sub-groups of pods with which the gang is complete by the fewest members."""

        def nearest(name: str, needed: int) -> Iterator[SubGroup]:
            inside = sorted(self.sub_groups_in.get(name, ()), key=self.missing_in_sub_group)
            for each in inside[:needed]:
                if each.name in self.sub_groups_in:
                    yield from nearest(each.name, each.min_sub_groups)
                else:
                    yield each

        return tuple(nearest("", self.min_sub_groups))

    def complete_groups(self, have: Mapping[str, int]) -> frozenset[str]:
        """Sub-groups that are complete, each for itself; the gang itself has the empty name.

        Args:
            have: members by sub-group of pods.
        """
        complete = {
            part.name for part in self.sub_groups if have.get(part.name, 0) >= part.min_member
        }
        deepest_first = sorted(
            self.parent_groups, key=lambda each: -len(self.groups_around(each.name))
        )
        for each in deepest_first:
            inside = self.sub_groups_in.get(each.name, ())
            if sum(part.name in complete for part in inside) >= each.min_sub_groups:
                complete.add(each.name)
        if (
            sum(part.name in complete for part in self.sub_groups_in.get("", ()))
            >= self.min_sub_groups
        ):
            complete.add("")
        return frozenset(complete)

    def groups_around(self, name: str) -> tuple[SubGroup, ...]:
        """A sub-group and those that it is in, from the top."""
        by_name = {each.name: each for each in (*self.sub_groups, *self.parent_groups)}
        found: list[SubGroup] = []
        while name in by_name:
            found.append(by_name[name])
            name = found[-1].parent
        return tuple(reversed(found))

    def _missing_sub_groups(self) -> int:
        """Members with which enough sub-groups would be complete, the nearest ones first."""
        return self.missing_by_sub_group[""]

    @property
    def expected_end(self) -> float:
        """Seconds since the epoch, 0.0 while it does not run or where its author does not say how long."""
        length_s = self.terms.expected_duration_ns / 1e9
        return self.started_at + length_s if length_s and self.started_at else 0.0

    @cached_property
    def started_at(self) -> float:
        """When it last had its minimum, seconds since the epoch; 0.0 while it has not.

        Extras that came later do not count; a lost member that was replaced starts it anew.
        """
        if self.missing_members or not self.placed:
            return 0.0
        times = sorted(member.pod.scheduled for member in self.placed)
        return times[min(len(times), max(1, self.min_member - self.succeeded_counted)) - 1]

    @property
    def waits_since(self) -> float:
        """From when it counts among those that wait, seconds since the epoch.

        Its creation, or the end of its last turn: who had one stands behind those that waited.
        """
        return max(self.created, self.turn.ended) if self.turn is not None else self.created

    @property
    def earlier_turns_s(self) -> int:
        """Seconds that it ran in turns before the run that goes on now, or that comes next."""
        if self.turn is None:
            return 0
        # The turn may have ended in this run: a disruption budget protected its members.
        in_this_run = max(0, int(self.turn.ended - self.started_at)) if self.started_at else 0
        return max(0, self.turn.seconds - in_this_run)

    @property
    def missing_roles(self) -> tuple[tuple[str, int], ...]:
        """Roles that are below their minima, and by how many."""
        have = dict(self.ready_roles)
        short = ((role, least - have.get(role, 0)) for role, least in self.min_roles)
        return tuple((role, count) for role, count in short if count > 0)

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names(
            "Gang",
            {
                "asked": "pending_requests",
                "at_once": "members_at_start",
                "credit": "succeeded_counted",
                "held": "allocated",
                "lacks": "missing_in_sub_group",
                "leaving_held": "leaving_allocated",
                "need": "missing_members",
                "ready": "ready_members",
                "remark": "warning",
                "shares": "requests_gpu_share",
                "started": "started_at",
                "tasks": "pod_sets",
                "trouble": "error",
            },
        )


def member_order(pod: Pod) -> tuple[int, int, str, str]:
    """Block and rank first, then name: the order in which equal pods take places."""
    return (pod.block, pod.rank if pod.rank >= 0 else 2**31, pod.name, pod.uid)


def make_pod_sets(pods: Iterable[Pod]) -> tuple[PodSet, ...]:
    """Group by role and class; the largest class of a role first, so that it finds room."""
    groups: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in pods:
        key = (pod.role, pod.sub_group, pod.pod_class.digest)
        groups.setdefault(key, []).append(pod)
    pod_sets = [
        PodSet(role, members[0].pod_class, tuple(sorted(members, key=member_order)), sub_group)
        for (role, sub_group, _), members in groups.items()
    ]
    return tuple(sorted(pod_sets, key=_pod_set_order)) if len(pod_sets) > 1 else tuple(pod_sets)


def _pod_set_order(pod_set: PodSet) -> tuple[int, tuple[int, ...], str, str, str]:
    sizes = tuple(-amount for _, amount in pod_set.pod_class.requests.items)
    return (
        -pod_set.pod_class.gpu_thousandths,
        sizes,
        pod_set.role,
        pod_set.sub_group,
        pod_set.pod_class.digest,
    )


@frozen(slots=True, kw_only=True)
class GangSpec:
    """Numbers of a gang as its PodGroup, its Job or its lone pod says them, before pods are counted."""

    key: GangKey
    uid: UID
    generation: int = 0
    created: float = 0.0
    queue: str = ""
    min_member: int = 1
    min_roles: tuple[tuple[str, int], ...] = ()
    hints: GangAnnotations = NO_GANG_ANNOTATIONS
    topology: TopologyRequest = NO_TOPOLOGY_REQUEST
    sub_groups: tuple[SubGroup, ...] = ()
    min_sub_groups: int = 0
    pod_group: PodGroup | None = None
    priority: int | None = None
    counts_succeeded: bool = False
    succeeded_known: int = 0
    """Succeeded members for which ``min_member`` was lowered already."""
    successes: JobSuccesses = NO_SUCCESSES
    error: tuple[str, str] = ("", "")
    warning: str = ""
    terms: GangTerms = DEFAULT_TERMS
    job: Job | None = None
    expected_count: int = 0
    job_failure: str = ""
    eviction_warning: EvictionWarning | None = None
    turn: TurnRecord | None = None
    evictions: GangEvictions = NO_EVICTIONS
    parent_groups: tuple[SubGroup, ...] = ()
    tree: tuple[PodGroup, ...] = ()


def spec_from_group(
    group: PodGroup, *, counted: CountedPriority | None, by_class: bool | None = None
) -> GangSpec:
    """A gang as its PodGroup describes it.

    Args:
        group: the object.
        counted: the priority class that it names, if that exists.
        by_class: whether the class of its pods makes them preemptible; counts where it names none.
    """
    priority = counted.priority if counted else None
    if counted is not None:
        by_class = counted.named.preemptible if counted.named else None
    warning = counted.warning if counted else ""
    if group.priority_class and counted is None:
        warning = (
            f"priorityClassName {group.priority_class} does not exist, its pods' priority counts"
        )
    sub_groups, parent_groups = split_sub_groups(group.sub_groups)
    return GangSpec(
        key=GangKey(group.kind, group.namespace, group.name),
        uid=group.uid,
        generation=group.generation,
        created=group.created,
        queue=group.queue,
        min_member=group.min_member,
        min_roles=group.min_task_member,
        topology=group.topology,
        sub_groups=sub_groups,
        parent_groups=parent_groups,
        min_sub_groups=group.min_sub_groups,
        pod_group=group,
        priority=priority,
        warning=warning,
        counts_succeeded=True,
        turn=group.turn,
        evictions=group.evictions,
        error=_group_error(group),
        terms=attrs.evolve(
            group.terms,
            preemptible=_is_preemptible(group.terms.preemptible, by_class, priority or 0)
            and group.terms.disruption != EXTRAS,
        ),
    )


def _group_error(group: PodGroup) -> tuple[str, str]:
    """Why no member of the group may start; empty when they may."""
    if group.deleting:
        stays = "; it stays until its pods are gone" if group.native else ""
        return "InvalidSpec", f"{group.kind} {group.key} is being deleted{stays}"
    return group.native.error if group.native is not None else ("", "")


def terms_without_group(
    hints: GangAnnotations, *, by_class: bool | None, priority: int
) -> GangTerms:
    """Terms of a gang that has no PodGroup."""
    return GangTerms(
        preemptible=_is_preemptible(hints.preemptible, by_class, priority),
        expected_duration_ns=hints.expected_duration_ns,
        min_runtime_ns=hints.min_runtime_ns,
        gpu_types=hints.gpu_types,
        devices=hints.devices,
    )


def _is_preemptible(own: bool | None, by_class: bool | None, priority: int) -> bool:
    """Its own field, else that of its priority class; system priorities are never evicted."""
    if priority >= SYSTEM_PRIORITY:
        return False
    if own is not None:
        return own
    return True if by_class is None else by_class


def spec_from_job(job: Job, *, template: Pod, queue: str, by_class: bool | None = None) -> GangSpec:
    """A gang derived from a Job; where it says nothing, its pods' ``template`` counts."""
    hints = template.hints if job.hints == NO_GANG_ANNOTATIONS else job.hints
    queue = template.queue or queue
    return GangSpec(
        key=GangKey("Job", job.namespace, job.name),
        uid=job.uid,
        created=job.created,
        queue=job.queue or queue,
        min_member=hints.min_member or job.gang_size,
        hints=hints,
        topology=_topology_request(hints),
        counts_succeeded=True,
        succeeded_known=0 if hints.min_member else job.succeeded,
        terms=terms_without_group(hints, by_class=by_class, priority=template.priority),
        job=job,
        turn=job.turn,
        evictions=job.evictions,
    )


def spec_from_pod(
    pod: Pod, *, queue: str, by_class: bool | None = None, hints: GangAnnotations | None = None
) -> GangSpec:
    """A gang of one; it has the age of its pod, and its annotations unless others are given."""
    hints = pod.hints if hints is None else hints
    return GangSpec(
        key=GangKey("Pod", pod.namespace, pod.name),
        uid=pod.uid,
        created=pod.created,
        queue=pod.queue or queue,
        hints=hints,
        topology=_topology_request(hints),
        terms=terms_without_group(hints, by_class=by_class, priority=pod.priority),
    )


def _topology_request(hints: GangAnnotations) -> TopologyRequest:
    return TopologyRequest(hints.topology_required, hints.topology_preferred)
