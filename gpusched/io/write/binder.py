"""Carries out what the commit machine asks for: binds gangs, reads back, repairs, undoes.

The machine knows what follows from what; this file knows HTTP, timers and the lease. A gang's
bindings go out together and each answer is kept, whatever happens to its siblings. Nothing is
sent unless the lease outlasts the request, nor while pods or nodes are not followed: watches open
again only at a server whose past is the one that is known here (``io.watch.reflector``).

What raises while one gang is in hand costs that gang its commit: nothing more is sent of it, what
was never sent is forgotten, the rest is read back (``bind_readback``), and others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.seal import UNKNOWN_SEAL, Seal
from gpusched.base import errors, limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.commit.ledger import CommitLedger
from gpusched.commit.machine import advance_commit
from gpusched.commit.model import (
    FINAL,
    BindSent,
    BindUnknown,
    BindVoided,
    CommitAccepted,
    CommitPhase,
    CommitState,
    DeadlinePassed,
    DoBind,
    DoConfirm,
    DoDoubtLease,
    DoEvict,
    DoForget,
    DoReadBack,
    DoReadGroup,
    DoSettle,
    Effect,
    Event,
    GangCompleted,
    GroupUnreadable,
    LeadershipLost,
    PodEvicted,
    PodGone,
    PodSeen,
    PodStage,
    PodUnreadable,
    ReadBackSent,
    TermSuperseded,
)
from gpusched.commit.observed_pod import observe_pod
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass
from gpusched.io.workers.work_queue import OnContained, OnFault, WorkerPool, log_contained_fault
from gpusched.io.write.bind_calls import CALL_S, BindCalls, GroupPath, own_group_path
from gpusched.io.write.bind_readback import BindReadBack
from gpusched.io.write.evictor import Evictor
from gpusched.session.state.plan import GangBind, Undo

_LANDING_LOOK_S: Final = 0.05
_ACTIVE: Final = frozenset({CommitPhase.VERIFIED, CommitPhase.BINDING})
_log = Logger(__name__)


@frozen(slots=True)
class SettledGang:
    """A gang came to rest.

    Attributes:
        phase: ``bound``; ``repair``: bound in part, a later plan may complete it before the
            deadline; ``released``: nothing of this plan is bound any more.
        bound: members this plan bound.
        why: the first thing that went wrong, empty when nothing did.
        lapsed: whether it ended with our leadership.
    """

    gang: GangBind
    phase: CommitPhase
    bound: int
    why: str
    lapsed: bool = False


class _GangCommit:
    """One gang on its way.

    Attributes:
        active: whether it counts as under way.
        failed: whether it was given up for a fault of ours.
    """

    __slots__ = ("active", "began", "deadline", "failed", "state", "timer")

    def __init__(self, state: CommitState, *, began: float, deadline: float) -> None:
        self.state = state
        self.began = began
        self.deadline = deadline
        self.timer: asyncio.TimerHandle | None = None
        self.active = True
        self.failed = False


_Job = tuple[Callable[[_GangCommit, int], Awaitable[None]], _GangCommit, int]


class Binder:
    """See the module. One per process; everything is called in the event loop.

    Args:
        api: shared with everything but the lease.
        rate_limiter: gives turns.
        cache: is told what became of each assumption.
        lease: asked before each write.
        clock: time.
        telemetry: counts and spans.
        on_fault: told of a crash or a broken invariant, after which nothing new is sent.
        on_contained: told of a request that failed by a fault of the scheduler: its effect is unknown.
        on_broken: told the gang of the commit, before ``on_fault`` is told of what it broke by.
        on_failed: told the gang whose commit was given up for a fault of the scheduler, and the fault.
        on_known: told when it is known again what became of such a gang's bindings.
        on_settled: told when a gang came to rest; ``group_path`` is where its PodGroup is, and
            ``seal`` goes with each binding.
        watched: whether pods and nodes are followed at this moment; a binding waits for it.
        limits_in_force: of the configuration.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        cache: CommitLedger,
        lease: Lease,
        *,
        clock: Clock,
        telemetry: Telemetry,
        on_fault: OnFault,
        on_contained: OnContained = log_contained_fault,
        on_settled: Callable[[SettledGang], None] | None = None,
        on_broken: Callable[[GangKey], None] = lambda _gang: None,
        on_failed: Callable[[GangKey, Exception], None] = lambda _gang, _error: None,
        on_known: Callable[[GangKey], None] = lambda _gang: None,
        group_path: GroupPath = own_group_path,
        seal: Callable[[], Seal] = lambda: UNKNOWN_SEAL,
        watched: Callable[[], bool] = lambda: True,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._calls = BindCalls(
            api, rate_limiter, clock=clock, telemetry=telemetry, group_path=group_path, seal=seal
        )
        self._rate_limiter = rate_limiter
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self._report = on_fault
        self._contained = on_contained
        self._on_settled = on_settled
        self._on_broken = on_broken
        self._on_failed = on_failed
        self._watched = watched
        self._readback = BindReadBack(
            self._calls, cache, lease=lease, clock=clock, on_contained=on_contained,
            on_known=on_known, limits_in_force=limits_in_force,
        )  # fmt: skip
        self.evictor = Evictor(
            api,
            rate_limiter,
            lease=lease,
            clock=clock,
            telemetry=telemetry,
            on_fault=self._stop_on_fault,
            on_contained=on_contained,
            limits_in_force=limits_in_force,
            is_finished=self._is_finished,
        )
        self._pool: WorkerPool[_Job] = WorkerPool(
            "bind", limit=lambda: limits_in_force().binds_in_flight, work=self._work_off, on_fault=self._stop_on_fault,
            tenant=lambda job: job[1].state.gang.gang.namespace,
        )  # fmt: skip
        self._by_uid: dict[UID, tuple[_GangCommit, int]] = {}
        self._by_gang: dict[GangKey, list[_GangCommit]] = {}
        self._active = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._queued = self._open = 0
        self._closing = False
        self._broken = False
        self.in_flight = 0
        """Bindings sent and not answered."""

    # -- for the cycle and the cache ----------------------------------------------------------

    @property
    def committing(self) -> int:
        """Gangs whose bindings are not all decided."""
        return self._active

    @property
    def queued(self) -> int:
        """Bindings that wait to be sent."""
        return self._queued

    def has_open_commit(self, gang: GangKey) -> bool:
        """Whether a commit of this gang is under way, is read back after a fault of ours, or
        waits in repair for a later plan.
        """
        return gang in self._by_gang or self._readback.has_unread(gang)

    def server_now(self) -> float:
        """Seconds since the epoch by the API server's clock, as its answers have shown it."""
        return self._calls.server_now()

    def submit(self, gang: GangBind) -> None:
        """Bind a gang; the cache has just assumed it, in the same step of the loop.

        While closing, or after a fault, its assumptions are forgotten at once.
        """
        fence = self._lease.fence
        if self._closing or self._broken or not fence:
            for bind in gang.binds:
                self._cache.forget(bind.uid)
            return
        now = self._clock.monotonic()
        siblings = self._by_gang.get(gang.gang, ())
        deadline = min((run.deadline for run in siblings), default=now + limits.GANG_RECOVERY_MAX_S)
        run = _GangCommit(
            CommitState.for_bind(gang, fence), began=self._clock.now(), deadline=deadline
        )
        self._by_gang.setdefault(gang.gang, []).append(run)
        for index, bind in enumerate(gang.binds):
            self._by_uid[bind.uid] = (run, index)
        run.timer = asyncio.get_running_loop().call_later(
            max(deadline - now, CALL_S), self._pass_deadline, run
        )
        self._active += 1
        self._quiet.clear()
        self._feed_event(run, CommitAccepted())

    def observe(self, pod: Pod) -> None:
        """The watch showed a pod, ours or not."""
        known = self._by_uid.get(pod.uid)
        if known is not None:
            run, index = known
            self._act_or_give_up(
                run, lambda: self._feed_event(run, PodSeen(index, observe_pod(pod)))
            )

    def observe_gone(self, uid: UID) -> None:
        """The watch said that a pod is deleted, ours or not."""
        known = self._by_uid.get(uid)
        if known is not None:
            run, index = known
            self._feed_event(run, PodGone(index))
        self.evictor.observe_gone(uid)

    def _is_finished(self, uid: UID) -> bool:
        pod = self._cache.find_pod(uid)
        return pod is not None and pod.finished

    def undo_partial(self, undo: Undo) -> None:
        """Evict members of a gang that never became whole."""
        _log.warning("a gang is taken back", gang=undo.gang, pods=len(undo.pods), why=undo.message)
        self.evictor.evict(undo.pods, action="undo", reason="StaleGang")

    async def drain(self, timeout_s: float) -> bool:
        """Take no more gangs, let those under way come to rest, then close.

        Args:
            timeout_s: after it, what was not sent is forgotten and what was is abandoned to
                the recovery of the next leader.

        Returns:
            Whether all came to rest in time.
        """
        self._closing = True
        rested = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
        except TimeoutError:
            rested = False
            for run in self._open_commits():
                self._feed_event(run, LeadershipLost())
        for run in self._open_commits():
            if run.timer is not None:
                run.timer.cancel()
        await self._close_calls()
        return rested

    async def abandon(self) -> None:
        """Begin nothing more, wait for the answers to what was sent, then close.

        After it no binding of ours is on its way any more, so that lists which are begun then
        show all of them.
        """
        self._closing = True
        for run in self._open_commits():
            self._feed_event(run, TermSuperseded())
            if run.timer is not None:
                run.timer.cancel()
        try:
            async with asyncio.timeout(CALL_S):
                while self.in_flight:
                    await self._clock.sleep(_LANDING_LOOK_S)
        except TimeoutError:
            _log.warning("bindings were left unanswered", bindings=self.in_flight)
        await self._close_calls()

    async def _close_calls(self) -> None:
        await self._pool.close()
        await self._readback.close()
        self._rate_limiter.binds_open(0)
        await self.evictor.close()

    # -- machine and effects ------------------------------------------------------------------

    def _open_commits(self) -> list[_GangCommit]:
        return [run for runs in self._by_gang.values() for run in runs]

    def _feed_event(self, run: _GangCommit, event: Event) -> None:
        """One step of the machine. Late answers of a gang at rest change nothing."""
        if run.failed or run.state.phase in FINAL:
            return
        try:
            run.state, effects = advance_commit(run.state, event)
        except errors.InvariantBroken as error:
            self._on_broken(run.state.gang.gang)
            self._stop_on_fault(error)
            return
        except Exception as error:  # noqa: BLE001 - one gang must not stop the others
            self._give_up(run, error)
            return
        for effect in effects:
            self._act_or_give_up(run, self._carry_out, run, effect)
        if run.state.phase not in _ACTIVE:
            self._forget_at_rest(run)

    def _forget_at_rest(self, run: _GangCommit) -> None:
        if run.active:
            run.active = False
            self._active -= 1
            if not self._active:
                self._quiet.set()

    def _act_or_give_up(self, run: _GangCommit, act: Callable[..., None], *args: object) -> None:
        """Do it, unless the gang was given up; what it raises gives the gang up."""
        if run.failed:
            return
        try:
            act(*args)
        except errors.Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - one gang must not stop the others
            self._give_up(run, error)

    def _give_up(self, run: _GangCommit, error: Exception) -> None:
        """The commit of this gang goes no further, for a fault of ours; the API knows what it did."""
        if run.failed:
            return
        run.failed = True
        gang, state = run.state.gang, run.state
        mine = [
            index
            for index, bind in enumerate(gang.binds)
            if self._by_uid.get(bind.uid, (None, 0))[0] is run
        ]
        self._close(run)
        self._forget_at_rest(run)
        self._readback.begin(state, mine)
        self._contained("commit", error, gang.gang)
        self._on_failed(gang.gang, error)

    def _carry_out(self, run: _GangCommit, effect: Effect) -> None:
        binds = run.state.gang.binds
        match effect:
            case DoConfirm(index):
                bind = binds[index]
                self._cache.confirm_binding(bind.uid, bind.node, bind.slots, run.state.plan)
            case DoForget(indices):
                for index in indices:
                    self._cache.forget(binds[index].uid)
            case DoBind(indices, delay_s):
                self._call_after(run, delay_s, self._enqueue_pods, run, indices)
            case DoReadBack(index, delay_s):
                self._call_after(run, delay_s, self._pool.add_first, (self._read_back, run, index))
            case DoReadGroup(delay_s):
                self._call_after(run, delay_s, self._pool.add_first, (self._read_group, run, 0))
            case DoDoubtLease(why):
                _log.error("a binding was denied", gang=run.state.gang.gang, why=why)
                self._lease.doubt()
            case DoEvict(indices):
                self._evict(run, indices)
            case DoSettle(phase, why):
                self._settle_commit(run, phase, why)

    def _call_after(
        self, run: _GangCommit, delay_s: float, act: Callable[..., None], *args: object
    ) -> None:
        if delay_s > 0.0:
            asyncio.get_running_loop().call_later(delay_s, self._act_or_give_up, run, act, *args)
        else:
            act(*args)

    def _enqueue_pods(self, run: _GangCommit, indices: tuple[int, ...]) -> None:
        self._queued += len(indices)
        self._open += len(indices)
        self._rate_limiter.binds_open(self._open)
        self._pool.add_all((self._bind, run, index) for index in indices)

    def _evict(self, run: _GangCommit, indices: tuple[int, ...]) -> None:
        gang = run.state.gang
        _log.warning("a gang is taken back", gang=gang.gang, pods=len(indices), why=run.state.why)
        numbers = {gang.binds[index].uid: index for index in indices}
        self.evictor.evict(
            ((gang.binds[index].key, gang.binds[index].uid) for index in indices),
            action="undo",
            reason="StaleGang",
            on_end=lambda uid, done: self._feed_event(
                run, PodEvicted(numbers[uid]) if done else TermSuperseded()
            ),
        )

    def _settle_commit(self, run: _GangCommit, phase: CommitPhase, why: str) -> None:
        gang = run.state.gang
        if phase in FINAL:
            self._close(run)
        try:
            self._tell_settled(run, phase, why)
        except Exception as error:  # noqa: BLE001 - the commit is as it is, told or not
            self._contained("commit", error, gang.gang)
        if phase is CommitPhase.BOUND:
            for sibling in tuple(self._by_gang.get(gang.gang, ())):
                self._feed_event(sibling, GangCompleted())

    def _tell_settled(self, run: _GangCommit, phase: CommitPhase, why: str) -> None:
        gang = run.state.gang
        if self._telemetry.tracing.on:
            self._telemetry.tracing.finished(
                "commit", began=run.began, ended=self._clock.now(),
                gang=str(gang.gang), pods=len(gang.binds), phase=str(phase),
            )  # fmt: skip
        if why:
            say = _log.info if phase is CommitPhase.BOUND else _log.warning
            say(
                f"commit ended: {phase}", gang=gang.gang, bound=run.state.confirmed,
                of=len(gang.binds), why=why,
            )  # fmt: skip
        if self._on_settled is not None:
            self._on_settled(SettledGang(gang, phase, run.state.confirmed, why, run.state.lapsed))

    def _close(self, run: _GangCommit) -> None:
        gang = run.state.gang
        if run.timer is not None:
            run.timer.cancel()
        for bind in gang.binds:
            known = self._by_uid.get(bind.uid)
            if known is not None and known[0] is run:
                del self._by_uid[bind.uid]
        runs = self._by_gang.get(gang.gang, [])
        if run in runs:
            runs.remove(run)
        if not runs:
            self._by_gang.pop(gang.gang, None)

    def _pass_deadline(self, run: _GangCommit) -> None:
        """The recovery time is over.

        A later plan may just be completing the gang; or it was another leader's to complete.
        """
        siblings = self._by_gang.get(run.state.gang.gang, ())
        if self._lease.fence != run.state.fence:
            self._feed_event(run, TermSuperseded())
        elif run.state.phase is CommitPhase.REPAIR and any(
            s.state.phase in _ACTIVE for s in siblings
        ):
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(limits.READ_RETRY_S, self._pass_deadline, run)
        else:
            self._feed_event(run, DeadlinePassed())

    def _stop_on_fault(self, error: BaseException) -> None:
        """Nothing is sent any more; the caller decides what ends."""
        self._broken = True
        self._report(error)

    # -- calls --------------------------------------------------------------------------------

    async def _work_off(self, job: _Job) -> None:
        call, run, index = job
        binds = call == self._bind
        self._queued -= binds
        try:
            await call(run, index)
        except errors.Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - one gang must not stop the others
            self._give_up(run, error)
        finally:
            self._open -= binds
            if not self._open:
                self._rate_limiter.binds_open(0)

    async def _bind(self, run: _GangCommit, index: int) -> None:
        if not self._is_to_send(run, index):
            return
        await self._rate_limiter.turn(TrafficClass.BIND)
        # A server that cut our watches off may be one whose etcd is restored from a backup.
        while self._is_to_send(run, index) and not self._watched():
            await self._clock.sleep(limits.BIND_UNWATCHED_LOOK_S)
        if not self._is_to_send(run, index):
            return
        if self._lease.fence != run.state.fence:
            self._feed_event(run, TermSuperseded())
            return
        if not self._lease.may_act(self._clock.monotonic(), self._clock.boottime(), CALL_S):
            self._feed_event(run, LeadershipLost())
            return
        bind = run.state.gang.binds[index]
        error = self._cache.placement_error(bind.node, bind.node_uid)
        self._feed_event(run, BindVoided(index, error) if error else BindSent(index))
        if run.failed or run.state.stages[index] != PodStage.SENT:  # left, or the invariant broke
            return
        self.in_flight += 1
        try:
            answer = await self._event_of_call(
                run, self._calls.bind(run.state, index), lambda why: BindUnknown(index, why)
            )
        finally:
            self.in_flight -= 1
        self._feed_event(run, answer)

    def _is_to_send(self, run: _GangCommit, index: int) -> bool:
        return run.state.stages[index] == PodStage.ASSUMED and not (run.failed or self._broken)

    async def _read_back(self, run: _GangCommit, index: int) -> None:
        state, over = run.state, run.failed or self._broken
        if state.stages[index] == PodStage.UNKNOWN and not state.calls[index] and not over:
            self._feed_event(run, ReadBackSent(index))
            if run.failed:
                return
            read = self._calls.read_pod(state, index)
            self._feed_event(
                run, await self._event_of_call(run, read, lambda why: PodUnreadable(index, why))
            )

    async def _read_group(self, run: _GangCommit, _index: int) -> None:
        if run.state.phase is CommitPhase.VERIFIED and not run.failed:
            read = self._calls.read_group(run.state)
            self._feed_event(run, await self._event_of_call(run, read, GroupUnreadable))

    async def _event_of_call(
        self, run: _GangCommit, call: Awaitable[Event], unknown: Callable[[str], Event]
    ) -> Event:
        """The answer; unknown where the call fails by a fault of the scheduler."""
        try:
            return await call
        except errors.Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - one binding must not stop the others
            self._contained("binding", error, run.state.gang.gang)
            return unknown(f"{type(error).__name__}: {error}")
