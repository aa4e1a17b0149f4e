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
import random
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import attrs

from gpusched.api.meta.codec import DEFECT
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import UID, GangKey, ObjectKey, Rejected
from gpusched.api.serializer.requests import ObjectRef
from gpusched.api.serializer.seal import KEY_BYTES, UNKNOWN_SEAL, parse_seal
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import is_defect
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.commit.model import CommitPhase
from gpusched.config.load import ConfigFiles, read_files
from gpusched.config.model import Config, LimitsConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.credentials import CredentialSource
from gpusched.io.client.server_clock import ServerClock
from gpusched.io.client.transport import Open, over_http
from gpusched.io.cycle.crash_marker import CrashMarker
from gpusched.io.cycle.fault_report import FaultReport
from gpusched.io.cycle.health import DaemonHealth
from gpusched.io.cycle.policy_loader import PolicyLoader
from gpusched.io.cycle.session_cycle import SessionCycle, SessionRules
from gpusched.io.decisions.decision_log import DecisionLog
from gpusched.io.decisions.recorder import DecisionRecorder, RecordingOptions
from gpusched.io.history.history_keeper import HistoryKeeper
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.io.history.told_starts import ComparedStart
from gpusched.io.leader.elector import Elector, Leadership, lease_timing
from gpusched.io.leader.lease_namespace import ensure_namespace, make_namespace, run_unless_ending
from gpusched.io.leader.lone_leader import LoneLeader
from gpusched.io.leader.seal_key_copy import SealKeyCopy
from gpusched.io.leader.shard_board import BoardStore
from gpusched.io.leader.shard_keeper import ShardKeeper
from gpusched.io.observe.daemon_events import RESTORED
from gpusched.io.observe.endpoints import HttpEndpoints
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.observe.text import one_line
from gpusched.io.observe.tracing import Tracing
from gpusched.io.observe.watchdog import Watchdog
from gpusched.io.serve.announcement import ViewAnnouncement
from gpusched.io.serve.publisher import ViewAddress
from gpusched.io.serve.served_view import ServedView, end_task
from gpusched.io.solver.process import SolverProcess
from gpusched.io.watch.informer_factory import InformerFactory
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.write.binder import SettledGang
from gpusched.io.write.status.status_writer import StatusWriter
from gpusched.io.write.writers import WriterListeners, Writers, build_writers
from gpusched.placement.model.problem import SearchRunner, search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import Decision
from gpusched.session.state.plan import GangStop, Plan
from gpusched.session.status.foreign_names import hide_names
from gpusched.shards.layout import ShardLayout
from gpusched.shards.part import ShardPart, gang_family
from gpusched.view.node_views import gpu_totals_view

_LEASE_CONNECTIONS: Final = 2
_SHARD_CONNECTIONS: Final = 2
"""Beside one for each other shard."""
_VIEW_CONNECTIONS: Final = 2
_LEASE_FIRST_S: Final = 1.0
"""For which lists wait for a Lease that may be free."""
_log = Logger(__name__)


