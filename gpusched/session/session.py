"""One cycle's workbench: policies advise, actions try moves, kept moves become a plan.

A session reads one snapshot and nothing else: no clock, no randomness, no API. The same
snapshot and policy give the same plan, whatever the order in which objects arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from gpusched.arrays.columns import demand_of
from gpusched.arrays.workbench import Workbench
from gpusched.cache.gangs import Gang, Placed
from gpusched.cache.queues import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.cache.unborn import living
from gpusched.config.model import Placement
from gpusched.errors import PluginFault
from gpusched.limits import PLAN_BINDS_MAX, RELATED_SESSION_STEPS_MAX
from gpusched.objects.meta import UID, GangKey
from gpusched.objects.pod import Pod, PodClass
from gpusched.placement.problem import Search, search_here
from gpusched.session.accounts import Accounts
from gpusched.session.cluster_map import ClusterMap
from gpusched.session.hooks import Hooks
from gpusched.session.level_names import with_level_names
from gpusched.session.masks import MaskCache
from gpusched.session.moved import held_places
from gpusched.session.node_pools import pools_of
from gpusched.session.plan import Ask
from gpusched.session.portion import Portion
from gpusched.session.promised_again import again
from gpusched.session.promises import ClaimDraft, MoveDraft, standing
from gpusched.session.protocols import Guard, Policy
from gpusched.session.reasons import Reason
from gpusched.session.refused import REFUSED_LATELY
from gpusched.session.residents import Neighbours
from gpusched.session.searches import Record, effort
from gpusched.session.seats import ClassSeat, Seats
from gpusched.session.sitting import sitting
from gpusched.session.statement import Place, Statement
from gpusched.session.turn_keys import TurnKeys
from gpusched.session.variant import Variant
from gpusched.session.verdict import ALLOW, Verdict, error
from gpusched.session.view import View
from gpusched.session.work import Work, tenant_of
from gpusched.topology.domain import Level

if TYPE_CHECKING:  # it works with sessions
    from gpusched.session.reservations import Reservations


class Session:
    """What actions work with.

    Args:
        snapshot: of this moment.
        policy: actions and plugins in order.
        guard: contains the plugins.
        masks: filter results kept from earlier sessions of the same policy.
        placement: how long and how to search where one pass does not find a place.
        search: runs what may take long or crash, here or in the solver's process.
        hand: told of each gang as it is taken in hand, for whoever remembers what a process died of.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        guard: Guard,
        masks: MaskCache,
        placement: Placement,
        search: Search = search_here,
        hand: Callable[[GangKey], None] = lambda _gang: None,
    ) -> None:
        self.snapshot = snapshot
        self.placement = placement
        self.search = search
        self.hand = hand
        """Runs what may take long or crash."""
        self.effort = effort(placement)
        """How hard to try for one problem."""
        self.searches: list[Record] = []
        """What was searched for and how it ended, for metrics."""
        self.bench = Workbench(snapshot.nodes)
        self.bench.population = snapshot.population
        self.accounts = Accounts(snapshot.queues, pools_of(snapshot, masks.pools))
        watch = self.accounts if self.accounts.pools is not None else None
        self.neighbours = Neighbours(self.bench, snapshot.residents, masks.columns, watch)
        """Who sits where; statements tell it their moves."""
        self.hooks = Hooks(guard)
        self.hooks.pairs.rows = len(snapshot.nodes)
        self.view = View(
            snapshot, self.accounts, self.neighbours, self.hooks.fair_shares, self.hooks.usages
        )
        self.admitted: set[GangKey] = set()
        self.asks: dict[GangKey, Ask] = {}
        self.admission: dict[GangKey, Ask] = {}
        self.served: dict[str, int] = {}
        self.enqueue_ran = False
        self.closed = ""
        """Why nothing may be placed in this session: a policy that could not open is missing."""
        self._kept: dict[GangKey, list[Place]] = {}
        self._gangs: dict[GangKey, Gang] = {
            gang.key: with_level_names(
                living(gang, snapshot.now),
                lambda: masks.levels(snapshot.nodes, snapshot.topologies),
            )
            for gang in snapshot.gangs
        }
        self.variants: dict[GangKey, Variant] = {}
        """The node pool with which a suspended Job is to be started, see ``session.jobs``."""
        self.masks = masks
        self.related_steps = RELATED_SESSION_STEPS_MAX
        """Places that searches for gangs with rules between pods may still try."""
        self.seats = Seats(self.bench, self.neighbours, self.hooks, masks)
        self.view.ask_filters(self.seats.accepting)
        self._binds = 0
        self.promises: dict[GangKey, tuple[Place, ...]] = {}
        """Room held for gangs, by earlier sessions and by this one."""
        self.proofs: dict[GangKey, str] = {}
        """How good the places are that gangs were given, see ``session.proven``."""
        self.claims: dict[GangKey, ClaimDraft] = {}
        """Promises made in this session, with who leaves for them."""
        self.given_back: list[Gang] = []
        """Jobs that were started and got no place: they are suspended again."""
        self.stops: dict[GangKey, ClaimDraft] = {}
        """Gangs that are stopped for their own sake; nothing is promised to anybody."""
        self.turn_keys = TurnKeys(self.hooks, self.accounts, masks.kinds)
        self.evicted: set[UID] = set()
        """Members that leave by what was kept in this session."""
        self.victims: object = None
        """Who could leave: kept between the actions that evict, see ``session.victims``."""
        self.actions = frozenset(action.name for action in policy.actions)
        """What this session does, by name."""
        self.reservations: Reservations | None = None
        """Room kept for gangs that are blocked now; made by the action that places gangs."""
        self.positions: dict[GangKey, int] = {}
        """Place of each waiting gang in its queue, from 1."""
        self.estimates: dict[GangKey, float] = {}
        """When waiting gangs are expected to start, seconds since the epoch."""
        self._open(policy)
        self._hold_standing()

    def _hold_standing(self) -> None:
        self.moved: dict[GangKey, tuple[Place, ...]] = {}
        """Room held for members of gangs that were moved, until they are made again and placed."""
        for key, places in sorted(standing(self.snapshot).items()):
            self._hold(self._gangs[key], places)
        for key, move in self.snapshot.moves:
            gang = self._gangs.get(key) or self.snapshot.active.get(key)
            if gang is not None:
                promised = len(self.promises.get(key, ()))
                places = held_places(self.snapshot, gang, move, promised)
                self.moved[key] = tuple(again(self, place) for place in places)
                self._take(gang, self.moved[key])

    def _open(self, policy: Policy) -> None:
        self.hooks.filters.append(REFUSED_LATELY)
        for plugin in policy.plugins:
            self.hooks.plugin = plugin.name
            opened = self.hooks.guard.wrap(plugin.name, "open", plugin.open, self._not_opened)
            opened(self.hooks, self.view)

    def _not_opened(self, fault: PluginFault, _hooks: Hooks, _view: View) -> None:
        self.hooks.faults.append(str(fault))
        self.closed = f"{fault}; nothing is placed until it works or is removed"

    _last_ask: Ask | None = None

    @cached_property
    def doors(self) -> dict[tuple[str, str, bool], Verdict]:
        """What queues say of gangs, by queue and namespace, and whether these are repaired."""
        return {}

    # -- reading ---------------------------------------------------------------------------
    @cached_property
    def every_gang(self) -> tuple[Gang, ...]:
        """Those that this session does not look at included; sorted by key."""
        return tuple(self._gangs.values())

    @cached_property
    def portion(self) -> Portion:
        """Which gangs this session looks at, worked out when its policies are open."""
        return Portion(self)

    @property
    def work(self) -> Work:
        """What each tenant has used of this session."""
        return self.portion.work

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        """Those that this session looks at, sorted by key."""
        left_out = self.portion.left_out
        if not left_out:
            return self.every_gang
        return tuple(gang for gang in self.every_gang if gang.key not in left_out)

    def may_look(self, gang: Gang) -> bool:
        """Whether the gang's tenant may use more of this session; else the next one goes on."""
        if self.work.may(tenant_of(self, gang)):
            return True
        self.portion.put_off(gang)
        return False

    @property
    def levels(self) -> tuple[Level, ...]:
        """Topology levels, widest first."""
        return self.masks.levels(self.snapshot.nodes, self.snapshot.topologies)

    @cached_property
    def map(self) -> ClusterMap:
        """Levels and slots as problems of placement see them."""
        return ClusterMap(self.bench, self.levels, self.hooks.topology.spares)

    @cached_property
    def sitting(self) -> Mapping[int, Mapping[GangKey, Sequence[PodClass]]]:
        """By row and gang the classes of its members there, as the snapshot has them."""
        return sitting(self.snapshot)

    @property
    def full(self) -> bool:
        """Whether the plan holds as many binds as one plan may."""
        return self._binds >= PLAN_BINDS_MAX

    def queue_of(self, gang: Gang) -> QueueNode | None:
        """The gang's queue, None when it does not exist."""
        return self.snapshot.queues.get(gang.queue)

    def kept(self, gang: Gang) -> list[Place]:
        """Places given to the gang in this session."""
        return self._kept.get(gang.key, []) if self._kept else []

    @property
    def started(self) -> Iterator[tuple[Gang, Sequence[Place]]]:
        """Gangs that were given places in this session, sorted by key, with these places."""
        for key, places in sorted(self._kept.items()):
            yield self._gangs[key], places

    def seat(self, pod_class: PodClass) -> ClassSeat:
        """The class on this session's nodes, up to date, whatever rules between pods say."""
        return self.seats.of_class(pod_class)

    def seat_of(self, pod: Pod) -> ClassSeat:
        """The seat of one pod, up to date, with the rules between pods that concern it."""
        return self.seats.of_pod(pod)

    def admit(self, gang: Gang, verdict: Verdict) -> None:
        """Enter the answer on admission; a refused gang is told the same on both conditions."""
        if gang.key in self.stops:
            return
        if self.closed:
            verdict = error(Reason.BACK_OFF, self.closed)
        if verdict is not ALLOW and verdict.refuses:
            self.admission[gang.key] = Ask(reason=verdict.reason, sentence=verdict.sentence)
            self.refuse(gang, verdict.reason, verdict.sentence)
        else:
            self.admitted.add(gang.key)

    def given_places(self) -> Iterator[tuple[Gang, Sequence[Place]]]:
        """Places given in this session and promised in any, by gang, sorted."""
        for key in sorted({*self._kept, *self.promises}):
            places = [*self._kept.get(key, ()), *self.promises.get(key, ())]
            if places:
                yield self._gangs[key], places

    # -- moving ----------------------------------------------------------------------------
    def statement(self) -> Statement:
        """An empty batch of moves."""
        return Statement(self.bench, self.accounts, self.neighbours)

    @contextmanager
    def looking_later(self) -> Iterator[None]:
        """Inside, room of those who leave is free and promised room is taken: places are promises.

        Victims evicted by a statement inside count as leaving at once.
        """
        self._look(later=True)
        try:
            yield
        finally:
            self._look(later=False)

    def _look(self, *, later: bool) -> None:
        self.bench.look(later=later)
        self.accounts.looks_later = later

    def path(self, gang: Gang) -> tuple[str, ...]:
        """Names of the gang's queue and those above it; empty when it does not exist."""
        queue = self.queue_of(gang)
        return queue.path if queue else ()

    def evict(self, statement: Statement, gang: Gang, member: Placed) -> None:
        """A member is to leave. Its node must exist."""
        row = self.snapshot.nodes.row[member.node]
        ask = demand_of(member.pod.pod_class, self.snapshot.nodes.columns)
        statement.evict(gang, member, row, ask, path=self.path(gang))

    def lift(self, statement: Statement, gang: Gang) -> None:
        """Take back what is promised to the gang, so that it may use the room itself."""
        for place in (*self.promises.get(gang.key, ()), *self.moved.get(gang.key, ())):
            statement.lift(place, path=self.path(gang), lasting=not gang.terms.preemptible)

    def keep(self, gang: Gang, statement: Statement) -> None:
        """The statement's moves belong to the plan; queues are charged up the tree."""
        lifted = statement.lifted
        places = statement.keep()
        if lifted:
            self.promises.pop(gang.key, None)
            self.moved.pop(gang.key, None)
        if not places:
            return
        self._kept.setdefault(gang.key, []).extend(places)
        if statement.proof:
            self.proofs[gang.key] = statement.proof
        self._binds += len(places)
        counts: dict[str, tuple[PodClass, int]] = {}
        for place in places:
            digest = place.pod.pod_class.digest
            known = counts.get(digest)
            counts[digest] = (place.pod.pod_class, known[1] + 1 if known else 1)
        for pod_class, count in counts.values():
            self.accounts.place(self.path(gang), pod_class.requests, times=count)
        self._fix(gang, places)
        if self.reservations is not None and not lifted:
            self.reservations.started(gang, places)

    def move(self, gang: Gang, places: Sequence[Place]) -> None:
        """Its places of this session are these instead; only ``session.moves`` does that."""
        self._kept[gang.key] = list(places)

    def claim(
        self, gang: Gang, statement: Statement, *, action: str, reason: str, sentence: str,
        moves: tuple[MoveDraft, ...] = (),
    ) -> None:  # fmt: skip
        """The statement's places are promised, and its victims leave for them.

        Args:
            gang: for whom room is made or waited for.
            statement: made while looking later; with at least one place.
            action: who decides: ``preempt``, ``reclaim``, ``allocate``.
            reason: of the evictions, one of the contract's.
            sentence: what victims are told; it names the gang and the numbers.
            moves: victims that have other places, which the session holds for them.
        """
        evictions = statement.evictions
        lifted, places = statement.lifted, statement.keep()
        if lifted:
            self.moved.pop(gang.key, None)
        draft = ClaimDraft(gang, places, evictions, action, reason, sentence, moves)
        self.claims[gang.key] = draft
        self.evicted.update(each.member.pod.uid for each in evictions)
        self.promises[gang.key] = places
        for place in places:
            self.accounts.promise(self.path(gang), place.pod.pod_class.requests)
        self._fix(gang, places)
        if self.reservations is not None:
            self.reservations.started(gang, places)

    def stop(
        self, gang: Gang, statement: Statement, *, action: str, reason: str, sentence: str
    ) -> None:
        """The statement's victims, members of this gang, leave for its own sake."""
        evictions = statement.evictions
        statement.keep()
        self.stops[gang.key] = ClaimDraft(gang, (), evictions, action, reason, sentence)
        self.evicted.update(each.member.pod.uid for each in evictions)

    def hold(self, gang: Gang, statement: Statement) -> None:
        """The statement's places, made while looking later, stay free for the gang this session."""
        places = statement.keep()
        self.promises[gang.key] = places
        for place in places:
            self.accounts.promise(self.path(gang), place.pod.pod_class.requests)
        self._fix(gang, places)

    def withdraw(self, gang: Gang) -> None:
        """What is promised to the gang is given up."""
        statement = self.statement()
        self.lift(statement, gang)
        self.keep(gang, statement)

    def _hold(self, gang: Gang, places: Sequence[Place]) -> None:
        self.promises[gang.key] = tuple(again(self, place) for place in places)
        self._take(gang, self.promises[gang.key])

    def _take(self, gang: Gang, places: Sequence[Place]) -> None:
        for place in places:
            self.neighbours.promise(place.pod, place.row)
            self.accounts.promise(self.path(gang), place.pod.pod_class.requests)
        self._fix(gang, places)

    def _fix(self, gang: Gang, places: Sequence[Place], *, times: int = 1) -> None:
        """What a gang that is not preemptible gets cannot be taken back."""
        if not gang.terms.preemptible:
            for place in places:
                self.accounts.fix(self.path(gang), place.pod.pod_class.requests, times=times)

    def refuse(self, gang: Gang, reason: str, sentence: str) -> None:
        """The gang does not start in this session, and this is why."""
        last = self._last_ask
        if last is None or last.sentence != sentence or last.reason != reason:
            last = self._last_ask = Ask(reason=reason, sentence=sentence)
        self.asks[gang.key] = last
