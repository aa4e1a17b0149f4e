"""Gangs that a PodGroup or a tree of groups describes, and what holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from gpusched.api.foreign.workload import ForeignWorkload
from gpusched.api.gang.eviction_record import later_evictions
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.gang.turn_record import later_turn
from gpusched.api.jobs.job import Job
from gpusched.api.meta.fields import is_object_name, quoted
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, Pod
from gpusched.api.policy.kinds import PriorityClass
from gpusched.cache.gangs.foreign.native_members import schedulers_error, with_preemption_policy
from gpusched.cache.gangs.foreign.native_trees import (
    GroupTree,
    NativeTrees,
    in_sub_group,
    invalid_spec_error,
    members_error,
    queue_of_tree,
    spec_of_tree,
)
from gpusched.cache.gangs.foreign.pod_grouper import Above, complete_foreign_spec
from gpusched.cache.gangs.gang import GangSpec, spec_from_group
from gpusched.cache.gangs.job_runtimes import JobStore
from gpusched.cache.gangs.priority import CountedPriority, QuotaStore
from gpusched.cache.store import KindStore

GROUP_KINDS = frozenset({"PodGroup", COMPOSITE})
"""Kinds of gangs that an object of their own describes."""


class GroupSpecs:
    """See the module.

    Args:
        groups, composites, jobs, priorities, quotas: where groups get their numbers from.
        workloads: objects of controllers by kind, and Workloads of Kubernetes itself.
        members: pods that are ours by the gang that they name.
    """

    def __init__(
        self,
        groups: KindStore[PodGroup],
        composites: KindStore[PodGroup],
        *,
        jobs: JobStore,
        priorities: KindStore[PriorityClass],
        quotas: QuotaStore,
        workloads: Mapping[str, KindStore[ForeignWorkload]],
        members: Mapping[GangKey, Mapping[UID, Pod]],
    ) -> None:
        self._groups = groups
        self._composites = composites
        self._jobs = jobs
        self._priorities = priorities
        self._quotas = quotas
        self._workloads = workloads
        self._members = members
        self._below: dict[GangKey, set[GangKey]] = {}
        """Groups by the objects above them, which may say their queue."""
        self._above: dict[GangKey, tuple[GangKey, ...]] = {}
        self._others: dict[GangKey, dict[UID, Pod]] = {}
        self.trees = NativeTrees(groups, composites)

    def note_group(self, kind: str, key: ObjectKey) -> set[GangKey]:
        """A group was put or dropped; all keys of gangs that may be other ones by that."""
        gang = GangKey(kind, *key)
        for each in self._above.pop(gang, ()):
            self._below[each].discard(gang)
            if not self._below[each]:
                del self._below[each]
        group = self.find_group(gang)
        if group is not None and group.native is not None:
            found = _objects_above(group)
            if found:
                self._above[gang] = found
            for each in found:
                self._below.setdefault(each, set()).add(gang)
        return self.trees.note_group(kind, key)

    def groups_below(self, kind: str, key: ObjectKey) -> set[GangKey]:
        """Groups that an object is above of: its Workload, or an owner."""
        return self._below.get(GangKey(kind, *key), set())

    def _said_above(self, group: PodGroup) -> Above:
        """What the Workload of a native group and its owners say."""
        queue, hints = "", NO_GANG_ANNOTATIONS
        for found in self.workloads_above([group]):
            queue = queue or found.queue
            hints = found.hints if hints == NO_GANG_ANNOTATIONS else hints
        return Above(queue, hints)

    def workloads_above(self, groups: Sequence[PodGroup]) -> Iterator[ForeignWorkload | Job]:
        """The Workloads of native groups and their owners, the nearest first."""
        for group in groups:
            yield from self._workloads_above(group)

    def _workloads_above(self, group: PodGroup) -> Iterator[ForeignWorkload | Job]:
        left = [*_objects_above(group)] if group.native is not None else []
        while left:
            each = left.pop(0)
            name = ObjectKey(each.namespace, each.name)
            found: ForeignWorkload | Job | None
            if each.kind == "Job":
                found = self._jobs.items.get(name)
            else:
                store = self._workloads.get(each.kind)
                found = store.items.get(name) if store is not None else None
            if found is None:
                continue
            yield found
            if isinstance(found, ForeignWorkload) and found.controller[0]:
                kind, owner = found.controller
                left.append(GangKey(kind, each.namespace, owner))

    def join_other(self, key: GangKey, pod: Pod) -> None:
        """A pod of another scheduler names a group."""
        self._others.setdefault(key, {})[pod.uid] = pod

    def leave_other(self, key: GangKey, pod: Pod) -> None:
        """Such a pod is gone."""
        others = self._others.get(key, {})
        others.pop(pod.uid, None)
        if not others:
            self._others.pop(key, None)

    def members_of_others(self, key: GangKey) -> Collection[Pod]:
        """Pods of other schedulers that name a group."""
        return self._others.get(key, {}).values()

    def find_group(self, key: GangKey) -> PodGroup | None:
        """The object that describes a gang; None where there is none."""
        groups = self._composites if key.kind == COMPOSITE else self._groups
        return groups.items.get(ObjectKey(key.namespace, key.name))

    def is_gone(self, key: GangKey) -> bool:
        """Whether the object is gone, or cannot be read, that says in which queue a gang is."""
        group = self.find_group(key)
        if group is None or group.native is None or group.queue:
            return group is None
        groups = [group]
        if group.native.composite and not group.native.parent:
            tree = self.trees.build_tree(group)
            groups += [*tree.composites, *tree.groups]
            if queue_of_tree(tree):
                return False
        named = any(_objects_above(each) for each in groups if each.native is not None)
        return named and next(self.workloads_above(groups), None) is None

    def members_of_tree(self, key: GangKey) -> list[Pod]:
        """Pods of ours in a tree, by the key of its root."""
        root = self.find_group(key)
        return [] if root is None else self._pods_of_tree(self.trees.build_tree(root))[0]

    def build_spec(
        self, key: GangKey, pods: list[Pod], queue: str
    ) -> tuple[GangSpec, list[Pod]] | None:
        """The gang of a PodGroup or of a tree, with its members; None where there is none of that key.

        Args:
            key: of the gang.
            pods: that name the PodGroup.
            queue: of the namespace, empty for none.
        """
        group = self.find_group(key)
        if group is None or group.native is None:
            known = group is not None or (key.kind == "PodGroup" and key in self._members)
            return (self._build_origin(key, pods, queue), pods) if known else None
        if group.native.parent:
            why = self.trees.error_of(group)
            if why is None or not self._has_members_around(key):
                return None  # a part of its tree's gang, or the affair of another scheduler
            return attrs.evolve(
                self._build_origin(key, pods, queue), error=invalid_spec_error(why)
            ), pods
        tree = self.trees.build_tree(group) if group.native.composite else None
        others = list(self._others.get(key, {}).values())
        if tree is not None:
            pods, others = self._pods_of_tree(tree)
        if not (pods or group.min_resources or group.our_condition("Scheduled")):
            return None  # whose pods will come is not known: other schedulers serve groups, too
        origin = self._build_origin(key, pods, queue, tree)
        if tree is not None:
            why = tree.error or members_error(pods, others)
            origin = spec_of_tree(origin, tree)
        else:
            why = schedulers_error(pods, others)
        if why and not origin.error[0]:
            origin = attrs.evolve(origin, error=invalid_spec_error(why))
        return origin, with_preemption_policy(group.native, pods)

    def _has_members_around(self, key: GangKey) -> bool:
        return any(each in self._members for each in self.trees.keys_around(key))

    def _pods_of_tree(self, tree: GroupTree) -> tuple[list[Pod], list[Pod]]:
        """Pods of all groups of a tree, each in its sub-group, and those of other schedulers."""
        pods: list[Pod] = []
        others: list[Pod] = []
        for group in tree.groups:
            key = GangKey("PodGroup", *group.key)
            pods += [in_sub_group(pod, group.name) for pod in self._members.get(key, {}).values()]
            others += self._others.get(key, {}).values()
        return pods, others

    def _build_origin(
        self, key: GangKey, pods: list[Pod], queue: str, tree: GroupTree | None = None
    ) -> GangSpec:
        name = ObjectKey(key.namespace, key.name)
        group = self.find_group(key)
        if group is not None and tree is not None and not group.queue:
            group = attrs.evolve(group, queue=queue_of_tree(tree))
        if group is not None:
            counted = self._count_priority(group, key, pods)
            origin = spec_from_group(group, counted=counted, by_class=self._by_class_of(pods))
            job = self._only_job(key.namespace, pods)
            if job is not None:  # else it tells all that is known
                turn = later_turn(group.turn, job.turn)
                evictions = later_evictions(group.evictions, job.evictions)
                origin = attrs.evolve(origin, job=job, turn=turn, evictions=evictions)
            if not group.source:
                return origin
            above = self._said_above(group)
            return complete_foreign_spec(origin, group, pods, queue=queue, above=above)
        rejected = self._groups.rejected.get(name)
        if rejected is not None:
            why = f"PodGroup {name} cannot be used: {rejected.field}: {rejected.why}"
        elif not is_object_name(key.name):
            why = (
                f"names the PodGroup {quoted(key.name)}, and no object can have this name; name "
                f"one of namespace {key.namespace} without the namespace, or none"
            )
        else:
            why = f"PodGroup {name} does not exist; create it or remove the label that names it"
        return GangSpec(key=key, uid=UID(""), error=("InvalidSpec", why))

    def _count_priority(
        self, group: PodGroup, key: GangKey, pods: list[Pod]
    ) -> CountedPriority | None:
        """How far the priority of a PodGroup counts; a native one's number before its class."""
        named = self._priorities.items.get(ObjectKey("", group.priority_class))
        number = group.native.priority if group.native is not None else None
        limits = self._quotas.namespace_limits(key.namespace)
        if number is None or (named is not None and named.value == number):
            if named is None:
                return None
            return limits.count_priority(named, pods, field="priorityClassName")
        return limits.count_number(number, self._priorities.items.values(), pods)

    def _by_class_of(self, pods: Iterable[Pod]) -> bool | None:
        """Whether pods may be evicted by their priority classes; None where these do not agree."""
        words = set()
        for pod in pods:
            if not pod.finished:
                named = self._priorities.items.get(ObjectKey("", pod.priority_class))
                words.add(named.preemptible if named else None)
        return words.pop() if len(words) == 1 else None

    def _only_job(self, namespace: str, pods: list[Pod]) -> Job | None:
        """The Job to which all members of a PodGroup belong, when it waits in a queue itself."""
        owners = {pod.owner for pod in pods if not pod.finished}
        owner = owners.pop() if len(owners) == 1 else None
        if owner is None or owner.kind != "Job":
            return None
        job = self._jobs.items.get(ObjectKey(namespace, owner.name))
        return job if job is not None and job.uid == owner.uid and job.queue else None


def _objects_above(group: PodGroup) -> tuple[GangKey, ...]:
    """The Workload of a native group and its owners, in the order in which they count."""
    native = group.native
    assert native is not None
    named = [("Workload", native.workload)] if native.workload else []
    found = dict.fromkeys([*named, *native.owners])
    return tuple(GangKey(kind, group.namespace, name) for kind, name in found)
