"""Says how things stand: on PodGroups, Queues and waiting pods, and in events.

What changed since it was said last is submitted to the status queue. Nothing here delays a
decision.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import attrs

from gpusched.api.meta.identity import UID, GangKey, ObjectKey, Rejected
from gpusched.api.pod.gang_membership import WITHOUT_OBJECT
from gpusched.api.pod.pod import Pod
from gpusched.api.queue.budget import WITHIN_BUDGET
from gpusched.api.serializer.requests import CONTROLLER, EventNote, ObjectRef
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.workers.work_queue import OnContained, OnFault, log_contained_fault
from gpusched.io.write.events.event_recorder import EventRecorder
from gpusched.io.write.events.eviction_events import EvictionEvents
from gpusched.io.write.events.gang_events import (
    FAILS_IF_EVICTED,
    KEY_LINE,
    UNKNOWN_KEY,
    WAITS,
    WARNING_LINE,
    assigned_event,
    event_object,
    gang_event,
    pod_event,
    without_numbers,
)
from gpusched.io.write.status.object_writes import (
    GroupWrite,
    QueueWrite,
    ReservationWrite,
    TopologyWrite,
)
from gpusched.io.write.status.pod_writes import MemberWrite, PodWrite
from gpusched.io.write.status.rejected_writes import RejectedPodWrite, RejectedWrite, has_conditions
from gpusched.io.write.status.status_queue import StatusQueue
from gpusched.io.write.status_cache import StatusCache, find_group
from gpusched.session.allocate.gang_repair import STARTED
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    GangBind,
    GangStatus,
    PendingReason,
    QueueStatus,
    ReservationStatus,
    TopologyStatus,
)

Status = GangStatus | QueueStatus | TopologyStatus | ReservationStatus
_NOT_STARTED: Final = frozenset({"Pending", "Inqueue"})
_log = Logger(__name__)

V = TypeVar("V")


class StatusWriter:
    """See the module.

    Args:
        api: shared with everything but the lease.
        rate_limiter: gives turns; status comes after bindings and evictions.
        cache: what the API showed last.
        lease: without it nothing is written.
        clock: time.
        telemetry: counts 429 answers.
        on_fault: told when a task crashed.
        on_contained: told of a write that failed by our own doing.
        instance: of the process, for events.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        cache: StatusCache,
        *,
        lease: Lease,
        clock: Clock,
        telemetry: Telemetry,
        on_fault: OnFault,
        on_contained: OnContained = log_contained_fault,
        instance: str = CONTROLLER,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self.events = EventRecorder(
            api, rate_limiter, lease=lease, clock=clock, telemetry=telemetry, instance=instance,
            on_fault=on_fault, on_contained=on_contained, limits_in_force=limits_in_force,
        )  # fmt: skip
        self.stops = EvictionEvents(self.events, cache)
        self._said: OrderedDict[UID, Status] = OrderedDict()
        self._bound: OrderedDict[UID, None] = OrderedDict()
        self._rejected: OrderedDict[UID, tuple[int, str]] = OrderedDict()
        self._mended: set[UID] = set()
        """Pods that say something else than we said last: they could not be believed for a while,
        were restored, or were written by others. What holds is told to them again."""
        self._queue = StatusQueue(
            api, rate_limiter, cache, lease=lease, clock=clock, telemetry=telemetry,
            on_fault=on_fault, on_contained=on_contained, limits_in_force=limits_in_force,
            on_unwritten=self._say_again,
        )  # fmt: skip

    @property
    def waiting(self) -> int:
        """Objects whose status is to be written."""
        return self._queue.waiting

    @property
    def dropped(self) -> int:
        """Status writes that found no room in the queue; a later session says them again."""
        return self._queue.dropped

    async def run(self) -> None:
        """Stay; when cancelled, everything under way ends."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._queue.close()
            await self.events.close()

    def submit(
        self,
        gangs: Sequence[GangStatus],
        queues: Sequence[QueueStatus],
        topologies: Sequence[TopologyStatus] = (),
        reservations: Sequence[ReservationStatus] = (),
    ) -> list[tuple[str, Exception]]:
        """This is how things stand now; returns at once.

        Returns:
            Names of objects that cannot be told, and why not: these do not stop the others.
        """
        failed: list[tuple[str, Exception]] = []
        those: list[Status] = [*gangs, *queues, *topologies, *reservations]
        for each in those:
            try:
                self._say_gang_status(each)
            except Exception as error:  # noqa: BLE001 - one object must not stop the others
                name = each.gang if isinstance(each, GangStatus) else each.name
                failed.append((str(name), error))
        return failed

    def _say_gang_status(self, status: Status) -> None:
        if isinstance(status, GangStatus):
            self._say_gang(status)
        elif isinstance(status, QueueStatus):
            self._say_queue(status)
        elif isinstance(status, TopologyStatus):
            self._say_topology(status)
        else:
            self._say_reservation(status)

    def _say_gang(self, gang: GangStatus) -> None:
        if not gang.uid:  # Its PodGroup is missing; others that miss theirs are not the same.
            gang = attrs.evolve(gang, uid=UID(f"{gang.gang.namespace}/{gang.gang.name}"))
        gang = self.stops.merged(gang)
        before = self._said.get(gang.uid)
        if gang.provisional and before is not None:
            return
        gang = _still_started(gang, before)
        # A gang that was counted again is another object, even where it says the same.
        same = before is gang or (before == gang and not self._is_overwritten(gang))
        if not same or self._has_mended(gang):
            _remember_latest(self._said, gang.uid, gang)
            self._submit_gang(gang, before if isinstance(before, GangStatus) else None)

    def _say_queue(self, queue: QueueStatus) -> None:
        before = self._said.get(queue.uid)
        if queue.uid and before != queue:  # without an object nothing is written
            self._tell_budget(queue, before)
            _remember_latest(self._said, queue.uid, queue)
            self._queue.submit(queue.uid, QueueWrite(queue))

    def _say_topology(self, topology: TopologyStatus) -> None:
        if self._said.get(topology.uid) != topology:
            _remember_latest(self._said, topology.uid, topology)
            self._submit_topology(topology)

    def _say_reservation(self, reservation: ReservationStatus) -> None:
        before = self._said.get(reservation.uid)
        if before == reservation:
            return
        _remember_latest(self._said, reservation.uid, reservation)
        self._queue.submit(reservation.uid, ReservationWrite(reservation))
        if (
            isinstance(before, ReservationStatus)
            and before.ready.reason == reservation.ready.reason
        ):
            return
        note = EventNote(
            regarding=ObjectRef("Reservation", ObjectKey("", reservation.name), reservation.uid),
            type="Normal" if reservation.is_ready else "Warning",
            reason=reservation.ready.reason,
            action="Scheduling",
            note=reservation.ready.message,
        )
        self.events.record(note, topic=f"{reservation.ready.reason}/{reservation.begins}")

    def _tell_budget(self, queue: QueueStatus, before: Status | None) -> None:
        """An event when a budget is nearly used, used, or open again; once, across restarts too."""
        if queue.budget is None or queue.told_elsewhere:
            return
        told = queue.budget.told
        if isinstance(before, QueueStatus) and before.budget is not None:
            last = str(before.budget.told.reason)
        else:
            shown = self._cache.queues.items.get(ObjectKey("", queue.name))
            said = [
                each for each in (shown.conditions if shown else ()) if each.type == WITHIN_BUDGET
            ]
            last = said[0].reason if said else WITHIN_BUDGET
        if last == told.reason:
            return
        note = EventNote(
            regarding=ObjectRef("Queue", ObjectKey("", queue.name), queue.uid),
            type="Normal" if told.reason == WITHIN_BUDGET else "Warning",
            reason=str(told.reason),
            action="Accounting",
            note=told.message,
        )
        self.events.record(note, topic=f"{told.reason}/{queue.budget.record.period_start}")

    def note_bound(self, gang: GangBind) -> None:
        """This process has brought a gang to its nodes: worth an event, once it is scheduled.

        Its pods are told at once, as kube-scheduler tells each: people describe pods.
        """
        _remember_latest(self._bound, gang.uid, None)
        for bind in gang.binds:
            self.events.record(assigned_event(bind), once=True)

    def report_rejected(self, rejected: Rejected) -> None:
        """Tell the author of an object that it cannot be believed, once a generation."""
        if not rejected.ours:
            return
        if not self._lease.may_act(self._clock.monotonic(), self._clock.boottime(), 0.0):
            return  # whoever leads next lists everything again, and is told then
        # Compared with what the object says when it is written: what is said is not said again.
        if has_conditions(rejected):
            self._said.pop(rejected.uid, None)  # once it can be believed, all is to be said again
            self._queue.submit(rejected.uid, RejectedWrite(rejected))
        elif rejected.pending:
            self._queue.submit(rejected.uid, RejectedPodWrite(rejected))
        why = (rejected.generation, rejected.message)
        if self._rejected.get(rejected.uid) == why:
            return
        _remember_latest(self._rejected, rejected.uid, why)
        ref = ObjectRef(rejected.kind, rejected.key, rejected.uid, rejected.api_version)
        self.events.record(
            EventNote(
                regarding=ref, type="Warning", reason=Reason.INVALID_SPEC, action="Reading",
                note=rejected.message,
            ),
            topic=f"{Reason.INVALID_SPEC}/{rejected.generation}",
        )  # fmt: skip

    async def flush(self, timeout_s: float) -> bool:
        """Write now all that waits; whether that was done within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.flush()
                await self.events.flush()
        except TimeoutError:
            _log.warning("some status was not written", objects=self.waiting)
            return False
        return not self.waiting

    def _say_again(self, uid: UID) -> None:
        """What was said of it was not written: the next session that says it submits it again."""
        self._said.pop(uid, None)

    def _submit_topology(self, status: TopologyStatus) -> None:
        self._queue.submit(status.uid, TopologyWrite(status))
        if status.is_ready and not status.outside:
            return
        message, name = status.ready.message, ObjectKey("", status.name)
        _log.warning("not all of a topology counts", topology=status.name, why=message)
        note = EventNote(
            regarding=ObjectRef("Topology", name, status.uid),
            type="Warning",
            reason=Reason.TOPOLOGY_CONFLICT,
            action="Reading",
            note=message,
        )
        self.events.record(note)

    # -- gangs ------------------------------------------------------------------------------

    def _is_overwritten(self, status: GangStatus) -> bool:
        """Whether the PodGroup shows something else than was said: restored, or overwritten."""
        if status.gang.kind not in GROUP_KINDS:
            return False
        group = find_group(self._cache, status.gang)
        written = self._queue.last_write(status.uid)
        if group is None or written is None or self._queue.is_waiting(status.uid):
            return False
        if written.seen == group.resource_version:
            return False
        return GroupWrite(status).request(self._cache, written, self._clock.now()) is not None

    def _has_mended(self, gang: GangStatus) -> bool:
        """Whether one of its pods says something else than was said to it."""
        if not self._mended:
            return False
        found = self._mended.intersection(uid for _, uid in gang.waiting_pods)
        self._mended -= found
        return bool(found)

    def _submit_gang(self, status: GangStatus, before: GangStatus | None) -> None:
        if status.gang.kind in GROUP_KINDS:
            self._queue.submit(status.uid, GroupWrite(status))
        ask = status.pending_reason or status.scheduled
        promised = {uid for uid, _ in status.nominated}
        for key, uid in status.waiting_pods:
            want = PodWrite(uid, key.namespace, status.uid, ask, uid in promised)
            if uid not in promised:
                self._cache.withdraw_nomination(uid, want.reason_and_message[0])
            # What waits to be written already is compared when its turn comes; and while something
            # is being written it is not known yet what the object will say.
            if self._queue.is_under_way(uid) or want.needed(
                self._cache, self._queue.last_write(uid)
            ):
                # Most pods are bound within moments and need not be told why they waited.
                self._queue.submit(uid, want, settle_s=limits.STATUS_PERIOD_S)
        for key, uid in status.told_members:
            self._queue.submit(
                uid, MemberWrite(uid, key.namespace, status.uid, status.lost_members)
            )
        self._warn_of_evictions(status, before)
        self._warn_of_keys(status, before)
        self._tell_pods(status, ask)
        was_scheduled, reason, message = self._shown_state(status, before)
        if status.is_scheduled:
            # What was to be told about waiting is no longer true; that a pod is bound is.
            self.events.withdraw_events(
                status.uid, reason=WAITS if status.gang.kind == "Pod" else ""
            )
            if not was_scheduled:
                self._tell_gang(status)
        elif reason != status.scheduled.reason or without_numbers(message) != without_numbers(
            status.scheduled.message
        ):
            self._tell_gang(status)

    def _warn_of_evictions(self, status: GangStatus, before: GangStatus | None) -> None:
        """Once: what would become of a Job when its pods are evicted, before that happens."""
        warning = status.eviction_warning
        if warning is None or (before is not None and before.eviction_warning == warning):
            return
        ref = ObjectRef("Job", warning.job, warning.uid)
        if status.gang.kind in GROUP_KINDS:
            ref = event_object(status, self._cache)
        self.events.record(
            EventNote(
                regarding=ref, type="Warning", reason=FAILS_IF_EVICTED, action="Scheduling",
                note=warning.message,
            ),
            line=WARNING_LINE,
        )  # fmt: skip

    def _warn_of_keys(self, status: GangStatus, before: GangStatus | None) -> None:
        """Once: which labels and annotations mean nothing, as they are misspelt."""
        said = status.key_warning
        if said and (before is None or before.key_warning != said):
            note = EventNote(
                regarding=event_object(status, self._cache),
                type="Warning",
                reason=UNKNOWN_KEY,
                action="Scheduling",
                note=said,
            )
            self.events.record(note, line=KEY_LINE)

    def _tell_pods(self, status: GangStatus, ask: PendingReason) -> None:
        """The first waiting pods of a gang carry its sentence too: people describe pods."""
        if status.gang.kind == "Pod":
            return
        for key, uid in status.waiting_pods[: limits.POD_EVENTS_MAX]:
            pod = self._cache.find_pod(uid)
            if pod is None or without_numbers(pod.unschedulable) == without_numbers(ask.message):
                continue
            self.events.record(
                pod_event(key, uid, ask), topic=ask.reason, settle_s=limits.STATUS_PERIOD_S
            )

    def observe(self, pod: Pod) -> None:
        """The watch showed a pod: once it is bound, its reason to wait is not written any more."""
        rejected = self._rejected.pop(pod.uid, None) is not None
        if not pod.node and (rejected or self._says_other(pod)):
            self._mended.add(pod.uid)
        elif pod.node:
            self._mended.discard(pod.uid)
        if pod.node:
            self.events.withdraw_events(pod.uid, reason=WAITS)

    def _says_other(self, pod: Pod) -> bool:
        """Whether a condition that we wrote was replaced or taken away."""
        written = self._queue.last_write(pod.uid)
        if written is None or written.seen == pod.resource_version:
            return False
        return written.reason_and_message != (pod.unschedulable_reason, pod.unschedulable)

    def observe_gone(self, uid: UID) -> None:
        """A pod is gone, or cannot be believed any more."""
        self.forget(uid)

    def gang_gone(self, gang: GangKey, uid: UID) -> None:
        """A gang is no more: nothing need be known of what was told about it."""
        self.forget(uid or UID(f"{gang.namespace}/{gang.name}"))

    def forget(self, uid: UID) -> None:
        """An object is gone, and with it what was told about it."""
        self._mended.discard(uid)
        self._said.pop(uid, None)
        self._bound.pop(uid, None)
        self._rejected.pop(uid, None)
        self.stops.forget(uid)
        self.events.forget(uid)
        if "/" in uid:  # a part of its controller, on which it was told
            self.events.forget(UID(uid.partition("/")[0]))
        self._queue.forget(uid)

    def _tell_gang(self, status: GangStatus) -> None:
        if status.is_scheduled and (
            status.gang.kind in WITHOUT_OBJECT or event_object(status, self._cache).kind == "Pod"
        ):
            return  # there is nothing that it could be told on, or the pod was told
        settle_s = 0.0 if status.is_scheduled else limits.STATUS_PERIOD_S
        self.events.record(
            gang_event(status, self._cache), topic=status.scheduled.reason, settle_s=settle_s
        )

    def _shown_state(self, status: GangStatus, before: GangStatus | None) -> tuple[bool, str, str]:
        """Whether people were told that it is scheduled, else reason and sentence they know.

        What this process said counts first, then what the API shows from earlier ones. A gang
        without a PodGroup carries no condition once it runs: only if this process bound it,
        its event is still to come.
        """
        if before is not None:
            return before.is_scheduled, before.scheduled.reason, before.scheduled.message
        gang = status.gang
        if gang.kind in GROUP_KINDS:
            group = find_group(self._cache, gang)
            shown = group.our_condition("Scheduled") if group is not None else None
            return (
                (shown.status == "True", shown.reason, shown.message) if shown else (False, "", "")
            )
        if status.is_scheduled:
            pod = self._cache.find_pod(status.uid)
            ours = pod is not None and bool(pod.fence) and pod.fence == self._lease.fence
            return not ours and status.uid not in self._bound, "", ""
        pod = self._cache.find_pod(status.waiting_pods[0][1]) if status.waiting_pods else None
        if pod is None or not pod.unschedulable_reason:
            return False, "", ""
        return False, status.scheduled.reason, pod.unschedulable


def _still_started(gang: GangStatus, before: object) -> GangStatus:
    """The status, of a gang that ran by what was said last though the session did not see that.

    Written as waiting, it would never be stopped for being broken, nor made whole first.
    """
    ran = isinstance(before, GangStatus) and before.phase in STARTED
    if ran and gang.gang.kind in GROUP_KINDS and gang.phase in _NOT_STARTED and gang.counts[0] > 0:
        return attrs.evolve(gang, phase="Unknown")
    return gang


def _remember_latest(memory: OrderedDict[UID, V], uid: UID, what: V) -> None:
    """Keep the latest; forget the oldest beyond the bound."""
    memory[uid] = what
    memory.move_to_end(uid)
    if len(memory) > limits.REPORTED_OBJECTS_MAX:
        memory.popitem(last=False)
