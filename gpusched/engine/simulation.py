"""A discrete-event simulation of a cluster under the daemon's own decisions: no server, no daemon.

    record = play(Case(name="now", config=config, objects=cluster, arrivals=jobs))

Cache, sessions, plugins and codecs are the daemon's. What an API server, controllers and kubelets
would do is done by ``engine_carry``, ``engine_owners`` and ``engine_pods``: every write is accepted
at once, and pods start a constant time after their binding. Equal cases give equal records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH
from gpusched.base.debounce import QUIET_SHARE, Debounce
from gpusched.base.errors import InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.config.gpu_layouts import load_shipped_layouts
from gpusched.config.model import Config
from gpusched.engine.controllers import SimulatedControllers
from gpusched.engine.job_records import LiveJob
from gpusched.engine.objects import Obj
from gpusched.engine.plan_execution import PlanExecutor
from gpusched.engine.run_record import (
    BrokenInvariant,
    JobLife,
    LifeEnd,
    NodeLife,
    PodLife,
    RunRecord,
)
from gpusched.engine.timed_changes import ChangeExecutor, TimedChange
from gpusched.engine.world import SimulatedDelays, SimulatedWorld
from gpusched.placement.model.problem import search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import Decision, decide
from gpusched.session.state.order.round_progress import NextSession, RoundProgress
from gpusched.session.state.plan import GangBind
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.next_wakeup import next_wakeup

_TOLD_MAX = 100
"""Sentences of one kind; more of them are the same bug."""


def broken_invariants(
    nodes: Sequence[NodeLife], pods: Sequence[PodLife], jobs: Sequence[JobLife]
) -> tuple[BrokenInvariant, ...]:
    """Everything that did not hold, by time.

    Args:
        nodes: that offered the same for as long as they were there.
        pods: of the whole run.
        jobs: of the whole run.
    """
    by_node: dict[str, list[PodLife]] = {}
    by_job: dict[str, list[PodLife]] = {}
    for pod in pods:
        if pod.bound is not None:
            by_node.setdefault(pod.node, []).append(pod)
            by_job.setdefault(pod.job, []).append(pod)
    found: list[BrokenInvariant] = []
    for node in nodes:
        found += [*_node(node, by_node.get(node.name, []))][:_TOLD_MAX]
    for job in jobs:
        if job.min_member > 1:
            found += [*_gang(job, by_job.get(job.key, []))][:_TOLD_MAX]
    return tuple(sorted(found, key=lambda each: (each.at, each.invariant, each.sentence)))


def _node(node: NodeLife, pods: Sequence[PodLife]) -> Iterator[BrokenInvariant]:
    offer = max(node.spans, key=lambda span: (span.gpus, span.cpu, span.memory))
    moves = []
    for pod in pods:
        moves.append((pod.bound or 0.0, 1, pod))
        if pod.ended is not None:
            moves.append((pod.ended, 0, pod))
    moves.sort(key=lambda move: (move[0], move[1], move[2].namespace, move[2].name))
    gpus = cpu = memory = 0
    holder: dict[int, str] = {}
    for at, comes, pod in moves:
        sign = 1 if comes else -1
        gpus, cpu, memory = gpus + sign * pod.gpus, cpu + sign * pod.cpu, memory + sign * pod.memory
        whole = pod.gpus % 1000 == 0
        for slot in pod.slots if whole else ():
            if not comes:
                holder.pop(slot, None)
            elif slot in holder:
                sentence = f"slot {slot} of node {node.name} has pods {holder[slot]} and {pod.name}"
                yield BrokenInvariant(at=at, invariant="slots", sentence=sentence)
            else:
                holder[slot] = pod.name
        over = [
            f"{have} of {offered} {what}"
            for what, have, offered in (
                ("thousandths of GPUs", gpus, offer.gpus),
                ("thousandths of cores", cpu, offer.cpu),
                ("MiB", memory, offer.memory),
            )
            if have > offered
        ]
        if comes and over:
            sentence = f"node {node.name} gave {' and '.join(over)}"
            yield BrokenInvariant(at=at, invariant="room", sentence=sentence)


def _gang(job: JobLife, pods: Sequence[PodLife]) -> Iterator[BrokenInvariant]:
    """At each binding the gang must have its minimum, with those that succeeded.

    Who ends at the moment of its own binding counts: at the beginning nodes may be lost on which it ran.
    """
    moments = Counter(pod.bound for pod in pods)
    for at in sorted(moment for moment in moments if moment is not None):
        have = sum(
            1
            for pod in pods
            if pod.bound is not None
            and pod.bound <= at
            and (
                pod.ended is None
                or pod.ended > at
                or pod.bound == at
                or pod.end is LifeEnd.SUCCEEDED
            )
        )
        if have < job.min_member:
            sentence = f"job {job.key} has {have} of {job.min_member} pods that it needs"
            yield BrokenInvariant(at=at, invariant="gangs", sentence=sentence)


_IDLE_MAX_S: Final = 6 * 3600.0
"""While gangs wait and nothing changes, sessions follow each other ever more slowly, up to this.

