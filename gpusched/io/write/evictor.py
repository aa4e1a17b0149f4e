"""Evicts pods through the Eviction API, by UID, until each is gone.

A refusing disruption budget, a busy server or a lost answer is tried again with growing
pauses: repeating is harmless, as the UID says which pod is meant. Only the pod's end
stops it, or that of the leadership which decided it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import attrs

from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer import requests
from gpusched.base import errors, limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.commit.observed_pod import read_pod
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass
from gpusched.io.workers.work_queue import OnContained, OnFault, WorkerPool, log_contained_fault
from gpusched.io.write.bind_calls import CALL_S, SERVER_QUERY, pod_path

_log = Logger(__name__)

OnEnd = Callable[[UID, bool], None]


@define(slots=True, eq=False)
class _EvictionRun:
    key: ObjectKey
    uid: UID
    action: str
    reason: str
    fence: str
    gpu_seconds: int = 0
    tries: int = 0
    blocked: str = ""
    by_budget: bool = False
    on_end: list[OnEnd] = attrs.Factory(list)


class Evictor:
    """See the module. One per process.

    Args:
        api: shared with everything but the lease.
        rate_limiter: gives turns.
        lease: asked before each eviction; while it says no, nothing is sent.
        clock: monotonic and boot time.
        telemetry: counts.
        on_fault: told when a task crashed.
        on_contained: told of an eviction that failed by our own doing; it is tried again.
        limits_in_force: of the configuration.
        is_finished: whether a pod has ended by itself, as last seen: it holds no room, and what it did counts
            towards its gang's minimum for as long as it is there.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        *,
        lease: Lease,
        clock: Clock,
        telemetry: Telemetry,
        on_fault: OnFault,
        on_contained: OnContained = log_contained_fault,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
        is_finished: Callable[[UID], bool] = lambda _uid: False,
    ) -> None:
        self._is_finished = is_finished
        self._on_contained = on_contained
        self._api = api
        self._rate_limiter = rate_limiter
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self._victims: dict[UID, _EvictionRun] = {}
        self._pool: WorkerPool[_EvictionRun] = WorkerPool(
            "evict",
            limit=lambda: limits_in_force().evictions_in_flight,
            work=self._evict,
            on_fault=on_fault,
            contained=self._fail_eviction,
        )

    @property
    def blocked(self) -> dict[UID, str]:
        """Why pods could not be evicted yet, in a sentence each."""
        return {uid: each.blocked for uid, each in self._victims.items() if each.blocked}

    @property
    def blocked_by_budget(self) -> dict[UID, str]:
        """Sentences of the server about pods that a PodDisruptionBudget keeps from being evicted."""
        return {uid: each.blocked for uid, each in self._victims.items() if each.by_budget}

    def is_evicting(self, uid: UID) -> bool:
        """Whether an eviction of this pod is under way or to be repeated."""
        return uid in self._victims

    def evict(
        self,
        pods: Iterable[tuple[ObjectKey, UID]],
        *,
        action: str,
        reason: str,
        on_end: OnEnd | None = None,
        lost: Mapping[UID, int] | None = None,
    ) -> None:
        """Begin to evict; pods already being evicted are not sent twice.

        Args:
            pods: key and UID.
            action: name of the action that decided, for metrics.
            reason: one of the contract's, for metrics.
            on_end: called for each: True when the API accepted it or the pod is not there
                or has ended, False when the leadership that decided it is over, or it was given up.
            lost: GPU-seconds of work that each loses, for metrics.
        """
        for key, uid in pods:
            victim = self._victims.get(uid)
            if victim is None:
                victim = self._victims[uid] = _EvictionRun(
                    key, uid, action, reason, self._lease.fence
                )
                victim.gpu_seconds = (lost or {}).get(uid, 0)
                self._pool.add(victim)
            if on_end is not None:
                victim.on_end.append(on_end)

    def give_up(self, uids: Iterable[UID]) -> None:
        """Ask no more for these evictions; an answer that is still to come is ignored."""
        for uid in uids:
            victim = self._victims.get(uid)
            if victim is not None:
                self._end(victim, done=False)

    def observe_gone(self, uid: UID) -> None:
        """The watch said that a pod is deleted."""
        victim = self._victims.get(uid)
        if victim is not None:
            self._end(victim, done=True)

    async def close(self) -> None:
        """Stop; what was not accepted by now is not evicted by us."""
        self._victims.clear()
        await self._pool.close()

    async def _evict(self, victim: _EvictionRun) -> None:
        await self._rate_limiter.turn(TrafficClass.EVICT)
        if victim.uid not in self._victims:
            return
        if self._lease.fence != victim.fence:
            self._end(victim, done=False)
            return
        if self._is_finished(victim.uid):
            self._end(victim, done=True)
            return
        if not self._lease.may_act(self._clock.monotonic(), self._clock.boottime(), CALL_S):
            self._retry_later(victim, limits.EVICT_RETRY_MIN_S)
            return
        doing = f"evict pod {victim.key}"
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._api.request(
                    "POST",
                    f"{pod_path(victim.key)}/eviction",
                    query=SERVER_QUERY,
                    body=requests.eviction_body(victim.key, victim.uid, fence=self._lease.fence),
                    timeout_s=CALL_S,
                )
        except (errors.ClusterUnreachable, errors.OutcomeUnknown) as error:
            self._note_refusal(victim, error)
        except TimeoutError:
            self._note_refusal(victim, errors.OutcomeUnknown(f"{doing}: no answer in {CALL_S:g} s"))
        else:
            if answer.ok:
                self._telemetry.eviction(victim.action, victim.reason, victim.gpu_seconds)
                self._end(victim, done=True)
            elif answer.status == 404 or (answer.status == 409 and await self._is_gone(victim)):
                self._end(victim, done=True)
            else:
                self._note_refusal(victim, api_error(answer, doing=doing, write=True))

    def _fail_eviction(self, victim: _EvictionRun, error: Exception) -> None:
        self._on_contained("eviction", error, victim.key)
        self._note_refusal(victim, errors.OutcomeUnknown(f"evict pod {victim.key}: {error}"))

    async def _is_gone(self, victim: _EvictionRun) -> bool:
        """Whether there is no pod of that UID: a 409 alone may also mean a concurrent change."""
        try:
            answer = await self._api.request("GET", pod_path(victim.key), timeout_s=CALL_S)
            if answer.ok:
                return read_pod(answer.body).uid != victim.uid
        except (errors.ClusterUnreachable, errors.UndecodableObject) as error:
            _log.warning("a pod cannot be read", pod=victim.key, why=error)
            return False
        return answer.status == 404

    def _note_refusal(self, victim: _EvictionRun, error: errors.GpuschedError) -> None:
        if isinstance(error, errors.Throttled):
            self._telemetry.throttled()
            self._rate_limiter.throttled(error.retry_after_s)
        elif isinstance(error, errors.Denied):
            self._lease.doubt()
        if not victim.blocked:
            _log.warning("a pod cannot be evicted yet", pod=victim.key, why=error)
        victim.blocked = str(error)
        victim.by_budget = isinstance(error, errors.BudgetRefused)
        pause_s = limits.EVICT_RETRY_MIN_S * float(1 << min(victim.tries, 8))
        victim.tries += 1
        self._retry_later(victim, min(pause_s, limits.EVICT_RETRY_MAX_S))

    def _retry_later(self, victim: _EvictionRun, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._retry_eviction, victim)

    def _retry_eviction(self, victim: _EvictionRun) -> None:
        if self._victims.get(victim.uid) is victim:
            self._pool.add(victim)

    def _end(self, victim: _EvictionRun, *, done: bool) -> None:
        if self._victims.pop(victim.uid, None) is not None:
            for call in victim.on_end:
                try:
                    call(victim.uid, done)
                except errors.Fenced:
                    raise
                except Exception as error:  # noqa: BLE001 - the others are told all the same
                    self._on_contained("eviction", error, victim.key)
