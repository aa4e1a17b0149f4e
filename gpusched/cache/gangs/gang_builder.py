"""How the pods of one key become gangs, with the numbers of their objects.

A family is what one key stands for: one gang, or one a pod where a Job's pods are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import attrs
import msgspec

from gpusched.api.affinity.selector import EVERYTHING
from gpusched.api.foreign.workload import ForeignWorkload
from gpusched.api.gang.charge_record import ChargeRecord
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.jobs.job_failures import (
    eviction_warning,
    failed_jobs_message,
    too_few_pods_message,
)
from gpusched.api.meta.identity import NO_CREATOR, UID, Creator, GangKey, ObjectKey
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, Pod
from gpusched.api.policy.kinds import Namespace, PriorityClass
from gpusched.api.queue.queue import DEFAULT_QUEUE, Queue
from gpusched.api.queue.user_limits import user_accounts
from gpusched.api.serializer.seal import Seal
from gpusched.base import limits
from gpusched.cache.gangs.counting.gang_counts import build_gang
from gpusched.cache.gangs.counting.job_successes import (
    NO_SUCCESSES,
    count_successes,
    jobs_of_this_run,
    without_earlier_runs,
)
from gpusched.cache.gangs.counting.plain_pods import PlainPods, PlainTerms
from gpusched.cache.gangs.expected_pods import (
    expected_pods_of,
    is_started_by_us,
    job_parallelism,
    with_started_minimum,
)
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS, GroupSpecs
from gpusched.cache.gangs.foreign.pod_grouper import (
    CONTROLLER_KINDS,
    ControllerView,
    group_pods_of_controller,
    oldest_member,
)
from gpusched.cache.gangs.gang import Gang, GangSpec, spec_from_job, spec_from_pod
from gpusched.cache.gangs.holds import HELD, hold_message
from gpusched.cache.gangs.job_runtimes import JobStore
from gpusched.cache.gangs.priority import CountedPriority, QuotaStore
from gpusched.cache.ledger import CONFIRMED, Ledger
from gpusched.cache.store import KindStore


class EndedMember(NamedTuple):
    """A pod that held what it asked for and is over; its queue and user, empty where not known, pay for it."""

    pod: Pod
    queue: str
    user: str


class GangBuilder:
    """Builds the gangs of one key from the pods that have it, and from what describes them.

    Args:
        ledger: places of pods.
        members: pods by key and UID, as the gang index keeps them.
        elsewhere: pods that are members of another gang than the Job's that made them, by its UID.
        group_specs: what objects of groups say.
        jobs, namespaces, priorities, quotas, queues, workloads: where gangs get their numbers from.
        kinds_read: tells the kinds of ``workloads`` that are read here; of others only their pods tell.
        schedulers: names whose pods are ours.
        seal: by which records of ours are told from those that a tenant wrote.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        members: Mapping[GangKey, Mapping[UID, Pod]],
        elsewhere: Mapping[UID, Mapping[UID, Pod]],
        group_specs: GroupSpecs,
        jobs: JobStore,
        namespaces: KindStore[Namespace],
        priorities: KindStore[PriorityClass],
        quotas: QuotaStore,
        queues: KindStore[Queue],
        workloads: Mapping[str, KindStore[ForeignWorkload]],
        kinds_read: Callable[[], Collection[str]],
        schedulers: Collection[str],
        seal: Callable[[], Seal],
    ) -> None:
        self._ledger = ledger
        self._seal = seal
        self._members = members
        self._elsewhere = elsewhere
        self._of_groups = group_specs
        self._jobs = jobs
        self._namespaces = namespaces
        self._priorities = priorities
        self._quotas = quotas
        self._queues = queues
        self._workloads = workloads
        self._kinds_read = kinds_read
        self._schedulers = schedulers
        self._plain = PlainPods(ledger, self._plain_terms)
        self.users_believed = True
        """Whether annotations that name users count."""

    def build_gangs(self, key: GangKey) -> tuple[Gang, ...]:
        """The gangs of one key, each in the queue that is charged for it.

        Where the object is gone that named queue and user, what was written on the pods with their
        binding says them: whoever deletes it gets no room in its queue by that.
        """
        members = self._members.get(key, {}) if key.kind == "Pod" else ()
        if len(members) == 1 and (plain := self._plain.build(key, *members.values())) is not None:
            return (plain,)
        gone = self._is_gone(key)
        gangs = []
        for gang in self._build_family(key):
            record = self._recorded_charge(gang) if gone else None
            paid = gang if record is None else attrs.evolve(gang, queue=record.queue)
            creator = self._creator_of(gang) if record is None else record.creator
            gangs.append(self._name_creator(self._mark_held(self._charge_queue(paid)), creator))
        return _countable_gangs(tuple(gangs))

    def ended_members(self, key: GangKey, family: Sequence[Gang]) -> Iterator[EndedMember]:
        """Members that had a place and are over, with who pays for them by what the API still tells.

        Args:
            key: of the gangs.
            family: all of them.
        """
        tree = key.kind == COMPOSITE
        pods = self._of_groups.members_of_tree(key) if tree else self._members.get(key, {}).values()
        over = [pod for pod in pods if pod.finished and pod.node and pod.scheduled]
        if not over or not family:
            return
        gone = self._is_gone(key)
        for pod in over:
            gang = next((each for each in family if each.uid == pod.uid), family[0])
            if gone and pod.charge is not None and self._seal().fits_charge(pod.uid, pod.charge):
                yield EndedMember(pod, pod.charge.queue, pod.charge.creator.user)
                continue
            creator = gang.creator
            if creator is NO_CREATOR and self.users_believed:
                made_by = [*(job.creator for job in self._jobs_of(key, [pod])), pod.creator]
                creator = next(filter(None, made_by), NO_CREATOR)
            ours = self._is_served(gang.queue, key.namespace) or self._seal().fits_binding(pod)
            yield EndedMember(pod, gang.queue if ours else DEFAULT_QUEUE, creator.user)

    def forget_terms(self) -> None:
        """Objects that say something of plain pods may have changed."""
        self._plain.forget()

    def _plain_terms(self, pod: Pod) -> PlainTerms:
        """What the objects around a pod say of it and all that are alike."""
        namespace = self._namespaces.items.get(ObjectKey("", pod.namespace))
        spec = self._lone_pod_spec(pod, namespace.queue if namespace else "")
        gang = self._name_creator(build_gang(spec, [pod], {}), NO_CREATOR)
        served = self._is_served(gang.queue, pod.namespace)
        return PlainTerms(gang.queue, gang.terms, gang.topology, gang.error, served, gang.accounts)

    def _is_gone(self, key: GangKey) -> bool:
        """Whether no object, or none that can be read, describes the gangs of a key."""
        if key.kind in GROUP_KINDS:
            return self._of_groups.is_gone(key)
        if key.kind == "Pod":
            return True  # it is its own, and carries a record where it once was another's
        member = next(iter(self._members.get(key, {}).values()), None)
        owner = member.family.owner if member is not None and member.family else key.name
        store = self._jobs if key.kind == "Job" else self._workloads.get(key.kind)
        return store is not None and ObjectKey(key.namespace, owner) not in store.items

    def _recorded_charge(self, gang: Gang) -> ChargeRecord | None:
        """Who pays by what we wrote on the member that was bound last; None where we wrote nothing."""
        held = (*gang.placed, *gang.leaving_placed)
        pods = [member.pod for member in held if member.pod.charge is not None]
        for pod in sorted(pods, key=lambda each: (-each.scheduled, each.uid)):
            if pod.charge is not None and self._seal().fits_charge(pod.uid, pod.charge):
                return pod.charge
        return None

    def _build_family(self, key: GangKey) -> tuple[Gang, ...]:
        """The gangs of one key: one, or one a pod where a Job's pods are independent."""
        pods = self._member_pods(key)
        namespace = self._namespaces.items.get(ObjectKey("", key.namespace))
        queue = namespace.queue if namespace else ""
        if key.kind in GROUP_KINDS:
            found = self._of_groups.build_spec(key, pods, queue)
            if found is None:
                return ()
            spec, every = found
            pods = list(without_earlier_runs(every, self._jobs_of(key, every, spec.tree)))
            spec = self._with_job_news(self._of_pods(spec, pods), pods)
            return (build_gang(spec, pods, self._pod_places(pods)),)
        places = self._pod_places(pods)
        started = self._suspended_job_spec(key, pods, queue)
        if started is not None:
            members = started[1]
            return (build_gang(self._with_job_news(started[0], members), members, places),)
        if not pods:
            return ()
        if key.kind == "Pod":
            return (build_gang(self._lone_pod_spec(pods[0], queue), pods, places),)
        if key.kind in CONTROLLER_KINDS:
            gangs = group_pods_of_controller(key, pods, self._controller_view(key, pods, queue))
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

    def _charge_queue(self, gang: Gang) -> Gang:
        """The gang in the queue that is charged for it.

        Pods that were bound by others than us, such as those that preset their node, passed no
        queue's door: one that does not serve their namespace is not charged for them.
        """
        held = (*gang.placed, *gang.leaving_placed)
        if not held or self._is_served(gang.queue, gang.key.namespace):
            return gang
        if any(self._is_confirmed(member.pod.uid) for member in held):
            return gang
        remark = (
            f"its pods were not bound by gpusched and queue {gang.queue} does not serve namespace "
            f"{gang.key.namespace}: queue {DEFAULT_QUEUE} is charged for them"
        )
        remark = "; ".join(text for text in (gang.warning, remark) if text)
        return attrs.evolve(gang, queue=DEFAULT_QUEUE, warning=remark)

    def _is_served(self, queue: str, namespace: str) -> bool:
        """Whether a queue serves a namespace; one that does not exist refuses nobody."""
        named = self._queues.items.get(ObjectKey("", queue))
        if named is None or named.namespaces is EVERYTHING:
            return True
        known = self._namespaces.items.get(ObjectKey("", namespace))
        return named.namespaces.matches(known.labels if known else {})

    def _creator_of(self, gang: Gang) -> Creator:
        return next(filter(None, self._found_creators(gang)), NO_CREATOR)

    def _name_creator(self, gang: Gang, creator: Creator) -> Gang:
        """The gang with its creator, and the accounts in which queues that limit users count it."""
        accounts = tuple(
            account
            for queue in self._queues_above(gang.queue)
            if queue.limits_users
            for account in user_accounts(queue.name, queue.user_limits, creator)
        )
        if creator is NO_CREATOR and not accounts:
            return gang
        return attrs.evolve(gang, creator=creator, accounts=accounts)

    def _found_creators(self, gang: Gang) -> Iterator[Creator]:
        """Who made what the gang consists of, its group first; a maker that is not known is false."""
        if not self.users_believed:
            return
        if gang.pod_group is not None:
            yield gang.pod_group.creator
        if gang.job is not None:
            yield gang.job.creator
        pods = [member.pod for member in (*gang.placed, *gang.leaving_placed)]
        pods += [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
        jobs = [each for each in self._jobs_of(gang.key, pods) if each.creator is not NO_CREATOR]
        named = [each for each in pods if each.creator is not NO_CREATOR]
        if jobs:
            yield min(jobs, key=lambda each: (each.created, each.key)).creator
        if named:
            yield min(named, key=lambda each: (each.created, each.key)).creator

    def _queues_above(self, name: str) -> Iterator[Queue]:
        """The queue of a name and those above it."""
        known: set[str] = set()
        while name not in known and (queue := self._queues.items.get(ObjectKey("", name))):
            yield queue
            known.add(name)
            name = queue.parent

    def _mark_held(self, gang: Gang) -> Gang:
        """The gang with the reason why nothing of it starts, where somebody holds it."""
        if gang.error[0]:
            return gang
        for kind, name, hold in self._found_holds(gang):
            if hold:
                return attrs.evolve(gang, error=(HELD, hold_message(kind, name, hold)))
        return gang

    def _found_holds(self, gang: Gang) -> Iterator[tuple[str, str, str]]:
        """Kind, name and hold of all that may hold a gang: its groups, its controllers, members that wait."""
        groups = [gang.pod_group] if gang.pod_group is not None else []
        for group in (*groups, *gang.tree):
            yield group.kind, group.name, group.hold
        pods = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
        jobs = [*self._jobs_of(gang.key, pods), *([gang.job] if gang.job is not None else [])]
        for each in (
            *jobs,
            *self._of_groups.workloads_above(groups),
            *self._controller_objects(gang),
        ):
            yield getattr(each, "kind", "Job"), each.name, each.hold
        for pod in pods:
            yield "Pod", pod.name, pod.hold

    def _controller_objects(self, gang: Gang) -> Iterator[ForeignWorkload]:
        """The object of a gang's controller, where it is read."""
        store = self._workloads.get(gang.key.kind)
        pods = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
        first = oldest_member(pods)
        if store is None or first is None:
            return
        name = first.family.owner if first.family else gang.key.name
        found = store.items.get(ObjectKey(gang.key.namespace, name))
        if found is not None:
            yield found

    def build_failed(self, key: GangKey, error: Exception) -> tuple[Gang, ...]:
        """A family that cannot be counted: one gang that holds what it holds, and is told why."""
        why = count_error_message(error)
        group = self._of_groups.find_group(key) if key.kind in GROUP_KINDS else None
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

    def _suspended_job_spec(
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
            refused = self._quotas.namespace_limits(key.namespace).admission_clause(
                named.name, coming
            )
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
        """With what its Jobs have to say: who succeeded, that one has failed, or would fail by evictions."""
        known = jobs_of_this_run(self._jobs_of(origin.key, pods, origin.tree))
        if not known:
            return origin
        kind = origin.key.kind
        successes = count_successes(
            known, pods, by_group=kind == COMPOSITE, by_controller=kind in CONTROLLER_KINDS
        )
        failure = failed_jobs_message(known)
        if not failure and origin.key.kind == "PodGroup" and _makes_all(known, pods):
            made = sum(job_parallelism(job) for job in known)
            failure = too_few_pods_message(known, made=made, needed=origin.min_member)
        warning = None
        if origin.terms.preemptible:
            alive = sum(not pod.finished for pod in pods)
            wanted = max(alive, sum(job_parallelism(job) for job in known if not job.finished))
            warning = eviction_warning(
                known,
                paused=len(known) == 1 and bool(known[0].queue),
                extras=wanted > origin.min_member,
            )
        if not failure and warning is None and successes is NO_SUCCESSES:
            return origin
        return attrs.evolve(
            origin, job_failure=failure, eviction_warning=warning, successes=successes
        )

    def _jobs_of(
        self, key: GangKey, pods: Sequence[Pod], tree: Sequence[PodGroup] = ()
    ) -> Iterator[Job]:
        """Jobs that make the members of a gang, or of the groups of its tree, each once or more often."""
        if key.kind == "PodGroup":
            yield from self._jobs.of_group(ObjectKey(key.namespace, key.name))
        for group in tree:
            yield from self._jobs.of_group(group.key)
        for owner in {pod.owner for pod in pods}:
            if owner is not None and owner.kind == "Job":
                job = self._jobs.items.get(ObjectKey(key.namespace, owner.name))
                if job is not None and job.uid == owner.uid:
                    yield job

    def _member_pods(self, key: GangKey) -> list[Pod]:
        """The members. Pods of an earlier Job of the same name only wait to be collected."""
        pods = list(self._members.get(key, {}).values())
        job = self._jobs.items.get(ObjectKey(key.namespace, key.name))
        if key.kind != "Job" or job is None:
            return pods
        return [pod for pod in pods if pod.owner is not None and pod.owner.uid == job.uid]

    def _pod_places(self, pods: Iterable[Pod]) -> dict[UID, tuple[str, bool, int]]:
        """Node, whether it is confirmed, and slots, of pods that have a place."""
        ledger = self._ledger
        return {
            pod.uid: (
                held.node,
                bool(pod.node) or held.hold is CONFIRMED,
                ledger.slots_of(held),
            )
            for pod in pods
            if (held := ledger.get(pod.uid)) is not None
        }

    def _lone_pod_spec(self, pod: Pod, queue: str) -> GangSpec:
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
        single = self._lone_pod_spec(first, queue)
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

    def _controller_view(self, key: GangKey, pods: list[Pod], queue: str) -> ControllerView:
        """What is known of the controller of a gang that its labels name."""
        first = oldest_member(pods)
        assert first is not None
        store: KindStore[ForeignWorkload] = self._workloads.get(key.kind) or KindStore()
        # One that says so by its owner reference alone has none of the controller's labels.
        name = ObjectKey(key.namespace, first.family.owner if first.family else key.name)
        workload = store.items.get(name)
        named = self._priorities.items.get(
            ObjectKey("", workload.priority_class if workload else "")
        )
        return ControllerView(
            workload=workload,
            rejected=store.rejected.get(name),
            read=key.kind in self._kinds_read(),
            counted=self._count_priority(named, key, pods, field="priorityClass"),
            queue=queue,
            by_class=self._by_class(first),
        )

    def _count_priority(
        self, named: PriorityClass | None, key: GangKey, pods: list[Pod], *, field: str
    ) -> CountedPriority | None:
        """How far the class counts that a gang's object names; None when there is no such class."""
        if named is None:
            return None
        return self._quotas.namespace_limits(key.namespace).count_priority(named, pods, field=field)

    def _of_pods(self, origin: GangSpec, pods: Sequence[Pod]) -> GangSpec:
        """The gang's priority by its members, where no object names a class for it."""
        if origin.priority is not None or len({pod.priority for pod in pods}) < 2:
            return origin
        priority = self._quotas.namespace_limits(origin.key.namespace).of_pods(pods)
        return attrs.evolve(origin, priority=priority)

    def _is_confirmed(self, uid: UID) -> bool:
        held = self._ledger.get(uid)
        return held is not None and held.sealed


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
            is_idle(gang),
        )
    return family


def is_idle(gang: Gang) -> bool:
    """Whether it waits for pods, or for gates to go: the start of no other gang depends on it."""
    if gang.pod_sets or gang.placed or gang.leaving or gang.done:
        return False
    return not (gang.pod_group is not None and gang.pod_group.min_resources)


def _is_single(job: Job) -> bool:
    """Whether its one pod is the Job, which is paused and started again as a whole."""
    return job.completions == 1 and bool(job.queue) and not job.controlled


def _makes_all(jobs: Sequence[Job], pods: Sequence[Pod]) -> bool:
    """Whether all pods that are and will be are of these Jobs, of which none has come to an end in part."""
    makers = {job.uid for job in jobs}
    return all(not job.finished and not job.succeeded for job in jobs) and all(
        pod.owner is not None and pod.owner.uid in makers for pod in pods
    )
