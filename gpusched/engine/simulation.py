"""A discrete-event simulation of a cluster under the daemon's own decisions: no server, no daemon.

    record = play(Case(name="now", config=config, objects=cluster, arrivals=jobs))

Cache, sessions, plugins and codecs are the daemon's. What an API server, controllers and kubelets
would do is done by ``schedulers.plan_execution``, ``controllers`` and ``pods``: every write is accepted
at once, and pods start a constant time after their binding. With shards there is a scheduler for each. Equal cases give equal records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config
from gpusched.engine.controllers import SimulatedControllers
from gpusched.engine.job_records import LiveJob
from gpusched.engine.objects import Obj
from gpusched.engine.run_record import (
    REJECTED_TOLD,
    BrokenInvariant,
    JobLife,
    LifeEnd,
    NodeLife,
    PodLife,
    RunRecord,
)
from gpusched.engine.schedulers.board_exchange import BoardExchange
from gpusched.engine.schedulers.plan_execution import PlanExecutor
from gpusched.engine.schedulers.scheduler import SimulatedScheduler
from gpusched.engine.timed_changes import ChangeExecutor, TimedChange
from gpusched.engine.world import SimulatedDelays, SimulatedWorld
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import Decision
from gpusched.session.state.plan import GangBind, Plan
from gpusched.session.state.policy import Policy
from gpusched.shards.board import Board
from gpusched.shards.part import ShardPart

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


_HOPELESS_S: Final = 3600.0
"""When nothing else is to come, gangs that wait get so long; then the run is over."""
_WINDOWS_AWAITED_S: Final = 7 * 86_400.0
"""The same where Reservations keep nodes: a gang may wait for the end of a window."""
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
        decided: called with the decision of each session, before its plan is carried out; in shards with the plan as
            the daemon of the shard tells it.
        enough: asked after each session with the number of sessions so far; the run ends when it says so.
        plays_shards: whether each shard of the configuration has a daemon of its own; else one decides about all nodes.
        board: of the daemons whose cluster it is, with the shards of gangs and of nodes that are lent; None where it is
            not known.
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
    plays_shards: bool = False
    board: Board | None = None


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
        self.case = case
        config, shards = case.config, case.config.shards if case.plays_shards else ()
        self._schedulers = [
            SimulatedScheduler(
                config,
                case.policy or load_policy(config),
                step_s=case.step_s,
                start_s=case.pace.start_s,
                tells_starts=tells_starts,
                in_shards=bool(shards),
            )
            for _ in shards or ("",)
        ]
        caches = [each.cache for each in self._schedulers]
        self.cache = caches[0]
        """Of the daemon, or of that of the first shard."""
        self.world = SimulatedWorld(caches, epoch=case.epoch, pace=case.pace)
        self._owners = SimulatedControllers(self.world)
        self._carry = PlanExecutor(
            self.world,
            self._owners,
            placed=self._placed,
            nomination_timeout_s=config.limits.nomination_timeout_s,
        )
        self._exchange: BoardExchange | None = None
        if shards:
            self._exchange = BoardExchange(
                config, self._schedulers, self.world.agenda, lambda: self.world.now,
                epoch=case.epoch, known=case.board,
            )  # fmt: skip
        self.sessions = 0
        self.sessions_that_act = 0
        """Those after which something was to be done."""
        self.started_at: float | None = None
        """When the gang of ``until_started`` had its minimum, seconds since the beginning."""
        self._deciding = self._schedulers[0]
        """The one whose session runs, or was run last."""
        self._due: SimulatedScheduler | None = None
        """The one that holds a session next, where nothing happens before."""
        self._moved_at = 0.0
        """When anything but an idle session happened last."""
        for each in self._schedulers:
            each.cache.on_change.append(partial(self._changed, each))

    @property
    def snapshot(self) -> Snapshot:
        """What the session is decided on that runs, or was run last."""
        return self._deciding.snapshot

    @property
    def board(self) -> Board | None:
        """The board of the daemons that are played, as it is now; None without shards."""
        return self._exchange.board if self._exchange is not None else None

    # -- time --------------------------------------------------------------------------------
    def run(self) -> RunRecord:
        """Play the case to its end; see ``play``."""
        self.begin()
        self.go_on()
        return self._record()

    def begin(self) -> None:
        """Let there be what there is from the beginning."""
        self._owners.begin(self.case.objects)
        if self._exchange is not None:
            self._exchange.follow_places()
        nodes = (self.cache.rows.find_any(key.name) for key in self.world.objects.keys("nodes"))
        self.world.lives.node_changes.begin([node for node in nodes if node is not None])
        ChangeExecutor(self.world, self._owners).schedule_changes(self.case.changes)
        self._take(iter(self.case.arrivals))

    def go_on(self) -> None:
        """Play until a session after which it is enough, or to the end."""
        world, until = self.world, self.case.until
        while (at := self._next()) is not None:
            if until is not None and at > until:
                break
            world.now = at
            if self._due is not None:
                self._session(self._due)
                if self._is_enough():
                    return
                continue
            act, is_news = world.agenda.pop()
            act()
            if is_news:
                self._moved_at = at

    def _is_enough(self) -> bool:
        """Whether the case ends with the session that was just run."""
        case = self.case
        if self.started_at is not None or self.sessions == case.sessions_max:
            return True
        return case.enough is not None and case.enough(self.sessions)

    def _next(self) -> float | None:
        """When something happens next, and whose session that is, if any; None at the end of the run."""
        agenda = self.world.agenda
        at, self._due = agenda.next(), None
        for each in self._schedulers:
            session = each.session_at()
            if session is not None and (at is None or session < at):
                at, self._due = session, each
        if at is None or agenda.busy or any(each.begun is not None for each in self._schedulers):
            return at
        waits = any(each.idle_at is not None for each in self._schedulers)
        awaits_windows = any(each.awaits_windows for each in self._schedulers)
        patience_s = _WINDOWS_AWAITED_S if awaits_windows else _HOPELESS_S
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

    def _changed(self, scheduler: SimulatedScheduler) -> None:
        world = self.world
        no_interest = world.muted or (world.ending and not scheduler.follows_ends)
        scheduler.note_change(world.now, decides=not no_interest)

    # -- sessions ----------------------------------------------------------------------------
    def _session(self, scheduler: SimulatedScheduler) -> None:
        world, self._deciding = self.world, scheduler
        moved = scheduler.hold_session(
            world.now, partial(self._carry_out, scheduler), epoch=world.epoch
        )
        if moved:
            self._moved_at = world.now
            self.sessions_that_act += 1
        if self.case.told is not None and self.sessions % _TOLD_EVERY == 0:
            self.case.told(world.now, len(world.lives.jobs))

    def _carry_out(self, scheduler: SimulatedScheduler, decision: Decision) -> Plan:
        """What of a plan is carried out, after it was."""
        cache, plan, part = scheduler.cache, decision.plan, scheduler.cache.part
        if isinstance(part, ShardPart):
            plan = part.without_needless_claims(scheduler.snapshot, plan)
        self.sessions += 1
        tell = self.case.decided
        if tell is not None and not isinstance(part, ShardPart):
            tell(decision)
        self._carry.start(plan, cache, scheduler.snapshot.queues.path)
        if isinstance(part, ShardPart):
            plan = part.tell_shards(plan)
            if tell is not None:
                tell(attrs.evolve(decision, plan=plan))
        self._carry.carry_out(plan, cache)
        if self._exchange is not None and isinstance(part, ShardPart):
            self._exchange.note_session(part, scheduler.snapshot, plan, decision)
        return plan

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
        for level in self._deciding.session_cache.topology_levels(
            snapshot.nodes, snapshot.topologies, snapshot.devices.slices
        ):
            domains = {int(level.domain[row]) for row in rows}
            if rows and min(domains) >= 0:
                found.append((level.name, len(domains)))
        return tuple(found)

    def _record(self) -> RunRecord:
        world, case = self.world, self.case
        faults = [fault for each in self._schedulers for fault in each.faults]
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
            unfinished=f"a plugin failed: {faults[0]}" if faults else "",
            rejected=tuple(each.message for each in world.objects.rejected[:REJECTED_TOLD]),
            step_s=case.step_s,
        )
