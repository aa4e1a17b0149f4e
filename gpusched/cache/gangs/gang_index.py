"""All gangs by key, of which those that were touched are counted again and the rest is shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.foreign.workload import ForeignWorkload
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, GangKey, ObjectKey, Rejected
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.gang_membership import NATIVE_WORKLOAD, gang_key_of
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import Namespace, PriorityClass
from gpusched.api.queue.queue import DEFAULT_QUEUE, Queue
from gpusched.api.serializer.seal import NO_SEAL, Seal
from gpusched.base import limits
from gpusched.base.debounce import Change
from gpusched.cache.gangs.counting.gpu_sizes import GpuSizes
from gpusched.cache.gangs.counting.held_times import HeldTimes
from gpusched.cache.gangs.counting.placed_gangs import PlacedLog
from gpusched.cache.gangs.counting.resource_sums import ResourceSums
from gpusched.cache.gangs.counting.shown_gangs import ShownGangs
from gpusched.cache.gangs.counting.waiting_elsewhere import ForeignLines
from gpusched.cache.gangs.expected_pods import expects_pod
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS, GroupSpecs
from gpusched.cache.gangs.foreign.pod_grouper import STAGE
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.gangs.gang_builder import GangBuilder, is_idle
from gpusched.cache.gangs.job_runtimes import JobStore
from gpusched.cache.gangs.priority import QuotaStore
from gpusched.cache.ledger import Ledger
from gpusched.cache.no_op_filter import tells_its_end
from gpusched.cache.store import KindStore
from gpusched.config.model import UsersBelieved

FAULTS_MAX: Final = 64
"""Faults that wait to be told."""


OnCounted = Callable[[GangKey, tuple[Gang, ...]], None]


def _every_gang(_key: GangKey) -> bool:
    return True


class GangIndex:
    """All gangs by key.

    Args:
        ledger: places of pods.
        groups, composites, jobs, namespaces, priorities, quotas, queues: where gangs get their numbers from.
        schedulers: names whose pods are ours.
        seal: by which records of ours are told from those that a tenant wrote.

    Attributes:
        users_doubt: why names of users cannot be believed, as words of a sentence; empty where they can,
            or nobody has looked.
        takes_gang: whether a gang is decided about here; others are as if they were not there.
    """

    users_doubt: str = ""
    takes_gang: Callable[[GangKey], bool] = staticmethod(_every_gang)

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
        seal: Callable[[], Seal] = lambda: NO_SEAL,
    ) -> None:
        self._groups, self._composites, self._jobs = groups, composites, jobs
        self._schedulers = schedulers
        self.resting_jobs: set[ObjectKey] = set()
        """Jobs of ours that go on and have no active member, as counted last."""
        self.workloads: dict[str, KindStore[ForeignWorkload]] = {
            kind: KindStore() for kind in WORKLOADS
        }
        self.read: frozenset[str] = frozenset()
        """Kinds of ``workloads`` that are read here; of others only their pods tell."""
        self.faults: list[tuple[GangKey, Exception]] = []
        """Gangs that could not be counted, until ``take_count_errors`` hands them out."""
        self.sizes = GpuSizes()
        """What the members ask for, each."""
        self._dirty, self._counted = set[GangKey](), set[GangKey]()  # counted and not yet shown
        self._members: dict[GangKey, dict[UID, Pod]] = {}
        self._elsewhere: dict[UID, dict[UID, Pod]] = {}
        """Pods that are members of another gang than the Job's that made them, by its UID."""
        self._of_groups = GroupSpecs(
            groups, composites,
            jobs=jobs, priorities=priorities, quotas=quotas,
            workloads=self.workloads, members=self._members,
        )  # fmt: skip
        self._builder = GangBuilder(
            ledger,
            members=self._members, elsewhere=self._elsewhere, group_specs=self._of_groups,
            jobs=jobs, namespaces=namespaces, priorities=priorities, quotas=quotas, queues=queues,
            workloads=self.workloads, kinds_read=lambda: self.read, schedulers=schedulers, seal=seal,
        )  # fmt: skip
        self._families: dict[GangKey, tuple[Gang, ...]] = {}
        self._waiting: set[GangKey] = set()
        self._idle: dict[GangKey, str] = {}
        """Gangs for which nothing can be decided, with their queues; those shown last at the end."""
        self._idle_counts, self._idle_unshown = Counter[str](), 0
        self._held, self._leaving = dict[str, ResourceSums](), dict[str, ResourceSums]()
        self._active: dict[GangKey, Gang] = {}
        self._placed_log, self._active_touched = PlacedLog(), set[GangKey]()
        self._active_shown = self._placed_log.show({}, ())
        self._running: dict[str, set[GangKey]] = {}
        self._shown = ShownGangs()
        self.on_gone: list[Callable[[GangKey, UID], None]] = []
        """Called for each gang that is no more, when that is noticed: before the next session."""
        self._queues, self._limited_users, self._limits_lines = queues, False, False
        self.lines_elsewhere = ForeignLines()
        self.held_times = HeldTimes(ledger)
        self.on_counted: list[OnCounted] = []
        """Called with all gangs of a key whenever they were counted anew; with none when they are gone."""

    def add_member(self, pod: Pod, known: Pod | None) -> None:
        """A member appeared or changed; ``known`` is what it was before."""
        key = gang_key_of(pod)
        if known is not None and gang_key_of(known) != key:
            self.remove_member(known)
            known = None
        if key.kind != "Job" and pod.owner is not None and pod.owner.kind == "Job":
            self._elsewhere.setdefault(pod.owner.uid, {})[pod.uid] = pod
        self.sizes.replace_pod(known, pod)
        self._members.setdefault(key, {})[pod.uid] = pod
        self._mark_changed_with_job(pod, key)

    def remove_member(self, pod: Pod) -> None:
        """A member is gone."""
        self.sizes.replace_pod(pod, None)
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
        self._dirty.update(self._of_groups.note_group(kind, key))

    def mark_job_changed(self, key: ObjectKey, *versions: Job | Rejected | None) -> bool:
        """A Job changed: its gang, and groups that it owns or names, are counted again.

        Args:
            key: of the Job.
            versions: as it was, and as it is; None for a Job that is not there.

        Returns:
            Whether one of them is decided about here, or counted.
        """
        named = (each.group for each in versions if isinstance(each, Job) and each.group)
        gangs = [
            GangKey("Job", *key),
            *self._of_groups.groups_below("Job", key),
            *(GangKey("PodGroup", key.namespace, group) for group in named),
        ]
        for gang in gangs:
            self.mark_changed(gang)
        return any(map(self.counts_gang, gangs))

    def counts_gang(self, key: GangKey) -> bool:
        """Whether a gang is decided about here, or counted for budgets and lines of users."""
        return self.held_times.follows or self._limits_lines or self.takes_gang(key)

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

    def members_of_others(self, key: GangKey) -> Collection[Pod]:
        """Pods of other schedulers that name a group."""
        return self._of_groups.members_of_others(key)

    def member_uids(self, key: GangKey) -> Iterable[UID]:
        """UIDs of all pods that belong to a gang."""
        if key.kind == COMPOSITE:
            return [pod.uid for pod in self._of_groups.members_of_tree(key)]
        return self._members.get(key, {}).keys()

    def has_members_elsewhere(self, job: UID) -> bool:
        """Whether pods of this Job are members of gangs that have other objects, such as a PodGroup."""
        return job in self._elsewhere

    def change_by_job(self, known: Job | None, job: Job | Rejected) -> Change:
        """What news of a Job are: those of an end that all its pods, none of which is in another gang, have told are late."""
        if known is None or not tells_its_end(known, job) or self.has_members_elsewhere(known.uid):
            return Change.ANY
        pods = self._members.get(GangKey("Job", *job.key), {}).values()
        return Change.LATE if all(pod.finished for pod in pods) else Change.ANY

    def change_by_pod(self, known: Pod | None, pod: Pod) -> Change:
        """What news of a pod are: what gangs were counted with before is what sessions know."""
        key = gang_key_of(pod)
        if key.kind == "Pod" and not pod.node:
            return Change.ALONE
        new = known is None and not pod.node and not pod.gated
        job = self._jobs.items.get(ObjectKey(key.namespace, key.name)) if new else None
        if key.kind != "Job" or job is None or job.suspended:
            return Change.ANY
        gangs = self._families.get(key, ())
        return Change.FORESEEN if any(expects_pod(gang, pod) for gang in gangs) else Change.ANY

    def is_known(self, key: GangKey) -> bool:
        """Whether there is anything of a gang: members, a group, a Job or another controller."""
        if key in self._members or key in self._families or key in self._dirty:
            return True
        store = self._stores().get(key.kind)
        return store is not None and ObjectKey(key.namespace, key.name) in store.items

    def _stores(self) -> dict[str, KindStore[Any]]:
        """Objects that are gangs without pods, too, by kind."""
        found: dict[str, KindStore[Any]] = {**self.workloads}
        found |= {"PodGroup": self._groups, COMPOSITE: self._composites, "Job": self._jobs}
        return found

    def is_active(self, key: GangKey) -> bool:
        """Whether a gang has members that run, wait, or are on their way out, or waits for its pods; as counted last."""
        family = self._families.get(key)
        if family is None:
            return any(True for _ in self.member_uids(key))
        return any(gang.active or gang.lacks_pods for gang in family)

    def mark_workload_changed(self, kind: str, name: ObjectKey) -> None:
        """The gangs of one controller are counted again."""
        for key in self._of_groups.groups_below(kind, name):
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
        """The gangs of all groups, Jobs, controllers' objects and pods that name the class are counted again."""
        for gang_key, members in self._members.items():
            if any(pod.priority_class == name for pod in members.values()):
                self.mark_changed(gang_key)
        for job_key, job in self._jobs.items.items():
            if job.template is not None and job.template.priority_class == name:
                self.mark_changed(GangKey("Job", *job_key))
        for groups in (self._groups, self._composites):
            for group_key, group in groups.items.items():
                if group.priority_class == name:
                    self.mark_changed(GangKey(group.kind, *group_key))
        for kind, shelf in self.workloads.items():
            for key, workload in shelf.items.items():
                if workload.priority_class == name:
                    self.mark_workload_changed(kind, key)

    def mark_queue_changed(self, name: str) -> None:
        """Gangs that hold something, and may be charged to this queue or not, are counted again.

        Where a queue limits users, or did, all are: their accounts are named by the queues above them. Idle ones are
        shown again.
        """
        self.request_idle_gangs()
        limited, self._limited_users = self._limited_users, self.limits_users
        self._limits_lines = any(
            each.user_limits.limits_lines for each in self._queues.items.values()
        )
        if limited or self._limited_users:
            self.mark_all_changed()
        for gang in self._active.values():
            if gang.queue in (name, DEFAULT_QUEUE):
                self.mark_changed(gang.key)

    @property
    def limits_users(self) -> bool:
        """Whether some queue limits users."""
        return any(each.limits_users for each in self._queues.items.values())

    @property
    def believes_users(self) -> bool:
        """Whether annotations that name users count."""
        return self._builder.users_believed

    def use_users(self, believed: UsersBelieved) -> None:
        """``users`` of the configuration, from now on."""
        if self._builder.users_believed != (believed == "annotated"):
            self._builder.users_believed = believed == "annotated"
            self.mark_all_changed()

    def mark_all_changed(self) -> None:
        """All gangs are counted again."""
        self._dirty.update(self._members)
        self._dirty.update(self._families)

    def mark_all_seen(self) -> None:
        """Other gangs than before are decided about: those without pods may be among them."""
        self.mark_all_changed()
        for kind, store in self._stores().items():
            self._dirty.update(GangKey(kind, *key) for key in store.items)

    def mark_namespace_changed(self, namespace: str) -> None:
        """All gangs of a namespace are counted again."""
        for known in (self._members, self._families):
            self._dirty.update(key for key in known if key.namespace == namespace)

    def held_by_queue(self) -> dict[str, Resources]:
        """Requests of members with a place, by queue."""
        return {queue: tally.sum_parts() for queue, tally in self._held.items() if len(tally)}

    def leaving_by_queue(self) -> dict[str, Resources]:
        """The part of ``held_by_queue`` that belongs to members being deleted, by queue."""
        return {queue: tally.sum_parts() for queue, tally in self._leaving.items() if len(tally)}

    def active_gangs(self) -> Mapping[GangKey, Gang]:
        """Every gang of which a member has a place. Not to be changed: it is kept until one is."""
        if self._active_touched:
            self._active_shown = self._placed_log.show(self._active, self._active_touched)
            self._active_touched.clear()
        return self._active_shown

    def running_by_queue(self) -> dict[str, int]:
        """Numbers of gangs that have their minimum, by queue."""
        return {queue: len(gangs) for queue, gangs in self._running.items() if gangs}

    def gangs_to_show(
        self, now: float, moves: Iterable[tuple[GangKey, object]] = ()
    ) -> tuple[Gang, ...]:
        """Gangs that wait or were touched since the last call, counted anew; sorted by key.

        Of gangs without a pod that could get a place, which cost a session and come to nothing,
        only some are shown each time, in turn.

        Args:
            now: seconds since the epoch; GPUs that are not held any more were so until then.
            moves: of gangs that are shown whatever becomes of them, by their keys.
        """
        if self.held_times.begin_snapshot(self._queues.items.values(), now):
            self.mark_all_changed()
        touched = self.rebuild_touched()
        passing = {*touched, *self._some_idle(), *(key for key, _ in moves if key in self._idle)}
        return self._shown.show(passing, touched, self._waiting, self._families)

    def show_all_again(self) -> None:
        """The next call shows what the last one showed, too."""
        self._shown.show_again()

    def request_idle_gangs(self) -> None:
        """What is said of gangs may have changed: those that nothing can be decided for, too."""
        self._idle_unshown = len(self._idle)

    def idle_gangs_by_queue(self) -> dict[str, int]:
        """By queue, gangs for which nothing can be decided and that were not shown last."""
        if not self._idle:
            return {}
        counts = self._idle_counts.copy()
        shown = self._shown.passing_gangs()  # those that wait are none of them
        counts.subtract(gang.queue for gang in shown if gang.key in self._idle)
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

    def count_ahead(self, now: float) -> Iterator[None]:
        """Count again what was touched before it is shown, where that is much; yields between parts.

        Args:
            now: as for ``gangs_to_show``.
        """
        most = limits.PODS_COUNTED_AT_ONCE
        if self._pods_touched(self._dirty) <= most:
            return
        if self.held_times.begin_snapshot(self._queues.items.values(), now):
            self.mark_all_changed()
        part: list[GangKey] = []
        pods = 0
        for key in tuple(self._dirty):
            part.append(key)
            pods += self._pods_touched((key,))
            if pods >= most:
                self._recount(part)
                part, pods = [], 0
                yield

    def _pods_touched(self, keys: Iterable[GangKey]) -> int:
        """Pods of these gangs, and one more for each."""
        return sum(1 + len(self._members.get(key, ())) for key in keys)

    def rebuild_touched(self) -> set[GangKey]:
        """Count again what was touched; the keys that were since this was called last."""
        self._recount(list(self._dirty))
        counted, self._counted = self._counted, set()
        return counted

    def _recount(self, keys: Sequence[GangKey]) -> None:
        self._dirty.difference_update(keys)
        self._counted.update(keys)
        self._builder.forget_terms()
        # Who leaves one family for another, as an orphan of its Job does, leaves before it is counted there.
        for key in sorted(keys, key=self._members.__contains__):
            before = self._families.pop(key, ())
            for gang in before:
                self._drop_counts(gang)
            try:
                family = self._builder.build_gangs(key) if self.takes_gang(key) else ()
                elsewhere = () if family else self._build_elsewhere(key)
            except Exception as error:  # noqa: BLE001 - one family must not stop the others
                family, elsewhere = self._build_failed(key, error), ()
            self.lines_elsewhere.note_counted(key, elsewhere)
            if key.kind == "Job":
                self._note_resting_job(key, family)
            self._report_gone_gangs(before, family)
            self._report_counted_gangs(key, family, elsewhere)
            self._waiting.discard(key)
            self._count_idle(self._idle.pop(key, None), -1)
            if not family:
                continue
            self._families[key] = family
            if len(family) == 1 and is_idle(family[0]):
                self._idle[key] = family[0].queue
                self._count_idle(family[0].queue, 1)
            elif any(map(_waits, family)):
                self._waiting.add(key)
            try:
                for gang in family:
                    if gang.allocated.items and gang.allocated:  # most that wait have none
                        self._count_gang(gang)
            except Exception as error:  # noqa: BLE001 - nor its queue's sums; its nodes are charged
                self._families[key] = self._build_failed(key, error)

    def _build_elsewhere(self, key: GangKey) -> tuple[Gang, ...]:
        """Gangs that are decided about in another shard, where they count here: for budgets, and in lines of users."""
        if self.takes_gang(key) or not self.counts_gang(key):
            return ()
        return self._builder.build_gangs(key)

    def _note_resting_job(self, key: GangKey, family: tuple[Gang, ...]) -> None:
        name = ObjectKey(key.namespace, key.name)
        job = self._jobs.items.get(name) if self.takes_gang(key) else None
        goes_on = job is not None and not job.finished and job.scheduler in self._schedulers
        if goes_on and not any(gang.active for gang in family):
            self.resting_jobs.add(name)
        else:
            self.resting_jobs.discard(name)

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
                        self._note_error(gang.key, error)

    def _report_counted_gangs(
        self, key: GangKey, family: tuple[Gang, ...], elsewhere: tuple[Gang, ...]
    ) -> None:
        listeners = self.on_counted
        if self.held_times.follows:
            listeners = [partial(self._note_held, elsewhere), *listeners]
        for listener in listeners:
            try:
                listener(key, family)
            except Exception as error:  # noqa: BLE001 - who looks on stops nothing
                self._note_error(key, error)

    def _note_held(
        self, elsewhere: tuple[Gang, ...], key: GangKey, family: tuple[Gang, ...]
    ) -> None:
        gangs = (*family, *elsewhere)
        self.held_times.note_counted(key, gangs, self._builder.ended_members(key, gangs))

    def _count_idle(self, queue: str | None, times: int) -> None:
        if queue is None:
            return
        left = self._idle_counts[queue] + times
        if left:
            self._idle_counts[queue] = left
        else:
            del self._idle_counts[queue]

    def hidden_gang(self, key: GangKey) -> tuple[PodGroup | None, list[Pod]] | None:
        """What there is of a gang that cannot be shown at all; None for one that is shown."""
        if key in self._families:
            return None
        group = self._groups.items.get(ObjectKey(key.namespace, key.name))
        pods = list(self._members.get(key, {}).values())
        return (group if key.kind == "PodGroup" else None), pods

    def _build_failed(self, key: GangKey, error: Exception) -> tuple[Gang, ...]:
        self._note_error(key, error)
        return self._builder.build_failed(key, error)

    def _note_error(self, key: GangKey, error: Exception) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append((key, error))

    def _drop_counts(self, gang: Gang) -> None:
        """Drop what a gang holds, unless it was counted again since, as one of another family."""
        if self._active.get(gang.key) is not gang:
            return
        del self._active[gang.key]
        self._active_touched.add(gang.key)
        self._held[gang.queue].drop_part(gang.key)
        self._leaving[gang.queue].drop_part(gang.key)
        self._running[gang.queue].discard(gang.key)

    def _count_gang(self, gang: Gang) -> None:
        """Count what a gang holds."""
        known = self._active.get(gang.key)
        if known is not None:
            self._drop_counts(known)
        queue = gang.queue
        if queue not in self._held:
            self._held[queue] = ResourceSums()
            self._leaving[queue] = ResourceSums()
            self._running[queue] = set()
        self._held[queue].set_part(gang.key, gang.allocated)
        if gang.leaving_allocated:
            self._leaving[queue].set_part(gang.key, gang.leaving_allocated)
        if not gang.missing_members:
            self._running[queue].add(gang.key)
        self._active[gang.key] = gang
        self._active_touched.add(gang.key)


def _waits(gang: Gang) -> bool:
    return bool(gang.pod_sets or gang.gated or gang.missing_members) and not gang.done
