"""Applies what the watches show, idempotently, and hands out snapshots.

Methods are called in the event loop and return at once. A snapshot rebuilds gangs and rows that changed, and shares the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import structs

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID, GangKey, ObjectKey, Rejected
from gpusched.api.node.node import Node
from gpusched.api.pod.gang_membership import gang_key_of
from gpusched.api.pod.pod import NOMINATED, Pod
from gpusched.api.policy.kinds import (
    DisruptionBudget,
    Namespace,
    PriorityClass,
    ResourceQuota,
    Topology,
)
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.api.serializer.seal import NO_SEAL, Seal
from gpusched.base.debounce import Change
from gpusched.cache.assumed_changes import AssumedChanges, Nomination
from gpusched.cache.claimable.device_stores import DeviceObjectStores
from gpusched.cache.claimable.pod_charges import PodCharges
from gpusched.cache.claimable.volume_stores import VolumeStores
from gpusched.cache.gangs.foreign_kinds import ForeignKinds
from gpusched.cache.gangs.gang_index import GangIndex
from gpusched.cache.gangs.job_runtimes import JobStore
from gpusched.cache.gangs.move_records import MoveRecords
from gpusched.cache.gangs.priority import PriorityClassStore, QuotaStore, changes_priority
from gpusched.cache.ledger import Holding, HoldingState, Ledger
from gpusched.cache.no_op_filter import same_finished, same_job, same_spec, same_told, same_waiting
from gpusched.cache.nodes import holdings
from gpusched.cache.nodes.device_view import DeviceNodeRows
from gpusched.cache.nodes.pods_by_node import PodsByNode, pod_for_others
from gpusched.cache.nodes.rows import CapacitySum, unfit_for_binding
from gpusched.cache.nodes.slot_doubts import SlotDoubts
from gpusched.cache.part import WHOLE_CLUSTER, ClusterPart
from gpusched.cache.queues.tree import QueueTrees
from gpusched.cache.snapshot import NO_EXPECTED_STARTS, NO_SPARE_ROOM, Snapshot, TenantRound
from gpusched.cache.store import KindStore, MovableStore, ObservedStore
from gpusched.config.model import DEFAULT_LIMITS, Config, LimitsConfig


class Cache:
    """The state of the cluster as far as it is known.

    Args:
        scheduler_names: pods of these are ours to place; all others are only charged.
        seal: by which records of ours are told from forged ones; the default believes all.

    Attributes:
        part: what is decided about here.
    """

    part: ClusterPart = WHOLE_CLUSTER

    def __init__(self, scheduler_names: Collection[str], *, seal: Seal = NO_SEAL) -> None:
        self.limits = DEFAULT_LIMITS
        self.schedulers = frozenset(scheduler_names)
        self.seal = seal
        self.ledger = Ledger()
        self.slot_doubts = SlotDoubts(self.ledger)
        self.rows = DeviceNodeRows(self._changed)
        self.residents = PodsByNode()
        self.storage = VolumeStores(self._changed)
        self.devices = DeviceObjectStores(self._changed, self.rows.slices)
        self.pods: dict[ObjectKey, Pod] = {}
        self.charged: dict[ObjectKey, Rejected] = {}
        """Rejected pods by key; those that are bound hold their node's room all the same."""
        self.by_uid: dict[UID, Pod] = {}
        self.groups: MovableStore[PodGroup] = MovableStore()
        self.composites: KindStore[PodGroup] = KindStore()
        """CompositePodGroups of Kubernetes itself."""
        self.jobs = JobStore()
        self.queues: KindStore[Queue] = KindStore()
        self.topologies: ObservedStore[Topology] = ObservedStore(self._changed, same_spec)
        self.reservations = ObservedStore[AdvanceReservation](self._changed, same_spec)
        self.namespaces: KindStore[Namespace] = KindStore()
        self.priorities = PriorityClassStore()
        self.budgets: KindStore[DisruptionBudget] = KindStore()
        self.quotas = QuotaStore()
        self.rejected_nodes: dict[str, Rejected] = {}
        self.families = GangIndex(
            self.ledger,
            groups=self.groups, composites=self.composites, jobs=self.jobs,
            namespaces=self.namespaces, priorities=self.priorities, quotas=self.quotas,
            queues=self.queues, schedulers=self.schedulers, seal=lambda: self.seal,
        )  # fmt: skip
        self.foreign = ForeignKinds(
            self.families,
            groups=(self.put_group, self.drop_group),
            queues=(self.put_queue, self.drop_queue),
            changed=self._changed,
        )
        self.families.held_times.find_node = self.rows.find_any
        self.overlay = AssumedChanges()
        self.charges = PodCharges(self._is_ours, self.groups.items, self.devices.claims.items)
        self.rows.devices_only = self.charges.served.on_node
        self.moves = MoveRecords(self.groups, self.jobs, lambda: self.seal)
        self.rounds: tuple[TenantRound, ...] = ()
        """How far the last session came when it could not look at every gang, as it reported."""
        self.may_end_early = self.foreseen = False
        """Whether the next session may end when it has started somebody; see ``RoundProgress`` and the snapshot."""
        self.expected_starts, self.spare_room = NO_EXPECTED_STARTS, NO_SPARE_ROOM  # as it reported
        self._revision, self._capacity, self._trees = 0, CapacitySum(), QueueTrees()
        self.on_pod: list[Callable[[Pod], None]] = []
        """Called with each pod of ours that was seen, after it was applied."""
        self.on_pod_gone: list[Callable[[UID], None]] = []
        self.on_change: list[Callable[[], None]] = []
        """Called after every change that a decision may depend on."""
        self.change = Change.ANY
        """What kind of change the last one was."""
        self.on_echo: list[Callable[[], None]] = []
        """Called after a change that only status depends on, such as our own writes shown back."""

    # -- pods ------------------------------------------------------------------------------
    def put_pod(self, item: Pod | Rejected) -> None:
        """A pod appeared or changed."""
        key = item.key
        known = self.pods.get(key)
        if known is not None and known.uid != item.uid:
            self.drop_pod(key)
            known = None
        if isinstance(item, Rejected):
            self._put_rejected_pod(item)
            return
        same = known is not None and known.resource_version == item.resource_version
        item = self.charges.on_pod(item)
        pod = self.overlay.show_pod(item)
        # Versions of a store that was restored are given a second time, with other content.
        if same and pod == known:
            return
        self._forget_rejected(key)
        ours = item.scheduler in self.schedulers
        # What waits on is counted when a session runs anyway: what it was told may have been lost.
        same = (
            ours and known is not None and (same_waiting(known, pod) or same_finished(known, pod))
        )
        expected = (
            known is not None
            and holdings.is_where_assumed(known, pod, self.ledger.get(pod.uid))
            and gang_key_of(known) == gang_key_of(pod)
        )
        self._enter_pod(pod, known, key)
        if pod.holds:
            self.slot_doubts.report_invalid(item, known, self.seal)
        if ours:
            for listener in self.on_pod:
                listener(item)
            if not same and self._concerns(pod):
                self._changed(self.families.change_by_pod(known, pod), echo=expected)
        elif pod_for_others(known) != pod_for_others(item):
            self._changed()

    def _enter_pod(self, pod: Pod, known: Pod | None, key: ObjectKey) -> None:
        self.residents.note_pod(pod, known, ours=pod.scheduler in self.schedulers)
        if known is not None and known.node and not pod.node:
            self.ledger.release_pod(pod.uid)  # no binding is ever undone, but a backup knows none
        self.pods[key] = pod
        self.by_uid[pod.uid] = pod
        self._charge_pod(pod)
        if pod.scheduler in self.schedulers:
            self.families.add_member(pod, known)
            self.rows.note_refused_pod(pod)
        else:
            if pod.extended:
                self.charges.served.note_other(pod)
            if pod.group:
                self.families.join_other(pod)

    def drop_pod(self, key: ObjectKey) -> None:
        """A pod is gone."""
        self._forget_rejected(key)
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        self.by_uid.pop(pod.uid, None)
        self.charges.drop_pod(pod)
        self.slot_doubts.forget(pod.uid)
        self.overlay.drop_pod(pod.uid)
        self.residents.drop_pod(pod.uid)
        self.ledger.release_pod(pod.uid)
        ours = pod.scheduler in self.schedulers
        if ours:
            self.families.remove_member(pod)
            for listener in self.on_pod_gone:
                listener(pod.uid)
        elif pod.group:
            self.families.leave_other(pod)
        if (ours or pod_for_others(pod)) and self._concerns(pod):
            self._changed()

    def _concerns(self, pod: Pod) -> bool:
        """Whether a pod is on a node, or in a gang, that is decided about here."""
        return self.rows.get(pod.node) is not None or self.families.takes_gang(gang_key_of(pod))

    def _put_rejected_pod(self, item: Rejected) -> None:
        self.drop_pod(item.key)
        self.charged[item.key] = item
        sealed = item.charge is not None and self.seal.fits(item.uid, item.charge)
        if (held := holdings.rejected_holding(item, sealed=sealed)) is not None:
            self._enter_holding(held)
        self._changed()

    def _forget_rejected(self, key: ObjectKey) -> None:
        if (rejected := self.charged.pop(key, None)) is not None:
            self.ledger.release_pod(rejected.uid)

    def _charge_pod(self, pod: Pod) -> None:
        if pod.holds:
            ours, sealed = pod.scheduler in self.schedulers, self.seal.fits_binding(pod)
            self._enter_holding(holdings.bound_holding(pod, ours=ours, sealed=sealed))
        elif pod.finished:
            self.ledger.release_pod(pod.uid)

    def _enter_holding(self, held: Holding) -> None:
        self.ledger.hold_pod(held)
        self.slot_doubts.note_holding(held.node)

    def settle_slot_doubts(self) -> Iterator[None]:
        """Whose slots are in doubt on a node where something was entered may have lost or won them by it."""
        for node in sorted(self.slot_doubts.entered):
            for pod in filter(None, map(self.by_uid.get, self.ledger.doubted_on(node))):
                if pod.scheduler in self.schedulers:
                    self.families.mark_changed(gang_key_of(pod))
                self.slot_doubts.report_conflict(pod, self.seal)
            self.slot_doubts.entered.discard(node)
            yield

    def use_seal(self, seal: Seal) -> None:
        """Records of ours are told from forged ones by this seal from now on: we lead."""
        if seal == self.seal:
            return
        self.seal = seal
        for pod in [*self.by_uid.values()]:
            if pod.holds:
                self._charge_pod(pod)
                self.slot_doubts.report_invalid(pod, None, self.seal)
            if pod.node and pod.scheduler in self.schedulers:
                self.families.mark_changed(gang_key_of(pod))
        for key, job in sorted(self.jobs.doubted.items()):
            self.put_job(key, job)
        self._changed()

    def member_pods(self, gang: GangKey) -> list[Pod]:
        """All pods that belong to a gang, as far as they can be believed."""
        return [self.by_uid[uid] for uid in self.families.member_uids(gang) if uid in self.by_uid]

    # -- what is on its way ----------------------------------------------------------------
    def mark_leaving(self, uid: UID, *, leaving: bool = True) -> None:
        """An eviction is under way, or is not any more: shown at once, see ``Overlay``."""
        pod = self.by_uid.get(uid)
        if pod is not None:
            mark = self.overlay.assume_leaving if leaving else self.overlay.assume_staying
            self._show_pod(pod, mark(pod))

    def is_being_evicted(self, gang: GangKey) -> bool:
        """Whether evictions of members were decided that the API has not accepted yet."""
        return any(map(self.overlay.is_leaving, self.families.member_uids(gang)))

    def assume_nomination(self, uid: UID, nomination: Nomination | None) -> None:
        """A promise is being written, or (None) could not be: shown at once."""
        pod = self.by_uid.get(uid)
        if pod is not None:
            self._show_pod(pod, self.overlay.assume_nomination(pod, nomination))

    def withdraw_nomination(self, uid: UID, reason: str) -> None:
        """A promise holds no more, though the API shows it yet: no session is to count on it."""
        pod = self.by_uid.get(uid)
        if pod is not None and pod.nominated and pod.unschedulable_reason == NOMINATED:
            self._show_pod(pod, self.overlay.withdraw_nomination(pod, reason))

    def switch_job(self, key: ObjectKey, uid: UID, becomes: Job | None) -> None:
        """A Job is being paused or started, or (None) could not be: shown at once."""
        job = self.jobs.items.get(key)
        shown = self.overlay.assume_switch(job, becomes) if job and job.uid == uid else job
        if shown and shown is not job:  # else the watch has shown meanwhile what was assumed
            self.jobs.put(key, shown)
            self.families.mark_changed(GangKey("Job", *key))
            self._changed(echo=becomes is not None)

    def _show_pod(self, known: Pod, pod: Pod) -> None:
        if pod is not known:
            self._enter_pod(pod, known, pod.key)
            self._changed()

    # -- assumptions -----------------------------------------------------------------------
    def assume_binding(self, pod: Pod, node: str, slots: int) -> None:
        """The pod takes its place in our books before the API is asked."""
        self._enter_placed(pod, node, slots, HoldingState.ASSUMED)

    def confirm_binding(self, uid: UID, node: str, slots: int, plan: str) -> None:
        """The API accepted the binding, although the watch has not shown it yet."""
        pod = self.by_uid.get(uid)
        if pod is not None and not pod.finished and not pod.node:
            self._enter_placed(pod, node, slots, HoldingState.CONFIRMED)
        del plan

    def forget(self, uid: UID) -> None:
        """An assumption was wrong: the room is free again."""
        pod = self.by_uid.get(uid)
        if pod is not None and pod.holds:
            return
        self.ledger.release_pod(uid)
        if pod is not None:
            self.families.mark_changed(gang_key_of(pod))
            self._changed()

    def find_pod(self, uid: UID) -> Pod | None:
        """The pod of that UID as last seen."""
        return self.by_uid.get(uid)

    def placement_error(self, node: str, node_uid: UID) -> str:
        """Why a pod must not be bound to a node that was decided on; empty when it may."""
        return unfit_for_binding(self.rows.get(node), node, node_uid)

    def _enter_placed(self, pod: Pod, node: str, slots: int, hold: HoldingState) -> None:
        self._enter_holding(holdings.assumed_holding(pod, node, slots, hold))
        self.families.mark_changed(gang_key_of(pod))

    # -- nodes and the small kinds -----------------------------------------------------------
    def put_node(self, item: Node | Rejected) -> None:
        """A node appeared or changed; one that cannot be believed takes no pods."""
        if isinstance(item, Node) and self.rows.take_heartbeat(item):
            return
        if isinstance(item, Rejected):
            self.rejected_nodes[item.key.name] = item
            self.rows.drop_node(item.key.name)
            self._update_charges(changed=self.charges.prices.drop_node(item.key.name))
        else:
            self.rejected_nodes.pop(item.name, None)
            self.rows.put_node(item)
            self._update_charges(changed=self.charges.prices.put_node(item.name, item.labels))
        if isinstance(item, Rejected) or item.name not in self.rows.other_nodes:
            self._changed()

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self.rejected_nodes.pop(name, None)
        self.rows.drop_node(name)
        self._update_charges(changed=self.charges.prices.drop_node(name))
        self._changed()

    def _update_charges(self, *, changed: bool) -> None:
        """Pods and Jobs that ask for GPU memory are charged by other prices than before."""
        for priced, pod in self.charges.reprice_pods([*self.pods.values()] if changed else ()):
            self._enter_priced(priced, pod)
            held = self.ledger.get(pod.uid)
            if held is not None:
                self.ledger.hold_pod(structs.replace(held, requests=priced.pod_class.requests))
        for key, job in [*self.jobs.items.items()] if changed else ():
            if self.charges.prices.on_job(job) is not job:
                self.put_job(key, job)

    def _is_ours(self, uid: UID) -> bool:
        pod = self.by_uid.get(uid)
        return pod is not None and pod.scheduler in self.schedulers

    def _enter_priced(self, priced: Pod, pod: Pod) -> None:
        self.overlay.set_charge(pod.uid, priced.pod_class)
        self._enter_pod(priced, pod, pod.key)

    def _device_view(self) -> DeviceCatalog:
        """Devices and claims of now, after which pods and Jobs are charged."""
        catalog = self.devices.build_catalog()
        if not catalog.served:
            return catalog
        self._resolve_again(
            filter(None, map(self.find_pod, self.devices.claims.take_wait_changes()))
        )
        recharged, jobs = self.charges.follow_catalog(catalog, self.by_uid, self.jobs.items)
        for priced, pod in recharged:
            self._enter_priced(priced, pod)
        for key, job in jobs:
            self.put_job(key, job)
        if self.charges.serve(catalog, self.rows.show_again):
            self._resolve_again([each for each in self.pods.values() if each.extended])
            for key, job in [*self.jobs.items.items()]:
                if job.template is not None and job.template.extended:
                    self.put_job(key, job)
        return catalog

    def put_group(self, key: ObjectKey, item: PodGroup | Rejected) -> None:
        """A PodGroup appeared or changed."""
        known = self.groups.items.get(key)
        self.groups.put(key, item)
        self._share_claims(key, known)
        self.families.mark_group_changed("PodGroup", key)
        if self.families.takes_gang(GangKey("PodGroup", *key)):
            self._changed(echo=same_spec(known, item))

    def drop_group(self, key: ObjectKey) -> None:
        """A PodGroup is gone; its unbound pods wait."""
        known = self.groups.items.get(key)
        self.groups.drop(key)
        self._share_claims(key, known)
        self.families.mark_group_changed("PodGroup", key)
        if self.families.counts_gang(GangKey("PodGroup", *key)):
            self._changed()

    def _share_claims(self, key: ObjectKey, known: PodGroup | None) -> None:
        """Members use the claims that their group has now."""
        if self.charges.claims.note_group(known, self.groups.items.get(key)):
            self._resolve_again(self.member_pods(GangKey("PodGroup", *key)))

    def _resolve_again(self, pods: Iterable[Pod]) -> None:
        for priced, pod in self.charges.reprice_pods(pods):
            self._enter_priced(priced, pod)

    def put_composite(self, key: ObjectKey, item: PodGroup | Rejected) -> None:
        """A CompositePodGroup appeared or changed."""
        echo = same_spec(self.composites.items.get(key), item)
        self.composites.put(key, item)
        self.families.mark_group_changed(COMPOSITE, key)
        self._changed(echo=echo)

    def drop_composite(self, key: ObjectKey) -> None:
        """A CompositePodGroup is gone; groups that name it as their parent wait."""
        self.composites.drop(key)
        self.families.mark_group_changed(COMPOSITE, key)
        self._changed()

    def put_job(self, key: ObjectKey, item: Job | Rejected) -> None:
        """A Job appeared or changed."""
        if isinstance(item, Job):
            item = self.charges.on_job(self.jobs.believe(key, item, self.seal))
        known, item = self.jobs.items.get(key), self.overlay.show_job(key, item)
        self.jobs.put(key, item)
        if not same_job(known, item) and self.families.mark_job_changed(key, known, item):
            self._changed(self.families.change_by_job(known, item))

    def drop_job(self, key: ObjectKey) -> None:
        """A Job is gone."""
        self.overlay.drop_job(key)
        known = self.jobs.items.get(key)
        self.jobs.drop(key)
        if self.families.mark_job_changed(key, known):
            self._changed()

    def put_queue(self, key: ObjectKey, item: Queue | Rejected) -> None:
        """A queue appeared or changed."""
        known = self.queues.items.get(key)
        self.queues.put(key, item)
        if not (echo := same_spec(known, item)):
            self.families.mark_queue_changed(key.name)
        if not same_told(known, item):
            self._changed(echo=echo)

    def drop_queue(self, key: ObjectKey) -> None:
        """A queue is gone."""
        self.queues.drop(key)
        self.families.mark_queue_changed(key.name)
        self._changed()

    def put_priority(self, key: ObjectKey, item: PriorityClass | Rejected) -> None:
        """A PriorityClass appeared or changed; PodGroups may name it."""
        self.priorities.put(key, item)
        self._class_changed(key.name)

    def drop_priority(self, key: ObjectKey) -> None:
        """A PriorityClass is gone; the numbers on the pods count."""
        self.priorities.drop(key)
        self._class_changed(key.name)

    def _class_changed(self, priority_class: str) -> None:
        self.families.mark_priority_class_changed(priority_class)
        self._changed()

    def put_quota(self, key: ObjectKey, item: ResourceQuota | Rejected) -> None:
        """A ResourceQuota appeared or changed; most changes are of what is used alone."""
        matter = changes_priority(self.quotas.items.get(key), item) or key in self.quotas.rejected
        self.quotas.put(key, item)
        if matter:
            self.families.mark_namespace_changed(key.namespace)
            self._changed()

    def drop_quota(self, key: ObjectKey) -> None:
        """A ResourceQuota is gone."""
        self.quotas.drop(key)
        self.families.mark_namespace_changed(key.namespace)
        self._changed()

    def use_priority_rules(self, config: Config) -> None:
        """``users``, ``podGroupPriority`` and ``nonPreemptibleFromPriority`` of the configuration, from now on."""
        self.families.use_users(config.users)
        rule, border = config.pod_group_priority, config.non_preemptible_from_priority
        if (rule, border) != (self.quotas.rule, self.priorities.non_preemptible_from):
            self.quotas.use_rule(rule)
            self.priorities.use_non_preemptible_from(border)
            self.families.mark_all_changed()
            self._changed()

    def use_limits(self, limits: LimitsConfig) -> None:
        """``limits`` of the configuration, from now on."""
        self.limits = limits
        self._changed()

    def put_namespace(self, key: ObjectKey, item: Namespace | Rejected) -> None:
        """A namespace appeared or changed; its queue label holds for pods that name none, and
        queues may serve it or not.
        """
        known = self.namespaces.items.get(key)
        self.namespaces.put(key, item)
        self.families.request_idle_gangs()
        shown = item if isinstance(item, Namespace) else None
        before, after = ((each.labels, each.queue) if each else None for each in (known, shown))
        if before != after:
            self.families.mark_namespace_changed(key.name)
        self._changed()

    def drop_namespace(self, key: ObjectKey) -> None:
        """A namespace is gone, and with it the queue it named."""
        self.namespaces.drop(key)
        self.families.mark_namespace_changed(key.name)
        self._changed()

    def show_again(self, gangs: Iterable[GangKey]) -> None:
        """What a snapshot showed of these gangs was not used: the next one shows them again."""
        for gang in gangs:
            self.families.mark_changed(gang)

    def _changed(self, change: Change = Change.ANY, *, echo: bool = False) -> None:
        self.change = change
        for listener in self.on_echo if echo else self.on_change:
            listener()

    def request_status(self) -> None:
        """Something that only status depends on has changed."""
        self._changed(echo=True)

    def take_count_errors(self) -> list[tuple[GangKey, Exception]]:
        """Gangs that could not be counted since the last call, and why not."""
        faults, self.families.faults = self.families.faults, []
        return faults

    def recount_everything(self) -> None:
        """A snapshot broke off: what it had taken of the marks is not known, so all is taken again."""
        self.families.mark_all_changed()
        self.residents.forget()

    # -- snapshots -------------------------------------------------------------------------
    def take_snapshot(self, now: float) -> Snapshot:
        """This moment; what changed since the last call is rebuilt, the rest shared."""
        devices = self._device_view()
        [*self.settle_slot_doubts()]
        self._revision, moved = self._revision + 1, set(self.ledger.dirty)
        nodes = self.rows.rows_at(now).build_columns(self.ledger)
        moves = self.moves.recent_moves(now, self.limits.move_pause_s)
        gangs = self.families.gangs_to_show(now, moves)
        return Snapshot(
            revision=self._revision,
            nodes=nodes,
            gangs=gangs,
            queues=self._trees.build(
                self.queues.items.values(),
                self.families.held_by_queue(),
                self.queues.rejected.values(),
                leaving=self.families.leaving_by_queue(),
                capacity=self._capacity.sum_nodes(nodes).plus(self.charges.devices.everywhere),
                here=self.part.queues_here(self.queues.items.values()),
            ),
            namespaces={key.name: item for key, item in self.namespaces.items.items()},
            topologies=tuple(item for _, item in sorted(self.topologies.items.items())),
            running_gangs=self.families.running_by_queue(),
            placed_gangs=self.families.active_gangs(),
            budgets=tuple(item for _, item in sorted(self.budgets.items.items())),
            job_runtimes=self.jobs.job_runtimes(),
            pods_by_node=self.residents.build_rows(nodes, self.ledger, self.by_uid, moved),
            nominated_foreign_pods=self.residents.awaited_pods(),
            volumes=self.storage.build_catalog(),
            devices=devices,
            device_totals=self.charges.devices.totals,
            population=self.families.sizes.size_shares(),
            move_records=moves,
            idle_gangs=self.families.idle_gangs_by_queue(),
            tenant_rounds=self.rounds,
            may_end_early=self.may_end_early,
            foreseen=self.foreseen,
            expected_starts=self.expected_starts,
            spare_room=self.spare_room,
            users_doubt=self.families.users_doubt,
            gpu_holds=self.families.held_times.all_holds(),
            gpu_holds_since=self.families.held_times.since,
            waiting_elsewhere=self.families.lines_elsewhere.all_waiting(),
            gpu_resources=gpu_resources(),
            reservations=self.part.reservations_here(self.reservations.items),
            limits=self.limits,
            now=now,
        )
