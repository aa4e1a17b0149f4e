"""The composition root: builds everything, runs it as one group of tasks, ends it in order.

Order of the end: no new session, commits under way come to rest, status is flushed, the lease
is given back last.

Whatever is known of the cluster, and whatever was decided or promised on it, belongs to one
*term*: from standing by to the end of the leadership. When that is lost, or when the server's
etcd turns out to be restored from a backup, all of it is dropped and built anew from lists, as
a new process would, while the process itself, its endpoints and its counters go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.serializer.requests import ObjectRef
from gpusched.api.serializer.seal import UNKNOWN_SEAL, parse_seal
from gpusched.app.candidate import LeaseCandidate, TermParts
from gpusched.app.options import AppOptions
from gpusched.app.rejections import Rejections
from gpusched.app.view import (
    VIEW_CONNECTIONS,
    follow_plays,
    follow_sessions,
    hide_foreign_names,
    make_view,
)
from gpusched.base import limits
from gpusched.base.errors import is_defect
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.commit.model import CommitPhase
from gpusched.config.model import Config, LimitsConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.server_clock import ServerClock
from gpusched.io.cycle.crash_marker import CrashMarker
from gpusched.io.cycle.fault_report import FaultReport
from gpusched.io.cycle.health import DaemonHealth
from gpusched.io.cycle.policy_loader import PolicyLoader
from gpusched.io.cycle.session_cycle import SessionCycle, SessionRules
from gpusched.io.decisions.decision_log import DecisionLog
from gpusched.io.decisions.recorder import DecisionRecorder
from gpusched.io.history.history_keeper import HistoryKeeper
from gpusched.io.history.played_starts import StartPlayer
from gpusched.io.history.told_starts import ComparedStart
from gpusched.io.leader.elector import Elector
from gpusched.io.leader.lease_namespace import run_unless_ending
from gpusched.io.leader.seal_key_copy import SealKeyCopy
from gpusched.io.observe.daemon_events import RESTORED
from gpusched.io.observe.endpoints import HttpEndpoints
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.observe.text import one_line
from gpusched.io.observe.tracing import Tracing
from gpusched.io.observe.watchdog import Watchdog
from gpusched.io.serve.served_view import ServedView, end_task
from gpusched.io.solver.process import SolverProcess
from gpusched.io.watch.informer_factory import InformerFactory
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.write.binder import SettledGang
from gpusched.io.write.status.status_writer import StatusWriter
from gpusched.io.write.writers import WriterListeners, Writers, build_writers
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import Decision
from gpusched.session.state.plan import GangStop, Plan
from gpusched.shards.layout import ShardLayout
from gpusched.shards.part import ShardPart, gang_family

_LEASE_FIRST_S: Final = 1.0
"""For which lists wait for a Lease that may be free."""
_log = Logger(__name__)


class App:
    """One daemon. ``run`` is its life; ``stop`` asks for its end.

    Raises:
        ConfigError: from ``run``, before anything is written.
        GpuschedError: from ``run``, when something broke that cannot be mended here.
    """

    def __init__(self, options: AppOptions) -> None:
        options = attrs.evolve(options, clock=ServerClock(options.clock))
        self.options = options
        self.cache = Cache(options.config.scheduler_names, seal=UNKNOWN_SEAL)
        self.telemetry = Telemetry(Tracing.from_environment())
        self.faults = FaultReport(options.clock, self.telemetry)
        self._mark: CrashMarker | None = None
        self._broken_with: GangKey | None = None
        """The gang whose commit broke first; the next process is told."""
        self.readers: InformerFactory | None = None
        self.port = 0
        self.on_plan: list[Callable[[Plan], None]] = []
        self.on_start_compared: list[Callable[[ComparedStart], None]] = []
        """Told of each start that is compared with what its gang was told before."""
        self._decision_log = DecisionLog(
            options.clock,
            lambda: self._limits().decision_line_rate,
            lambda gang: any(True for _ in self.cache.families.member_uids(gang)),
        )
        self._history: HistoryKeeper | None = None
        self._stop = asyncio.Event()
        self._over = asyncio.Event()
        self.candidate = LeaseCandidate(
            options,
            self.telemetry,
            over=self._over,
            on_restored=self._on_restored_store,
            on_failed=self.faults.report_failure,
        )
        self.leadership = self.candidate.leadership
        self._restored = ""
        self._rejections = Rejections(self.telemetry)
        self._recorder: DecisionRecorder | None = None
        self._fault: BaseException | None = None
        self._caught_up = False
        self._lease_read = options.clock.monotonic()
        self._rate_limiter: RateLimiter | None = None
        self.cycle: SessionCycle | None = None
        self.health: DaemonHealth | None = None
        self.view: ServedView | None = None

    def reload(self) -> None:
        """Read the configuration again, now."""
        if self.health is not None:
            self.health.reload()

    def stop(self) -> None:
        """End the daemon's parts in order."""
        self._stop.set()
        self._over.set()

    async def run(self) -> None:
        """Live until ``stop``, or until something breaks."""
        with gpu_resources_in_force(self.options.config.gpu_resources):
            await self._run()

    async def _run(self) -> None:
        options = self.options
        loader = PolicyLoader(options.clock, inline=options.inline)
        loaded = await loader.load(options.config)
        loader.close()
        self.cache.rows.use_catalogue(loaded.layouts)
        for warning in loaded.warnings:
            _log.warning("the configuration may not do what was meant", why=warning)
        rules = SessionRules(options.config, loaded.policy, PluginGuard(options.clock))
        api = await ApiClient.connect(
            options.kubeconfig,
            clock=options.clock,
            connections=options.config.client_connection.max_connections,
            opened=options.opened,
        )
        if options.state_file:
            self._mark = CrashMarker.open(Path(options.state_file))
        try:
            await self._serve(api, rules)
        except Exception as error:
            self._remember(error)
            raise
        else:
            if self._fault is not None:
                self._remember(self._fault)
        finally:
            if self._history is not None:
                self._history.stop()
            if self._mark is not None:
                self._mark.close()
            await api.close()
            self.telemetry.shutdown()
        if self._fault is not None:
            raise self._fault

    def _remember(self, error: BaseException) -> None:
        """For the next process, what this one ends of, where that is a fault of ours."""
        if self._mark is not None and is_defect(error):
            why = f"{type(error).__name__}: {one_line(str(error))}"
            self._mark.mark_fault(why, self._broken_with)

    async def _connect(self, most: int) -> ApiClient:
        of = self.options
        return await ApiClient.connect(
            of.kubeconfig, clock=of.clock, connections=most, opened=of.opened
        )

    # -- readiness -------------------------------------------------------------------------
    def unready(self) -> str:
        """Empty when decisions can be made on what the cache holds, else why not."""
        return self.readers.unready() if self.readers is not None else ""

    def readiness(self) -> tuple[bool, str]:
        """Whether decisions can be made, or taken over; and why not, or in which part."""
        error = self.unready() or self._lease_unreadable()
        if error:
            return False, error
        part = "leader" if self.leadership.leading else "standby"
        degraded = self.health.degraded if self.health is not None else ""
        part = f"{part}; degraded: {degraded}" if degraded else part
        keeper = self.candidate.keeper
        if keeper is not None and self.leadership.leading:
            held = ", ".join(sorted(keeper.part.held))
            part = f"{part}; shards: {keeper.why or held}"
        missing = self.readers.not_installed if self.readers is not None else ""
        return True, f"{part}; not installed: {missing}" if missing else part

    def _lease_unreadable(self) -> str:
        """Why, when the lease could not be read for so long that the API server must be away.

        A server that hangs leaves its streams open, so that caches look fresh.
        """
        elector = self.leadership.elector
        now = self.options.clock.monotonic()
        if elector is None or not elector.error:
            self._lease_read = now
            return ""
        late = now - self._lease_read > self._limits().cache_staleness_s
        return f"the lease cannot be read: {elector.error}" if late else ""

    def _may_decide(self) -> str:
        if error := self.unready():
            return error
        keeper = self.candidate.keeper
        if keeper is not None and keeper.why:
            return keeper.why
        return "" if self._caught_up else "caches are being listed again"

    def _config(self) -> Config:
        """The configuration in force: that of the start until a changed one is adopted."""
        return self.cycle.rules.config if self.cycle is not None else self.options.config

    def _limits(self) -> LimitsConfig:
        return self._config().limits

    def _use_bounds(self, config: Config) -> None:
        """Take over what writers and caches do not ask for themselves."""
        self.cache.use_limits(config.limits)
        if self._rate_limiter is not None:
            self._rate_limiter.use_maximum(config.client_connection.qps)

    # -- building --------------------------------------------------------------------------
    def _build_writers(self, api: ApiClient) -> Writers:
        """Everything that writes to the API, sharing one rate limiter."""
        config = self._config()
        self._rate_limiter = RateLimiter(self.options.clock, rate_max=config.client_connection.qps)
        return build_writers(
            api,
            self.cache,
            self.leadership,
            WriterListeners(
                on_fault=self._broke,
                on_contained=self.faults.report_failure,
                on_settled=self._note_settled_gang,
                on_broken=self._end_on_contained_fault,
                on_failed=self._commit_failed,
                on_known=self._commit_known,
                on_stopped=self._stopped,
            ),
            clock=self.options.clock,
            telemetry=self.telemetry,
            rate_limiter=self._rate_limiter,
            instance=self.options.identity,
            watched=lambda: self.readers is not None and self.readers.follows_room(),
            limits_in_force=self._limits,
        )

    async def _serve(self, api: ApiClient, rules: SessionRules) -> None:
        options = self.options
        async with contextlib.AsyncExitStack() as stack:
            while not self._stop.is_set():
                self._over.clear()
                first = self.cycle is None
                live = self._build(api, rules)
                if first:
                    await self._start_endpoints(stack)
                await live()
                assert self.cycle is not None
                # Plugins begin as in a new process; rows of the old cache are nobody's any more.
                config, policy = self.cycle.rules.config, self.cycle.rules.policy
                rules = SessionRules(config, policy, PluginGuard(options.clock))

    async def _start_endpoints(self, stack: contextlib.AsyncExitStack) -> None:
        """Begin what outlasts terms: endpoints, the view and the watchdog."""
        options = self.options
        if options.view is not None:
            api = await self._connect(VIEW_CONNECTIONS)
            stack.push_async_callback(api.close)
            view = self.view = make_view(
                options.view,
                api,
                options,
                self.candidate,
                ready=lambda: self.readiness()[1] or "ok",
                hide=lambda text, reader: hide_foreign_names(
                    text, reader, self._config(), self.cache
                ),
            )
            self._decision_log.followers.append(view.decided)
            self._follow_with_view()
            serving = asyncio.create_task(view.run(), name="view")
            stack.push_async_callback(end_task, serving)
        if options.listen:
            endpoints = HttpEndpoints(ready=self.readiness, metrics=self.telemetry.render)
            self.port = await endpoints.start_on_first(options.listen)
            stack.push_async_callback(endpoints.stop)
        if not options.inline:
            watchdog = self._watchdog()
            watchdog.start()
            stack.callback(watchdog.stop)

    def _follow_with_view(self) -> None:
        """Have the view follow the sessions of this term."""
        if self.cycle is not None and self.view is not None:
            follow_sessions(self.view, self.cycle, self.cache)

    def _build(self, api: ApiClient, rules: SessionRules) -> Callable[[], Awaitable[None]]:
        """Everything of one term, which knows nothing yet; what lives it."""
        options = self.options
        self._begin_cache(rules)
        writers = self._build_writers(api)
        writers.listen_to(self.cache, self.telemetry)
        status = writers.status
        self.readers = InformerFactory(
            api,
            self.cache,
            clock=options.clock,
            rng=options.rng,
            telemetry=self.telemetry,
            reject=lambda kind, rejected: self._rejections.report(
                self.cache, status, kind, rejected
            ),
            restored=self._on_restored_store,
            leading=lambda: self.leadership.leading and self._caught_up,
            refused=self._unread,
            limits_in_force=self._limits,
            on_contained=self.faults.report_failure,
        )
        self._recorder = DecisionRecorder.from_options(
            options.recording, inline=options.inline, on_skipped=self.telemetry.decision_skipped
        )
        solver = None if options.inline else SolverProcess(options.clock, self.telemetry)
        history = self._begin_history()
        self.cycle = SessionCycle(
            self.cache,
            writers.volumes,
            status,
            preemption_executor=writers.preemption_executor,
            lease=self.leadership,
            ready=self._may_decide,
            rules=rules,
            clock=options.clock,
            telemetry=self.telemetry,
            faults=self.faults,
            mark=self._mark,
            inline=options.inline,
            solver=solver,
            here=options.search,
            lasts=options.session_s,
            recorder=self._recorder,
            only_look=bool(self._restored),
            starts=history.told_starts,
        )
        self.cycle.decided += [self._decision_log.decided, *self.on_plan]
        self.cycle.shown.append(lambda _snapshot, plan, _decision: self._note_shown(history, plan))
        plays = follow_plays(self.cycle, history.told_starts, options, lambda: self.view)
        self._follow_with_view()
        self.health = self._daemon_health(self.cycle, status, solver)
        cycle = self.cycle
        if options.config.shards:
            self._begin_shards(cycle)
        return lambda: self._live(cycle, writers, plays)

    def _begin_shards(self, cycle: SessionCycle) -> None:
        """The part of this term: nothing is held yet."""
        cache, options = self.cache, self.options
        part = ShardPart(
            ShardLayout.from_config(options.config),
            first=self.candidate.shards[0],
            moved=lambda keys: self._gangs_moved(cycle, map(gang_family, keys)),
            knows=cache.families.is_known,
            nodes_moved=lambda names: self._nodes_moved(cycle, names),
        )
        part.bound_not_preemptible(within_deserved=cycle.rules.policy.bounds_not_preemptible)
        part.take_effect(cache)

        def decided(snapshot: Snapshot, plan: Plan, decision: Decision) -> None:
            promised = {name for room in decision.reserved for name in room.nodes}
            part.bound_not_preemptible(within_deserved=cycle.rules.policy.bounds_not_preemptible)
            part.note_decisions(snapshot, plan, promised=promised)
            if self.candidate.keeper is not None:
                self.candidate.keeper.nudge()

        cycle.shown.append(decided)
        cycle.revise, cycle.tell_more = part.without_needless_claims, part.tell_shards

    def _gangs_moved(self, cycle: SessionCycle, gangs: Iterable[GangKey]) -> None:
        """These gangs came to the shards that are held here, or went away."""
        if moved := list(gangs):
            self.cache.show_again(moved)
            cycle.wake()

    def _nodes_moved(self, cycle: SessionCycle, nodes: Iterable[str]) -> None:
        """These nodes came to the shards that are held here, or went away."""
        if moved := list(nodes):
            self.cache.rows.look_again(moved)
            cycle.wake()

    def _begin_history(self) -> HistoryKeeper:
        """Follow the gangs of this term; those of an earlier one go on."""
        options = self.options
        if self._history is None:
            self._history = HistoryKeeper(
                options.history, clock=options.clock, telemetry=self.telemetry,
                inline=options.inline, on_compared=self._start_compared,
            )  # fmt: skip
        self._history.begin_term(self.cache)
        return self._history

    def _start_compared(self, compared: ComparedStart) -> None:
        for listener in self.on_start_compared:
            listener(compared)

    def _note_shown(self, history: HistoryKeeper, plan: Plan) -> None:
        """What readers are shown of a session goes into the history and the log."""
        history.decided(plan)
        self._decision_log.estimates_moved(plan.gangs)

    def _begin_cache(self, rules: SessionRules) -> None:
        """The cache of this term: a new one after the first, under the rules in force."""
        if self.cycle is not None:
            layouts = self.cache.rows.catalogue
            self.cache = Cache(self.options.config.scheduler_names, seal=UNKNOWN_SEAL)
            self.cache.rows.use_catalogue(layouts)
        self.cache.use_priority_rules(rules.config)
        self.cache.use_limits(rules.config.limits)

    def _daemon_health(
        self, cycle: SessionCycle, status: StatusWriter, solver: SolverProcess | None
    ) -> DaemonHealth:
        options = self.options
        return DaemonHealth(
            cycle,
            status.events,
            self.cache,
            regarding=self._daemon_event_object,
            config_file=options.config_file,
            read_config=options.read_config,
            clock=options.clock,
            telemetry=self.telemetry,
            layouts=self.cache.rows.use_catalogue,
            priority_rules=self.cache.use_priority_rules,
            bounds=self._use_bounds,
            inline=options.inline,
            solver=solver,
        )

    def _watchdog(self) -> Watchdog:
        return Watchdog(
            self.options.clock,
            leading=lambda: self.leadership.leading,
            exit_after_s=self.options.config.leader_election.renew_deadline_s,
            blocked=self.telemetry.loop_blocked,
            running=lambda: self.cycle.running if self.cycle is not None else None,
            session=lambda: self.cycle.thread if self.cycle is not None else 0,
            stuck=lambda running: (
                self.health.report_stuck(running) if self.health is not None else None
            ),
        )

    async def _live(self, cycle: SessionCycle, writers: Writers, plays: StartPlayer | None) -> None:
        """One term, until ``stop`` or until it is over."""
        async with asyncio.TaskGroup() as group:
            assert self.readers is not None
            writer = group.create_task(writers.status.run(), name="status")
            self.candidate.lease_asked.clear()
            self._caught_up = False
            standing = group.create_task(self._stand(cycle, self.readers), name="lease")
            # What a leader lists before it leads is listed again: where the Lease is free, once is
            # enough.
            await run_unless_ending(
                self.candidate.lease_asked, self.options.clock.sleep(_LEASE_FIRST_S)
            )
            readers = self.readers.start(group)
            deciding = group.create_task(cycle.run(), name="cycle")
            assert self.health is not None
            beside = [group.create_task(self.health.run(), name="health")]
            beside += [group.create_task(plays.run(), name="starts")] if plays is not None else []
            await self._over.wait()
            for task in beside:
                task.cancel()
            deciding.cancel()
            await writers.preemption_executor.drain()
            if self._stop.is_set() or self.candidate.gives_back:
                if not await writers.volumes.drain(limits.SHUTDOWN_S):
                    _log.warning("some commits were left to whoever leads next")
                await writers.status.flush(limits.SHUTDOWN_S)
            else:
                # What is to be said was said of a cluster that is no longer known.
                await writers.volumes.abandon()
            writer.cancel()
            if self.candidate.keeper is not None:
                await self.candidate.keeper.release()
            if self.leadership.elector is not None:
                self.leadership.elector.stop()
            await standing
            if self._recorder is not None:
                await self._recorder.wait_for_rest(limits.SHUTDOWN_S)
            for reader in readers:
                reader.cancel()

    # -- leading ---------------------------------------------------------------------------
    async def _stand(self, cycle: SessionCycle, readers: InformerFactory) -> None:
        api = await self._connect(self.candidate.connections)
        term = TermParts(cache=self.cache, readers=readers, wake=cycle.wake, lead=self._lead)
        await self.candidate.run(api, term)

    async def _lead(self, elector: Elector, copy: SealKeyCopy) -> None:
        """What a new leader does first: look again at everything, then decide."""
        self.cache.use_seal(parse_seal(elector.seal_key))
        assert self.readers is not None
        listed = self.readers.ask_relist(elector.version)
        self.candidate.lease_asked.set()
        await listed()
        self.options.on_listed()
        self._caught_up = True
        assert self.cycle is not None
        assert self.health is not None
        self.health.daemon_events.repeat_warnings()
        if self._restored:
            self.health.daemon_events.recovered(
                RESTORED, reason="ClusterRestored", action="Reading",
                message=f"{self._restored}; all objects were read again",
            )  # fmt: skip
            self._restored = ""
        self.cycle.wake()
        async with asyncio.TaskGroup() as group:
            if elector.seal_key:
                group.create_task(copy.keep(elector.seal_key))
            if self.candidate.keeper is not None:
                group.create_task(self.candidate.keeper.lead(), name="shards")

    def _daemon_event_object(self) -> ObjectRef:
        """Our own pod, else the Lease: where an operator looks for events about the daemon."""
        if self.options.pod is not None:
            return self.options.pod
        election, elector = self.options.config.leader_election, self.leadership.elector
        key = ObjectKey(election.lease_namespace, self.candidate.first_lease)
        return ObjectRef("Lease", key, UID(elector.lease_uid if elector is not None else ""))

    # -- faults ---------------------------------------------------------------------------
    def _on_restored_store(self, why: str) -> None:
        """The server's past is another than the one that is known here."""
        if self._over.is_set():
            return
        self._restored = why
        self.telemetry.cache_reset("restored")
        _log.warning("all that is known of the cluster is dropped and read again", why=why)
        self._over.set()

    def _unread(self, kind: str, refused: bool) -> None:
        if self.health is not None:
            self.health.report_unread(kind, refused)

    def _end_on_contained_fault(self, gang: GangKey) -> None:
        if self._broken_with is None and self._fault is None:
            self._broken_with = gang

    def _commit_failed(self, gang: GangKey, error: Exception) -> None:
        if self.cycle is not None:
            self.cycle.failed_commits.note_failed(gang, error)

    def _note_settled_gang(self, status: StatusWriter, settled: SettledGang) -> None:
        if self.cycle is not None:
            self.cycle.pauses.note_settled(settled)
        if settled.phase is CommitPhase.BOUND:
            status.note_bound(settled.gang)
            with self.faults.contain("log", settled.gang.gang):
                self._decision_log.bound(settled.gang)

    def _stopped(self, stop: GangStop) -> None:
        if self._history is not None:
            with self.faults.contain("history", stop.gang):
                self._history.stopped(stop)

    def _commit_known(self, gang: GangKey) -> None:
        if self.cycle is not None:
            self.cycle.failed_commits.note_known(gang)

    def _broke(self, error: BaseException) -> None:
        """Something of ours is wrong: end in order, then say so."""
        if self._fault is None:
            self._fault = error
            _log.error("gpusched ends because of a fault of its own", why=str(error))
        self.stop()