What passes with time has a session of its own: ends of minRuntime, maxRuntime, maxWait, promises."""
_HOPELESS_S: Final = 3600.0
"""When nothing else is to come, gangs that wait get so long; then the run is over."""
_WINDOWS_AWAITED_S: Final = 7 * 86_400.0
"""The same where Reservations keep nodes: a gang may wait for the end of a window."""
_QUIET_S: Final = 0.1
"""Sessions in which nothing is new are at least so far apart."""
_TOLD_EVERY: Final = 200
DEFAULT_PACE: Final = SimulatedDelays()


@frozen
class Arrival:
    """Objects that come into being at a moment, seconds since the beginning."""

    at: float
    objects: tuple[Obj, ...]


@frozen(kw_only=True)
class SimulationCase:
    """What is simulated.

    Attributes:
        name: of the configuration, for the record.
        config: of the daemon.
        policy: that decides in place of the configured one; None for that one.
        objects: there from the beginning, in an order in which they can be applied.
        arrivals: by time.
        changes: what is done to the cluster from outside, at moments of the run.
        until: seconds after which it ends; None when nothing is to come any more.
        step_s: seconds for which changes are gathered before a session decides about all of them; 0 for
            the debounce of the daemon, which is exact.
        pace: how long things take.
        epoch: wall time at second 0, seconds since the Unix epoch.
        seed: of the arrivals, for the record.
        told: called now and then with the seconds that have passed and the jobs that came.
        until_started: a gang with whose start the run ends; None for no such gang.
        sessions_max: sessions after which it ends; None for no bound.
        placed: called with the seconds that have passed and each gang that gets places.
        decided: called with the decision of each session, before its plan is carried out.
        enough: asked after each session with the number of sessions so far; the run ends when it says so.
    """

    name: str
    config: Config
    policy: Policy | None = None
    objects: Sequence[Obj] = ()
    arrivals: Iterable[Arrival] = ()
    changes: Sequence[TimedChange] = ()
    until: float | None = None
    step_s: float = 0.0
    pace: SimulatedDelays = DEFAULT_PACE
    epoch: float = EPOCH
    seed: int = 0
    told: Callable[[float, int], None] | None = None
    until_started: GangKey | None = None
    sessions_max: int | None = None
    placed: Callable[[float, GangBind], None] | None = None
    decided: Callable[[Decision], None] | None = None
    enough: Callable[[int], bool] | None = None


def run_simulation(case: SimulationCase) -> RunRecord:
    """Simulate from the beginning to the end.

    Raises:
        ConfigError: the configuration names what does not exist.
        InvariantBroken: what was decided cannot be carried out: a bug.
    """
    with gpu_resources_in_force(case.config.gpu_resources):
        return Simulation(case, tells_starts=case.decided is not None).run()


class Simulation:
    """One run: either ``run`` is called, once, or ``begin`` and then ``go_on`` as often as something is left.

    Args:
        case: what is simulated.
        tells_starts: whether sessions work out when gangs that wait are expected to start. Nothing is decided by that
            but by what a PodGroup's status says of it, so that where nobody sees decisions, and as long as there is no
            PodGroup, it may be left out.
    """

    def __init__(self, case: SimulationCase, *, tells_starts: bool = True) -> None:
        config = case.config
        self.case = case
        self.cache = Cache(config.scheduler_names)
        self.cache.rows.use_catalogue(config.layouts or load_shipped_layouts())
        self.cache.use_limits(config.limits)
        self._tells_starts = tells_starts
        self._limits_untold = attrs.evolve(config.limits, start_estimates=0)
        self.cache.use_priority_rules(config)
        self.world = SimulatedWorld(self.cache, epoch=case.epoch, pace=case.pace)
        self._owners = SimulatedControllers(self.world)
        self._carry = PlanExecutor(
            self.world,
            self._owners,
            placed=self._placed,
            nomination_timeout_s=config.limits.nomination_timeout_s,
        )
        self._policy = case.policy or load_policy(config)
        self._guard = PluginGuard(StoppedClock())
        self._session_cache = SessionCache()
        self._faults: list[str] = []
        self.sessions = 0
        self.started_at: float | None = None
        """When the gang of ``until_started`` had its minimum, seconds since the beginning."""
        self._begun: float | None = None
        """When the first change came that no session has seen yet."""
        self._debounce = Debounce()
        self._idle_at: float | None = None
        self._idle_s = config.cycle.max_period_s
        self._is_session = False
        self._awaits_windows = False
        """The last session left gangs that wait, and Reservations with windows to come."""
        self._nobody = False
        """The last session left no gang that waits for room: ends of others change nothing."""
        self._changes = 0
        self._rounds = RoundProgress()
        self._moved_at = 0.0
        """When anything but an idle session happened last."""
        self._snapshot: Snapshot | None = None
        self.cache.on_change.append(self._changed)

    @property
    def snapshot(self) -> Snapshot:
        """What the session is decided on that runs, or was run last."""
        assert self._snapshot is not None, "no session was run"
        return self._snapshot

    # -- time --------------------------------------------------------------------------------
    def run(self) -> RunRecord:
        """Play the case to its end; see ``play``."""
        self.begin()
        self.go_on()
        return self._record()

    def begin(self) -> None:
        """Let there be what there is from the beginning."""
        self._owners.begin(self.case.objects)
        rows = self.cache.rows
        there = [rows.get(name) for name in rows.node_names()]
        self.world.lives.node_changes.begin([node for node in there if node is not None])
        ChangeExecutor(self.world, self._owners).schedule_changes(self.case.changes)
        self._take(iter(self.case.arrivals))

    def go_on(self) -> None:
        """Play until a session after which it is enough, or to the end."""
        world, until = self.world, self.case.until
        while (at := self._next()) is not None:
            if until is not None and at > until:
                break
            world.now = at
            if self._is_session:
                self._session()
                if self._is_enough():
                    return
                continue
            act, aside = world.agenda.pop()
            act()
            if not aside:
                self._moved_at = at

    def _is_enough(self) -> bool:
        """Whether the case ends with the session that was just run."""
        case = self.case
        if self.started_at is not None or self.sessions == case.sessions_max:
            return True
        return case.enough is not None and case.enough(self.sessions)

    def _next(self) -> float | None:
        """When something happens next, and whether that is a session; None at the end of the run."""
        agenda = self.world.agenda
        event, session = agenda.next(), self._session_at()
        self._is_session = session is not None and (event is None or session < event)
        at = session if self._is_session else event
        if at is None or agenda.busy or self._begun is not None:
            return at
        waits = self._idle_at is not None
        patience_s = _WINDOWS_AWAITED_S if self._awaits_windows else _HOPELESS_S
        return at if waits and at - self._moved_at <= patience_s else None

    def _take(self, arrivals: Iterator[Arrival]) -> None:
        """The next arrival; the one after it is looked at when it has come."""
        arrival = next(arrivals, None)
        if arrival is None:
            return

        def come() -> None:
            for obj in arrival.objects:
                self._owners.create(obj)
            self._take(arrivals)

        self.world.agenda.at(max(self.world.now, arrival.at), come)

    def _changed(self) -> None:
        self._changes += 1
        if self.world.muted or (self.world.ending and self._nobody):
            return
        self._debounce.note_change(
            self.world.now,
            self.case.config.cycle.debounce_s,
            alone=self.cache.alone and self._begun is None,
        )
        if self._begun is None:
            self._begun = self.world.now

    def _session_at(self) -> float | None:
        """When the next session is due by what is known now."""
        if self._begun is None:
            return self._idle_at
        at = self._debounce.ends_at(self._begun, self.case.config.cycle.debounce_s)
        if self.case.step_s:
            at = self._begun + self.case.step_s
        return at if self._idle_at is None else min(at, self._idle_at)

    # -- sessions ----------------------------------------------------------------------------
    def _session(self) -> None:
        world, config = self.world, self.case.config
        self._begun, self._idle_at = None, None
        changes = self._changes
        self.cache.rounds = self._rounds.begin_session(changes, self.cache.rounds, now=world.wall)
        if not self._tells_starts:  # not by its method: it is no change to decide about
            told = bool(self.cache.groups.items)
            self.cache.limits = config.limits if told else self._limits_untold
        snapshot = self.cache.take_snapshot(world.wall)
        self._snapshot = snapshot
        self._guard.begin_session()
        decision = decide(
            snapshot,
            self._policy,
            guard=self._guard,
            session_cache=self._session_cache,
            placement=config.placement,
            search=search_in_process,
            incremental=config.cycle.incremental,
        )
        if decision.differs:
            self._faults.append(decision.differs)
        self.sessions += 1
        following = self._rounds.note_session(
            changes,
            rounds=decision.rounds,
            stays_until=decision.stays_until,
            now=snapshot.now,
        )
        if following.rounds is not None:
            self.cache.rounds = following.rounds
        self.cache.expected_starts = decision.expected_starts
        faults = (*decision.faults, *(each.message for each in decision.set_aside))
        if decision.degraded is not None:
            faults = (*faults, decision.degraded.message)
        if faults and len(self._faults) < 1:
            self._faults.extend(faults[:1])
        if self.case.decided is not None:
            self.case.decided(decision)
        self._carry.plan(decision.plan)
        plan = decision.plan
        self._nobody = not (
            decision.waiting
            or plan.preemptions
            or any(status.waiting_pods for status in plan.gangs)
        )
        self._plan_idle(snapshot, decision, following)
        if self.case.told is not None and self.sessions % _TOLD_EVERY == 0:
            self.case.told(world.now, len(world.lives.jobs))

    def _plan_idle(self, snapshot: Snapshot, decision: Decision, following: NextSession) -> None:
        plan, world = decision.plan, self.world
        if (
            plan.binds
            or plan.preemptions
            or plan.stops
            or plan.job_changes
            or self._begun is not None
        ):
            self._moved_at = world.now
            self._idle_s = self._first_idle_s()
        due = min(next_wakeup(snapshot) or inf, decision.next_limit)
        self._awaits_windows = bool(decision.waiting) and any(
            each.current_window(snapshot.now) is not None for each in snapshot.reservations
        )
        if due < inf:
            self._idle_at = max(world.now, due - world.epoch)
        if not decision.waiting and following.after_s is None:
            return
        idle = world.now + self._idle_s
        if following.after_s is not None:
            idle = world.now + max(
                following.after_s, self.case.config.cycle.debounce_s / QUIET_SHARE
            )
        self._idle_at = idle if self._idle_at is None else min(idle, self._idle_at)
        if following.after_s is None:
            period_s = self.case.config.cycle.max_period_s
            self._idle_s = min(_IDLE_MAX_S, max(period_s, 2 * self._idle_s))

    def _first_idle_s(self) -> float:
        """When a session follows one that did something: the daemon looks again when the pods run that it bound."""
        period_s, case = self.case.config.cycle.max_period_s, self.case
        return period_s if case.step_s else min(period_s, max(case.pace.start_s, _QUIET_S))

    # -- what is noted -----------------------------------------------------------------------
    def _placed(self, gang: GangBind) -> None:
        """A gang got places."""
        if (
            gang.gang == self.case.until_started
            and gang.placed + len(gang.binds) >= gang.min_member
        ):
            self.started_at = self.world.now
        if self.case.placed is not None:
            self.case.placed(self.world.now, gang)
        job = self.world.lives.jobs.get((gang.gang.kind, gang.gang.namespace, gang.gang.name))
        if job is None:
            job = self.world.lives.pods[gang.binds[0].uid].job
        if job.started == self.world.now and not job.levels:
            job.levels = self._levels(job)

    def _levels(self, job: LiveJob) -> tuple[tuple[str, int], ...]:
        snapshot = self.snapshot
        row_of = snapshot.nodes.row
        rows = [row_of[pod.node] for pod in job.live.values() if pod.node in row_of]
        found = []
        for level in self._session_cache.topology_levels(
            snapshot.nodes, snapshot.topologies, snapshot.devices.slices
        ):
            domains = {int(level.domain[row]) for row in rows}
            if rows and min(domains) >= 0:
                found.append((level.name, len(domains)))
        return tuple(found)

    def _record(self) -> RunRecord:
        world, case = self.world, self.case
        seconds = world.now if case.until is None else case.until
        waiting = [job for job in world.lives.jobs.values() if job.started is None]
        nodes = world.lives.node_changes.lives(seconds=seconds)
        pods, jobs = world.lives.pod_lives(), world.lives.job_lives()
        return RunRecord(
            name=case.name,
            ground="simulated",
            seed=case.seed,
            seconds=seconds,
            epoch=case.epoch,
            nodes=nodes,
            pods=pods,
            jobs=jobs,
            queues=world.lives.queue_lives(),
            evictions=tuple(world.lives.evictions),
            kept=self._carry.kept.spans(seconds),
            broken=broken_invariants(nodes, pods, jobs),
            counters={
                "sessions": self.sessions,
                "waiting": len(waiting),
                "rejected": len(world.objects.rejected),
            },
            unfinished=f"a plugin failed: {self._faults[0]}" if self._faults else "",
        )


class StoppedClock:
    """A clock for what times plugins: nothing takes time, so that equal runs are equal."""

    def now(self) -> float:
        """Wall time in seconds, which is always 0."""
        return 0.0

    def monotonic(self) -> float:
        """Monotonic time in seconds, which is always 0."""
        return 0.0

    def boottime(self) -> float:
        """Time since boot in seconds, which is always 0."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Raises: nothing in a simulation waits for real time."""
        raise InvariantBroken(f"a simulation slept for {seconds} s")
