"""What the API would show after a plan was carried out, entered into a cache: no daemon runs."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import msgspec

from gpusched.api.devices.dynamic.claims import ClaimConsumer
from gpusched.api.gang.eviction_record import (
    EVICTIONS,
    GangEvictions,
    later_evictions,
    parse_evictions,
)
from gpusched.api.gang.turn_record import TURN, TurnRecord, later_turn, parse_turn
from gpusched.api.meta.identity import ObjectKey, ResourceVersion, parse_time
from gpusched.api.pod.pod import Pod
from gpusched.base.classes import frozen
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.expected_pods import is_expected_uid
from gpusched.session.allocate.suspended_jobs import ADMITTED_ANNOTATION
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    ClaimBind,
    GangBind,
    GangStatus,
    GangStop,
    JobSuspendChange,
    MoveOrder,
    Plan,
    PreemptionPlan,
)


@frozen(kw_only=True)
class PlanApplication:
    """Enters decisions into a cache as if every write had been accepted and seen.

    Attributes:
        now: seconds since the epoch of the writes.
        version: a new resource version at each call.
    """

    cache: Cache
    now: float
    version: Callable[[], str]

    def plan(self, plan: Plan, *, gone: bool) -> None:
        """All of it: bindings, promises, evictions, Jobs paused and started.

        Args:
            plan: what a session decided.
            gone: whether leaving pods have left already, or are still ending.
        """
        for gang in plan.binds:
            self.bind(gang)
        for status in plan.gangs:
            self._withdraw(status)
        for claim in plan.preemptions:
            for order in claim.moves:
                self._record(order)
            self._promise(claim)
            for stop in claim.stops:
                self._stop(stop, gone=gone)
        for stop in plan.stops:
            self._stop(stop, gone=gone)
        for switch in plan.job_changes:
            self._switch(switch)

    def bind(self, gang: GangBind, *, only: int | None = None) -> None:
        """The bindings of a gang, or only its first so many."""
        for bind in gang.binds[:only]:
            pod = self.cache.find_pod(bind.uid)
            assert pod is not None
            for claim in bind.claims:
                self._give(claim, pod)
            self.cache.put_pod(
                msgspec.structs.replace(
                    pod,
                    node=bind.node,
                    slots=bind.slots,
                    plan=gang.plan_id,
                    proof=gang.proof,
                    fence="test/1",
                    scheduled=self.now,
                    nominated="",
                    resource_version=ResourceVersion(self.version()),
                )
            )

    def _give(self, bind: ClaimBind, pod: Pod) -> None:
        """A claim has its devices, and is reserved for the pod."""
        claims = self.cache.devices.claims
        claim = claims.items[bind.key]
        consumer = bind.consumer or ClaimConsumer(
            group="", resource="pods", name=pod.name, uid=pod.uid
        )
        others = tuple(each for each in claim.reserved_for if each != consumer)
        claims.put(
            bind.key,
            attrs.evolve(
                claim,
                allocation=bind.allocation or claim.allocation,
                reserved_for=(*others, consumer),
                resource_version=ResourceVersion(self.version()),
            ),
        )

    def free(self, pod: Pod) -> None:
        """A pod is gone: claims of its own with it, others lose it, and devices without a user."""
        claims = self.cache.devices.claims
        for key, claim in [*claims.items.items()] if pod.pod_class.claims else ():
            left = tuple(each for each in claim.reserved_for if each.uid != pod.uid)
            if left == claim.reserved_for:
                continue
            if key.name in dict(pod.generated_claims).values():
                claims.drop(key)
                continue
            allocation = claim.allocation if left else None
            claims.put(key, attrs.evolve(claim, allocation=allocation, reserved_for=left))

    def _withdraw(self, status: GangStatus) -> None:
        named = {uid for uid, _ in status.nominated}
        for _, uid in status.waiting_pods:
            pod = self.cache.find_pod(uid)
            if pod is not None and pod.nominated and uid not in named:
                self.cache.put_pod(
                    msgspec.structs.replace(
                        pod,
                        nominated="",
                        unschedulable_reason=status.scheduled.reason,
                        resource_version=ResourceVersion(self.version()),
                    )
                )

    def _record(self, order: MoveOrder) -> None:
        key = ObjectKey(order.gang.namespace, order.gang.name)
        group, job = self.cache.groups.items.get(key), self.cache.jobs.items.get(key)
        if order.gang.kind == "PodGroup":
            assert group is not None
            self.cache.put_group(key, attrs.evolve(group, move=order.move))
        else:
            assert job is not None
            self.cache.put_job(key, attrs.evolve(job, move=order.move))

    def _promise(self, claim: PreemptionPlan) -> None:
        for _, uid, node in claim.nominations:
            if is_expected_uid(uid):  # of a Job that has not made it yet
                continue
            pod = self.cache.find_pod(uid)
            assert pod is not None
            self.cache.put_pod(
                msgspec.structs.replace(
                    pod,
                    nominated=node,
                    unschedulable_reason=Reason.PREEMPTION_IN_PROGRESS,
                    unschedulable=claim.message,
                    unschedulable_since=self.now,
                    resource_version=ResourceVersion(self.version()),
                )
            )

    def _stop(self, stop: GangStop, *, gone: bool) -> None:
        if stop.pause is not None:
            self._switch(stop.pause)
        else:
            if stop.turn is not None:
                self._record_turn(stop, stop.turn)
            if stop.count is not None:
                self._record_evictions(stop, stop.count.record)
        for eviction in stop.evictions:
            pod = self.cache.find_pod(eviction.uid)
            assert pod is not None
            assert pod.node == eviction.node
            if gone:
                self.cache.drop_pod(eviction.key)
                self.free(pod)
            else:
                version = ResourceVersion(self.version())
                self.cache.put_pod(
                    msgspec.structs.replace(pod, deleting=True, resource_version=version)
                )

    def _record_turn(self, stop: GangStop, turn: TurnRecord) -> None:
        key = ObjectKey(stop.gang.namespace, stop.gang.name)
        if stop.gang.kind == "PodGroup":
            self.cache.put_group(key, attrs.evolve(self.cache.groups.items[key], turn=turn))
        else:
            self.cache.put_job(key, attrs.evolve(self.cache.jobs.items[key], turn=turn))

    def _record_evictions(self, stop: GangStop, record: GangEvictions) -> None:
        key = ObjectKey(stop.gang.namespace, stop.gang.name)
        if stop.gang.kind == "PodGroup":
            self.cache.put_group(key, attrs.evolve(self.cache.groups.items[key], evictions=record))
        else:
            self.cache.put_job(key, attrs.evolve(self.cache.jobs.items[key], evictions=record))

    def _switch(self, switch: JobSuspendChange) -> None:
        job = self.cache.jobs.items[switch.key]
        assert job.uid == switch.uid
        parallel = job.parallelism if switch.parallelism is None else switch.parallelism
        notes = dict(switch.annotations)
        admitted = (
            parse_time(notes[ADMITTED_ANNOTATION]) if ADMITTED_ANNOTATION in notes else job.admitted
        )
        version = ResourceVersion(self.version())
        self.cache.put_job(
            switch.key,
            attrs.evolve(
                job,
                suspended=switch.suspend,
                parallelism=parallel,
                admitted=admitted,
                turn=later_turn(job.turn, parse_turn(notes.get(TURN))),
                evictions=later_evictions(job.evictions, parse_evictions(notes.get(EVICTIONS))),
                resource_version=version,
            ),
        )
