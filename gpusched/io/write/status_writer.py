"""Says how things stand: on PodGroups, Queues and waiting pods, and in events.

Wishes are kept one an object, the latest wins, and are compared with what the API shows just
before they are written: what is said already is not said again, after a restart neither. An
object is written once a second at most. Nothing here delays a decision.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import attrs

from gpusched.api.meta.identity import UID, GangKey, ObjectKey, Rejected
from gpusched.api.pod.gang_membership import WITHOUT_OBJECT
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.requests import CONTROLLER, EventNote, ObjectRef
from gpusched.base import errors, limits
from gpusched.base.clock import Clock
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass
from gpusched.io.workers.work_queue import OnContained, OnFault, WorkerPool, log_contained_fault
from gpusched.io.write.event_recorder import EventRecorder
from gpusched.io.write.eviction_events import EvictionEvents
from gpusched.io.write.gang_events import (
    FAILS_IF_EVICTED,
    WAITS,
    WARNING_LINE,
    assigned_event,
    event_object,
    gang_event,
    pod_event,
    without_numbers,
)
from gpusched.io.write.status_patches import (
    GROUP_KINDS,
    GroupWrite,
    MemberWrite,
    PodWrite,
    QueueWrite,
    RejectedPodWrite,
    RejectedWrite,
    StatusCache,
    StatusRequest,
    TopologyWrite,
    Write,
    WrittenStatus,
    find_group,
    has_conditions,
    parse_written_status,
)
from gpusched.session.allocate.gang_repair import STARTED
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    GangBind,
    GangStatus,
    PendingReason,
    QueueStatus,
    TopologyStatus,
)

_NOT_STARTED: Final = frozenset({"Pending", "Inqueue"})
_CALL_S: Final = limits.BIND_TIMEOUT_CLIENT_S
_RETRY_S: Final = 2 * limits.STATUS_PERIOD_S
_DENIED_RETRY_S: Final = limits.BACKOFF_MAX_S
_log = Logger(__name__)

V = TypeVar("V")


@attrs.define(slots=True, eq=False)
class _StatusEntry:
    """What we know of the writing of one object.

    Attributes:
        want: to be written; None when nothing is.
        namespace: of the object: writes of several namespaces are served in turn.
        ready_at: monotonic seconds before which it is not written again.
        gone: whether the object is deleted: nothing is to be known of it any more.
    """

    want: Write | None = None
    namespace: str = ""
    written: WrittenStatus | None = None
    ready_at: float = float("-inf")
    timer: asyncio.TimerHandle | None = None
    queued: bool = False
    writing: bool = False
    gone: bool = False


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
        self._on_contained = on_contained
        self._api = api
        self._rate_limiter = rate_limiter
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self.events = EventRecorder(
            api, rate_limiter, lease=lease, clock=clock, telemetry=telemetry, instance=instance,
            on_fault=on_fault, on_contained=on_contained, limits_in_force=limits_in_force,
        )  # fmt: skip
        self.stops = EvictionEvents(self.events, cache)
        self._objects: OrderedDict[UID, _StatusEntry] = OrderedDict()
        self._said: OrderedDict[UID, GangStatus | QueueStatus | TopologyStatus] = OrderedDict()
        self._bound: OrderedDict[UID, None] = OrderedDict()
        self._rejected: OrderedDict[UID, tuple[int, str]] = OrderedDict()
        self._mended: set[UID] = set()
        """Pods that say something else than we said last: they could not be believed for a while,
        were restored, or were written by others. What holds is told to them again."""
        self._waiting = 0
        self._waiting_of: Counter[str] = Counter()
        self._pool: WorkerPool[UID] = WorkerPool(
            "status", limit=lambda: limits_in_force().status_writes_in_flight, work=self._work, on_fault=on_fault,
            contained=self._failed,
            tenant=lambda uid: self._objects[uid].namespace,
        )  # fmt: skip
        self.dropped = 0
        """Status writes that found no room in the queue; a later session says them again."""

    @property
    def waiting(self) -> int:
        """Objects whose status is to be written."""
        return self._waiting

    async def run(self) -> None:
        """Stay; when cancelled, everything under way ends."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._pool.close()
            await self.events.close()

    def submit(
        self,
        gangs: Sequence[GangStatus],
        queues: Sequence[QueueStatus],
        topologies: Sequence[TopologyStatus] = (),
    ) -> list[tuple[str, Exception]]:
        """This is how things stand now; returns at once.

        Returns:
            Names of objects that cannot be told, and why not: these do not stop the others.
        """
        failed: list[tuple[str, Exception]] = []
        those: list[GangStatus | QueueStatus | TopologyStatus]
        those = [*gangs, *queues, *topologies]
        for each in those:
            try:
                self._say(each)
            except Exception as error:  # noqa: BLE001 - one object must not stop the others
                name = each.gang if isinstance(each, GangStatus) else each.name
                failed.append((str(name), error))
        return failed

    def _say(self, status: GangStatus | QueueStatus | TopologyStatus) -> None:
        if isinstance(status, GangStatus):
            self._say_gang(status)
        elif isinstance(status, QueueStatus):
            self._say_queue(status)
        else:
            self._say_topology(status)

    def _say_gang(self, gang: GangStatus) -> None:
        if not gang.uid:  # Its PodGroup is missing; others that miss theirs are not the same.
            gang = attrs.evolve(gang, uid=UID(f"{gang.gang.namespace}/{gang.gang.name}"))
        gang = self.stops.merged(gang)
        before = self._said.get(gang.uid)
        if gang.provisional and before is not None:
            return
        gang = _still_started(gang, before)
        # A gang that was counted again is another object, even where it says the same.
        same = before is gang or (before == gang and not self._lost(gang))
        if not same or self._has_mended(gang):
            _remember_latest(self._said, gang.uid, gang)
            self._submit_gang(gang, before if isinstance(before, GangStatus) else None)

    def _say_queue(self, queue: QueueStatus) -> None:
        if self._said.get(queue.uid) != queue:
            _remember_latest(self._said, queue.uid, queue)
            self._want(queue.uid, QueueWrite(queue))

    def _say_topology(self, topology: TopologyStatus) -> None:
        if self._said.get(topology.uid) != topology:
            _remember_latest(self._said, topology.uid, topology)
            self._submit_topology(topology)

    def bound(self, gang: GangBind) -> None:
        """This process has brought a gang to its nodes: worth an event, once it is scheduled.

        Its pods are told at once, as kube-scheduler tells each: people describe pods.
        """
        _remember_latest(self._bound, gang.uid, None)
        for bind in gang.binds:
            self.events.record(assigned_event(bind), once=True)

    def reject(self, rejected: Rejected) -> None:
        """Tell the author of an object that it cannot be believed, once a generation."""
        if not rejected.ours:
            return
        if not self._lease.may_act(self._clock.monotonic(), self._clock.boottime(), 0.0):
            return  # whoever leads next lists everything again, and is told then
        # Compared with what the object says when it is written: what is said is not said again.
        if has_conditions(rejected):
            self._said.pop(rejected.uid, None)  # once it can be believed, all is to be said again
            self._want(rejected.uid, RejectedWrite(rejected))
        elif rejected.pending:
            self._want(rejected.uid, RejectedPodWrite(rejected))
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
                for uid, known in list(self._objects.items()):
                    if known.want is not None:
                        known.ready_at = float("-inf")
                        if known.timer is not None:
                            known.timer.cancel()
                        self._put(uid, known)
                await self._pool.rest()
                await self.events.flush()
        except TimeoutError:
            _log.warning("some status was not written", objects=self._waiting)
            return False
        return not self._waiting

    def _submit_topology(self, status: TopologyStatus) -> None:
        self._want(status.uid, TopologyWrite(status))
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

    def _lost(self, status: GangStatus) -> bool:
        """Whether the PodGroup shows something else than was said: restored, or overwritten."""
        if status.gang.kind not in GROUP_KINDS:
            return False
        group = find_group(self._cache, status.gang)
        known = self._objects.get(status.uid)
        if group is None or known is None or known.written is None:
            return False
        if known.want is not None or known.written.seen == group.resource_version:
            return False
        write = GroupWrite(status)
        return write.request(self._cache, known.written, self._clock.now()) is not None

    def _has_mended(self, gang: GangStatus) -> bool:
        """Whether one of its pods says something else than was said to it."""
        if not self._mended:
            return False
        found = self._mended.intersection(uid for _, uid in gang.waiting_pods)
        self._mended -= found
        return bool(found)

    def _submit_gang(self, status: GangStatus, before: GangStatus | None) -> None:
        if status.gang.kind in GROUP_KINDS:
            self._want(status.uid, GroupWrite(status))
        ask = status.pending_reason or status.scheduled
        promised = {uid for uid, _ in status.nominated}
        for key, uid in status.waiting_pods:
            want = PodWrite(uid, key.namespace, status.uid, ask, uid in promised)
            if uid not in promised:
                self._cache.withdraw_nomination(uid, want.reason_and_message[0])
            known = self._objects.get(uid)
            # What waits to be written already is compared when its turn comes; and while something
            # is being written nobody knows yet what the object will say.
            if known is not None and known.want is not None:
                known.want = want
            elif (known is not None and known.writing) or want.needed(
                self._cache, known.written if known is not None else None
            ):
                # Most pods are bound within moments and need not be told why they waited.
                self._want(uid, want, settle_s=limits.STATUS_PERIOD_S)
        for key, uid in status.told_members:
            self._want(uid, MemberWrite(uid, key.namespace, status.uid, status.lost_members))
        self._warn_of_evictions(status, before)
        self._tell_pods(status, ask)
        was_scheduled, reason, message = self._shown(status, before)
        if status.is_scheduled:
            # What was to be told about waiting is no longer true; that a pod is bound is.
            self.events.withdraw(status.uid, reason=WAITS if status.gang.kind == "Pod" else "")
            if not was_scheduled:
                self._tell(status)
        elif reason != status.scheduled.reason or without_numbers(message) != without_numbers(
            status.scheduled.message
        ):
            self._tell(status)

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

    def _tell_pods(self, status: GangStatus, ask: PendingReason) -> None:
        """The first waiting pods of a gang carry its sentence too: people describe pods."""
        if status.gang.kind == "Pod":
            return
        for key, uid in status.waiting_pods[: limits.POD_EVENTS_MAX]:
            pod = self._cache.pod(uid)
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
            self.events.withdraw(pod.uid, reason=WAITS)

    def _says_other(self, pod: Pod) -> bool:
        """Whether a condition that we wrote was replaced or taken away."""
        known = self._objects.get(pod.uid)
        written = known.written if known is not None else None
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
        known = self._objects.get(uid)
        # A gang also goes when its object cannot be believed: which that is still to be told.
        if known is None or isinstance(known.want, RejectedWrite | RejectedPodWrite):
            return
        known.gone = True
        if known.timer is not None:
            known.timer.cancel()
            known.timer = None
        self._leave(uid, known)

    def _leave(self, uid: UID, known: _StatusEntry) -> None:
        """Drop what is known of an object that is gone, unless a task has it in hand."""
        if known.gone and not known.queued and not known.writing:
            if known.want is not None:
                self._count(known.want, -1)
                known.want = None
            self._objects.pop(uid, None)

    def _tell(self, status: GangStatus) -> None:
        if status.is_scheduled and (
            status.gang.kind in WITHOUT_OBJECT or event_object(status, self._cache).kind == "Pod"
        ):
            return  # there is nothing that it could be told on, or the pod was told
        settle_s = 0.0 if status.is_scheduled else limits.STATUS_PERIOD_S
        self.events.record(
            gang_event(status, self._cache), topic=status.scheduled.reason, settle_s=settle_s
        )

    def _shown(self, status: GangStatus, before: GangStatus | None) -> tuple[bool, str, str]:
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
            pod = self._cache.pod(status.uid)
            ours = pod is not None and bool(pod.fence) and pod.fence == self._lease.fence
            return not ours and status.uid not in self._bound, "", ""
        pod = self._cache.pod(status.waiting_pods[0][1]) if status.waiting_pods else None
        if pod is None or not pod.unschedulable_reason:
            return False, "", ""
        return False, status.scheduled.reason, pod.unschedulable

    # -- writing ----------------------------------------------------------------------------

    def _want(self, uid: UID, want: Write, *, settle_s: float = 0.0) -> None:
        known = self._objects.get(uid)
        if known is None:
            known = self._objects[uid] = _StatusEntry(namespace=want.namespace)
            self._trim()
        if known.want is not None:
            known.want = want  # its time is set already
            return
        # Whoever has as much waiting as there is room left must wait: others find room.
        if self._waiting_of[want.namespace] >= limits.STATUS_QUEUE_MAX - self._waiting:
            self._drop(want)
            return
        known.want = want
        self._count(want, 1)
        self._schedule(uid, known, self._clock.monotonic() + settle_s)

    def _schedule(self, uid: UID, known: _StatusEntry, at: float) -> None:
        now = self._clock.monotonic()
        due = max(at, known.ready_at)
        if due <= now:
            self._put(uid, known)
        else:
            loop = asyncio.get_running_loop()
            known.timer = loop.call_later(due - now, self._put, uid, known)

    def _put(self, uid: UID, known: _StatusEntry) -> None:
        known.timer = None
        if not known.queued:
            known.queued = True
            self._pool.add(uid)

    def _drop(self, want: Write) -> None:
        self._said.pop(want.gang, None)
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # 1, 2, 4, 8 and so on
            _log.warning("status writes were put off", so_far=self.dropped)

    def _trim(self) -> None:
        """Forget the oldest of the objects about which nothing is to be said."""
        if len(self._objects) > limits.REPORTED_OBJECTS_MAX + limits.STATUS_QUEUE_MAX:
            idle = [uid for uid, known in self._objects.items() if not _busy(known)]
            for uid in idle[: len(idle) // 2]:
                del self._objects[uid]

    async def _work(self, uid: UID) -> None:
        known = self._objects[uid]
        known.queued = False
        if known.gone and not known.writing:
            self._leave(uid, known)
            return
        now = self._clock.monotonic()
        if known.want is None:
            return
        if known.writing or now < known.ready_at:
            self._schedule(uid, known, now + limits.STATUS_PERIOD_S)
            return
        known.writing = True
        try:
            if self._request(known) is not None:
                await self._rate_limiter.turn(TrafficClass.STATUS)
                await self._write(uid, known)
        finally:
            known.writing = False
            self._leave(uid, known)

    def _failed(self, uid: UID, error: Exception) -> None:
        """What was to be written cannot be: the next news about the object may."""
        known = self._objects.get(uid)
        if known is not None and known.want is not None:
            self._said.pop(known.want.gang, None)
            self._count(known.want, -1)
            known.want = None
        self._on_contained("status write", error, uid)

    def _request(self, known: _StatusEntry) -> StatusRequest | None:
        """What to send for the object's wish; None, and no wish any more, when it is said."""
        assert known.want is not None
        request = known.want.request(self._cache, known.written, self._clock.now())
        if request is None:
            self._count(known.want, -1)
            known.want = None
        return request

    async def _write(self, uid: UID, known: _StatusEntry) -> None:
        request = self._request(known)
        want = known.want
        if request is None or want is None:
            return
        now = self._clock.monotonic()
        if not self._lease.may_act(now, self._clock.boottime(), _CALL_S):
            # Renewals may be slow for a moment, and sessions do not repeat what is no news; who
            # has lost the lease drops all of this with its term.
            known.ready_at = now + _RETRY_S
            self._schedule(uid, known, now)
            return
        known.want = None
        self._count(want, -1)
        known.ready_at = now + limits.STATUS_PERIOD_S
        try:
            answer = await self._api.request(
                "PATCH", request.path, body=request.body, content_type=request.content_type,
                timeout_s=_CALL_S,
            )  # fmt: skip
        except (errors.ClusterUnreachable, errors.OutcomeUnknown) as unanswered:
            self._again(uid, known, want, unanswered)
            return
        if answer.ok:
            known.written = parse_written_status(request, want, answer.body)
            return
        error = api_error(answer, doing=f"write {request.path}", write=True)
        # Made again (422: a UID never changes), or changed meanwhile: what was to be said was
        # about something else. A later session says what is true then. What is not there is
        # asked for again until its end is seen: a server or proxy in between may be wrong.
        if isinstance(want, TopologyWrite) and isinstance(error, errors.NotFound | errors.Denied):
            # The CRD or the role of an earlier version: the event alone tells it then.
            _log.warning("the status of a topology cannot be written", why=error)
        elif isinstance(error, errors.Conflict) or error.status == 422:
            if error.status == 422:
                _log.warning("a status was refused", why=error)
            self._said.pop(want.gang, None)
        else:
            self._again(uid, known, want, error)

    def _again(
        self, uid: UID, known: _StatusEntry, want: Write, error: errors.GpuschedError
    ) -> None:
        """Try later, unless there is something newer to say by then."""
        pause_s = _RETRY_S
        if isinstance(error, errors.Throttled):
            self._telemetry.throttled()
            self._rate_limiter.throttled(error.retry_after_s)
        elif isinstance(error, errors.NotFound):
            pause_s = _DENIED_RETRY_S
        elif isinstance(error, errors.Denied):
            self._lease.doubt()
            pause_s = _DENIED_RETRY_S
            _log.error("a status may not be written", why=error)
        now = self._clock.monotonic()
        known.ready_at = now + pause_s
        if known.want is None and not known.gone:
            known.want = want
            self._count(want, 1)
            self._schedule(uid, known, now)

    def _count(self, want: Write, times: int) -> None:
        """One more write waits, or one less."""
        self._waiting += times
        left = self._waiting_of[want.namespace] + times
        if left:
            self._waiting_of[want.namespace] = left
        else:
            del self._waiting_of[want.namespace]


def _busy(known: _StatusEntry) -> bool:
    return known.want is not None or known.writing or known.queued


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
