"""Status writes that wait for their turn: one an object, the latest wins.

A write is compared with what the API shows just before it is sent: what is said already is not
said again, after a restart neither. An object is written once a second at most. Status comes
after bindings and evictions, and namespaces are served in turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from gpusched.api.meta.identity import UID
from gpusched.base import errors, limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass
from gpusched.io.workers.work_queue import OnContained, OnFault, WorkerPool, log_contained_fault
from gpusched.io.write.status.object_writes import GroupWrite, TopologyWrite
from gpusched.io.write.status.rejected_writes import RejectedPodWrite, RejectedWrite
from gpusched.io.write.status.status_request import StatusRequest, WrittenStatus
from gpusched.io.write.status.writes import Write, parse_written_status
from gpusched.io.write.status_cache import StatusCache

_CALL_S: Final = limits.BIND_TIMEOUT_CLIENT_S
_RETRY_S: Final = 2 * limits.STATUS_PERIOD_S
_DENIED_RETRY_S: Final = limits.BACKOFF_MAX_S
_log = Logger(__name__)


@define(slots=True, eq=False)
class _StatusEntry:
    """What we know of the writing of one object.

    Attributes:
        want: to be written; None when nothing is.
        namespace: of the object: writes of several namespaces are served in turn.
        ready_at: monotonic seconds before which it is not written again.
        gone: whether the object is deleted: nothing is to be known of it any more.
        conflicts: answers 409 since the last write that was taken.
    """

    want: Write | None = None
    namespace: str = ""
    written: WrittenStatus | None = None
    ready_at: float = float("-inf")
    timer: asyncio.TimerHandle | None = None
    queued: bool = False
    writing: bool = False
    gone: bool = False
    conflicts: int = 0


class StatusQueue:
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
        on_unwritten: told the UID of a gang or object whose status is not written, so that a
            later session says it again.
        limits_in_force: gives the bounds of the configuration.
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
        on_unwritten: Callable[[UID], None],
        on_contained: OnContained = log_contained_fault,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._api = api
        self._rate_limiter = rate_limiter
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self._on_contained = on_contained
        self._on_unwritten = on_unwritten
        self._objects: OrderedDict[UID, _StatusEntry] = OrderedDict()
        self._waiting = 0
        self._waiting_of: Counter[str] = Counter()
        self._pool: WorkerPool[UID] = WorkerPool(
            "status", limit=lambda: limits_in_force().status_writes_in_flight, work=self._write_status,
            on_fault=on_fault, contained=self._fail_write,
            tenant=lambda uid: self._objects[uid].namespace,
        )  # fmt: skip
        self.dropped = 0
        """Status writes that found no room in the queue; a later session says them again."""

    @property
    def waiting(self) -> int:
        """Objects whose status is to be written."""
        return self._waiting

    def last_write(self, uid: UID) -> WrittenStatus | None:
        """The last write to an object that was accepted; None when there was none."""
        known = self._objects.get(uid)
        return known.written if known is not None else None

    def is_waiting(self, uid: UID) -> bool:
        """Whether a write of the object waits for its turn."""
        known = self._objects.get(uid)
        return known is not None and known.want is not None

    def is_under_way(self, uid: UID) -> bool:
        """Whether a write of the object waits or is being sent."""
        known = self._objects.get(uid)
        return known is not None and (known.want is not None or known.writing)

    def submit(self, uid: UID, want: Write, *, settle_s: float = 0.0) -> None:
        """Write this to the object when its turn comes, and nothing that waited before.

        Args:
            uid: of the object.
            want: what to write.
            settle_s: seconds that a first write waits for a newer one to replace it.
        """
        known = self._objects.get(uid)
        if known is None:
            known = self._objects[uid] = _StatusEntry(namespace=want.namespace)
            self._trim_known()
        if known.want is not None:
            known.want = want  # its time is set already
            return
        # Whoever has as much waiting as there is room left must wait: others find room.
        if self._waiting_of[want.namespace] >= limits.STATUS_QUEUE_MAX - self._waiting:
            self._count_dropped(want)
            return
        known.want = want
        self._count(want, 1)
        self._schedule_write(uid, known, self._clock.monotonic() + settle_s)

    def forget(self, uid: UID) -> None:
        """Write nothing more to an object that is gone, but that it cannot be believed."""
        known = self._objects.get(uid)
        # A gang also goes when its object cannot be believed: which that is still to be told.
        if known is None or isinstance(known.want, RejectedWrite | RejectedPodWrite):
            return
        known.gone = True
        self._forget_object(uid, known)

    async def flush(self) -> None:
        """Write now all that waits."""
        for uid, known in list(self._objects.items()):
            if known.want is not None:
                known.ready_at = float("-inf")
                if known.timer is not None:
                    known.timer.cancel()
                self._put_in_queue(uid, known)
        await self._pool.wait_for_rest()

    async def close(self) -> None:
        """End everything under way."""
        await self._pool.close()

    def _schedule_write(self, uid: UID, known: _StatusEntry, at: float) -> None:
        now = self._clock.monotonic()
        due = max(at, known.ready_at)
        if due <= now:
            self._put_in_queue(uid, known)
        else:
            loop = asyncio.get_running_loop()
            known.timer = loop.call_later(due - now, self._put_in_queue, uid, known)

    def _put_in_queue(self, uid: UID, known: _StatusEntry) -> None:
        known.timer = None
        if not known.queued:
            known.queued = True
            self._pool.add(uid)

    def _count_dropped(self, want: Write) -> None:
        self._on_unwritten(want.gang)
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # 1, 2, 4, 8 and so on
            _log.warning("status writes were put off", so_far=self.dropped)

    def _trim_known(self) -> None:
        """Forget the oldest of the objects about which nothing is to be said."""
        if len(self._objects) > limits.REPORTED_OBJECTS_MAX + limits.STATUS_QUEUE_MAX:
            idle = [uid for uid, known in self._objects.items() if not _is_busy(known)]
            for uid in idle[: len(idle) // 2]:
                del self._objects[uid]

    def _forget_object(self, uid: UID, known: _StatusEntry) -> None:
        """Drop what is known of an object that is gone, unless a task has it in hand."""
        if known.gone and known.timer is not None:
            known.timer.cancel()  # also one that a task set when it was gone already
            known.timer = None
        if known.gone and not known.queued and not known.writing:
            if known.want is not None:
                self._count(known.want, -1)
                known.want = None
            self._objects.pop(uid, None)

    async def _write_status(self, uid: UID) -> None:
        known = self._objects[uid]
        known.queued = False
        if known.gone and not known.writing:
            self._forget_object(uid, known)
            return
        now = self._clock.monotonic()
        if known.want is None:
            return
        if known.writing or now < known.ready_at:
            self._schedule_write(uid, known, now + limits.STATUS_PERIOD_S)
            return
        known.writing = True
        try:
            if self._build_request(known) is not None:
                await self._rate_limiter.turn(TrafficClass.STATUS)
                await self._write(uid, known)
        finally:
            known.writing = False
            self._forget_object(uid, known)

    def _fail_write(self, uid: UID, error: Exception) -> None:
        """What was to be written cannot be: the next news about the object may."""
        known = self._objects.get(uid)
        if known is not None and known.want is not None:
            self._on_unwritten(known.want.gang)
            self._count(known.want, -1)
            known.want = None
        self._on_contained("status write", error, uid)

    def _build_request(self, known: _StatusEntry) -> StatusRequest | None:
        """What to send for the object's wish; None, and no wish any more, when it is said."""
        assert known.want is not None
        request = known.want.request(self._cache, known.written, self._clock.now())
        if request is None:
            self._count(known.want, -1)
            known.want = None
        return request

    async def _write(self, uid: UID, known: _StatusEntry) -> None:
        request = self._build_request(known)
        want = known.want
        if request is None or want is None:
            return
        now = self._clock.monotonic()
        if not self._lease.may_act(now, self._clock.boottime(), _CALL_S):
            # Renewals may be slow for a moment, and sessions do not repeat what is no news; who
            # has lost the lease drops all of this with its term.
            known.ready_at = now + _RETRY_S
            self._schedule_write(uid, known, now)
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
            self._write_later(uid, known, want, unanswered)
            return
        if answer.ok:
            known.conflicts = 0
            known.written = parse_written_status(request, want, answer.body)
            return
        error = api_error(answer, doing=f"write {request.path}", write=True)
        # Made again (422: a UID never changes): what was to be said was about something else.
        # A later session says what is true then. What is not there, or a group that was changed
        # meanwhile, is asked for again until its end is seen: a server or proxy in between
        # may be wrong, and a gang that has settled is in no later session.
        if isinstance(want, TopologyWrite) and isinstance(error, errors.NotFound | errors.Denied):
            # The CRD or the role of an earlier version: the event alone tells it then.
            _log.warning("the status of a topology cannot be written", why=error)
        elif error.status == 422 or (
            isinstance(error, errors.Conflict) and not isinstance(want, GroupWrite)
        ):
            if error.status == 422:
                _log.warning("a status was refused", why=error)
            self._on_unwritten(want.gang)
        else:
            self._write_later(uid, known, want, error)

    def _write_later(
        self, uid: UID, known: _StatusEntry, want: Write, error: errors.GpuschedError
    ) -> None:
        """Try later, unless there is something newer to say by then."""
        pause_s = _RETRY_S
        if isinstance(error, errors.Throttled):
            self._telemetry.throttled()
            self._rate_limiter.throttled(error.retry_after_s)
        elif isinstance(error, errors.Conflict):
            known.conflicts += 1
            pause_s = min(_DENIED_RETRY_S, _RETRY_S * 2 ** min(known.conflicts, 10))
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
            self._schedule_write(uid, known, now)

    def _count(self, want: Write, times: int) -> None:
        """One more write waits, or one less."""
        self._waiting += times
        left = self._waiting_of[want.namespace] + times
        if left:
            self._waiting_of[want.namespace] = left
        else:
            del self._waiting_of[want.namespace]


def _is_busy(known: _StatusEntry) -> bool:
    return known.want is not None or known.writing or known.queued