@attrs.frozen(kw_only=True)
class AppOptions:
    """How one daemon is run.

    Attributes:
        kubeconfig: None for in-cluster configuration, else the default places; or credentials.
        identity: of the process; a random part is added for each term as candidate.
        listen: hosts and ports for the endpoints, of which the first free one is taken; none
            for no endpoints.
        config_file: to be watched for changes; empty when the configuration is built in.
        read_config: reads the configuration file.
        pod: our own, for events about ourselves; None outside a cluster.
        inline: sessions run in the event loop, searches with them, and no watchdog is started
            (virtual time).
        recording: of decisions; None keeps none.
        history: where runs of gangs are kept; None keeps none.
        state_file: shows the next process what this one died of; empty for none.
        secret: makes so many secret bytes; None draws them from ``rng``, which only serves where
            nothing is forged.
        opened: makes what carries requests to the API server and answers back.
        search: runs searches of inline sessions.
        session_s: how long an inline session takes, in seconds of the clock.
        view: where a process of its own serves what people see; None serves nothing.
        shards: that this daemon cares for, the one first that it leads before others; none for all of the
            configuration, in its order.
    """

    config: Config
    clock: Clock
    rng: random.Random
    kubeconfig: str | CredentialSource | None = None
    identity: str = "gpusched"
    listen: tuple[tuple[str, int], ...] = ()
    config_file: str = ""
    read_config: Callable[[str], ConfigFiles] = read_files
    pod: ObjectRef | None = None
    inline: bool = False
    recording: RecordingOptions | None = None
    history: HistoryOptions | None = None
    state_file: str = ""
    secret: Callable[[int], bytes] | None = None
    opened: Open = over_http
    search: SearchRunner = search_in_process
    session_s: Callable[[], float] = lambda: 0.0
    view: ViewAddress | None = None
    shards: tuple[str, ...] = ()


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
        self.leadership = Leadership()
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
        self._lease_asked = asyncio.Event()
        """The Lease of this term was taken or is another's, or could not be asked for."""
        self._restored = ""
        self._unbelieved: dict[tuple[str, ObjectKey], str] = {}
        """What was logged last of objects that cannot be believed."""
        self._seal_key = ""
        """The key of the seal as this process saw it last."""
        self._recorder: DecisionRecorder | None = None
        self._fault: BaseException | None = None
        self._caught_up = False
        self._lease_read = options.clock.monotonic()
        self._rate_limiter: RateLimiter | None = None
        self.keeper: ShardKeeper | None = None
        """Of the shards of this term; None where the configuration has none."""
        self._giving_back = False
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
        if self.keeper is not None and self.leadership.leading:
            held = ", ".join(sorted(self.keeper.part.held))
            part = f"{part}; shards: {self.keeper.why or held}"
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
        if self.keeper is not None and self.keeper.why:
            return self.keeper.why
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
            await self._start_view(stack, options.view)
        if options.listen:
            endpoints = HttpEndpoints(ready=self.readiness, metrics=self.telemetry.render)
            self.port = await endpoints.start_on_first(options.listen)
            stack.push_async_callback(endpoints.stop)
        if not options.inline:
            watchdog = self._watchdog()
            watchdog.start()
            stack.callback(watchdog.stop)

    async def _start_view(self, stack: contextlib.AsyncExitStack, address: ViewAddress) -> None:
        options = self.options
        election = options.config.leader_election
        api = await self._connect(_VIEW_CONNECTIONS)
        stack.push_async_callback(api.close)
        self.view = ServedView(
            address,
            ViewAnnouncement(
                api,
                namespace=election.lease_namespace,
                lease=f"{election.lease_name}-{self._shards[0]}"
                if self._shards
                else election.lease_name,
                clock=options.clock,
                create_if_missing=not api.in_cluster,
            ),
            clock=options.clock,
            daemon=options.identity,
            leading=lambda: self.leadership.leading,
            ready=lambda: self.readiness()[1] or "ok",
            scheduler_names=options.config.scheduler_names,
            hide=self._hide_names,
        )
        self._decision_log.followers.append(self.view.decided)
        self._follow_with_view()
        serving = asyncio.create_task(self.view.run(), name="view")
        stack.push_async_callback(end_task, serving)

    def _hide_names(self, text: str, reader: str) -> str:
        """A sentence as users of one namespace may read it."""
        config = self.options.config if self.cycle is None else self.cycle.rules.config
        if config.names_of_other_namespaces == "shown":
            return text
        known = self.cache.namespaces.items
        return hide_names(text, reader, lambda name: ObjectKey("", name) in known)

    def _follow_with_view(self) -> None:
        """Have the view follow the sessions of this term."""
        cycle, view = self.cycle, self.view
        if cycle is not None and view is not None:
            view.forget()
            view.gpu_totals = lambda: gpu_totals_view(cycle.gpu_gauges.counts)
            cache = self.cache
            cycle.shown.append(
                lambda snapshot, plan, decision: view.session(
                    snapshot,
                    plan,
                    decision,
                    cache=cache,
                    policy=cycle.rules.policy,
                    session_cache=cycle.rules.session_cache,
                )
            )

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
            reject=lambda kind, rejected: self._rejected(status, kind, rejected),
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
        self._follow_with_view()
        self.health = self._daemon_health(self.cycle, status, solver)
        cycle = self.cycle
        if options.config.shards:
            self._begin_shards(cycle)
        return lambda: self._live(cycle, writers)

    def _begin_shards(self, cycle: SessionCycle) -> None:
        """The part of this term: nothing is held yet."""
        cache, options = self.cache, self.options
        part = ShardPart(
            ShardLayout.from_config(options.config),
            first=self._shards[0],
            moved=lambda keys: self._gangs_moved(cycle, map(gang_family, keys)),
            knows=cache.families.is_known,
        )
        part.take_effect(cache)

        def decided(snapshot: Snapshot, plan: Plan, _decision: Decision) -> None:
            part.note_decisions(snapshot, plan)
            if self.keeper is not None:
                self.keeper.nudge()

        cycle.shown.append(decided)
        cycle.tell_more = part.tell_shards

    def _gangs_moved(self, cycle: SessionCycle, gangs: Iterable[GangKey]) -> None:
        """These gangs came to the shards that are held here, or went away."""
        if moved := list(gangs):
            self.cache.show_again(moved)
            cycle.wake()

    @property
    def _shards(self) -> tuple[str, ...]:
        """Shards that this daemon cares for, the one first that it leads before others."""
        return self.options.shards or tuple(each.name for each in self.options.config.shards)

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

    async def _live(self, cycle: SessionCycle, writers: Writers) -> None:
        """One term, until ``stop`` or until it is over."""
        async with asyncio.TaskGroup() as group:
            assert self.readers is not None
            writer = group.create_task(writers.status.run(), name="status")
            self._lease_asked.clear()
            candidate = group.create_task(self._run_candidate(), name="lease")
            # What a leader lists before it leads is listed again: where the Lease is free, once is
            # enough.
            await run_unless_ending(self._lease_asked, self.options.clock.sleep(_LEASE_FIRST_S))
            readers = self.readers.start(group)
            deciding = group.create_task(cycle.run(), name="cycle")
            assert self.health is not None
            checking_health = group.create_task(self.health.run(), name="health")
            await self._over.wait()
            checking_health.cancel()
            deciding.cancel()
            await writers.preemption_executor.drain()
            if self._stop.is_set() or self._giving_back:
                if not await writers.volumes.drain(limits.SHUTDOWN_S):
                    _log.warning("some commits were left to whoever leads next")
                await writers.status.flush(limits.SHUTDOWN_S)
            else:
                # What is to be said was said of a cluster that is no longer known.
                await writers.volumes.abandon()
            writer.cancel()
            if self.keeper is not None:
                await self.keeper.release()
            if self.leadership.elector is not None:
                self.leadership.elector.stop()
            await candidate
            if self._recorder is not None:
                await self._recorder.wait_for_rest(limits.SHUTDOWN_S)
            for reader in readers:
                reader.cancel()

    # -- leading ---------------------------------------------------------------------------
    async def _run_candidate(self) -> None:
        """Stand for the lease, and lead for one term at most."""
        options = self.options
        shards = len(self._shards)
        api = await self._connect(
            _LEASE_CONNECTIONS + (_SHARD_CONNECTIONS + shards if shards else 0)
        )
        try:
            if not api.in_cluster:
                # Before each term: the cluster may have been made anew in the meantime.
                namespace = options.config.leader_election.lease_namespace
                await run_unless_ending(self._over, ensure_namespace(api, namespace, options.clock))
            if not self._over.is_set():
                await self._term(api)
        finally:
            self._lease_asked.set()
            await api.close()

    def _elector(
        self,
        api: ApiClient,
        identity: str,
        copy: SealKeyCopy,
        *,
        shard: str = "",
        patience_s: float = 0.0,
        on_refused: Callable[[], None] = lambda: None,
    ) -> Elector:
        """A candidate for the Lease of a daemon without shards, or of a shard."""
        options = self.options
        election = options.config.leader_election
        return Elector(
            api,
            identity=identity,
            namespace=election.lease_namespace,
            name=f"{election.lease_name}-{shard}" if shard else election.lease_name,
            timing=lease_timing(election),
            patience_s=patience_s,
            clock=options.clock,
            create_if_missing=not api.in_cluster,
            on_restored=self._on_restored_store,
            create_namespace=None
            if api.in_cluster
            else lambda: make_namespace(api, election.lease_namespace),
            new_key=lambda: (options.secret or options.rng.randbytes)(KEY_BYTES).hex(),
            known_key=self._seal_key,
            key_copy=copy,
            on_refused=on_refused,
        )

    def _shard_keeper(self, api: ApiClient, identity: str, copy: SealKeyCopy) -> ShardKeeper | None:
        """Of this term; None where the configuration has no shards."""
        part, options, readers = self.cache.part, self.options, self.readers
        if not isinstance(part, ShardPart) or readers is None:
            return None
        part.identity = identity
        election, cache = options.config.leader_election, self.cache
        return ShardKeeper(
            part=part,
            store=BoardStore(
                api,
                namespace=election.lease_namespace,
                name=f"{election.lease_name}-shards",
                create_if_missing=not api.in_cluster,
            ),
            preferred=self._shards,
            elector_of=lambda shard: self._elector(
                api, identity, copy, shard=shard, patience_s=election.lease_duration_s
            ),
            leadership=self.leadership,
            clock=options.clock,
            relist=lambda least: readers.ask_relist(least)(),
            use_part=lambda: part.take_effect(cache),
            changed=lambda: self.cycle.wake() if self.cycle is not None else None,
            lost=self._over.set,
            give_back=self._give_back,
            lone_leader=LoneLeader(
                api,
                election.lease_namespace,
                election.lease_name,
                election.lease_duration_s,
                options.clock,
            ),
            measured=self.telemetry.set_shards,
            failed=self.faults.report_failure,
        )

    def _give_back(self) -> None:
        """End the term in order: a daemon asks for a shard that it leads before others."""
        self._giving_back = True
        self._over.set()

    async def _term(self, api: ApiClient) -> None:
        options = self.options
        election = options.config.leader_election
        copy = SealKeyCopy(
            api,
            namespace=election.lease_namespace,
            lease=election.lease_name,
            clock=options.clock,
            create_if_missing=not api.in_cluster,
        )
        shard = f"{self._shards[0]}:" if self._shards else ""  # terms of shards are counted apart
        identity = f"{shard}{options.identity}_{options.rng.getrandbits(40):010x}"
        self._giving_back = False
        keeper = self.keeper = self._shard_keeper(api, identity, copy)
        elector = self._elector(
            api,
            identity,
            copy,
            shard=self._shards[0] if keeper else "",
            on_refused=self._lease_asked.set,
        )
        self.leadership.elector, self.leadership.others = elector, []
        self._caught_up = False
        term = asyncio.create_task(elector.run(), name="elector")
        lead = asyncio.create_task(self._lead(elector, copy), name="lead")
        asking = asyncio.create_task(keeper.stand_by(elector)) if keeper is not None else None
        try:
            why = await term
        finally:
            self._seal_key = elector.known_key
            lead.cancel()
            term.cancel()
            if keeper is not None and asking is not None:
                asking.cancel()
                keeper.cancel()
            self.telemetry.set_leader(leading=False)
            with contextlib.suppress(asyncio.CancelledError):
                await lead
        if not self._over.is_set():
            _log.warning("leadership ended; all is read again and this process stands by", why=why)
            self.telemetry.cache_reset("leadership")
            self._over.set()

    async def _lead(self, elector: Elector, copy: SealKeyCopy) -> None:
        """What a new leader does first: look again at everything, then decide."""
        await elector.acquired()
        self.telemetry.set_leader(leading=True)
        self.cache.use_seal(parse_seal(elector.seal_key))
        assert self.readers is not None
        listed = self.readers.ask_relist(elector.version)
        self._lease_asked.set()
        await listed()
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
            if self.keeper is not None:
                group.create_task(self.keeper.lead(), name="shards")

    def _daemon_event_object(self) -> ObjectRef:
        """Our own pod, else the Lease: where an operator looks for events about the daemon."""
        if self.options.pod is not None:
            return self.options.pod
        election, elector = self.options.config.leader_election, self.leadership.elector
        shard = f"-{self._shards[0]}" if self._shards else ""
        key = ObjectKey(election.lease_namespace, f"{election.lease_name}{shard}")
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

    def _rejected(self, status: StatusWriter, kind: str, rejected: Rejected) -> None:
        self.telemetry.rejected(kind, rejected.field)
        if rejected.field == DEFECT:
            self.telemetry.contained(rejected.kind, "reading")
        who = (kind, rejected.key)
        if self._unbelieved.get(who) != rejected.message:  # each change shows it again, ours too
            _log.warning("an object cannot be believed", kind=kind, why=rejected.message)
            self._unbelieved.pop(who, None)
            self._unbelieved[who] = rejected.message
            if len(self._unbelieved) > limits.REPORTED_OBJECTS_MAX:
                del self._unbelieved[next(iter(self._unbelieved))]
        ours = rejected.ours or rejected.scheduler in self.cache.schedulers
        status.report_rejected(attrs.evolve(rejected, ours=ours))
