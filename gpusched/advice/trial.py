"""A copy of a cluster on which changes are tried, decided and taken back.

Decisions are the daemon's: the same cache, codecs, plugins and sessions read the changed objects, so
that an answer here is the answer that the daemon would give. Nothing is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

import attrs

from gpusched.actions.allocate import Allocate
from gpusched.actions.backfill import Backfill
from gpusched.advice.played_rounds import (
    PLAYED_S,
    SESSIONS_MAX,
    PlayedRounds,
    PlayedSession,
    TurnAnswer,
    is_refused,
)
from gpusched.advice.start_answer import start_answer, starting_gangs
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.queue.start_errors import StartKnownBy
from gpusched.base.classes import define, frozen
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.expected_pods import is_started_job
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.config.gpu_layouts import load_shipped_layouts
from gpusched.config.model import Config
from gpusched.engine.objects import Obj, SimulatedObjects, key_of, plural_of
from gpusched.engine.simulation import Simulation, SimulationCase
from gpusched.io.watch.informers import KINDS
from gpusched.placement.model.problem import search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.backfill.running.release_order import FOREVER
from gpusched.session.backfill.walltimes import Walltimes
from gpusched.session.decide import Decision, decide
from gpusched.session.framework.plugin import EVICTING_CAPABILITIES, Capability
from gpusched.session.state.order.work_budget import STRICT_FIFO
from gpusched.session.state.policy import Action, Policy, action_capabilities
from gpusched.session.state.session import Session
from gpusched.session.state.session_cache import SessionCache
from gpusched.shards.board import Board

_WORK: Final = 1_000_000_000
"""Units of work of one trial: every gang is looked at, as several sessions of a daemon would do."""
_SHORT_LINE: Final = 64
"""Gangs that wait of which each is looked at for every change; of more, those that could come first."""
SLICES: Final = "resourceslices"
"""Objects of other kinds that are changed, too: devices of nodes."""
_SLICE: Final = "ResourceSlice"
_NO_SPACE: Final = "default"
"""Where objects are entered of whose kind it is not known that it has no namespaces."""
_EVICTING: Final = EVICTING_CAPABILITIES | {Capability.CONSOLIDATION}


@frozen
class ObjectEdit:
    """One object becomes another, comes into being, or goes.

    Attributes:
        plural: name of its kind in the API.
        becomes: its manifest; None removes it.
    """

    plural: str
    key: ObjectKey
    becomes: Obj | None


def edit_to(obj: Obj) -> ObjectEdit:
    """The edit that leaves this manifest."""
    return ObjectEdit(plural_of(obj), key_of(obj), obj)


def edit_away(plural: str, key: ObjectKey) -> ObjectEdit:
    """The edit that removes an object."""
    return ObjectEdit(plural, key, None)


_TAINTS_OF_STATE: Final = "node.kubernetes.io/"
"""With which keys of taints begin that say how a node is now: cordoned, not ready, short of memory."""


def _as_it_lasts(obj: Obj) -> Obj:
    """A queue without its budget, a node as it is when it is well and not cordoned; all else as it is."""
    spec = obj.get("spec") or {}
    if plural_of(obj) == "queues":
        return {**obj, "spec": {name: value for name, value in spec.items() if name != "budget"}}
    if plural_of(obj) != "nodes":
        return obj
    taints = [
        each
        for each in spec.get("taints") or ()
        if not str(each.get("key")).startswith(_TAINTS_OF_STATE)
    ]
    status = {**(obj.get("status") or {}), "conditions": [{"type": "Ready", "status": "True"}]}
    return {**obj, "spec": {**spec, "unschedulable": False, "taints": taints}, "status": status}


@frozen
class _LeftOut:
    """An action that does nothing in this session, and could in the next: room is kept by what it could do.

    Attributes:
        provides: what it does in the sessions of the daemon.
    """

    name: str
    provides: tuple[Capability, ...]

    def run(self, session: Session) -> None:
        """Nothing."""


def _left_out(action: Action) -> Action:
    return cast("Action", _LeftOut(action.name, action_capabilities(action)))


@frozen
class _AllocateUntil(Allocate):
    """Allocation that ends with the turn of one gang: those after it take nothing from it.

    Attributes:
        gang: whose turn is the last one.
    """

    gang: GangKey

    def _turns(self, session: Session, ready: list[Gang]) -> Iterator[tuple[Gang, bool]]:
        for gang, repairs in super()._turns(session, ready):
            yield gang, repairs
            if gang.key == self.gang:
                return

    def _grow(self, session: Session, ready: list[Gang]) -> None:
        """Nothing: extras come after every minimum."""


@frozen
class _QuietBackfill(Backfill):
    """Backfill of which nobody asks when gangs start."""

    def _tell_starts(self, session: Session) -> None:
        """Nothing."""


def _without(policy: Policy, capabilities: Collection[Capability]) -> Policy:
    """The policy without what actions with one of these capabilities do."""
    actions = (
        _left_out(each) if {*capabilities} & {*action_capabilities(each)} else each
        for each in policy.actions
    )
    return attrs.evolve(policy, actions=tuple(actions))


def _without_estimates(policy: Policy) -> Policy:
    """The policy in which the shipped backfill does not work out when gangs start."""
    actions = (_QuietBackfill() if type(each) is Backfill else each for each in policy.actions)
    return attrs.evolve(policy, actions=tuple(actions))


def _ended_with_turn(policy: Policy, gang: GangKey) -> Policy:
    """The policy up to the turn of a gang; all of it where another action than the shipped one gives room."""
    number = next((at for at, each in enumerate(policy.actions) if type(each) is Allocate), None)
    if number is None:
        return policy
    rest = map(_left_out, policy.actions[number + 1 :])
    return attrs.evolve(policy, actions=(*policy.actions[:number], _AllocateUntil(gang), *rest))


@frozen
class DecidedLine:
    """Gangs that wait.

    Attributes:
        decision: a session with all of them.
        is_whole: whether they are so few that each is looked at for every change.
    """

    decision: Decision
    is_whole: bool


@define
class SessionTally:
    """Sessions that may still be held.

    Attributes:
        left: how many.
    """

    left: int


class TrialCluster:
    """A cluster in memory that can be changed and changed back.

    Args:
        objects: manifests, in an order in which they can be applied.
        config: of the daemon whose decisions are wanted.
        now: the moment of the trial, seconds since the Unix epoch.
        clock: times plugins, no decision depends on it.
        board: of the daemons of shards; None where there is none, or nobody may read it.

    Raises:
        ConfigError: the configuration names a plugin or action that is not installed.
    """

    def __init__(
        self,
        objects: Iterable[Obj],
        config: Config,
        *,
        now: float,
        clock: Clock,
        board: Board | None = None,
    ) -> None:
        self.config = config
        self.board = board
        self.now = now
        self.cache = Cache(config.scheduler_names)
        self.cache.rows.use_catalogue(config.layouts or load_shipped_layouts())
        self.cache.use_limits(attrs.evolve(config.limits, session_work=_WORK))
        self.cache.use_priority_rules(config)
        self.objects = SimulatedObjects((self.cache,), epoch=now)
        self._clock = clock
        self._policy = load_policy(config)
        self._gentle = _without(self._policy, _EVICTING)
        self._guard = PluginGuard(clock)
        self._caches: dict[tuple[bool, bool], SessionCache] = {}
        """Of sessions with and without evictions, and with all gangs or with some."""
        self._line: list[DecidedLine | None] = [None]
        """All gangs that wait, for each change that stands; decided when it is asked for."""
        self._rounds: PlayedRounds | None = None
        self._of_rounds = SessionCache()
        self.standing: tuple[ObjectEdit, ...] = ()
        """Changes that were made and not taken back."""
        self.decisions = 0
        """Sessions that were run so far."""
        for obj in objects:
            self.objects.create(obj, now=0.0)

    def emptied(self, pods: Collection[ObjectKey]) -> TrialCluster:
        """Another one of the same nodes and queues, in which there are only some pods, and none has a place.

        What passes with time is left out: windows of Reservations, budgets of queues, cordons and health of nodes.
        """
        objects = (
            _as_it_lasts(obj)
            for obj in self._in_order()
            if plural_of(obj) != "reservations"
            and (plural_of(obj) != "pods" or key_of(obj) in pods)
        )
        return TrialCluster(objects, self.config, now=self.now, clock=self._clock)

    def take_snapshot(self) -> Snapshot:
        """The cluster as it is now, with every change that was tried and not taken back."""
        return self.cache.take_snapshot(self.now)

    def gang(self, key: GangKey) -> Gang | None:
        """A gang that waits or runs; None where there is none of that name."""
        return next((each for each in self.take_snapshot().gangs if each.key == key), None)

    @contextmanager
    def opened_session(self) -> Iterator[Session]:
        """A session on the cluster as it is now, in which nothing was decided, for as long as the context lasts."""
        self._guard.begin_session()
        session = Session(
            self.take_snapshot(), self._policy.plugins, self._policy.capabilities, guard=self._guard,
            session_cache=SessionCache(), placement=self.config.placement,
        )  # fmt: skip
        try:
            yield session
        finally:
            session.dissolve()

    def learned_lengths(self) -> dict[GangKey, int]:
        """Seconds that gangs run which announce nothing, as runs of others or a policy tell it."""
        with self.opened_session() as session:
            walltimes, found = Walltimes(session), {}
            for gang in (*session.snapshot.placed_gangs.values(), *session.snapshot.gangs):
                is_learned = walltimes.source_of(gang) is StartKnownBy.LEARNED
                if is_learned and walltimes.end_if_started_now(gang) < FOREVER:
                    found[gang.key] = walltimes.seconds_of(gang)
        return found

    @contextmanager
    def changed(self, edits: Sequence[ObjectEdit]) -> Iterator[None]:
        """The cluster with changes, for as long as the context lasts."""
        undo: list[ObjectEdit] = []
        self._line.append(None)
        before = self.standing
        self.standing = (*before, *edits)
        try:
            for edit in edits:
                undo.append(ObjectEdit(edit.plural, edit.key, self._manifest(edit)))
                self._apply(edit)
            yield
        finally:
            for edit in reversed(undo):
                self._apply(edit)
            self._line.pop()
            self.standing = before

    def waiting_line(self) -> DecidedLine:
        """All gangs that wait, decided once for the cluster as it is now."""
        known = self._line[-1]
        if known is None:
            waiting = sum(bool(each.pod_sets) for each in self.take_snapshot().gangs)
            known = self._line[-1] = DecidedLine(self.decide(), is_whole=waiting <= _SHORT_LINE)
        return known

    def decide(
        self,
        *,
        among: Collection[GangKey] | None = None,
        evict: bool = True,
        until: GangKey | None = None,
        brief: bool = False,
    ) -> Decision:
        """One session of the daemon on the cluster as it is now.

        Args:
            among: only these gangs wait, all others that wait are left out; None for all.
            evict: whether gangs may be evicted for others.
            until: the gang with whose turn the session ends: it gets free room there, or none.
            brief: whether it is left out when gangs that wait are to start.
        """
        snapshot = self.take_snapshot()
        if among is not None:
            some = tuple(each for each in snapshot.gangs if each.key in among)
            snapshot = attrs.evolve(snapshot, gangs=some)
        cache = self._caches.setdefault((evict, among is None), SessionCache())
        policy = self._policy if evict else self._gentle
        if brief:
            policy = _without_estimates(policy)
        if until is not None:
            policy = _ended_with_turn(policy, until)
        return self._decide_on(snapshot, policy, cache)

    def has_turn(self, gang: GangKey, edits: Sequence[ObjectEdit]) -> bool:
        """Whether a gang is looked at soon after a change: in a strict line that is longer than a session only the first are."""
        with self.changed(edits):
            changed, snapshot = self.gang(gang), self.take_snapshot()
        if changed is None or PlayedSession(snapshot).ordering_of(changed) != STRICT_FIFO:
            return True
        return next(self._unchanged_rounds().sessions(STRICT_FIFO)).has_turn(changed, STRICT_FIFO)

    def turn_answer(
        self, gang: GangKey, edits: Sequence[ObjectEdit], *, evict: bool = False
    ) -> TurnAnswer:
        """Whether a gang starts when its turn comes, where the daemon's sessions look at parts of the line.

        Args:
            gang: that waits.
            edits: of its own demands, by which nothing is different for others, or of how its queue is ordered.
            evict: whether it may have others evicted then: room that others take is not all that there is.
        """
        rounds = self._unchanged_rounds()
        with self.changed(edits):
            changed, snapshot = self.gang(gang), self.take_snapshot()
        assert changed is not None, "edits of its demands leave the gang"
        ordering = PlayedSession(snapshot).ordering_of(changed)
        served: frozenset[GangKey] = frozenset()
        for played in rounds.sessions(ordering):
            if gang in played.served and not evict:
                return TurnAnswer(starts=True)
            in_turn, decision = played.has_turn(changed, ordering), None
            looks = [False] if served and not evict else []
            if in_turn and ordering == played.ordering_of(changed):
                looks.append(True)  # in another ordering it is not known who is looked at
            for with_others in looks:
                decision = self._decide_at(played, changed, in_turn=with_others, evict=evict)
                answer = start_answer(decision, gang)
                if not answer.starts:
                    takers = served | (played.served if with_others else frozenset())
                    return TurnAnswer(False, tuple(sorted(takers)), answer.message)
            if in_turn:
                return TurnAnswer(starts=True, decision=decision)
            served |= played.served
        return TurnAnswer(starts=None)

    def _unchanged_rounds(self) -> PlayedRounds:
        assert not self.standing, "rounds are those of the unchanged cluster"
        if self._rounds is None:
            policy = _without_estimates(self._policy)
            self._rounds = PlayedRounds(self._in_order(), self.config, policy, now=self.now)
        return self._rounds

    def _decide_at(
        self, played: PlayedSession, gang: Gang, *, in_turn: bool, evict: bool = False
    ) -> Decision:
        """A session at the moment of one that was played.

        Args:
            played: that one.
            gang: as it would wait then.
            in_turn: whether it is looked at then, with the others; else beside Jobs whose room is theirs.
            evict: whether gangs may be evicted for others; else it ends with the gang's turn.
        """
        visited = played.visited if in_turn else frozenset()
        there = [
            each
            for each in played.snapshot.gangs
            if each.key != gang.key and (is_started_job(each) or each.key in visited)
        ]
        some = tuple(sorted((*there, gang), key=lambda each: each.key))
        policy = _without_estimates(self._policy if evict else self._gentle)
        snapshot = attrs.evolve(played.snapshot, gangs=some, tenant_rounds=())
        return self._decide_on(
            snapshot, policy if evict else _ended_with_turn(policy, gang.key), self._of_rounds
        )

    def _decide_on(self, snapshot: Snapshot, policy: Policy, cache: SessionCache) -> Decision:
        self.decisions += 1
        self._guard.begin_session()
        return decide(
            snapshot,
            policy,
            guard=self._guard,
            session_cache=cache,
            placement=self.config.placement,
            search=search_in_process,
        )

    def starts_when_played(
        self,
        gang: GangKey,
        *,
        among: Collection[GangKey] | None = None,
        tally: SessionTally | None = None,
    ) -> bool:
        """Whether a gang gets its minimum in a simulation of the cluster as it is now, within minutes.

        What a session decides may take several: evicted pods end, the pods of a Job are made, and others
        may be served in between.

        Args:
            gang: that waits.
            among: only these gangs wait, all others that wait are left out; None for all.
            tally: sessions that may be held, from which those that were held are taken; then it ends
                as well where the gang is refused, or has no room any more before its turn, unless it
                is a Job whose pods come later.
        """
        refused = is_started = False

        def note_refusal(decision: Decision) -> None:
            nonlocal refused, is_started
            is_started |= gang in starting_gangs(decision)
            refused = not is_started and (
                any(status.gang == gang and is_refused(status) for status in decision.plan.gangs)
                or not self._has_room_left(gang, simulation)
            )

        case = SimulationCase(
            name="played",
            config=self.config,
            policy=_without_estimates(self._policy),
            objects=list(self._in_order() if among is None else self._in_line(among)),
            until=PLAYED_S,
            epoch=self.now,
            until_started=gang,
            sessions_max=SESSIONS_MAX if tally is None else tally.left,
            decided=None if tally is None else note_refusal,
            enough=None if tally is None else lambda _sessions: refused,
        )
        simulation = Simulation(case)
        jobs = simulation.run().jobs
        if tally is not None:
            tally.left -= simulation.sessions
        # Pods of a Job that need not start together are gangs of their own.
        name = f"{gang.namespace}/{gang.name}"
        return simulation.started_at is not None or any(
            job.started is not None
            for job in jobs
            if gang.kind == "Job" == job.kind and job.key == name
        )

    def _has_room_left(self, gang: GangKey, simulation: Simulation) -> bool:
        """Whether the gang would start in the running session if only Jobs were before it whose room is theirs."""
        played = PlayedSession(simulation.snapshot)
        waiting = next((each for each in played.snapshot.gangs if each.key == gang), None)
        if waiting is None or not simulation.sessions:
            return True
        decision = self._decide_at(played, waiting, in_turn=False)
        return start_answer(decision, gang).starts

    def _in_line(self, among: Collection[GangKey]) -> Iterator[Obj]:
        """Everything but gangs that wait, and are none of these."""
        out = {
            (plural, key)
            for each in self.take_snapshot().gangs
            if each.pod_sets and each.missing_members and each.key not in among
            for plural, key in (
                *(("pods", pod.key) for pod_set in each.pod_sets for pod in pod_set.pods),
                (f"{each.key.kind.lower()}s", ObjectKey(each.key.namespace, each.key.name)),
            )
        }
        return (obj for obj in self._in_order() if (plural_of(obj), key_of(obj)) not in out)

    def _in_order(self) -> Iterator[Obj]:
        """Everything that there is, of other projects' kinds too; pods last."""
        for plural in KINDS:
            if plural != "pods":
                yield from self.objects.all(plural)
        yield from self.objects.others()
        yield from self.objects.all("pods")

    def _manifest(self, edit: ObjectEdit) -> Obj | None:
        if edit.plural == SLICES:
            return self.objects.other(_SLICE, _NO_SPACE, edit.key.name)
        return self.objects.get(edit.plural, edit.key)

    def _apply(self, edit: ObjectEdit) -> None:
        if edit.plural == SLICES:
            self.objects.remove_other(_SLICE, ObjectKey(_NO_SPACE, edit.key.name))
            if edit.becomes is not None:
                self.objects.create(edit.becomes, now=0.0)
        elif edit.becomes is None:
            self.objects.remove(edit.plural, edit.key)
        elif self.objects.get(edit.plural, edit.key) is None:
            self.objects.create(edit.becomes, now=0.0)
        else:
            self.objects.write(edit.becomes)
