"""Applies what the watches show, idempotently, and hands out snapshots.

Every method is called in the event loop and returns at once. What changed is marked dirty: a
snapshot rebuilds the gangs and node rows that are dirty and shares the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from gpusched.cache.gangs import (
    Gang,
    Origin,
    make_gang,
    origin_of_group,
    origin_of_job,
    origin_of_pod,
)
from gpusched.cache.ledger import Hold, Holding, Ledger
from gpusched.cache.queues import build_tree
from gpusched.cache.rows import NodeRows
from gpusched.cache.snapshot import Snapshot
from gpusched.objects.group import PodGroup, Queue, Topology
from gpusched.objects.meta import UID, GangKey, ObjectKey, Rejected
from gpusched.objects.node import Node
from gpusched.objects.others import Job, Namespace
from gpusched.objects.pod import Pod
from gpusched.objects.resources import Resources, total

E = TypeVar("E")


class Shelf(Generic[E]):
    """Entities of one small kind by key, and those of them that cannot be believed."""

    def __init__(self) -> None:
        self.items: dict[ObjectKey, E] = {}
        self.rejected: dict[ObjectKey, Rejected] = {}

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        if isinstance(item, Rejected):
            self.items.pop(key, None)
            self.rejected[key] = item
        else:
            self.rejected.pop(key, None)
            self.items[key] = item

    def drop(self, key: ObjectKey) -> None:
        """It is gone."""
        self.items.pop(key, None)
        self.rejected.pop(key, None)


class Cache:
    """The state of the cluster as far as it is known.

    Args:
        scheduler_names: pods of these are ours to place; all others are only charged.
    """

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self.schedulers = frozenset(scheduler_names)
        self.ledger = Ledger()
        self.rows = NodeRows()
        self.pods: dict[ObjectKey, Pod] = {}
        self.charged: dict[ObjectKey, Rejected] = {}
        """Rejected pods by key; those that are bound hold their node's room all the same."""
        self.by_uid: dict[UID, Pod] = {}
        self.groups: Shelf[PodGroup] = Shelf()
        self.jobs: Shelf[Job] = Shelf()
        self.queues: Shelf[Queue] = Shelf()
        self.topologies: Shelf[Topology] = Shelf()
        self.namespaces: Shelf[Namespace] = Shelf()
        self.rejected_nodes: dict[str, Rejected] = {}
        self.gang_dirty: set[GangKey] = set()
        self._members: dict[GangKey, dict[UID, Pod]] = {}
        self._families: dict[GangKey, tuple[Gang, ...]] = {}
        self._waiting: set[GangKey] = set()
        self._held: dict[str, dict[GangKey, Resources]] = {}
        self._running: dict[str, set[GangKey]] = {}
        self._revision = 0
        self.on_pod: list[Callable[[Pod], None]] = []
        """Called with each pod of ours that was seen, after it was applied."""
        self.on_pod_gone: list[Callable[[UID], None]] = []
        self.on_change: list[Callable[[], None]] = []
        """Called after every change that a decision may depend on."""

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
        if known is not None and known.resource_version == item.resource_version:
            return
        self._forget_rejected(key)
        self.pods[key] = item
        self.by_uid[item.uid] = item
        self._charge(item)
        if item.scheduler in self.schedulers:
            self._join(item, known)
            for listener in self.on_pod:
                listener(item)
            self._changed()
        elif known is None or known.holds != item.holds:
            self._changed()

    def drop_pod(self, key: ObjectKey) -> None:
        """A pod is gone."""
        self._forget_rejected(key)
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        self.by_uid.pop(pod.uid, None)
        self.ledger.drop(pod.uid)
        if pod.scheduler in self.schedulers:
            self._leave(pod)
            for listener in self.on_pod_gone:
                listener(pod.uid)
        self._changed()

    def _put_rejected_pod(self, item: Rejected) -> None:
        self.drop_pod(item.key)
        self.charged[item.key] = item
        if item.charge is not None and item.charge.node:
            self.ledger.put(
                Holding(
                    uid=item.uid,
                    node=item.charge.node,
                    requests=item.charge.requests,
                    gpu="",
                    gpus=0,
                    slots=0,
                    hold=Hold.CONFIRMED,
                )
            )
        self._changed()

    def _forget_rejected(self, key: ObjectKey) -> None:
        rejected = self.charged.pop(key, None)
        if rejected is not None:
            self.ledger.drop(rejected.uid)

    def _charge(self, pod: Pod) -> None:
        if pod.holds:
            self.ledger.put(
                Holding(
                    uid=pod.uid,
                    node=pod.node,
                    requests=pod.pod_class.requests,
                    gpu=pod.pod_class.gpu,
                    gpus=pod.pod_class.gpus,
                    slots=pod.slots,
                    hold=Hold.CONFIRMED,
                )
            )
        elif pod.finished:
            self.ledger.drop(pod.uid)

    # -- assumptions -----------------------------------------------------------------------
    def assume(self, pod: Pod, node: str, slots: int) -> None:
        """The pod takes its place in our books before the API is asked."""
        self._enter(pod, node, slots, Hold.ASSUMED)

    def confirm(self, uid: UID, node: str, slots: int, plan: str) -> None:
        """The API accepted the binding, although the watch has not shown it yet."""
        pod = self.by_uid.get(uid)
        if pod is not None and not pod.finished and not pod.node:
            self._enter(pod, node, slots, Hold.CONFIRMED)
        del plan

    def forget(self, uid: UID) -> None:
        """An assumption was wrong: the room is free again."""
        pod = self.by_uid.get(uid)
        if pod is not None and pod.holds:
            return
        self.ledger.drop(uid)
        if pod is not None:
            self._touch(self._key_of(pod))
            self._changed()

    def pod(self, uid: UID) -> Pod | None:
        """The pod of that UID as last seen."""
        return self.by_uid.get(uid)

    def _enter(self, pod: Pod, node: str, slots: int, hold: Hold) -> None:
        self.ledger.put(
            Holding(
                uid=pod.uid,
                node=node,
                requests=pod.pod_class.requests,
                gpu=pod.pod_class.gpu,
                gpus=pod.pod_class.gpus,
                slots=slots,
                hold=hold,
            )
        )
        self._touch(self._key_of(pod))

    # -- nodes and the small kinds -----------------------------------------------------------
    def put_node(self, item: Node | Rejected) -> None:
        """A node appeared or changed; one that cannot be believed takes no pods."""
        if isinstance(item, Rejected):
            self.rejected_nodes[item.key.name] = item
            self.rows.drop(item.key.name)
        else:
            self.rejected_nodes.pop(item.name, None)
            self.rows.put(item)
        self._changed()

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self.rejected_nodes.pop(name, None)
        self.rows.drop(name)
        self._changed()

    def put_group(self, key: ObjectKey, item: PodGroup | Rejected) -> None:
        """A PodGroup appeared or changed."""
        self.groups.put(key, item)
        self._touch(GangKey("PodGroup", *key))
        self._changed()

    def drop_group(self, key: ObjectKey) -> None:
        """A PodGroup is gone; its unbound pods wait."""
        self.groups.drop(key)
        self._touch(GangKey("PodGroup", *key))
        self._changed()

    def put_job(self, key: ObjectKey, item: Job | Rejected) -> None:
        """A Job appeared or changed."""
        self.jobs.put(key, item)
        self._touch(GangKey("Job", *key))
        self._changed()

    def drop_job(self, key: ObjectKey) -> None:
        """A Job is gone."""
        self.jobs.drop(key)
        self._touch(GangKey("Job", *key))
        self._changed()

    def put_queue(self, key: ObjectKey, item: Queue | Rejected) -> None:
        """A queue appeared or changed."""
        self.queues.put(key, item)
        self._changed()

    def put_namespace(self, key: ObjectKey, item: Namespace | Rejected) -> None:
        """A namespace appeared or changed; its queue label holds for pods that name none."""
        known = self.namespaces.items.get(key)
        self.namespaces.put(key, item)
        queue = item.queue if isinstance(item, Namespace) else ""
        if queue != (known.queue if known else ""):
            self.gang_dirty.update(gang for gang in self._members if gang.namespace == key.name)
        self._changed()

    # -- gangs -----------------------------------------------------------------------------
    def _key_of(self, pod: Pod) -> GangKey:
        if pod.group:
            return GangKey("PodGroup", pod.namespace, pod.group)
        owner = pod.owner
        if owner is not None and owner.kind == "Job":
            return GangKey("Job", pod.namespace, owner.name)
        if owner is not None and pod.hints.min_member > 1:
            return GangKey(owner.kind, pod.namespace, owner.name)
        return GangKey("Pod", pod.namespace, pod.name)

    def _join(self, pod: Pod, known: Pod | None) -> None:
        key = self._key_of(pod)
        if known is not None and self._key_of(known) != key:
            self._leave(known)
        self._members.setdefault(key, {})[pod.uid] = pod
        self._touch(key)

    def _leave(self, pod: Pod) -> None:
        key = self._key_of(pod)
        members = self._members.get(key, {})
        members.pop(pod.uid, None)
        if not members:
            self._members.pop(key, None)
        self._touch(key)

    def _touch(self, key: GangKey) -> None:
        self.gang_dirty.add(key)

    def _changed(self) -> None:
        for listener in self.on_change:
            listener()

    def _family(self, key: GangKey) -> tuple[Gang, ...]:
        """The gangs of one key: one, or one a pod where a Job's pods are independent."""
        pods = list(self._members.get(key, {}).values())
        namespace = self.namespaces.items.get(ObjectKey("", key.namespace))
        queue = namespace.queue if namespace else ""
        places = {
            pod.uid: (held.node, bool(pod.node) or held.hold is Hold.CONFIRMED)
            for pod in pods
            if (held := self.ledger.get(pod.uid)) is not None
        }
        if key.kind == "PodGroup":
            return (make_gang(self._group_origin(key), pods, places),) if self._exists(key) else ()
        if not pods:
            return ()
        if key.kind == "Pod":
            return (make_gang(origin_of_pod(pods[0], queue=queue), pods, places),)
        origin = self._controller_origin(key, pods, queue)
        if origin is None:
            return tuple(
                make_gang(origin_of_pod(pod, queue=self._job_queue(key, queue)), [pod], places)
                for pod in sorted(pods, key=lambda pod: pod.key)
            )
        return (make_gang(origin, pods, places),)

    def _exists(self, key: GangKey) -> bool:
        return key in self._members or ObjectKey(key.namespace, key.name) in self.groups.items

    def _job_queue(self, key: GangKey, fallback: str) -> str:
        job = self.jobs.items.get(ObjectKey(key.namespace, key.name))
        return (job.queue if job else "") or fallback

    def _group_origin(self, key: GangKey) -> Origin:
        name = ObjectKey(key.namespace, key.name)
        group = self.groups.items.get(name)
        if group is not None:
            return origin_of_group(group)
        rejected = self.groups.rejected.get(name)
        if rejected is not None:
            why = f"PodGroup {name} cannot be used: {rejected.field}: {rejected.why}"
        else:
            why = f"PodGroup {name} does not exist; create it or remove the label that names it"
        return Origin(key=key, uid=UID(""), trouble=("InvalidSpec", why))

    def _controller_origin(self, key: GangKey, pods: list[Pod], queue: str) -> Origin | None:
        owner = next((pod.owner for pod in pods if pod.owner), None)
        if key.kind == "Job":
            name = ObjectKey(key.namespace, key.name)
            job = self.jobs.items.get(name)
            if job is not None:
                origin = origin_of_job(job, queue=queue)
                hinted = max(pod.hints.min_member for pod in pods)
                return origin if max(origin.min_member, hinted) > 1 else None
            rejected = self.jobs.rejected.get(name)
            why = f"{rejected.field}: {rejected.why}" if rejected else "it has not been seen yet"
            uid = owner.uid if owner else UID("")
            return Origin(key=key, uid=uid, trouble=("InvalidSpec", f"Job {name}: {why}"))
        first = min(pods, key=lambda pod: (pod.created, pod.key))
        single = origin_of_pod(first, queue=queue)
        return Origin(
            key=key,
            uid=owner.uid if owner else UID(""),
            created=single.created,
            queue=single.queue,
            min_member=max(pod.hints.min_member for pod in pods),
            hints=first.hints,
            topology=single.topology,
        )

    # -- snapshots -------------------------------------------------------------------------
    def snapshot(self, now: float) -> Snapshot:
        """This moment; what changed since the last call is rebuilt, the rest shared."""
        self._revision += 1
        changed = self._rebuild_gangs()
        shown = changed | self._waiting
        allocated = {
            queue: total(by_gang.values()) for queue, by_gang in self._held.items() if by_gang
        }
        gangs = [gang for key in shown for gang in self._families.get(key, ())]
        gangs.sort(key=lambda gang: gang.key)
        return Snapshot(
            revision=self._revision,
            nodes=self.rows.columns(self.ledger),
            gangs=tuple(gangs),
            queues=build_tree(self.queues.items.values(), allocated),
            namespaces={key.name: item for key, item in self.namespaces.items.items()},
            topologies=tuple(item for _, item in sorted(self.topologies.items.items())),
            running={queue: len(gangs) for queue, gangs in self._running.items() if gangs},
            now=now,
        )

    def _rebuild_gangs(self) -> set[GangKey]:
        changed = set(self.gang_dirty)
        self.gang_dirty.clear()
        for key in changed:
            for gang in self._families.pop(key, ()):
                self._held.get(gang.queue, {}).pop(gang.key, None)
                self._running.get(gang.queue, set()).discard(gang.key)
            family = self._family(key)
            self._waiting.discard(key)
            if not family:
                continue
            self._families[key] = family
            if any(gang.tasks or gang.gated or gang.need for gang in family):
                self._waiting.add(key)
            for gang in family:
                if gang.held:
                    self._held.setdefault(gang.queue, {})[gang.key] = gang.held
                    if not gang.need:
                        self._running.setdefault(gang.queue, set()).add(gang.key)
        return changed
