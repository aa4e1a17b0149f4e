"""Pods gathered into gangs. What was touched is counted again, the rest is shared.

A family is what one key stands for: one gang, or one a pod where a Job's pods are independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import attrs
import msgspec

from gpusched.api.affinity.selector import EVERYTHING
from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.foreign.workload import ForeignWorkload
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.jobs.job_failures import eviction_warning, failed_jobs_message
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.gang_membership import NATIVE_WORKLOAD
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, Pod
from gpusched.api.policy.kinds import Namespace, PriorityClass
from gpusched.api.queue.queue import DEFAULT_QUEUE, Queue
from gpusched.base import limits
from gpusched.cache.gangs.expected_pods import (
    expected_pods_of,
    is_started_by_us,
    job_parallelism,
    with_started_minimum,
)
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS, GroupSpecs
from gpusched.cache.gangs.foreign.pod_grouper import (
    CONTROLLER_KINDS,
    STAGE,
    ControllerView,
    group_pods_of_controller,
    oldest_member,
)
from gpusched.cache.gangs.gang import (
    Gang,
    GangSpec,
    spec_from_job,
    spec_from_pod,
)
from gpusched.cache.gangs.gang_counts import build_gang
from gpusched.cache.gangs.gpu_sizes import GpuSizes
from gpusched.cache.gangs.job_runtimes import JobStore
from gpusched.cache.gangs.priority import CountedPriority, QuotaStore
from gpusched.cache.gangs.resource_sums import ResourceSums
from gpusched.cache.ledger import HoldingState, Ledger
from gpusched.cache.store import KindStore

_NO_CONTROLLERS: Final = frozenset({"Pod", "PodGroup", COMPOSITE})
"""Kinds of gangs that no pod joins by an owner reference, which any tenant may write."""


FAULTS_MAX: Final = 64
"""Faults that wait to be told."""


def gang_key_of(pod: Pod) -> GangKey:
    """The gang that a pod belongs to: its PodGroup's, its controller's, or its own."""
    if pod.group:
        return GangKey("PodGroup", pod.namespace, pod.group)
    if pod.family is not None:
        return GangKey(pod.family.kind, pod.namespace, pod.family.name)
    owner = pod.owner
    if owner is not None and owner.kind == "Job":
        return GangKey("Job", pod.namespace, owner.name)
    if owner is not None and pod.hints.min_member > 1 and owner.kind not in _NO_CONTROLLERS:
        return GangKey(owner.kind, pod.namespace, owner.name)
    return GangKey("Pod", pod.namespace, pod.name)


class GangIndex:
    """All gangs by key.

    Args:
        ledger: places of pods.
        groups, composites, jobs, namespaces, priorities, quotas, queues: where gangs get their numbers from.
        schedulers: names whose pods are ours.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        groups: KindStore[PodGroup],
        composites: KindStore[PodGroup],
        jobs: JobStore,
        namespaces: KindStore[Namespace],
        priorities: KindStore[PriorityClass],
        quotas: QuotaStore,
        queues: KindStore[Queue],
        schedulers: Collection[str],
    ) -> None:
        self._ledger = ledger
        self._groups = groups
        self._jobs = jobs
        self._namespaces = namespaces
        self._priorities = priorities
        self._quotas = quotas
        self._queues = queues
        self._schedulers = schedulers
        self.workloads: dict[str, KindStore[ForeignWorkload]] = {
            kind: KindStore() for kind in WORKLOADS
        }
        self.read: frozenset[str] = frozenset()
        """Kinds of ``workloads`` that are read here; of others only their pods tell."""
        self.faults: list[tuple[GangKey, Exception]] = []
        """Gangs that could not be counted, until ``take_count_errors`` hands them out."""
        self.sizes = GpuSizes()
        """What the members ask for, each."""
        self._dirty: set[GangKey] = set()
        self._members: dict[GangKey, dict[UID, Pod]] = {}
        self._elsewhere: dict[UID, dict[UID, Pod]] = {}
        """Pods that are members of another gang than the Job's that made them, by its UID."""
        self._of_groups = GroupSpecs(
            groups, composites,
            jobs=jobs, priorities=priorities, quotas=quotas, workloads=self.workloads,
            members=self._members,
        )  # fmt: skip
        self._families: dict[GangKey, tuple[Gang, ...]] = {}
        self._waiting: set[GangKey] = set()
        self._idle: dict[GangKey, str] = {}
        """Gangs for which nothing can be decided, with their queues; those shown last at the end."""
        self._idle_counts: Counter[str] = Counter()
        self._idle_unshown = 0
        self._held: dict[str, ResourceSums] = {}
        self._leaving: dict[str, ResourceSums] = {}
        self._active: dict[GangKey, Gang] = {}
        self._active_shown: dict[GangKey, Gang] | None = None
        self._running: dict[str, set[GangKey]] = {}
        self.on_gone: list[Callable[[GangKey, UID], None]] = []
        """Called for each gang that is no more, when that is noticed: before the next session."""

    def join(self, pod: Pod, known: Pod | None) -> None:
        """A member appeared or changed; ``known`` is what it was before."""
        key = gang_key_of(pod)
        if known is not None and gang_key_of(known) != key:
            self.leave(known)
            known = None
        if key.kind != "Job" and pod.owner is not None and pod.owner.kind == "Job":
            self._elsewhere.setdefault(pod.owner.uid, {})[pod.uid] = pod
        self.sizes.change(known, pod)
        self._members.setdefault(key, {})[pod.uid] = pod
        self._mark_changed_with_job(pod, key)

    def leave(self, pod: Pod) -> None:
        """A member is gone."""
        self.sizes.change(pod, None)
        key = gang_key_of(pod)
        members = self._members.get(key, {})
        members.pop(pod.uid, None)
        if not members:
            self._members.pop(key, None)
        if pod.owner is not None and pod.owner.uid in self._elsewhere:
            self._elsewhere[pod.owner.uid].pop(pod.uid, None)
            if not self._elsewhere[pod.owner.uid]:
                del self._elsewhere[pod.owner.uid]
        self._mark_changed_with_job(pod, key)

    def _mark_changed_with_job(self, pod: Pod, key: GangKey) -> None:
        """A Job that we started waits for pods that join the gang which they name."""
        self.mark_changed(key)
        if key.kind != "Job" and pod.owner is not None and pod.owner.kind == "Job":
            self.mark_changed(GangKey("Job", pod.namespace, pod.owner.name))

    def mark_changed(self, key: GangKey) -> None:
        """Something changed that the gang's numbers depend on; all its stages have one key."""
        # Only controllers' gangs have stages: what annotations name may hold the mark itself.
        if key.kind in WORKLOADS and STAGE in key.name:
            key = key._replace(name=key.name.partition(STAGE)[0])
        self._dirty.add(key)
        top = self._of_groups.trees.top_of(key) if key.kind in GROUP_KINDS else None
        if top is not None:
            self._dirty.add(top)

    def mark_group_changed(self, kind: str, key: ObjectKey) -> None:
        """A group was put or dropped: all that its tree held or holds are counted again."""
        self._dirty.update(self._of_groups.note(kind, key))

    def mark_job_changed(self, key: ObjectKey) -> None:
        """A Job changed: its gang, and native groups that it owns, are counted again."""
        for gang in (GangKey("Job", *key), *self._of_groups.below("Job", key)):
            self.mark_changed(gang)

    def join_other(self, pod: Pod) -> None:
        """A pod of another scheduler names a group."""
        key = gang_key_of(pod)
        self._of_groups.join_other(key, pod)
        self.mark_changed(key)

    def leave_other(self, pod: Pod) -> None:
        """Such a pod is gone."""
        key = gang_key_of(pod)
        self._of_groups.leave_other(key, pod)
        self.mark_changed(key)

    def _family(self, key: GangKey) -> tuple[Gang, ...]:
        """The gangs of one key: one, or one a pod where a Job's pods are independent."""
        pods = self._pods(key)
        namespace = self._namespaces.items.get(ObjectKey("", key.namespace))
        queue = namespace.queue if namespace else ""
        if key.kind in GROUP_KINDS:
            found = self._of_groups.spec(key, pods, queue)
            if found is None:
                return ()
            spec, pods = found
            spec = self._with_job_news(self._of_pods(spec, pods), pods)
            return (build_gang(spec, pods, self._places(pods)),)
        places = self._places(pods)
        started = self._started(key, pods, queue)
        if started is not None:
            members = started[1]
            return (build_gang(self._with_job_news(started[0], members), members, places),)
        if not pods:
            return ()
        if key.kind == "Pod":
            return (build_gang(self._lone(pods[0], queue), pods, places),)
        if key.kind in CONTROLLER_KINDS:
            gangs = group_pods_of_controller(key, pods, self._source(key, pods, queue))
            return tuple(
                build_gang(self._with_job_news(self._of_pods(of, own), own), own, places)
                for of, own in gangs
            )
        origin = self._controller_origin(key, pods, queue)
        if origin is None:
            return tuple(
                build_gang(self._lone_of_job(pod, key, queue), [pod], places)
                for pod in sorted(pods, key=lambda pod: pod.key)
            )
        of_pods = self._with_job_news(self._of_pods(origin, pods), pods)
        return (build_gang(of_pods, pods, places),)

    def _places(self, pods: Iterable[Pod]) -> dict[UID, tuple[str, bool, int]]:
        """Node, whether it is confirmed, and slots, of pods that have a place."""
        ledger = self._ledger
        return {
            pod.uid: (
                held.node,
                bool(pod.node) or held.hold is HoldingState.CONFIRMED,
                ledger.slots_of(held),
            )
            for pod in pods
            if (held := ledger.get(pod.uid)) is not None
        }

    def _started(
        self, key: GangKey, pods: list[Pod], queue: str
    ) -> tuple[GangSpec, list[Pod]] | None:
        """A Job that is ours to start, or whose pods are still on their way, with all its pods."""
        job = self._jobs.items.get(ObjectKey(key.namespace, key.name))
        if key.kind != "Job" or job is None or not is_started_by_us(job, self._schedulers):
            return None
        named = self._priorities.items.get(
            ObjectKey("", job.template.priority_class if job.template else "")
        )
        coming = expected_pods_of(job, [*pods, *self._elsewhere.get(job.uid, {}).values()], named)
        refused = ""
        if named is not None and coming:
            refused = self._quotas.limits(key.namespace).admits(named.name, coming)
        if named is not None and refused:
            coming = [msgspec.structs.replace(pod, priority=0) for pod in coming]
            refused = f"priorityClassName {named.name} of its pods does not count, as {refused}"
        together = job.gang_size > 1 or job_parallelism(job) == 1
        if not coming or not (job.suspended or together):
            return None
        by_class = named.preemptible if named else None
        origin = spec_from_job(job, template=coming[0], queue=queue, by_class=by_class)
        origin = attrs.evolve(
            with_started_minimum(origin, job), expected_count=len(coming), warning=refused
        )
        members = [*pods, *coming]
        return self._of_pods(origin, members), members

    def _with_job_news(self, origin: GangSpec, pods: Sequence[Pod]) -> GangSpec:
        """With what its Jobs have to say: that one has failed, or would fail by evictions."""
        jobs = {job.key: job for job in self._jobs_of(origin.key, pods)}
        if not jobs:
            return origin
        known = [jobs[key] for key in sorted(jobs)]
        failure = failed_jobs_message(known)
        warning = None
        if origin.terms.preemptible:
            alive = sum(not pod.finished for pod in pods)
            wanted = max(alive, sum(job_parallelism(job) for job in known if not job.finished))
            warning = eviction_warning(
                known,
                paused=len(known) == 1 and bool(known[0].queue),
                extras=wanted > origin.min_member,
            )
        if not failure and warning is None:
            return origin
        return attrs.evolve(origin, job_failure=failure, eviction_warning=warning)

    def _jobs_of(self, key: GangKey, pods: Sequence[Pod]) -> Iterator[Job]:
        """Jobs that make the members of a gang, each once or more often."""
        if key.kind == "PodGroup":
            yield from self._jobs.of_group(ObjectKey(key.namespace, key.name))
        for owner in {pod.owner for pod in pods}:
            if owner is not None and owner.kind == "Job":
                job = self._jobs.items.get(ObjectKey(key.namespace, owner.name))
                if job is not None and job.uid == owner.uid:
                    yield job

    def _pods(self, key: GangKey) -> list[Pod]:
        """The members. Pods of an earlier Job of the same name only wait to be collected."""
        pods = list(self._members.get(key, {}).values())
        job = self._jobs.items.get(ObjectKey(key.namespace, key.name))
        if key.kind != "Job" or job is None:
            return pods
        return [pod for pod in pods if pod.owner is not None and pod.owner.uid == job.uid]

    def members(self, key: GangKey) -> Iterable[UID]:
        """UIDs of all pods that belong to a gang."""
        if key.kind == COMPOSITE:
            return [pod.uid for pod in self._of_groups.members_of_tree(key)]
        return self._members.get(key, {}).keys()

    def _lone(self, pod: Pod, queue: str) -> GangSpec:
        return spec_from_pod(pod, queue=queue, by_class=self._by_class(pod))

    def _by_class(self, pod: Pod) -> bool | None:
        """Whether the pod's priority class says that its pods may be evicted."""
        named = self._priorities.items.get(ObjectKey("", pod.priority_class))
        return named.preemptible if named else None

    def _job_queue(self, key: GangKey, fallback: str) -> str:
        job = self._jobs.items.get(ObjectKey(key.namespace, key.name))
        return (job.queue if job else "") or fallback

    def _controller_origin(self, key: GangKey, pods: list[Pod], queue: str) -> GangSpec | None:
        owner = next((pod.owner for pod in pods if pod.owner), None)
        if key.kind == "Job":
            name = ObjectKey(key.namespace, key.name)
            job = self._jobs.items.get(name)
            if job is not None:
                first = min(pods, key=lambda pod: (pod.created, pod.key))
                origin = spec_from_job(
                    job, template=first, queue=queue, by_class=self._by_class(first)
                )
                return origin if origin.min_member > 1 or _is_single(job) else None
            rejected = self._jobs.rejected.get(name)
            why = f"{rejected.field}: {rejected.why}" if rejected else "it has not been seen yet"
            uid = owner.uid if owner else UID("")
            return GangSpec(key=key, uid=uid, error=("InvalidSpec", f"Job {name}: {why}"))
        first = min(pods, key=lambda pod: (pod.created, pod.key))
        single = self._lone(first, queue)
        return GangSpec(
            key=key,
            uid=owner.uid if owner else UID(""),
            created=single.created,
            queue=single.queue,
            min_member=max(pod.hints.min_member for pod in pods),
            hints=first.hints,
            topology=single.topology,
            terms=single.terms,
        )

    def _lone_of_job(self, pod: Pod, key: GangKey, queue: str) -> GangSpec:
        """One of a Job's independent pods; what it does not say itself its Job may say."""
        job = (
            self._jobs.items.get(ObjectKey(key.namespace, key.name)) if key.kind == "Job" else None
        )
        hints = job.hints if job is not None and pod.hints == NO_GANG_ANNOTATIONS else pod.hints
        return spec_from_pod(
            pod, queue=self._job_queue(key, queue), by_class=self._by_class(pod), hints=hints
        )

    def _source(self, key: GangKey, pods: list[Pod], queue: str) -> ControllerView:
        """What is known of the controller of a gang that its labels name."""
        first = oldest_member(pods)
        assert first is not None
        shelf: KindStore[ForeignWorkload] = self.workloads.get(key.kind) or KindStore()
        # One that says so by its owner reference alone has none of the controller's labels.
        name = ObjectKey(key.namespace, first.family.owner if first.family else key.name)
        workload = shelf.items.get(name)
        named = self._priorities.items.get(
            ObjectKey("", workload.priority_class if workload else "")
        )
        return ControllerView(
            workload=workload,
            rejected=shelf.rejected.get(name),
            read=key.kind in self.read,
            counted=self._counted(named, key, pods, field="priorityClass"),
            queue=queue,
            by_class=self._by_class(first),
        )

    def _counted(
        self, named: PriorityClass | None, key: GangKey, pods: list[Pod], *, field: str
    ) -> CountedPriority | None:
        """How far the class counts that a gang's object names; None when there is no such class."""
        if named is None:
            return None
        return self._quotas.limits(key.namespace).count(named, pods, field=field)

    def _of_pods(self, origin: GangSpec, pods: Sequence[Pod]) -> GangSpec:
        """The gang's priority by its members, where no object names a class for it."""
        if origin.priority is not None or len({pod.priority for pod in pods}) < 2:
            return origin
        priority = self._quotas.limits(origin.key.namespace).of_pods(pods)
        return attrs.evolve(origin, priority=priority)

    def mark_workload_changed(self, kind: str, name: ObjectKey) -> None:
        """The gangs of one controller are counted again."""
        for key in self._of_groups.below(kind, name):
            self.mark_changed(key)
        if kind not in ("LeaderWorkerSet", NATIVE_WORKLOAD):
            self.mark_changed(GangKey(kind, *name))
            return
        self._dirty.update(  # one gang a group, each with a name of its own
            key
            for key in self._members
            if key.kind == kind and key.namespace == name.namespace and name.name in key.name
        )

    def mark_kinds_changed(self, kinds: Collection[str]) -> None:
        """All gangs of some kinds are counted again."""
        self._dirty.update(key for key in self._members if key.kind in kinds)

    def mark_priority_class_changed(self, name: str) -> None:
        """The gangs of all controllers' objects that name a priority class are counted again."""
        for kind, shelf in self.workloads.items():
            for key, workload in shelf.items.items():
                if workload.priority_class == name:
                    self.mark_workload_changed(kind, key)

    def _charged(self, gang: Gang) -> Gang:
        """The gang in the queue that is charged for it.

        Pods that were bound by others than us, such as those that preset their node, passed no
        queue's door: one that does not serve their namespace is not charged for them.
        """
        named = self._queues.items.get(ObjectKey("", gang.queue))
        held = (*gang.placed, *gang.leaving_placed)
        if named is None or named.namespaces is EVERYTHING or not held:
            return gang
        namespace = self._namespaces.items.get(ObjectKey("", gang.key.namespace))
        if named.namespaces.matches(namespace.labels if namespace else {}):
            return gang
        if any(self._sure(member.pod.uid) for member in held):
            return gang
        remark = (
            f"its pods were not bound by gpusched and queue {named.name} does not serve namespace "
            f"{gang.key.namespace}: queue {DEFAULT_QUEUE} is charged for them"
        )
        remark = "; ".join(text for text in (gang.warning, remark) if text)
        return attrs.evolve(gang, queue=DEFAULT_QUEUE, warning=remark)

    def _sure(self, uid: UID) -> bool:
        held = self._ledger.get(uid)
        return held is not None and held.sealed

    def mark_queue_changed(self, name: str) -> None:
        """Gangs that hold something, and may be charged to this queue or not, are counted again."""
        for gang in self._active.values():
            if gang.queue in (name, DEFAULT_QUEUE):
                self.mark_changed(gang.key)

    def mark_all_changed(self) -> None:
        """All gangs are counted again."""
        self._dirty.update(self._members)
        self._dirty.update(self._families)

    def mark_namespace_changed(self, namespace: str) -> None:
        """All gangs of a namespace are counted again."""
        for known in (self._members, self._families):
            self._dirty.update(key for key in known if key.namespace == namespace)

    def held(self) -> dict[str, Resources]:
        """Requests of members with a place, by queue."""
        return {queue: tally.sum() for queue, tally in self._held.items() if len(tally)}

    def leaving(self) -> dict[str, Resources]:
        """The part of ``held`` that belongs to members being deleted, by queue."""
        return {queue: tally.sum() for queue, tally in self._leaving.items() if len(tally)}

    def active(self) -> dict[GangKey, Gang]:
        """Every gang of which a member has a place. Not to be changed: it is kept until one is."""
        if self._active_shown is None:
            self._active_shown = dict(self._active)
        return self._active_shown

    def running(self) -> dict[str, int]:
        """Numbers of gangs that have their minimum, by queue."""
        return {queue: len(gangs) for queue, gangs in self._running.items() if gangs}

    def shown(self, also: Iterable[GangKey] = ()) -> Iterator[Gang]:
        """Gangs that wait or were touched since the last call, counted anew; in any order.

        Of gangs without a pod that could get a place, which cost a session and come to nothing,
        only some are shown each time, in turn.

        Args:
            also: gangs that are shown whatever becomes of them.
        """
        keys = self.rebuild() | self._waiting
        keys.update(self._some_idle())
        keys.update(key for key in also if key in self._idle)
        for key in keys:
            yield from self._families.get(key, ())

    def request_idle_gangs(self) -> None:
        """What is said of gangs may have changed: those that nothing can be decided for, too."""
        self._idle_unshown = len(self._idle)

    def idle_gangs_by_queue(self, gangs: Iterable[Gang]) -> dict[str, int]:
        """By queue, gangs for which nothing can be decided and that are not among these."""
        if not self._idle:
            return {}
        counts = self._idle_counts.copy()
        counts.subtract(gang.queue for gang in gangs if gang.key in self._idle)
        return {queue: count for queue, count in sorted(counts.items()) if count > 0}

    def _some_idle(self) -> list[GangKey]:
        many = max(limits.IDLE_GANGS_MAX, self._idle_unshown)
        self._idle_unshown = 0
        if len(self._idle) <= many:
            return list(self._idle)
        keys = list(islice(self._idle, many))
        for key in keys:
            self._idle[key] = self._idle.pop(key)
        return keys

    def rebuild(self) -> set[GangKey]:
        """Count again what was touched; the keys that were."""
        changed = set(self._dirty)
        self._dirty.clear()
        for key in changed:
            before = self._families.pop(key, ())
            for gang in before:
                if gang.queue in self._held:
                    self._held[gang.queue].drop(gang.key)
                    self._leaving[gang.queue].drop(gang.key)
                    self._running[gang.queue].discard(gang.key)
                if self._active.pop(gang.key, None) is not None:
                    self._active_shown = None
            try:
                family = _countable_gangs(tuple(map(self._charged, self._family(key))))
            except Exception as error:  # noqa: BLE001 - one family must not stop the others
                family = self._failed(key, error)
            self._report_gone_gangs(before, family)
            self._waiting.discard(key)
            self._count_idle(self._idle.pop(key, None), -1)
            if not family:
                continue
            self._families[key] = family
            if len(family) == 1 and _is_idle(family[0]):
                self._idle[key] = family[0].queue
                self._count_idle(family[0].queue, 1)
            elif any(
                (gang.pod_sets or gang.gated or gang.missing_members) and not gang.done
                for gang in family
            ):
                self._waiting.add(key)
            try:
                for gang in family:
                    if gang.allocated:
                        self._enter(gang)
            except Exception as error:  # noqa: BLE001 - nor its queue's sums; its nodes are charged
                self._families[key] = self._failed(key, error)
        return changed

    def _report_gone_gangs(self, before: Sequence[Gang], now: Sequence[Gang]) -> None:
        if not self.on_gone or not before:
            return
        left = {gang.uid for gang in now}
        for gang in before:
            if gang.uid not in left:
                for listener in self.on_gone:
                    try:
                        listener(gang.key, gang.uid)
                    except Exception as error:  # noqa: BLE001 - nor what was known of one
                        self._note(gang.key, error)

    def _count_idle(self, queue: str | None, times: int) -> None:
        if queue is None:
            return
        left = self._idle_counts[queue] + times
        if left:
            self._idle_counts[queue] = left
        else:
            del self._idle_counts[queue]

    def _failed(self, key: GangKey, error: Exception) -> tuple[Gang, ...]:
        """A family that cannot be counted: one gang that holds what it holds, and is told why."""
        self._note(key, error)
        why = count_error_message(error)
        group = self._of_groups.find(key) if key.kind in GROUP_KINDS else None
        origin = GangSpec(
            key=key,
            uid=group.uid if group is not None else UID(""),
            generation=group.generation if group is not None else 0,
            queue=group.queue if group is not None else "",
            pod_group=group,
            error=("SchedulerError", why),
        )
        try:
            pods = list(self._members.get(key, {}).values())
            places = {
                pod.uid: (held.node, bool(pod.node), held.slots)
                for pod in pods
                if (held := self._ledger.get(pod.uid)) is not None
            }
            return _countable_gangs((build_gang(origin, pods, places),))
        except Exception:  # noqa: BLE001 - its nodes are charged by the ledger all the same
            return ()

    def lost(self, key: GangKey) -> tuple[PodGroup | None, list[Pod]] | None:
        """What there is of a gang that cannot be shown at all; None for one that is shown."""
        if key in self._families:
            return None
        group = self._groups.items.get(ObjectKey(key.namespace, key.name))
        pods = list(self._members.get(key, {}).values())
        return (group if key.kind == "PodGroup" else None), pods

    def _note(self, key: GangKey, error: Exception) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append((key, error))

    def _enter(self, gang: Gang) -> None:
        """Count what a gang holds."""
        queue = gang.queue
        if queue not in self._held:
            self._held[queue] = ResourceSums()
            self._leaving[queue] = ResourceSums()
            self._running[queue] = set()
        self._held[queue].put(gang.key, gang.allocated)
        if gang.leaving_allocated:
            self._leaving[queue].put(gang.key, gang.leaving_allocated)
        if not gang.missing_members:
            self._running[queue].add(gang.key)
        self._active[gang.key] = gang
        self._active_shown = None


def count_error_message(error: Exception) -> str:
    """What the owner of a gang is told whose members cannot be counted."""
    return (
        f"the scheduler fails to count its members ({type(error).__name__}), which is a defect "
        "of the scheduler; they are counted again when one of them changes, or within "
        f"{limits.SET_ASIDE_RETRY_S / 60:.0f} min"
    )


def _countable_gangs(family: tuple[Gang, ...]) -> tuple[Gang, ...]:
    """The owner's gangs, if they answer what is asked of every gang before any is decided.

    The same is asked again later, where an exception would concern every gang.
    """
    for gang in family:
        _ = (
            gang.missing_members,
            gang.members_at_start,
            gang.done,
            gang.pending,
            gang.started_at,
            _is_idle(gang),
        )
    return family


def _is_idle(gang: Gang) -> bool:
    """Whether it waits for pods, or for gates to go: the start of no other gang depends on it."""
    if gang.pod_sets or gang.placed or gang.leaving or gang.done:
        return False
    return not (gang.pod_group is not None and gang.pod_group.min_resources)


def _is_single(job: Job) -> bool:
    """Whether its one pod is the Job, which is paused and started again as a whole."""
    return job.completions == 1 and bool(job.queue) and not job.controlled
