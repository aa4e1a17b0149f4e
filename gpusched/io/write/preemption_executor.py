r"""Carries out claims, stops and switches: room is made as decided, or the claim is dropped.

A claim::

    checked --> recorded --> promised --> told --> paused --> evicting --> done
                   |            |           |         |           |
                   +------------+-----------+---------+-----------+--> dropped

Where victims are moved to, what turns they have had and how often they left, is recorded first, on their PodGroup or Job. The promise is written on
every pod that waits before any victim is evicted; then the victims are told
(their DisruptionTarget condition); then Jobs are paused and pods evicted. Whatever fails drops
the preemption: no other pod is evicted for it, and the next session decides again on what there is then.
Between a decision and the watch that shows it, the cache carries marks (``cache.overlay``). A
crash loses nothing: promises and evictions live in the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import attrs

from gpusched.api.gang.eviction_record import EVICTIONS, later_evictions, parse_evictions
from gpusched.api.gang.turn_record import TURN, later_turn, parse_turn
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, GangKey, ObjectKey, parse_time
from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.errors import Fenced
from gpusched.cache.assumed_changes import Nomination
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.expected_pods import is_expected_uid
from gpusched.cache.snapshot import Snapshot
from gpusched.cache.verify.placements import victim_group_error
from gpusched.cache.verify.preemptions import recheck_preemption, victim_error
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.workers.work_queue import OnContained, OnFault, WorkerPool, log_contained_fault
from gpusched.io.write.evictor import Evictor
from gpusched.io.write.preemption_calls import NOT_LEADING, PreemptionCalls
from gpusched.session.allocate.suspended_jobs import ADMITTED_ANNOTATION
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    Eviction,
    GangStop,
    JobSuspendChange,
    MoveOrder,
    Plan,
    PreemptionPlan,
)

_log = Logger(__name__)


@define(slots=True, eq=False)
class _PreemptionRun:
    """One claim, stop or switch on its way.

    Attributes:
        gang: for which room is made, or which is stopped.
        nominees: pod, UID and node of each promise.
        told: what the pods that wait are told.
        since: when it was decided, seconds since the epoch: the promise's time.
        open: victims whose eviction is not answered yet.
    """

    gang: GangKey
    fence: str
    since: float
    nominees: tuple[tuple[ObjectKey, UID, str], ...] = ()
    told: str = ""
    stops: tuple[GangStop, ...] = ()
    switch: JobSuspendChange | None = None
    moves: tuple[MoveOrder, ...] = ()
    open: set[UID] = attrs.Factory(set)
    timer: asyncio.TimerHandle | None = None

    @property
    def victims(self) -> list[Eviction]:
        """Pods that leave, also those of Jobs that are suspended."""
        return [each for stop in self.stops for each in stop.evictions]

    @property
    def job_changes(self) -> list[JobSuspendChange]:
        """Jobs that are paused or started."""
        pauses = [stop.pause for stop in self.stops if stop.pause is not None]
        return [self.switch, *pauses] if self.switch is not None else pauses


class PreemptionExecutor:
    """See the module. One per process; everything is called in the event loop.

    Args:
        api: shared with everything but the lease.
        rate_limiter: gives turns.
        cache: shows what is under way.
        evictor: shared with the binder.
        lease: without which nothing is begun.
        clock: time.
        telemetry: counts evictions.
        on_fault: told of a crash.
        on_contained: told of a claim that failed by our own doing.
        on_stopped: told of each stop whose first member was made to leave.
        on_switched: told of each Job that was started or given back, not of those that are paused.
        limits_in_force: of the configuration.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        cache: Cache,
        *,
        evictor: Evictor,
        lease: Lease,
        clock: Clock,
        telemetry: Telemetry,
        on_fault: OnFault,
        on_contained: OnContained = log_contained_fault,
        on_stopped: Callable[[GangStop], None] = lambda _stop: None,
        on_switched: Callable[[JobSuspendChange], None] = lambda _switch: None,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._limits = limits_in_force
        self._calls = PreemptionCalls(
            api,
            rate_limiter,
            cache,
            lease=lease,
            clock=clock,
            telemetry=telemetry,
            limits_in_force=limits_in_force,
        )
        self._on_contained = on_contained
        self._cache = cache
        self._evictor = evictor
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self._on_stopped = on_stopped
        self._on_switched = on_switched
        self._pool: WorkerPool[_PreemptionRun] = WorkerPool(
            "claim",
            limit=lambda: limits_in_force().preemptions_in_flight,
            work=self._carry_out,
            on_fault=on_fault,
            contained=self._give_up_run,
        )
        self._runs: dict[GangKey, _PreemptionRun] = {}
        self._failures: dict[GangKey, int] = {}
        """In a row, by gang; forgotten when one is carried out."""
        self._closed = False

    def is_carrying_out(self, gang: GangKey) -> bool:
        """Whether something is being carried out for this gang."""
        return gang in self._runs

    def submit(self, plan: Plan, decided_on: Snapshot) -> list[tuple[GangKey, Exception]]:
        """Begin all of a plan that makes room or switches Jobs; returns at once.

        What is not as it was decided on any more is left: its change has woken a session.

        Returns:
            Gangs for which it could not be begun, and why not: these do not stop the others.
        """
        fence = self._lease.fence
        if self._closed or not fence:
            return []
        failed: list[tuple[GangKey, Exception]] = []

        def begin(gang: GangKey, act: Callable[..., None], *args: object) -> None:
            try:
                act(*args)
            except Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - one gang must not stop the others
                self._runs.pop(gang, None)
                failed.append((gang, error))

        asks = {status.gang: status.scheduled for status in plan.gangs}
        now = self._clock.now()
        starts = {GangKey("Job", *each.key): each for each in plan.job_changes}
        for stop in plan.stops:  # first: claims of the same decision may rest on what they free
            begin(
                stop.gang,
                self._begin_stop,
                _PreemptionRun(stop.gang, fence, now, stops=(stop,)),
                stop,
            )
        for claim in plan.preemptions:
            start = starts.pop(claim.gang, None)
            told = asks.get(claim.gang)
            text = told.message if told is not None else claim.message
            run = _PreemptionRun(claim.gang, fence, now, (), text, claim.stops, start)
            begin(claim.gang, self._begin_claim, run, claim, decided_on)
        for key, switch in starts.items():
            begin(key, self._begin_switch, _PreemptionRun(key, fence, now, switch=switch), switch)
        return failed

    def _begin_claim(
        self, run: _PreemptionRun, claim: PreemptionPlan, decided_on: Snapshot
    ) -> None:
        # Pods of a suspended Job do not exist yet: that it is started is their promise.
        claim = _of_the_living(claim)
        run.nominees, run.moves = claim.nominations, claim.moves
        error = self._plan_error(claim, decided_on)
        start = run.switch
        self._begin(run, error or (self._job_error(start) if start else ""))

    def _begin_stop(self, run: _PreemptionRun, stop: GangStop) -> None:
        self._begin(run, self._stop_error(stop))

    def _begin_switch(self, run: _PreemptionRun, switch: JobSuspendChange) -> None:
        self._begin(run, self._job_error(switch))

    def give_up_needless_evictions(self, gang: GangKey) -> None:
        """Evict no more pods for a gang whose pods all have a place by now."""
        run = self._runs.get(gang)
        if run is not None and run.open and self._is_needless(run):
            _log.info("room is not needed any more", gang=gang, left=len(run.open))
            self._evictor.give_up(sorted(run.open))

    def _is_needless(self, run: _PreemptionRun) -> bool:
        """Whether all pods that were nominated have a place."""
        places = [self._cache.ledger.get(uid) for _, uid, _ in run.nominees]
        return bool(places) and None not in places

    async def drain(self) -> None:
        """Begin nothing more; what was promised and evicted stands in the API."""
        self._closed = True
        for run in self._runs.values():
            if run.timer is not None:
                run.timer.cancel()
        await self._pool.close()

    # -- checking ----------------------------------------------------------------------------
    def _plan_error(self, claim: PreemptionPlan, decided_on: Snapshot) -> str:
        victims = [each for stop in claim.stops for each in stop.evictions]
        error = recheck_preemption(
            self._cache,
            claim.gang,
            generation=claim.generation,
            nominees=claim.nominations,
            victims=[(each.key, each.uid, each.node) for each in victims],
            decided_on=decided_on.nodes,
            reservations=decided_on.reservations,
            moved=[
                (place.node, place.requests)
                for each in claim.moves
                for place in each.move.places
                for _ in range(place.pods)
            ],
        )
        return error or next(filter(None, map(self._stop_error, claim.stops)), "")

    def _stop_error(self, stop: GangStop) -> str:
        error = victim_group_error(self._cache, stop.gang, stop.generation)
        for each in stop.evictions:
            error = error or victim_error(self._cache, each.key, each.uid, each.node)
        return error or (self._job_error(stop.pause) if stop.pause is not None else "")

    def _job_error(self, switch: JobSuspendChange) -> str:
        job = self._cache.jobs.items.get(switch.key)
        if job is None or job.uid != switch.uid:
            return f"Job {switch.key} is gone"
        return "" if job.suspended != switch.suspend else f"Job {switch.key} was switched already"

    # -- marks -------------------------------------------------------------------------------
    def _begin(self, run: _PreemptionRun, error: str) -> None:
        """Mark and queue; in the same step of the loop as the checks before it."""
        if error or run.gang in self._runs:
            why = error or "an earlier decision for it is still being carried out"
            _log.info("a decision is out of date and is made again", gang=run.gang, why=why)
            return
        self._runs[run.gang] = run
        for _, uid, node in run.nominees:
            promise = Nomination(node, Reason.PREEMPTION_IN_PROGRESS, run.told, run.since)
            self._cache.assume_nomination(uid, promise)
        for order in run.moves:
            self._cache.moves.mark_move(order.gang, order.uid, order.move)
        for victim in run.victims:
            self._cache.mark_leaving(victim.uid)
        for switch in run.job_changes:
            job = self._cache.jobs.items[switch.key]
            self._cache.switch_job(switch.key, switch.uid, job_after_switch(job, switch))
        self._pool.add(run)

    def _unmark_leaving(
        self, run: _PreemptionRun, victims: Iterable[UID], switches: Sequence[JobSuspendChange]
    ) -> None:
        for order in run.moves:
            self._cache.moves.remove_pending(order.gang, order.move)
        for _, uid, _ in run.nominees:
            self._cache.assume_nomination(uid, None)
        for uid in victims:
            self._cache.mark_leaving(uid, leaving=False)
        for switch in switches:
            self._cache.switch_job(switch.key, switch.uid, None)

    def gang_gone(self, gang: GangKey, _uid: UID) -> None:
        """A gang is no more: how often nothing came of making room for it does not matter."""
        self._failures.pop(gang, None)

    def _call_later(self, act: Callable[..., None], *args: object) -> None:
        """What was accepted is believed for a while even if the watch never shows it."""
        asyncio.get_running_loop().call_later(limits.ASSUMED_MAX_S, act, *args)

    # -- doing -------------------------------------------------------------------------------
    async def _carry_out(self, run: _PreemptionRun) -> None:
        why = (
            await self._record(run)
            or await self._nominate_pods(run)
            or await self._evict_victims(run)
        )
        if why:
            self._drop_run(run, why, [each.uid for each in run.victims], run.job_changes)
            # Nobody left: no room needs to be held for anybody.
            await _do_all(
                self._calls.record(each, fence=run.fence, undo=True) for each in run.moves
            )
            return
        self._failures.pop(run.gang, None)
        why = await self._switch_jobs(run)
        if why:
            return
        self._call_later(self._unmark_leaving, run, (), ())
        self._evict(run)

    def _give_up_run(self, run: _PreemptionRun, error: Exception) -> None:
        self._on_contained("claim", error, run.gang)
        self._drop_run(run, str(error), [each.uid for each in run.victims], run.job_changes)

    async def _record(self, run: _PreemptionRun) -> str:
        moves = (self._calls.record(each, fence=run.fence) for each in run.moves)
        turns = (
            self._calls.record_turn(stop, stop.turn, fence=run.fence)
            for stop in run.stops
            if stop.turn is not None
        )
        evictions = (
            self._calls.record_evictions(stop, stop.count.record, fence=run.fence)
            for stop in run.stops
            if stop.count is not None and stop.pause is None  # else it is part of the pause
        )
        return await _do_all([*moves, *turns, *evictions])

    async def _nominate_pods(self, run: _PreemptionRun) -> str:
        return await _do_all(
            self._calls.nominate_pod(
                key, uid, node, message=run.told, since=run.since, fence=run.fence
            )
            for key, uid, node in run.nominees
        )

    async def _evict_victims(self, run: _PreemptionRun) -> str:
        """Victims that are evicted one by one; pods of a suspended Job end without having failed."""
        return await _do_all(
            self._calls.mark_disruption_target(each, since=run.since, fence=run.fence)
            for stop in run.stops
            if stop.pause is None
            for each in stop.evictions
        )

    async def _switch_jobs(self, run: _PreemptionRun) -> str:
        """Pause, or start, one Job after the other: the first that refuses ends the claim."""
        switches = run.job_changes
        for number, switch in enumerate(switches):
            why = await self._calls.switch_job(switch, fence=run.fence)
            if why:
                paused = {each.uid for each in switches[:number]}
                staying = [
                    each.uid
                    for stop in run.stops
                    if stop.pause is None or stop.pause.uid not in paused
                    for each in stop.evictions
                ]
                self._drop_run(run, why, staying, switches[number:])
                return why
            self._call_later(self._cache_switch_off, switch)
            self._note_switched(run, switch)
        return ""

    def _cache_switch_off(self, switch: JobSuspendChange) -> None:
        self._cache.switch_job(switch.key, switch.uid, None)

    def _note_switched(self, run: _PreemptionRun, switch: JobSuspendChange) -> None:
        if switch is run.switch:
            self._on_switched(switch)
        for stop in run.stops:
            if stop.pause is switch:
                for each in stop.evictions:
                    self._telemetry.eviction(each.action, each.reason, each.gpu_seconds)
                    self._call_later(self._mark_staying, each.uid)
                self._on_stopped(stop)

    def _evict(self, run: _PreemptionRun) -> None:
        stops = [stop for stop in run.stops if stop.pause is None and stop.evictions]
        victims = {each.uid for stop in stops for each in stop.evictions}
        if self._is_needless(run):
            self._unmark_leaving(run, victims, ())
            victims = set()
        run.open = victims
        if not run.open:
            self._end(run)
            return
        run.timer = asyncio.get_running_loop().call_later(
            self._limits().preemption_timeout_s, self._give_up_protected_victims, run
        )
        for stop in stops:
            self._evict_stop(run, stop)

    def _evict_stop(self, run: _PreemptionRun, stop: GangStop) -> None:
        told = False

        def ended(uid: UID, done: bool) -> None:
            nonlocal told
            if done and not told:
                told = True
                self._on_stopped(stop)
            self._note_answer(run, uid, done=done)

        for each in stop.evictions:
            self._evictor.evict(
                [(each.key, each.uid)],
                action=each.action,
                reason=each.reason,
                on_end=ended,
                lost={each.uid: each.gpu_seconds},
            )

    def _note_answer(self, run: _PreemptionRun, uid: UID, *, done: bool) -> None:
        run.open.discard(uid)
        if done:
            self._call_later(self._mark_staying, uid)
        else:
            self._mark_staying(uid)
        if not run.open:
            self._end(run)

    def _mark_staying(self, uid: UID) -> None:
        self._cache.mark_leaving(uid, leaving=False)

    def _give_up_protected_victims(self, run: _PreemptionRun) -> None:
        """Some victims are still protected: they are left alone, and the room is given up."""
        _log.warning(
            "room could not be made in time", gang=run.gang, victims=len(run.victims),
            left=len(run.open), why=next(iter(self._evictor.blocked.values()), "no answer"),
        )  # fmt: skip
        self._evictor.give_up(sorted(run.open))

    def _drop_run(
        self,
        run: _PreemptionRun,
        why: str,
        victims: Sequence[UID],
        switches: Sequence[JobSuspendChange],
    ) -> None:
        say = _log.info if why == NOT_LEADING else _log.warning
        say("room is not made as decided", gang=run.gang, why=why)
        self._unmark_leaving(run, victims, switches)
        if why == NOT_LEADING or self._closed:
            self._end(run)
            return
        # The same would be decided at once and fail again: the gang waits, others do not.
        failures = self._failures[run.gang] = self._failures.get(run.gang, 0) + 1
        wait = min(limits.BACKOFF_MAX_S, 2.0 ** (min(failures, 10) - 1))
        run.timer = asyncio.get_running_loop().call_later(wait, self._end, run)

    def _end(self, run: _PreemptionRun) -> None:
        if run.timer is not None:
            run.timer.cancel()
        if self._runs.get(run.gang) is run:
            del self._runs[run.gang]


def job_after_switch(job: Job, switch: JobSuspendChange) -> Job:
    """The Job as it will be."""
    notes = dict(switch.annotations)
    admitted = job.admitted
    if ADMITTED_ANNOTATION in notes:
        admitted = parse_time(notes[ADMITTED_ANNOTATION]) if notes[ADMITTED_ANNOTATION] else 0.0
    parallelism = job.parallelism if switch.parallelism is None else switch.parallelism
    return attrs.evolve(
        job,
        suspended=switch.suspend,
        admitted=admitted,
        parallelism=parallelism,
        turn=later_turn(job.turn, parse_turn(notes.get(TURN))),
        evictions=later_evictions(job.evictions, parse_evictions(notes.get(EVICTIONS))),
    )


def _of_the_living(claim: PreemptionPlan) -> PreemptionPlan:
    real = tuple(each for each in claim.nominations if not is_expected_uid(each[1]))
    return claim if len(real) == len(claim.nominations) else attrs.evolve(claim, nominations=real)


async def _do_all(calls: Iterable[Coroutine[Any, Any, str]]) -> str:
    """Do all of them; why the first that was not done was not."""
    return next(filter(None, await asyncio.gather(*calls)), "")
