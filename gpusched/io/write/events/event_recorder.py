"""Tells people what happened, through events.k8s.io: rarely, last, and never twice.

An object's latest news replaces news that was not sent yet, so a gang that waited for half a
second leaves no trace of it. One reason is told once a minute an object. Events give way to
all other traffic; what does not fit the queue is dropped, the oldest first, and counted. News of
single pods of a gang that started come last: they take half of the queue at most.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import attrs

from gpusched.api.meta.identity import UID
from gpusched.api.serializer import requests
from gpusched.api.serializer.requests import EventNote
from gpusched.base import errors, limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import MERGE_PATCH, ApiClient
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.client.transport import JSON
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass
from gpusched.io.workers.work_queue import OnContained, OnFault, WorkerPool, log_contained_fault

_CALL_S: Final = limits.BIND_TIMEOUT_CLIENT_S
EVENT_LINES: Final = ("moves", "warnings", "keys")
"""Lines of news that objects may have beside the usual one."""
_log = Logger(__name__)


@define(slots=True, eq=False)
class _ReportedObject:
    """What was told about one object.

    Attributes:
        sent: reason to (last note, monotonic time); ``names``: event to how often told.
        news: not sent yet, and the reason under which it is counted.
        timer: until it may be sent.
        namespace: of the object: news of several are told in turn.
        gone: whether the object is deleted: once the news are sent, nothing is known of it.
        queued: whether the news are to be sent as soon as it is their turn.
    """

    sent: dict[str, tuple[str, float]] = attrs.Factory(dict)
    names: dict[str, int] = attrs.Factory(dict)
    news: tuple[str, EventNote] | None = None
    timer: asyncio.TimerHandle | None = None
    namespace: str = ""
    queued: bool = False
    gone: bool = False


class EventRecorder:
    """See the module.

    Args:
        api: shared with everything but the lease.
        rate_limiter: gives turns; events come last.
        lease: without it nothing is told, as another leader tells it.
        clock: time.
        telemetry: counts 429 answers.
        instance: which process tells it.
        on_fault: told when a task crashed.
        on_contained: told of an event that failed by our own doing.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        *,
        lease: Lease,
        clock: Clock,
        telemetry: Telemetry,
        instance: str,
        on_fault: OnFault,
        on_contained: OnContained = log_contained_fault,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._api = api
        self._rate_limiter = rate_limiter
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self._instance = instance
        self._objects: OrderedDict[UID, _ReportedObject] = OrderedDict()
        self._queues: dict[str, OrderedDict[UID, None]] = {}
        """Objects with news to be sent, by namespace."""
        self._queued = 0
        self._pool: WorkerPool[UID] = WorkerPool(
            "events", limit=lambda: limits_in_force().events_in_flight, work=self._tell_events, on_fault=on_fault,
            contained=lambda uid, error: on_contained("event", error, uid),
            tenant=lambda uid: self._objects[uid].namespace,
        )  # fmt: skip
        self.dropped = 0
        """Events that were never told: no room in the queue, or the API did not take them."""

    def record(
        self,
        note: EventNote,
        *,
        topic: str = "",
        settle_s: float = 0.0,
        line: str = "",
        once: bool = False,
    ) -> None:
        """Tell it when it may be told, unless newer news about the object comes first.

        Args:
            note: what.
            topic: what is told once a minute; the event's reason unless given.
            settle_s: seconds to wait for newer news.
            line: newer news replaces older of the same line only; most objects have one.
            once: told once in the life of the object, after which nothing need be known of it;
                dropped where half of the queue is taken.
        """
        if once and self._queued >= limits.EVENT_QUEUE_MAX // 2:
            self._count_dropped(f"{self._queued} events wait")
            return
        uid = UID(f"{note.regarding.uid}/{line}") if line else note.regarding.uid
        topic = topic or note.reason
        known = self._objects.get(uid)
        if known is None:
            known = self._objects[uid] = _ReportedObject(namespace=note.regarding.key.namespace)
            self._trim_known()
        else:
            self._objects.move_to_end(uid)
            known.gone = False
        self.withdraw_events(uid)
        last, at = known.sent.get(topic, ("", float("-inf")))
        if last == note.note:
            return
        now = self._clock.monotonic()
        due = max(now + settle_s, at + limits.EVENT_PERIOD_S)
        known.news, known.gone = (topic, note), once
        if due <= now:
            self._put_in_queue(uid)
        else:
            known.timer = asyncio.get_running_loop().call_later(due - now, self._put_in_queue, uid)

    def withdraw_events(self, uid: UID, *, reason: str = "") -> None:
        """What was not told yet about an object is no longer true; with a reason, only that."""
        known = self._objects.get(uid)
        if known is not None and reason and (known.news is None or known.news[1].reason != reason):
            return
        if known is not None:
            known.news = None
            self._take_from_queue(uid, known)
            if known.timer is not None:
                known.timer.cancel()
                known.timer = None
            self._forget_object(uid, known)

    def forget(self, uid: UID) -> None:
        """An object is gone: of what was told about it nothing need be known."""
        for each in (uid, *(UID(f"{uid}/{line}") for line in EVENT_LINES)):
            known = self._objects.get(each)
            if known is not None:
                known.gone = True
                self._forget_object(each, known)

    def _forget_object(self, uid: UID, known: _ReportedObject) -> None:
        if known.gone and known.news is None:
            self._objects.pop(uid, None)

    async def flush(self) -> None:
        """Tell now all that waits."""
        for uid, known in list(self._objects.items()):
            if known.timer is not None:
                known.timer.cancel()
                self._put_in_queue(uid)
        await self._pool.wait_for_rest()

    async def close(self) -> None:
        """Stop writing events; waiting ones are dropped."""
        for uid in list(self._objects):
            self.withdraw_events(uid)
        await self._pool.close()

    def _trim_known(self) -> None:
        if len(self._objects) > limits.REPORTED_OBJECTS_MAX:
            uid = next(iter(self._objects))
            self.withdraw_events(uid)
            del self._objects[uid]

    def _put_in_queue(self, uid: UID) -> None:
        known = self._objects[uid]
        known.timer = None
        if not known.queued:
            known.queued = True
            self._queues.setdefault(known.namespace, OrderedDict())[uid] = None
            self._queued += 1
            self._pool.add(uid)
        if self._queued > limits.EVENT_QUEUE_MAX:
            # Who has most to tell loses the oldest of it; what others tell is not touched.
            longest = max(self._queues.values(), key=len)
            self.withdraw_events(next(iter(longest)))
            self._count_dropped(f"more than {limits.EVENT_QUEUE_MAX} events wait")

    def _take_from_queue(self, uid: UID, known: _ReportedObject) -> None:
        if known.queued:
            known.queued = False
            queue = self._queues[known.namespace]
            del queue[uid]
            if not queue:
                del self._queues[known.namespace]
            self._queued -= 1

    def _count_dropped(self, why: str) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # 1, 2, 4, 8 and so on
            _log.warning("events were dropped", so_far=self.dropped, why=why)

    async def _tell_events(self, uid: UID) -> None:
        await self._rate_limiter.turn(TrafficClass.EVENTS)
        known = self._objects.get(uid)
        if known is None or not known.queued or known.news is None:
            return
        self._take_from_queue(uid, known)
        if not self._lease.may_act(self._clock.monotonic(), self._clock.boottime(), _CALL_S):
            self.withdraw_events(uid)
            return
        topic, note = known.news
        known.news = None
        now = self._clock.monotonic()
        known.sent[topic] = (note.note, now)
        told = known.names.get(note.name, 0)
        self._forget_object(uid, known)
        answer = await self._send_event(note, told)
        if answer is not None and answer.status == 404 and told:
            # The server keeps events for an hour only; 404 otherwise: the namespace is gone.
            known.names.pop(note.name)
            told = 0
            answer = await self._send_event(note, told)
        if answer is None:
            return
        # 409: an earlier process has told it.
        if answer.ok or answer.status == 409:
            if len(known.names) >= limits.COMMIT_STORY_MAX:
                known.names.pop(next(iter(known.names)))
            known.names[note.name] = told + 1
            return
        error = api_error(answer, doing=f"tell about {note.regarding.kind} {note.regarding.key}")
        if isinstance(error, errors.Throttled):
            self._telemetry.throttled()
            self._rate_limiter.throttled(error.retry_after_s)
        self._count_dropped(str(error))

    async def _send_event(self, note: EventNote, told: int) -> ApiResponse | None:
        path = f"/apis/events.k8s.io/v1/namespaces/{note.regarding.event_namespace}/events"
        now = self._clock.now()
        method, content_type = "POST", JSON
        if told:
            method, content_type = "PATCH", MERGE_PATCH
            path = f"{path}/{note.name}"
            body = requests.event_series_patch(count=told + 1, now=now)
        else:
            body = requests.event_body(note, instance=self._instance, now=now)
        try:
            return await self._api.request(
                method, path, body=body, content_type=content_type, timeout_s=_CALL_S
            )
        except (errors.ClusterUnreachable, errors.OutcomeUnknown) as error:
            self._count_dropped(str(error))
            return None
