"""The heart beat: something changed, so decide again, and carry out what was decided.

Between cycles nothing runs: a change wakes the cycle after a short pause in which more changes
may arrive, or at once where a pod comes alone (``base.debounce``), and every ``max_period_s`` it
runs anyway, because some reasons pass with time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.debounce import Change, Debounce
from gpusched.base.errors import Fenced, InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang_builder import count_error_message
from gpusched.cache.snapshot import Snapshot, StartEstimate
from gpusched.cache.verify.placements import recheck_placements, start_error
from gpusched.commit.awaited_devices import told_with_awaited_devices
from gpusched.commit.partial_gangs import PartialGangs, told_with_kept_pods
from gpusched.commit.recover import plan_recoveries
from gpusched.config.model import Config
from gpusched.io.cycle import snapshot_taker
from gpusched.io.cycle.bind_backoff import BindPauses
from gpusched.io.cycle.crash_marker import CrashMarker
from gpusched.io.cycle.crash_recovery import begin_after_crashes
from gpusched.io.cycle.decision_report import DecisionReport, StatusSink
from gpusched.io.cycle.failed_commits import FailedCommits
from gpusched.io.cycle.fault_report import FaultReport, fault_of_gang_in_hand
from gpusched.io.cycle.gpu_gauges import GpuGauges
from gpusched.io.decisions.recorder import DecisionRecorder, SearchRecorder
from gpusched.io.history.told_starts import ToldStarts
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.solver.process import SolverProcess
from gpusched.io.workers.backoff import RetryBackoff
from gpusched.io.workers.following_session import FollowingSession
from gpusched.io.workers.seen_changes import SeenChanges
from gpusched.io.workers.worker_thread import WorkerThread
from gpusched.io.write.claims.volume_binder import VolumeBinder
from gpusched.io.write.preemption_executor import PreemptionExecutor
from gpusched.placement.model.problem import SearchRunner, search_in_process
from gpusched.pluginhost.guard import PluginGuard, RunningCall
from gpusched.session.containment.set_aside import Containment
from gpusched.session.containment.set_aside_status import uncounted_gang_status
from gpusched.session.containment.suspects import gang_suspect
from gpusched.session.decide import Decision, decide
from gpusched.session.state.order.round_progress import RoundProgress
from gpusched.session.state.order.work_times import next_work_times, with_work_times
from gpusched.session.state.plan import GangBind, Plan
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.foreign_names import ForeignNames
from gpusched.session.status.next_wakeup import next_wakeup

_DUE_LEAST_S: Final = 0.02
_TURNS_TO_SEND: Final = 2
"""Turns of the event loop in which the first bindings of a session are written to their connections."""
_log = Logger(__name__)


@define
class SessionRules:
    """A loaded configuration with what belongs to it: replaced as a whole on a reload."""

    config: Config
    policy: Policy
    guard: PluginGuard
    session_cache: SessionCache = attrs.Factory(SessionCache)
    containment: Containment = attrs.Factory(Containment)


class SessionCycle:
    """Runs sessions one after another.

    Args:
        cache: read by snapshots, told of assumptions.
        binder: carries out what was decided.
        status: is told how things stand.
        preemption_executor: makes room as was decided.
        lease: asked before every session.
        ready: empty when the cache is complete and fresh, else why not.
        rules: in force; ``self.rules`` may be replaced between sessions.
        clock: time.
        telemetry: counts and spans.
        faults: told of what is contained; None for one of its own.
        mark: shows the next process what this one died of; None shows nothing.
        inline: run sessions in the event loop, for virtual time, not in a thread.
        solver: where searches run; None for the session's own thread.
        here: runs searches where there is no solver.
        lasts: seconds of the clock that an inline session takes, as one in a thread would.
        recorder: keeps decisions in files; None for none.
        only_look: what the first session decides is not carried out.
        starts: remembers what gangs were told of their starts; None for one that nothing reads.
    """

    def __init__(
        self,
        cache: Cache,
        binder: VolumeBinder,
        status: StatusSink,
        *,
        preemption_executor: PreemptionExecutor,
        lease: Lease,
        ready: Callable[[], str],
        rules: SessionRules,
        clock: Clock,
        telemetry: Telemetry,
        faults: FaultReport | None = None,
        mark: CrashMarker | None = None,
        inline: bool = False,
        solver: SolverProcess | None = None,
        here: SearchRunner = search_in_process,
        lasts: Callable[[], float] = lambda: 0.0,
        recorder: DecisionRecorder | None = None,
        only_look: bool = False,
        starts: ToldStarts | None = None,
    ) -> None:
        self._starts = starts if starts is not None else ToldStarts(lambda _compared: None)
        self._cache = cache
        self._binder = binder
        self._preemption_executor = preemption_executor
        self._status = status
        self._lease = lease
        self._ready = ready
        self.rules = rules
        self._clock = clock
        self._telemetry = telemetry
        self.gpu_gauges = GpuGauges(clock, telemetry)
        """Has the GPUs as they were counted last."""
        self.faults = faults if faults is not None else FaultReport(clock, telemetry)
        """Told of what is contained."""
        self._mark = mark
        self._remembered = False
        self._trouble = RetryBackoff(random.Random(0))  # noqa: S311 - a wait, no secret
        self._changed = asyncio.Event()
        self._debounce = Debounce()
        self._due: float | None = None
        self._thread = None if inline else WorkerThread("session")
        self._solver = solver
        self._here = here
        self._lasts = lasts
        self._recorder = recorder
        self._only_look = only_look
        self._report = DecisionReport(telemetry, self.faults, solver)
        self._miscounted: dict[GangKey, float] = {}
        """Gangs whose members could not be counted, and when they are counted again at the latest."""
        self.failed_commits = FailedCommits(self.faults, self.wake)
        """Told of commits that raised while they were under way."""
        self.pauses = BindPauses(clock, self.wake)
        """Told of commits that came to rest."""
        self._foreign_names = ForeignNames()
        self._partial_gangs = PartialGangs()
        self.sessions = 0
        """How many were run."""
        self.decided: list[Callable[[Plan], None]] = []
        """Told of every plan after it was carried out, with all names: for operators."""
        self.shown: list[Callable[[Snapshot, Plan, Decision], None]] = []
        """Told what each session saw, of its plan with sentences and statuses as they are written, and of its
        decision; one that ended early says nothing of anybody but whom it starts and evicts."""
        self.revise: Callable[[Snapshot, Plan], Plan] = lambda _snapshot, plan: plan
        """Takes out of a plan what is better left to other daemons, before anything of it is carried out."""
        self.tell_more: Callable[[Plan], Plan] = lambda plan: plan
        """Adds to statuses what no session knows."""
        self.judged: list[Callable[[PluginGuard], None]] = []
        """Told of every session's guard when the session has ended."""
        self._guard = rules.guard
        self._times: tuple[list[tuple[str, float]], float, float] = ([], 0.0, 0.0)
        """Of the last session: seconds of its actions, of all of it, and when it began."""
        self._following = FollowingSession(
            begin=self._changed.set, begin_soon=self._wake_now, is_busy=lambda: binder.queued > 0
        )
        self._changes = SeenChanges()
        self._rounds, self._work_times = RoundProgress(), 1
        cache.on_change.append(lambda: self.wake(cache.change))
        cache.on_echo.append(self._following.note_status)

    def wake(self, change: Change = Change.ANY) -> None:
        """Something changed that a decision may depend on."""
        self._changes.note(change)
        if change is Change.LATE:
            self._following.note_status()
        else:
            self._wake_now(alone=change is Change.ALONE)

    def _wake_now(self, *, alone: bool = False) -> None:
        """A session soon; at once where nothing but one pod has come."""
        self._debounce.note_change(
            self._clock.monotonic(),
            self.rules.config.cycle.debounce_s,
            alone=alone and not self._changed.is_set(),
        )
        self._changed.set()

    @property
    def running(self) -> RunningCall | None:
        """The call of a plugin that a session waits for; may be read from any thread."""
        return self._guard.running

    @property
    def thread(self) -> int:
        """In which sessions run, 0 when that is the event loop's."""
        return self._thread.ident if self._thread is not None else 0

    async def run(self) -> None:
        """Run sessions until the task is cancelled."""
        try:
            while True:
                try:
                    await self._pause_for_more()
                except Exception as error:  # noqa: BLE001 - a session is held all the same, later
                    self.faults.report_failure("wait", error)
                    await self._clock.sleep(self._trouble.failed())
                if self._ready() or not self._may_act():
                    continue
                if await self._hold_session():
                    self._trouble.succeeded()
                    continue
                # Nothing came of it: whoever waits is tried again, but not at once.
                await self._clock.sleep(self._trouble.failed())
                self.wake()
        finally:
            self._following.stop()
            if self._recorder is not None:
                self._recorder.stop()
            if self._solver is not None:
                self._solver.kill()
            if self._thread is not None:
                self._thread.stop(self._solver.close if self._solver is not None else None)

    # -- when ------------------------------------------------------------------------------
    async def _pause_for_more(self) -> None:
        cycle = self.rules.config.cycle
        longest_s = cycle.max_period_s
        with self.faults.contain("wait"):
            longest_s = self._longest_s()
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
        begun = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            rest_s = self._debounce.ends_at(begun, cycle.debounce_s) - now
            if rest_s <= 0:
                self._changed.clear()
                return
            await self._clock.sleep(rest_s)

    def _longest_s(self) -> float:
        """How long to wait when nothing changes: until a gang's patience ends, if that is soon."""
        longest_s = self.rules.config.cycle.max_period_s
        if self._due is None:
            return longest_s
        return min(longest_s, max(_DUE_LEAST_S, self._due - self._clock.now()))

    def _may_act(self) -> bool:
        return self._lease.may_act(self._clock.monotonic(), self._clock.boottime(), 0.0)

    # -- what ------------------------------------------------------------------------------
    async def _hold_session(self) -> bool:
        """Whether a session came to its end; what it does not contain itself ends here."""
        if self._mark is not None:
            self._mark.begin()
        try:
            await self._run_session()
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - a restart would meet the same again
            self.faults.report_failure("session", error)
            return False
        finally:
            if self._mark is not None:
                self._mark.end()
        self.faults.note_success("session")
        return True

    def _take_snapshot(self, changes: int) -> Snapshot:
        """What the next session decides on, as of so many changes."""
        cache, now = self._cache, self._clock.now()
        cache.rounds = self._rounds.begin_session(changes, cache.rounds, now=now)
        cache.may_end_early = self._rounds.may_end_early and not self.rules.config.shards
        cache.foreseen = self._changes.begin_session(now)
        snapshot = snapshot_taker.take_snapshot(cache, now, self.faults.report_failure)
        snapshot = self._starts.with_start_errors(self.pauses.apply_pauses(snapshot))
        snapshot = attrs.evolve(snapshot, status_may_wait=self._changes.may_tell_later(now))
        return with_work_times(snapshot, self._work_times)

    async def _run_session(self) -> None:
        tracing = self._telemetry.tracing
        self._retry_uncounted_gangs()
        await snapshot_taker.count_ahead(self._cache, self._clock.now())
        seen = self._changes.count
        self._following.note_snapshot()
        snapshot = self._take_snapshot(seen)
        fence = self._lease.fence
        for key, error in self._cache.take_count_errors():
            self.faults.report_failure("counting", error, key)
            self._report_lost_gang(key, error)
            self._miscounted[key] = self._clock.monotonic() + limits.SET_ASIDE_RETRY_S
        self.failed_commits.leave_out(self.rules.containment, snapshot)
        self._due = None
        with self.faults.contain("next look"):
            self._due = next_wakeup(snapshot)
        with tracing.span("session", revision=snapshot.revision):
            decision = await self._decide(snapshot)
            self.sessions += 1
            # Another leadership may have begun meanwhile, on caches that are not read yet.
            if not self._may_act() or self._lease.fence != fence or self._only_look:
                self._cache.show_again(gang.key for gang in snapshot.gangs)
                self._report_session(decision)
                if self._only_look:
                    self._only_look = False
                    self._following.note_status()
                return
            with self.faults.contain("shards"):
                decision = attrs.evolve(decision, plan=self.revise(snapshot, decision.plan))
            self._follow_up(decision, seen, snapshot)
            self._commit_plan(decision.plan, snapshot)
            told = self._for_readers(decision.plan, snapshot)
            for key, fault in self._preemption_executor.submit(told, snapshot):
                self._set_gang_aside(key, "claims", fault, snapshot)
            if decision.ended_early:
                self._cache.families.show_all_again()
            else:
                told = self._tell_status(decision, told, snapshot)
            if decision.again:
                self.wake()
            self._tell_listeners(decision, told, snapshot)
            for _ in range(_TURNS_TO_SEND if decision.plan.binds else 0):
                await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
            self._report_session(decision)
            with self.faults.contain("metrics"):
                self._report.report_decision(decision, self.rules.session_cache)

    def _tell_status(self, decision: Decision, told: Plan, snapshot: Snapshot) -> Plan:
        """Mend what was left half done, and tell how things stand; the plan as it was told."""
        self._recover_partial_gangs(snapshot)
        with self.faults.contain("claims"):
            self._binder.release_leftovers(snapshot.gangs)
        with self.faults.contain("status"):
            told = self._with_written_statuses(told, decision.expected_starts.estimates, snapshot)
            for name, untold in self._status.submit(
                told.gangs, told.queues, told.topologies, told.reservations
            ):
                self.faults.report_failure("status", untold, name)
        return told

    def _for_readers(self, plan: Plan, snapshot: Snapshot) -> Plan:
        """The plan with sentences as those may read them in whose namespaces they are written."""
        if self.rules.config.names_of_other_namespaces == "shown":
            return plan
        return self._foreign_names.hide(plan, snapshot)

    def _with_written_statuses(
        self, plan: Plan, estimates: Mapping[GangKey, StartEstimate], snapshot: Snapshot
    ) -> Plan:
        """The plan with statuses as they are written."""
        gangs = told_with_kept_pods(plan.gangs, snapshot.gangs, self._binder.kept_by_budgets)
        gangs = told_with_awaited_devices(gangs, self._binder.awaited_devices)
        shown = self.rules.config.names_of_other_namespaces == "shown"
        return self._starts.note_told(
            self.tell_more(attrs.evolve(plan, gangs=gangs)), estimates, snapshot, names_shown=shown
        )

    def _tell_listeners(self, decision: Decision, told: Plan, snapshot: Snapshot) -> None:
        """Tell what was decided, and what is shown of it."""
        for listener in self.decided:
            with self.faults.contain("listeners"):
                listener(decision.plan)
        for shower in self.shown:
            with self.faults.contain("listeners"):
                shower(snapshot, told, decision)

    def _retry_uncounted_gangs(self) -> None:
        """What failed some time ago may have failed for a reason that has passed."""
        now = self._clock.monotonic()
        for key in [key for key, at in self._miscounted.items() if at <= now]:
            del self._miscounted[key]
            self._cache.families.mark_changed(key)

    def _report_lost_gang(self, key: GangKey, error: Exception) -> None:
        """No session sees this gang, so nothing else would tell its owner."""
        lost = self._cache.families.hidden_gang(key)
        if lost is not None:
            with self.faults.contain("status", key):
                group, pods = lost
                told = uncounted_gang_status(key, group, pods, count_error_message(error))
                for name, untold in self._status.submit((told,), ()):
                    self.faults.report_failure("status", untold, name)

    def _set_gang_aside(
        self, gang: GangKey, stage: str, error: Exception, snapshot: Snapshot
    ) -> None:
        """What was decided for a gang cannot be begun: it is left out until it changes."""
        self.faults.report_failure(stage, error, gang)
        found = {gang_suspect(gang): fault_of_gang_in_hand(stage, error, gang)}
        self.faults.set_aside(self.rules.containment.set_aside(snapshot, found), snapshot)
        self._cache.show_again((gang,))
        self._following.note_status()

    def _follow_up(self, decision: Decision, changes: int, snapshot: Snapshot) -> None:
        """Have the next session at once, or soon, where gangs wait to be looked at."""
        self._work_times = next_work_times(
            snapshot, decision.plan, decision.rounds, actions=len(self.rules.policy.actions)
        )
        following = self._rounds.note_session(
            changes,
            rounds=decision.rounds,
            stays_until=decision.stays_until,
            now=snapshot.now,
            ended_early=decision.ended_early,
            settled=decision.settled,
        )
        cache = self._cache
        cache.rounds = cache.rounds if following.rounds is None else following.rounds
        cache.expected_starts, cache.spare_room = decision.expected_starts, decision.spare_room
        due = min(decision.next_limit, inf if self._due is None else self._due)
        if not decision.ended_early:
            told = len(decision.plan.gangs)
            again = self._changes.note_whole_session(
                snapshot.now, holds_until=due, starts=decision.expected_starts, gangs=told
            )
            self._due = again if again < due and decision.waiting else self._due
            self._following.note_gangs(told)
        elif decision.settled:
            # It, or the session before, decided about everybody else: only status follows.
            self._changes.note_settled_session(snapshot.now, holds_until=due)
            self._following.note_status()
            return
        self._following.follow(following.after_s)

    async def _run(self, run: Callable[[], Decision]) -> Decision:
        """In the thread, or here, where it takes as long as we are told."""
        if self._thread is not None:
            return await self._thread.run(run)
        decision = run()
        if (seconds := self._lasts()) > 0:
            await self._clock.sleep(seconds)
        return decision

    async def _decide(self, snapshot: Snapshot) -> Decision:
        rules, clock = self.rules, self._clock
        solver, placement, mark = self._solver, self.rules.config.placement, self._mark
        self._begin_after_crashes(snapshot)
        search = solver if solver is not None else self._here
        tape = (
            SearchRecorder(search, rules.guard.failing_hooks())
            if self._recorder is not None
            else None
        )
        took: list[tuple[str, float]] = []
        start, wall = clock.monotonic(), clock.now()

        def run() -> Decision:
            rules.guard.begin_session()
            if solver is not None:
                solver.budget_s = placement.time_budget_s
            last = start

            def ended(action: str) -> None:
                nonlocal last
                now = clock.monotonic()
                took.append((action, now - last))
                last = now

            decision = decide(
                snapshot,
                rules.policy,
                guard=rules.guard,
                session_cache=rules.session_cache,
                placement=placement,
                search=search if tape is None else tape,
                ended=ended,
                containment=rules.containment,
                on_gang=mark.mark_gang if mark is not None else _no_crash_mark,
                began=mark.mark_stage if mark is not None else _no_crash_mark,
                incremental=rules.config.cycle.incremental,
            )
            if solver is not None and placement.solver == "cpsat":
                with self.faults.contain("solver"):
                    solver.start_in_a_lull(binding=decision.plan.binds or self._binder.queued)
            with self.faults.contain("GPU metrics"):
                if not decision.ended_early:
                    self.gpu_gauges.measure_gpus(decision.snapshot, rules.session_cache)
            return decision

        self._guard = rules.guard
        decision = await self._run(run)
        self._times = (took, clock.monotonic() - start, wall)
        self._report_faults(decision, snapshot)
        if mark is not None:
            full = decision.degraded is None and not decision.set_aside
            mark.record_success(clock.monotonic(), full=full)
        # A plainer session cannot be repeated from what it was made of, and a kept one was recorded.
        whole = decision.degraded is None and not decision.kept
        if tape is not None and self._recorder is not None and whole:
            with self.faults.contain("decision file"):
                own = attrs.evolve(decision, plan=decision.own)
                self._recorder.record(decision.snapshot, rules.config, tape, decision=own)
        return decision

    def _report_faults(self, decision: Decision, snapshot: Snapshot) -> None:
        """Tell of what a session contained, and of what was kept and did not hold."""
        self.faults.report_session(decision, snapshot)
        with self.faults.contain("incremental"):
            if decision.differs:
                raise InvariantBroken(decision.differs)

    def _begin_after_crashes(self, snapshot: Snapshot) -> None:
        """Leave out, once, what earlier processes died of."""
        mark = self._mark
        if mark is None or self._remembered:
            return
        self._remembered = True
        told = begin_after_crashes(mark.memory, mark.death, self.rules.containment, snapshot)
        if told:
            self.faults.report_crashes(told, mark.memory.deaths)

    def _report_session(self, decision: Decision) -> None:
        """Tell how long the session took, and of its guard; no binding waits for that."""
        took, session_s, began = self._times
        self._report.report_times(decision, took, session_s=session_s, began=began)
        for judge in self.judged:
            with self.faults.contain("plugin report"):
                judge(self._guard)

    def _commit_plan(self, plan: Plan, snapshot: Snapshot) -> None:
        tracing = self._telemetry.tracing
        for gang in plan.binds:
            committed = False
            began = self._clock.now()
            try:
                committed = self._commit_gang(gang, snapshot)
            except Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - one gang must not stop the others
                self._set_gang_aside(gang.gang, "commit", error, snapshot)
            if tracing.on:
                tracing.finished(
                    "gang", began=began, ended=self._clock.now(), gang=str(gang.gang),
                    pods=len(gang.binds), committed=committed,
                )  # fmt: skip

    def _commit_gang(self, gang: GangBind, snapshot: Snapshot) -> bool:
        """Verify against the live cache and assume, in one step of the loop."""
        moves = [(bind.key, bind.uid, bind.node, bind.node_uid, bind.slots) for bind in gang.binds]
        error = recheck_placements(
            self._cache,
            gang.gang,
            generation=gang.generation,
            moves=moves,
            decided_on=snapshot.nodes,
            reservations=snapshot.reservations,
        ) or start_error(self._cache, gang.gang, snapshot.queues.path(gang.queue), moves)
        if error:
            # What changed since the snapshot has woken the next session already.
            _log.info("a decision is out of date and is made again", gang=gang.gang, why=error)
            return False
        try:
            for bind in gang.binds:
                pod = self._cache.find_pod(bind.uid)
                assert pod is not None
                self._cache.assume_binding(pod, bind.node, bind.slots)
                self._telemetry.decision(max(0.0, self._clock.now() - pod.created))
            self._binder.submit(gang)
        except Exception:
            # The binder took none of it: nobody else would ever forget what was assumed before.
            for bind in gang.binds:
                with self.faults.contain("commit", bind.key):
                    self._cache.forget(bind.uid)
            raise
        self._preemption_executor.give_up_needless_evictions(gang.gang)
        return True

    def _recover_partial_gangs(self, snapshot: Snapshot) -> None:
        """Gangs that were bound in part, perhaps by a predecessor, and cannot be completed."""
        partial = self._partial_gangs.find_partial(
            snapshot.gangs, self._binder.has_open_commit, self.faults.contain
        )
        # Together: of several that hold the rest of each other one goes on.
        for undo in plan_recoveries(partial, server_now=self._binder.server_now()):
            with self.faults.contain("recovery", undo.gang):
                self._binder.undo_partial(undo)


def _no_crash_mark(_what: object) -> None:
    """The mark of a process that keeps none: a crash is put down to no gang."""
