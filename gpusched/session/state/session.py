"""One cycle's workbench: policies advise, actions try moves, kept moves become a plan.

A session reads one snapshot and nothing else: no clock, no randomness, no API. The same
snapshot and policy give the same plan, whatever the order in which objects arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import pod_class_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.errors import PluginFault
from gpusched.base.limits import PLAN_BINDS_MAX, POD_RULES_SESSION_STEPS_MAX
from gpusched.cache.gangs.expected_pods import without_overdue_pods
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import PlacementConfig
from gpusched.placement.model.problem import SearchRunner, search_in_process
from gpusched.session.framework.guard import Guard
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.node_pools import make_node_pool_accounts
from gpusched.session.framework.plugin import Plugin
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.framework.queue_accounts import QueueAccounts
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import ALLOW, Verdict, error
from gpusched.session.framework.view import View
from gpusched.session.state.nodes.class_info import REFUSED_LATELY, PodClassInfo, PodClassInfos
from gpusched.session.state.nodes.cluster_map import ClusterMap
from gpusched.session.state.nominations import (
    MovedGangDraft,
    PreemptionDraft,
    assignments_held_for_move,
    read_nominations,
    restore_nomination,
)
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.session.state.order.work_budget import GangSelection, WorkBudget, tenant_of_gang
from gpusched.session.state.plan import PendingReason
from gpusched.session.state.reservation_tracker import ReservationTracker
from gpusched.session.state.search_records import SearchRecord, search_effort
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.state.session_gangs import (
    NodePoolVariant,
    index_gangs_by_row,
    resolve_level_names,
)
from gpusched.session.state.statement import Assignment, Statement
from gpusched.topology.levels import TopologyLevel


class Session:
    """What actions work with.

    Args:
        snapshot: of this moment.
        plugins: that advise, in tier order.
        actions: names of the actions that will run.
        guard: contains the plugins.
        masks: filter results kept from earlier sessions of the same policy.
        placement: how long and how to search where one pass does not find a place.
        search: runs what may take long or crash, here or in the solver's process.
        hand: told of each gang as it is taken in hand, for whoever remembers what a process died of.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plugins: Sequence[Plugin],
        actions: frozenset[str],
        *,
        guard: Guard,
        masks: SessionCache,
        placement: PlacementConfig,
        search: SearchRunner = search_in_process,
        hand: Callable[[GangKey], None] = lambda _gang: None,
    ) -> None:
        self.snapshot = snapshot
        self.placement = placement
        self.search = search
        self.hand = hand
        """Runs what may take long or crash."""
        self.effort = search_effort(placement)
        """How hard to try for one problem."""
        self.searches: list[SearchRecord] = []
        """What was searched for and how it ended, for metrics."""
        self.bench = NodeUsage(snapshot.nodes)
        self.bench.population = snapshot.population
        self.accounts = QueueAccounts(
            snapshot.queues, make_node_pool_accounts(snapshot, masks.pools)
        )
        watch = self.accounts if self.accounts.pools is not None else None
        self.pod_counts = PodCounts(self.bench, snapshot.residents, masks.columns, watch)
        """Who sits where; statements tell it their moves."""
        self.hooks = Hooks(guard)
        self.hooks.pairs.rows = len(snapshot.nodes)
        self.view = View(
            snapshot, self.accounts, self.pod_counts, self.hooks.fair_shares, self.hooks.usages
        )
        self.admitted: set[GangKey] = set()
        self.asks: dict[GangKey, PendingReason] = {}
        self.admission: dict[GangKey, PendingReason] = {}
        self.served: dict[str, int] = {}
        self.enqueue_ran = False
        self.closed = ""
        """Why nothing may be placed in this session: a policy that could not open is missing."""
        self._kept: dict[GangKey, list[Assignment]] = {}
        self._gangs: dict[GangKey, Gang] = {
            gang.key: resolve_level_names(
                without_overdue_pods(gang, snapshot.now),
                lambda: masks.levels(snapshot.nodes, snapshot.topologies),
            )
            for gang in snapshot.gangs
        }
        self.variants: dict[GangKey, NodePoolVariant] = {}
        """The node pool with which a suspended Job is to be started, see ``session.jobs``."""
        self.masks = masks
        self.inter_pod_steps_left = POD_RULES_SESSION_STEPS_MAX
        """Places that searches for gangs with rules between pods may still try."""
        self.seats = PodClassInfos(self.bench, self.pod_counts, self.hooks, masks)
        self.view.ask_filters(self.seats.accepting)
        self._binds = 0
        self.nominations: dict[GangKey, tuple[Assignment, ...]] = {}
        """Room held for gangs, by earlier sessions and by this one."""
        self.proofs: dict[GangKey, str] = {}
        """How good the places are that gangs were given, see ``session.proven``."""
        self.claims: dict[GangKey, PreemptionDraft] = {}
        """Promises made in this session, with who leaves for them."""
        self.returned_jobs: list[Gang] = []
        """Jobs that were started and got no place: they are suspended again."""
        self.stops: dict[GangKey, PreemptionDraft] = {}
        """Gangs that are stopped for their own sake; nothing is promised to anybody."""
        self.order_keys = OrderKeys(self.hooks, self.accounts, masks.kinds)
        self.evicted: set[UID] = set()
        """Members that leave by what was kept in this session."""
        self.victims: object = None
        """Who could leave: kept between the actions that evict, see ``session.victims``."""
        self.actions = actions
        """What this session does, by name."""
        self.reservations: ReservationTracker | None = None
        """Room kept for gangs that are blocked now; made by the action that places gangs."""
        self.positions: dict[GangKey, int] = {}
        """Place of each waiting gang in its queue, from 1."""
        self.estimates: dict[GangKey, float] = {}
        """When waiting gangs are expected to start, seconds since the epoch."""
        self._open(plugins)
        self._restore_nominations()

    def _restore_nominations(self) -> None:
        self.moved: dict[GangKey, tuple[Assignment, ...]] = {}
        """Room held for members of gangs that were moved, until they are made again and placed."""
        for key, places in sorted(read_nominations(self.snapshot).items()):
            self._hold(self._gangs[key], places)
        for key, move in self.snapshot.moves:
            gang = self._gangs.get(key) or self.snapshot.active.get(key)
            if gang is not None:
                promised = len(self.nominations.get(key, ()))
                places = assignments_held_for_move(self.snapshot, gang, move, promised)
                self.moved[key] = tuple(restore_nomination(self.bench, place) for place in places)
                self._take(gang, self.moved[key])

    def _open(self, plugins: Sequence[Plugin]) -> None:
        self.hooks.filters.append(REFUSED_LATELY)
        for plugin in plugins:
            self.hooks.plugin = plugin.name
            opened = self.hooks.guard.wrap(plugin.name, "open", plugin.open, self._not_opened)
            opened(self.hooks, self.view)

    def _not_opened(self, fault: PluginFault, _hooks: Hooks, _view: View) -> None:
        self.hooks.faults.append(str(fault))
        self.closed = f"{fault}; nothing is placed until it works or is removed"

    _last_ask: PendingReason | None = None

    @cached_property
    def queue_gate_cache(self) -> dict[tuple[str, str, bool], Verdict]:
        """What queues say of gangs, by queue and namespace, and whether these are repaired."""
        return {}

    # -- reading ---------------------------------------------------------------------------
    @cached_property
    def all_gangs(self) -> tuple[Gang, ...]:
        """Those that this session does not look at included; sorted by key."""
        return tuple(self._gangs.values())

    @cached_property
    def gang_selection(self) -> GangSelection:
        """Which gangs this session looks at, worked out when its policies are open."""
        return GangSelection(
            self.snapshot,
            self.all_gangs,
            self.order_keys,
            self.masks.kinds,
            nominated={*self.nominations, *self.moved},
            evicts=not self.actions.isdisjoint(("preempt", "reclaim")),
        )

    @property
    def work(self) -> WorkBudget:
        """What each tenant has used of this session."""
        return self.gang_selection.work

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        """Those that this session looks at, sorted by key."""
        left_out = self.gang_selection.left_out
        if not left_out:
            return self.all_gangs
        return tuple(gang for gang in self.all_gangs if gang.key not in left_out)

    def has_budget_for(self, gang: Gang) -> bool:
        """Whether the gang's tenant may use more of this session; else the next one goes on."""
        if self.work.may(tenant_of_gang(gang, self.snapshot.queues)):
            return True
        self.gang_selection.defer(gang)
        return False

    @property
    def levels(self) -> tuple[TopologyLevel, ...]:
        """Topology levels, widest first."""
        return self.masks.levels(self.snapshot.nodes, self.snapshot.topologies)

    @cached_property
    def map(self) -> ClusterMap:
        """Levels and slots as problems of placement see them."""
        return ClusterMap(self.bench, self.levels, self.hooks.topology.spares)

    @cached_property
    def gangs_by_row(self) -> Mapping[int, Mapping[GangKey, Sequence[PodClass]]]:
        """By row and gang the classes of its members there, as the snapshot has them."""
        return index_gangs_by_row(self.snapshot)

    @property
    def full(self) -> bool:
        """Whether the plan holds as many binds as one plan may."""
        return self._binds >= PLAN_BINDS_MAX

    def queue_of(self, gang: Gang) -> QueueNode | None:
        """The gang's queue, None when it does not exist."""
        return self.snapshot.queues.get(gang.queue)

    def kept(self, gang: Gang) -> list[Assignment]:
        """Places given to the gang in this session."""
        return self._kept.get(gang.key, []) if self._kept else []

    @property
    def started(self) -> Iterator[tuple[Gang, Sequence[Assignment]]]:
        """Gangs that were given places in this session, sorted by key, with these places."""
        for key, places in sorted(self._kept.items()):
            yield self._gangs[key], places

    def seat(self, pod_class: PodClass) -> PodClassInfo:
        """The class on this session's nodes, up to date, whatever rules between pods say."""
        return self.seats.of_class(pod_class)

    def pod_info(self, pod: Pod) -> PodClassInfo:
        """The seat of one pod, up to date, with the rules between pods that concern it."""
        return self.seats.of_pod(pod)

    def admit(self, gang: Gang, verdict: Verdict) -> None:
        """Enter the answer on admission; a refused gang is told the same on both conditions."""
        if gang.key in self.stops:
            return
        if self.closed:
            verdict = error(Reason.BACK_OFF, self.closed)
        if verdict is not ALLOW and verdict.refuses:
            self.admission[gang.key] = PendingReason(
                reason=verdict.reason, sentence=verdict.sentence
            )
            self.refuse(gang, verdict.reason, verdict.sentence)
        else:
            self.admitted.add(gang.key)

    def all_assignments(self) -> Iterator[tuple[Gang, Sequence[Assignment]]]:
        """Places given in this session and promised in any, by gang, sorted."""
        for key in sorted({*self._kept, *self.nominations}):
            places = [*self._kept.get(key, ()), *self.nominations.get(key, ())]
            if places:
                yield self._gangs[key], places

    # -- moving ----------------------------------------------------------------------------
    def statement(self) -> Statement:
        """An empty batch of moves."""
        return Statement(self.bench, self.accounts, self.pod_counts)

    @contextmanager
    def pipelining(self) -> Iterator[None]:
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
        self.accounts.counts_after_evictions = later

    def path(self, gang: Gang) -> tuple[str, ...]:
        """Names of the gang's queue and those above it; empty when it does not exist."""
        queue = self.queue_of(gang)
        return queue.path if queue else ()

    def evict(self, statement: Statement, gang: Gang, member: Placed) -> None:
        """A member is to leave. Its node must exist."""
        row = self.snapshot.nodes.row[member.node]
        ask = pod_class_vector(member.pod.pod_class, self.snapshot.nodes.columns)
        statement.evict(gang, member, row, ask, path=self.path(gang))

    def lift(self, statement: Statement, gang: Gang) -> None:
        """Take back what is promised to the gang, so that it may use the room itself."""
        for place in (*self.nominations.get(gang.key, ()), *self.moved.get(gang.key, ())):
            statement.lift(place, path=self.path(gang), lasting=not gang.terms.preemptible)

    def keep(self, gang: Gang, statement: Statement) -> None:
        """The statement's moves belong to the plan; queues are charged up the tree."""
        lifted = statement.lifted
        places = statement.keep()
        if lifted:
            self.nominations.pop(gang.key, None)
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
        self._charge_not_preemptible(gang, places)
        if self.reservations is not None and not lifted:
            self.reservations.started(gang, places)

    def move(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Its places of this session are these instead; only ``session.moves`` does that."""
        self._kept[gang.key] = list(places)

    def claim(
        self, gang: Gang, statement: Statement, *, action: str, reason: str, sentence: str,
        moves: tuple[MovedGangDraft, ...] = (),
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
        draft = PreemptionDraft(gang, places, evictions, action, reason, sentence, moves)
        self.claims[gang.key] = draft
        self.evicted.update(each.member.pod.uid for each in evictions)
        self.nominations[gang.key] = places
        for place in places:
            self.accounts.promise(self.path(gang), place.pod.pod_class.requests)
        self._charge_not_preemptible(gang, places)
        if self.reservations is not None:
            self.reservations.started(gang, places)

    def stop(
        self, gang: Gang, statement: Statement, *, action: str, reason: str, sentence: str
    ) -> None:
        """The statement's victims, members of this gang, leave for its own sake."""
        evictions = statement.evictions
        statement.keep()
        self.stops[gang.key] = PreemptionDraft(gang, (), evictions, action, reason, sentence)
        self.evicted.update(each.member.pod.uid for each in evictions)

    def hold(self, gang: Gang, statement: Statement) -> None:
        """The statement's places, made while looking later, stay free for the gang this session."""
        places = statement.keep()
        self.nominations[gang.key] = places
        for place in places:
            self.accounts.promise(self.path(gang), place.pod.pod_class.requests)
        self._charge_not_preemptible(gang, places)

    def withdraw(self, gang: Gang) -> None:
        """What is promised to the gang is given up."""
        statement = self.statement()
        self.lift(statement, gang)
        self.keep(gang, statement)

    def _hold(self, gang: Gang, places: Sequence[Assignment]) -> None:
        self.nominations[gang.key] = tuple(
            restore_nomination(self.bench, place) for place in places
        )
        self._take(gang, self.nominations[gang.key])

    def _take(self, gang: Gang, places: Sequence[Assignment]) -> None:
        for place in places:
            self.pod_counts.promise(place.pod, place.row)
            self.accounts.promise(self.path(gang), place.pod.pod_class.requests)
        self._charge_not_preemptible(gang, places)

    def _charge_not_preemptible(
        self, gang: Gang, places: Sequence[Assignment], *, times: int = 1
    ) -> None:
        """What a gang that is not preemptible gets cannot be taken back."""
        if not gang.terms.preemptible:
            for place in places:
                self.accounts.charge_not_preemptible(
                    self.path(gang), place.pod.pod_class.requests, times=times
                )

    def refuse(self, gang: Gang, reason: str, sentence: str) -> None:
        """The gang does not start in this session, and this is why."""
        last = self._last_ask
        if last is None or last.sentence != sentence or last.reason != reason:
            last = self._last_ask = PendingReason(reason=reason, sentence=sentence)
        self.asks[gang.key] = last
