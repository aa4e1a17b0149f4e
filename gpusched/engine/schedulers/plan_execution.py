"""Carries out what sessions decide on the objects of a simulated cluster, as if every write was taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gpusched.api.devices.slots import format_slots
from gpusched.api.gang.charge_record import CHARGED, format_charge, parse_charge
from gpusched.api.gang.eviction_record import GangEvictions
from gpusched.api.gang.move_record import MOVED, format_move
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.meta.identity import UID, ObjectKey, parse_time
from gpusched.api.queue.queue import Queue
from gpusched.api.serializer.patches import evictions_patch, turn_record_patch
from gpusched.base.errors import InvariantBroken
from gpusched.base.merge_patch import merge_patch
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.expected_pods import is_expected_uid
from gpusched.cache.part import WHOLE_CLUSTER
from gpusched.cache.verify.placements import start_error
from gpusched.engine.controllers import SimulatedControllers
from gpusched.engine.job_records import LiveJob, gpus_of
from gpusched.engine.kept_spans import KeptSpanRecorder
from gpusched.engine.objects import (
    Obj,
    plural_of,
    with_annotations,
    with_condition,
    with_status,
)
from gpusched.engine.run_record import QueueMark
from gpusched.engine.world import SimulatedWorld
from gpusched.io.write.status.object_writes import GroupWrite, QueueWrite
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    GangBind,
    GangStatus,
    GangStop,
    JobSuspendChange,
    MoveOrder,
    Plan,
    PreemptionPlan,
    QueueStatus,
    ReservationStatus,
)

_FENCE: Final = "simulated/1"
_SLACK_S: Final = 1.0
"""Times in objects are whole seconds, rounded down."""


class PlanExecutor:
    """Applies the plans of sessions to the simulated objects.

    Args:
        world: what is changed.
        owners: make pods and end them.
        placed: told of each gang whose members got places.
    """

    def __init__(
        self,
        world: SimulatedWorld,
        owners: SimulatedControllers,
        *,
        placed: Callable[[GangBind], None],
        nomination_timeout_s: float,
    ) -> None:
        self._nomination_timeout_s = nomination_timeout_s
        self._world = world
        self._owners = owners
        self._placed = placed
        self.kept = KeptSpanRecorder()
        """Windows of Reservations that were active."""
        self._cache = world.cache
        """Of the daemon whose plan is carried out."""
        self._shown: dict[UID, tuple[str, bool, bool]] = {}
        """What was written last of each PodGroup: phase, scheduled, preempted."""
        self._marked: dict[
            tuple[str, tuple[str, ...]], tuple[QueueStatus, Queue, QueueMark | None]
        ] = {}
        """What a daemon told last of each queue, by its name and the daemon's shards; the queue then, and its mark after that."""
        self._parts: dict[str, dict[tuple[str, ...], tuple[int, int]]] = {}
        """GPUs that each queue has and is due, by the shards of the daemon that told it last."""

    def start(self, plan: Plan, cache: Cache, path: Callable[[str], tuple[str, ...]]) -> None:
        """Bind the gangs of a plan, but those that their daemon may not start now.

        Args:
            plan: that was decided.
            cache: of the daemon.
            path: names of a queue and of those above it.
        """
        self._cache = cache
        for gang in plan.binds:
            if cache.part is not WHOLE_CLUSTER:
                moves = [
                    (each.key, each.uid, each.node, each.node_uid, each.slots)
                    for each in gang.binds
                ]
                if start_error(cache, gang.gang, path(gang.queue), moves):
                    continue
            self._bind(gang)

    def carry_out(self, plan: Plan, cache: Cache) -> None:
        """What a plan has beside places, in the order of the daemon: room is made, and all is told.

        Args:
            plan: as it is told.
            cache: of the daemon.
        """
        self._cache = cache
        for status in plan.gangs:
            self._status(status)
        switches = {each.key: each for each in plan.job_changes}
        for stop in plan.stops:
            self._stop(stop)
        for claim in plan.preemptions:
            self._claim(claim)
        for switch in switches.values():
            self._switch(switch)
        for queue in plan.queues:
            self._queue(queue)
        for reservation in plan.reservations:
            self._reservation(reservation)

    # -- places --------------------------------------------------------------------------------
    def _bind(self, gang: GangBind) -> None:
        world = self._world
        self._owners.pods.claims.allocate(gang)
        shared = {"gpusched.io/fence": _FENCE, "gpusched.io/plan": gang.plan_id}
        if gang.proof:
            shared["gpusched.io/proof"] = gang.proof
        stamp = world.stamp
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp}
        read = {
            "plan": shared["gpusched.io/plan"],
            "fence": _FENCE,
            "proof": gang.proof,
            "scheduled": parse_time(stamp),
        }
        for bind in gang.binds:
            pod, obj = self._cache.find_pod(bind.uid), world.objects.get("pods", bind.key)
            if pod is None or obj is None:
                raise InvariantBroken(f"pod {bind.key} was given a place and does not exist")
            self._cache.assume_binding(pod, bind.node, bind.slots)
            notes = dict(shared)
            if bind.rank >= 0:
                notes["gpusched.io/rank"] = str(bind.rank)
            if bind.charge is not None:
                notes[CHARGED] = format_charge(bind.charge, seal="")
            if bind.slots:
                notes["gpusched.io/slots"] = format_slots(bind.slots)
            status = obj.get("status")
            obj = {**with_annotations(obj, notes), "spec": {**obj["spec"], "nodeName": bind.node}}
            obj = with_condition(with_status(obj, nominatedNodeName=None), scheduled)
            if status or pod.pod_class.claims or pod.pod_class.gpus != bind.slots.bit_count():
                world.objects.write(obj)
            else:  # nothing but the binding is read otherwise than before
                charge = parse_charge(notes.get(CHARGED))
                own = {"node": bind.node, "slots": bind.slots, "charge": charge}
                world.objects.write_known(obj, **read, **own)
            self._owners.pods.bound(world.lives.pods[bind.uid], bind.node, bind.slots)
        self._placed(gang)

    # -- room ----------------------------------------------------------------------------------
    def _claim(self, claim: PreemptionPlan) -> None:
        world = self._world
        for order in claim.moves:
            self._record(order)
        for key, uid, node in claim.nominations:
            obj = None if is_expected_uid(uid) else world.objects.get("pods", key)
            if obj is None:
                continue
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": Reason.PREEMPTION_IN_PROGRESS,
                "message": claim.message,
                "lastTransitionTime": world.stamp,
            }
            world.objects.write(with_condition(with_status(obj, nominatedNodeName=node), condition))
        if claim.nominations:
            world.wake(world.now + self._nomination_timeout_s + _SLACK_S)
        for stop in claim.stops:
            self._stop(stop)

    def _record(self, order: MoveOrder) -> None:
        world, key = self._world, ObjectKey(order.gang.namespace, order.gang.name)
        text = format_move(order.move, seal="")
        world.wake(world.now + self._nomination_timeout_s + _SLACK_S)
        if order.gang.kind == "PodGroup":
            obj = world.objects.get("podgroups", key)
            if obj is not None:
                world.objects.write(with_status(obj, moved=text))
            return
        obj = world.objects.get("jobs", key)
        if obj is not None:
            world.objects.write(with_annotations(obj, {MOVED: text}))

    def _record_turn(self, stop: GangStop, turn: TurnRecord) -> None:
        on_job = stop.gang.kind == "Job"
        self._patch_record(stop, turn_record_patch(stop.uid, turn, seal="", on_job=on_job))

    def _record_evictions(self, stop: GangStop, record: GangEvictions) -> None:
        on_job = stop.gang.kind == "Job"
        self._patch_record(stop, evictions_patch(stop.uid, record, seal="", on_job=on_job))

    def _patch_record(self, stop: GangStop, body: bytes) -> None:
        """A merge patch of a record on the object of a gang that leaves."""
        objects = self._world.objects
        key = ObjectKey(stop.gang.namespace, stop.gang.name)
        obj = objects.get("jobs" if stop.gang.kind == "Job" else "podgroups", key)
        if obj is not None:
            objects.write(merge_patch(obj, msgspec.json.decode(body)))

    def _stop(self, stop: GangStop) -> None:
        if stop.turn is not None:
            self._record_turn(stop, stop.turn)
        if stop.count is not None and stop.pause is None:
            self._record_evictions(stop, stop.count.record)
        pods = self._owners.pods
        for each in stop.evictions:
            live = self._world.lives.pods.get(each.uid)
            if live is None:
                raise InvariantBroken(f"pod {each.key} is to leave and does not exist")
            pods.evict(live, why=each.reason, sentence=each.message)
        if stop.pause is not None:
            self._switch(stop.pause)

    def _switch(self, switch: JobSuspendChange) -> None:
        world = self._world
        obj = world.objects.get("jobs", switch.key)
        if obj is None or obj["metadata"]["uid"] != switch.uid:
            raise InvariantBroken(f"Job {switch.key} is to be switched and does not exist")
        spec = {**obj["spec"], "suspend": switch.suspend}
        if switch.parallelism is not None:
            spec["parallelism"] = switch.parallelism
        if switch.node_selector:
            template = spec["template"]
            inner = template["spec"]
            selector = {**(inner.get("nodeSelector") or {}), **dict(switch.node_selector)}
            spec["template"] = {**template, "spec": {**inner, "nodeSelector": selector}}
        switched = with_annotations({**obj, "spec": spec}, dict(switch.annotations))
        started = None if switch.suspend else world.stamp
        world.objects.write(with_status(switched, startTime=started))
        self._owners.switched(switch.key)

    # -- telling -------------------------------------------------------------------------------
    def _status(self, status: GangStatus) -> None:
        world = self._world
        self._withdraw(status)
        job = self._job_of(status)
        if job is not None and job.started is None and not status.is_scheduled:
            job.tell(world.now, status.scheduled.reason, status.scheduled.message)
        if status.gang.kind != "PodGroup":
            return
        if job is not None and job.admitted is None and status.is_admitted:
            job.admitted = world.now
        shown = (status.phase, status.is_scheduled, status.preempted is None)
        if self._shown.get(status.uid) == shown:
            return
        self._shown[status.uid] = shown
        request = GroupWrite(status).request(self._cache, None, world.wall)
        obj = world.objects.get("podgroups", ObjectKey(status.gang.namespace, status.gang.name))
        if request is not None and obj is not None:
            self._patch(obj, request.body)

    def _job_of(self, status: GangStatus) -> LiveJob | None:
        gang, lives = status.gang, self._world.lives
        job = lives.jobs.get((gang.kind, gang.namespace, gang.name))
        if job is None and status.waiting_pods:
            live = lives.pods.get(status.waiting_pods[0][1])
            job = live.job if live is not None else None
        return job

    def _withdraw(self, status: GangStatus) -> None:
        """A promise that stands no more is taken off the pods."""
        world = self._world
        named = {uid for uid, _ in status.nominated}
        for key, uid in status.waiting_pods:
            pod = self._cache.find_pod(uid)
            if pod is None or not pod.nominated or uid in named:
                continue
            obj = world.objects.get("pods", key)
            assert obj is not None
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": status.scheduled.reason,
                "message": status.scheduled.message,
                "lastTransitionTime": world.stamp,
            }
            world.objects.write(with_condition(with_status(obj, nominatedNodeName=None), condition))

    def _reservation(self, status: ReservationStatus) -> None:
        """Its phase, and the nodes that it keeps, which the next session goes on with."""
        objects = self._world.objects
        obj = objects.get("reservations", ObjectKey("", status.name))
        if obj is None:
            return
        self.kept.note_status(status.name, status.phase, status.nodes, at=self._world.now)
        said = with_status(obj, phase=status.phase, nodes=list(status.nodes))
        if said["status"] != obj.get("status"):
            objects.write(said)

    def _queue(self, status: QueueStatus) -> None:
        world = self._world
        queue = self._cache.queues.items.get(ObjectKey("", status.name))
        if queue is None:
            return
        place = (status.name, status.shards)
        told, then, mark_then = self._marked.get(place, (None, None, None))
        same = told is status or (bool(status.shards) and told == status)
        if same and then is queue and mark_then is world.lives.last_mark(status.name):
            return  # nothing is told anew, and no pod has ended since

        def limit(amounts: object) -> int | None:
            found = gpus_of(amounts)  # type: ignore[arg-type]
            return found or None

        parts = self._parts.setdefault(status.name, {})
        parts[status.shards] = (gpus_of(status.allocated), gpus_of(status.fair_share))
        allocated, fair_share = map(sum, zip(*parts.values(), strict=True))
        mark = QueueMark(
            at=world.now,
            weight=queue.weight,
            deserved=limit(queue.deserved),
            capability=limit(queue.capability),
            guarantee=limit(queue.guarantee),
            allocated=allocated,
            fair_share=fair_share,
            closed=status.state != "Open",
        )
        world.lives.mark(status.name, "" if queue.parent == "root" else queue.parent, mark)
        self._marked[place] = (status, queue, world.lives.last_mark(status.name))
        used = status.usage is not None and status.usage.as_of and status.usage != queue.usage
        charged = status.budget is not None and status.budget.record != queue.budget_record
        if not used and not charged and not status.shards:
            return
        # What was used of late, of a budget, and is used in other shards is read again by the next session.
        request = QueueWrite(status).request(self._cache, None, world.wall)
        obj = world.objects.get("queues", ObjectKey("", status.name))
        if request is not None and obj is not None:
            self._patch(obj, request.body)

    def _patch(self, obj: Obj, body: bytes) -> None:
        """A merge patch of a status."""
        patched = merge_patch(obj, {"status": msgspec.json.decode(body)["status"]})
        assert plural_of(patched)
        self._world.objects.write(patched)
