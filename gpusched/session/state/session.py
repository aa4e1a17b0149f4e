"""One session: policies advise, actions try moves in statements, committed moves become a plan.

A session reads one snapshot and nothing else: no clock, no randomness, no API. The same
snapshot and policy give the same plan, whatever the order in which objects arrived.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from gpusched.api.devices.gpu_types import FULL_SPEED
from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import RequestVector, pod_class_vector
from gpusched.arrays.node_facts import NodeFacts
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.errors import PluginFault
from gpusched.cache.gangs.expected_pods import is_started_job, without_overdue_pods
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import PlacementConfig
from gpusched.placement.model.problem import SearchRunner, search_in_process
from gpusched.session.framework.accounts.gang_lines import GangLines
from gpusched.session.framework.accounts.node_pools import make_node_pool_accounts
from gpusched.session.framework.accounts.queue_accounts import QueueAccounts, UserAccounts
from gpusched.session.framework.guard import Guard
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.plugin import EVICTING_CAPABILITIES, Capability, Plugin
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.framework.view import View
from gpusched.session.state.cycle_state import CycleState
from gpusched.session.state.decided.kept_places import KeptPlaces
from gpusched.session.state.decided.nominations import Nominations
from gpusched.session.state.decided.outcomes import Outcomes
from gpusched.session.state.decided.placement_effects import PlacementEffects
from gpusched.session.state.decided.placements import Placements
from gpusched.session.state.decided.reservation_tracker import ReservationTracker
from gpusched.session.state.level_names import (
    named_labels,
    needs_level_names,
    resolve_level_names,
)
from gpusched.session.state.nodes.class_info import (
    REFUSED_LATELY,
    ConfinedTypes,
    PodClassInfo,
    PodClassInfos,
)
from gpusched.session.state.nodes.cluster_map import ClusterMap
from gpusched.session.state.nodes.devices.device_room import DeviceRoom
from gpusched.session.state.nodes.gpu_types import (
    NodeGpuTypes,
    slowest_speed,
    with_unknown_types_told,
)
from gpusched.session.state.nodes.slot_states import KeptSlotStates
from gpusched.session.state.nodes.windows.reserved_windows import (
    ReservedWindows,
    shortest_walltime_s,
)
from gpusched.session.state.order.early_end import EarlyEnd
from gpusched.session.state.order.gang_selection import GangSelection, KeptSelection
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.session.state.order.work_budget import Tenant, WorkBudget, tenant_of_gang
from gpusched.session.state.search_records import SearchRecord, search_effort
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.state.statement import Assignment, Statement
from gpusched.topology.levels import TopologyLevel


def _may_be_seen_otherwise(gang: Gang) -> bool:
    """Whether a session may see the gang as another than its snapshot does."""
    starts = gang.expected_count and gang.job is not None and not gang.suspended
    return bool(gang.terms.gpu_types.speeds or starts) or needs_level_names(gang)


_FORMER_NAMES: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "accounts": ("queue_accounts", lambda session: session.queue_accounts),
    "bench": ("node_usage", lambda session: session.node_usage),
    "map": ("cluster_map", lambda session: session.cluster_map),
    "path": ("queue_path", lambda session: session.queue_path),
    "admitted": ("outcomes.is_admitted(gang)", lambda session: session.outcomes.admitted_keys),
    "full": ("placements.is_full", lambda session: session.placements.is_full),
    "keep": ("placements.commit", lambda session: session.placements.commit),
    "kept": ("placements.assigned", lambda session: session.placements.assigned),
    "lift": (
        "nominations.take_back(gang, statement)",
        lambda session: lambda statement, gang: session.nominations.take_back(gang, statement),
    ),
    "refuse": ("outcomes.refuse", lambda session: session.outcomes.refuse),
    "withdraw": ("nominations.cancel", lambda session: session.nominations.cancel),
}
"""Attributes that docs/plugins.md of version 0.1.0 told authors of: what each is called now, and how
it is got."""


class Session:
    """The parts that actions work with; each part is changed through its own methods.

    Args:
        snapshot: of this moment.
        plugins: that advise, in tier order.
        capabilities: what the actions of the session do.
        guard: contains the plugins.
        session_cache: results of earlier sessions under the same policy.
        placement: how long and how to search where one pass does not find a place.
        search: runs what may take long or crash, here or in the solver's process.
        on_gang: called with each gang as it is looked at, so that a crash can be put down to it.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plugins: Sequence[Plugin],
        capabilities: frozenset[Capability],
        *,
        guard: Guard,
        session_cache: SessionCache,
        placement: PlacementConfig,
        search: SearchRunner = search_in_process,
        on_gang: Callable[[GangKey], None] = lambda _gang: None,
    ) -> None:
        self.snapshot = snapshot
        self.capabilities = capabilities
        self.cache = session_cache
        self.placement = placement
        self.search = search
        self.on_gang = on_gang
        self.effort = search_effort(placement)
        """How hard to try for one problem."""
        self._searches: list[SearchRecord] = []
        self.lines: GangLines = session_cache.lines.follow(
            snapshot.gangs,
            may_differ=_may_be_seen_otherwise,
            rests_on=lambda: (self._named_levels(), self.gpu_types),
            without_overdue=self._without_overdue,
            as_seen=self._as_seen,
        )
        """Gangs by queue and namespace, those that this session does not look at included."""
        facts = session_cache.node_facts.find(snapshot.nodes)
        self.node_usage = NodeUsage(
            snapshot.nodes, facts=facts, alike_before=session_cache.take_alike_rows()
        )
        self.node_usage.population = snapshot.population
        pools = make_node_pool_accounts(snapshot, session_cache.node_pools)
        self.queue_accounts = QueueAccounts(snapshot.queues, pools, UserAccounts(snapshot))
        watch = None if pools is None else self.queue_accounts
        self.pod_counts = PodCounts(
            self.node_usage, snapshot.pods_by_node, session_cache.pod_counts, watch
        )
        self.hooks = Hooks(guard)
        self.hooks.pairs.rows = len(snapshot.nodes)
        self.view = View(
            snapshot,
            self.queue_accounts,
            self.pod_counts,
            lines=self.lines,
            facts=facts,
            fair_shares=self.hooks.fair_shares,
            usages=self.hooks.usages,
        )
        self.class_infos = PodClassInfos(
            self.node_usage, self.pod_counts, self.hooks, session_cache, lambda: self.devices
        )
        self.view.ask_filters(self.class_infos.accepting_rows)
        self.types_given: dict[GangKey, tuple[int, ...]] = {}
        """Types of GPUs that gangs were given places on last in this session."""
        self.view.ask_gpu_speed(self._gpu_speed)
        self.order_keys = OrderKeys(
            self.hooks, self.queue_accounts, session_cache.equivalence, session_cache.sort_keys
        )
        self.cycle_state = CycleState()
        """What packages above the session keep for its length."""
        self._tenants: dict[tuple[str, str], Tenant] = {}
        """By queue and namespace."""
        self._last_tenant: tuple[tuple[str, str], Tenant] | None = None
        """The one that was asked about last: most gangs that follow each other are of one."""
        self._requests: dict[str, RequestVector] = {}
        """What members that were evicted, if only on trial, ask of nodes, by class."""
        self._without_room: set[Hashable] = set()
        """Kinds of gangs, by namespace and the nodes that are open to them, that found no room in this session."""
        self._effects = PlacementEffects(snapshot.queues, self.queue_accounts)
        self.nominations = Nominations(self.statement, self._effects)
        self.placements = Placements(
            self.lines.by_key, self.nominations, self._effects, snapshot.limits.binds_per_session
        )
        self.view.ask_started(self.placements.by_gang_with_nominations)
        self.outcomes = Outcomes(self.nominations.stops)
        self._open(plugins, facts)
        self.nominations.restore_nominations(
            snapshot, self.lines, self.node_usage, self.pod_counts, lambda: self.devices
        )

    def _open(self, plugins: Sequence[Plugin], facts: NodeFacts) -> None:
        if facts.some_avoided:
            self.hooks.filters.append(REFUSED_LATELY)
        for plugin in plugins:
            self.hooks.plugin = plugin.name
            opened = self.hooks.guard.wrap_hook(plugin.name, "open", plugin.open, self._not_opened)
            opened(self.hooks, self.view)

    def dissolve(self) -> None:
        """Take the session apart when its plan is made; nothing of it can be asked afterwards.

        Hooks, view and parts refer to each other. Without this a thousand objects, and arrays of
        every node, would stay in memory after each session until Python looks for cycles.
        """
        self.cache.alike_rows = self.node_usage.release_alike()
        for part in (self.hooks.pairs, self.hooks, self.view, self.node_usage, self):
            vars(part).clear()

    def _not_opened(self, fault: PluginFault, _hooks: Hooks, _view: View) -> None:
        self.hooks.faults.append(str(fault))
        self.outcomes.close(f"{fault}; nothing is placed until it works or is removed")

    @cached_property
    def devices(self) -> DeviceRoom:
        """Devices of the session, worked out when the first pod with claims is looked at."""
        return DeviceRoom(
            self.snapshot.devices, self.node_usage, self.cache.devices, self._leaving_claimants
        )

    @property
    def device_moves(self) -> int:
        """A number that changes whenever devices change hands; 0 while nothing asked about devices."""
        return self.devices.moves if "devices" in vars(self) else 0

    def _leaving_claimants(self) -> Iterator[UID]:
        """Pods with claims that are being deleted, of every scheduler."""
        for row in self.snapshot.pods_by_node.pods:
            for pod in row:
                if pod.deleting and pod.pod_class.claims:
                    yield pod.uid

    # -- gangs and queues --------------------------------------------------------------------
    def _without_overdue(self, gang: Gang) -> Gang:
        snapshot = self.snapshot
        timeout_s = snapshot.limits.pod_arrival_timeout_s
        return without_overdue_pods(gang, snapshot.is_after, timeout_s)

    def _as_seen(self, gang: Gang) -> Gang:
        named = resolve_level_names(self._without_overdue(gang), self._named_levels)
        return with_unknown_types_told(
            named, lambda: self.gpu_types, in_part=self.snapshot.queues.is_part
        )

    def _named_levels(self) -> tuple[TopologyLevel, ...]:
        snapshot = self.snapshot
        return self.cache.topology_levels(
            snapshot.nodes, snapshot.topologies, snapshot.devices.slices
        )

    @property
    def all_gangs(self) -> tuple[Gang, ...]:
        """Gangs sorted by key, those that this session does not look at included."""
        return self.lines.gangs

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        """Gangs that this session looks at, sorted by key."""
        return self.gang_selection.looked_at

    @cached_property
    def pending_gangs(self) -> tuple[Gang, ...]:
        """Those of them with members that wait for a place, sorted by key."""
        return tuple([gang for gang in self.gangs if gang.pod_sets and gang.pending])

    @cached_property
    def gang_selection(self) -> GangSelection:
        """Which gangs this session looks at, worked out when its policies are open."""
        return GangSelection(
            self.snapshot,
            self.lines,
            self.order_keys,
            self.cache.equivalence,
            self.cache.kept.get_or_make(KeptSelection, KeptSelection),
            nominated=self.nominations.gang_keys(),
            evicts=not self.capabilities.isdisjoint(EVICTING_CAPABILITIES),
        )

    @property
    def work_budget(self) -> WorkBudget:
        """What each tenant has used of this session."""
        return self.gang_selection.work_budget

    @cached_property
    def early_end(self) -> EarlyEnd:
        """Whether the session has ended before everybody had a turn.

        That may be where more wait than one session looks at, none of whom came just now, and no room is held for anybody;
        where only pods have come of Jobs that were started, when each of these had its turn; and where Jobs are started, when
        it is known that nobody else is.
        """
        selection, snapshot = self.gang_selection, self.snapshot
        foreseen = snapshot.foreseen and not selection.leaves_out
        awaited = {gang.key for gang in self.gangs if is_started_job(gang)} if foreseen else set()
        possible = snapshot.may_end_early and not self.nominations
        moves = Capability.CONSOLIDATION in self.capabilities
        return EarlyEnd(
            possible=possible and bool(awaited or selection.all_known),
            awaited=awaited,
            settles=possible
            and snapshot.status_may_wait
            and not (awaited or selection.leaves_out or moves),
            starts_whole=self._starts_whole_job,
            room_as_left=lambda: self._kept_places.are_as_left(
                snapshot.nodes, self.node_usage.used, self._places_by_key()
            ),
        )

    @property
    def _kept_places(self) -> KeptPlaces:
        return self.cache.kept.get_or_make(KeptPlaces, KeptPlaces)

    def _places_by_key(self) -> list[tuple[GangKey, Sequence[Assignment]]]:
        return [(gang.key, places) for gang, places in self.placements.by_gang()]

    def keep_places(self) -> None:
        """Let the next session know where gangs were placed, where this one has decided about everybody."""
        early = self.early_end
        if self.placements.is_full or (early.reached and not early.settled):
            self._kept_places.forget()
        else:
            self._kept_places.keep(self.snapshot.nodes, self.node_usage.used, self._places_by_key())

    def _starts_whole_job(self, gang: Gang) -> bool:
        """Whether a gang that has started is a Job that waited, which does not grow."""
        return gang.suspended and len(self.placements.assigned(gang)) == gang.pending

    def renew_shares(self, actions: int = 0) -> None:
        """Give each tenant its share anew, but not where a long session might come to more work than so many actions otherwise."""
        most, times = self.snapshot.limits.session_work, self.snapshot.work_times
        if times == 1 or self.work_budget.spent + most <= actions * (most // times):
            self.work_budget.begin_action()

    def has_budget_for(self, gang: Gang) -> bool:
        """Whether the gang's tenant may use more of this session; else the next one goes on."""
        selection = self.gang_selection
        if (
            selection.for_room
            and gang.key in selection.for_room
            and (selection.is_put_back(gang) or not self._may_have_room(gang))
        ):
            selection.put_back(gang)
            return False
        line = (gang.queue, gang.key.namespace)
        if self._last_tenant is None or line != self._last_tenant[0]:
            tenant = self._tenants.get(line)
            if tenant is None:
                tenant = self._tenants[line] = tenant_of_gang(gang, self.snapshot.queues)
            self._last_tenant = (line, tenant)
        tenant = self._last_tenant[1]
        if selection.work_budget.may_spend(tenant):
            return True
        selection.defer_gang(gang)
        return False

    def turns_left(self, gang: Gang, units: int) -> int:
        """How many turns of so many units ``has_budget_for`` allows its tenant behind the gang's; 0 where each is asked about."""
        if self.gang_selection.leaves_out:
            return 0
        return self.work_budget.turns_left(tenant_of_gang(gang, self.snapshot.queues), units)

    def note_no_room_for(self, gang: Gang) -> None:
        """Note that a gang found no room: those like it that were chosen for room alone keep their place in line."""
        kind = self.cache.equivalence.class_of(gang)
        if kind is not None:
            self._without_room.add((kind, gang.key.namespace, self.windows.class_key(gang)))

    def _may_have_room(self, gang: Gang) -> bool:
        """Whether nodes have room for all that the gang needs, now or when those that leave are gone."""
        kind = self.cache.equivalence.class_of(gang)
        if (kind, gang.key.namespace, self.windows.class_key(gang)) in self._without_room:
            return False
        if any(each.pod_class.share for each in gang.pod_sets):
            return True
        found = self._pods_that_fit(gang) >= gang.members_at_start
        if not found and self.node_usage.now_and_later_differ:
            with self.pipelining():
                found = self._pods_that_fit(gang) >= gang.members_at_start
        if not found:
            self.note_no_room_for(gang)
        return found

    def _pods_that_fit(self, gang: Gang) -> int:
        return sum(
            min(len(each.pods), int(self.class_info(each.pod_class).class_fit.fits.sum()))
            for each in gang.pod_sets
        )

    def queue_of(self, gang: Gang) -> QueueNode | None:
        """The gang's queue, None when it does not exist."""
        return self.snapshot.queues.get(gang.queue)

    def queue_path(self, gang: Gang) -> tuple[str, ...]:
        """Names of the gang's queue and those above it, and of accounts of its user there.

        Empty when the queue does not exist.
        """
        return self._effects.queue_path(gang)

    # -- nodes -------------------------------------------------------------------------------
    @cached_property
    def levels(self) -> tuple[TopologyLevel, ...]:
        """Topology levels, widest first, with the node labels that gangs name as levels."""
        snapshot, levels = self.snapshot, self._named_levels()
        names = (name for line in self.lines.lines.values() for name in line.level_names)
        labels = named_labels(names, levels)
        if not labels:
            return levels
        slices = snapshot.devices.slices
        return self.cache.label_levels(snapshot.nodes, levels, labels, slices)

    @cached_property
    def cluster_map(self) -> ClusterMap:
        """Levels and slots as problems of placement see them."""
        kept = self.cache.kept.get_or_make(KeptSlotStates, KeptSlotStates)
        return ClusterMap(self.node_usage, self.levels, self.hooks.topology.spares, kept)

    def class_info(self, pod_class: PodClass) -> PodClassInfo:
        """The class on this session's nodes, up to date, whatever rules between pods say."""
        return self.class_infos.class_info(pod_class)

    def pod_info(self, pod: Pod) -> PodClassInfo:
        """The class of one pod on this session's nodes, with the rules between pods for it."""
        return self.class_infos.pod_info(pod)

    @cached_property
    def gpu_types(self) -> NodeGpuTypes:
        """Types of the nodes' GPUs."""
        return self.cache.gpu_types.of_nodes(self.snapshot.nodes)

    def _gpu_speed(self, gang: Gang) -> int:
        if not gang.terms.gpu_types.speeds:
            return FULL_SPEED
        row_of = self.snapshot.nodes.row
        placed = [row_of[each.node] for each in gang.placed if each.node in row_of]
        types = self.gpu_types.types_on(placed) or self.types_given.get(gang.key)
        return slowest_speed(gang.terms.gpu_types, self.gpu_types, types)

    @contextmanager
    def confined_to_gpu_types(self, types: tuple[int, ...]) -> Iterator[None]:
        """Inside, pods that request GPUs fit nodes with GPUs of these types alone."""
        outer = self.class_infos.confined_to
        if outer is not None:
            types = tuple(number for number in types if number in outer.types)
        if len(types) == len(self.gpu_types.names):
            yield
            return
        with self.class_infos.confine_to_types(
            ConfinedTypes(types, ~self.gpu_types.rows_of_types(types))
        ):
            yield

    @cached_property
    def windows(self) -> ReservedWindows:
        """Windows of Reservations, and which nodes they close to a gang."""
        return ReservedWindows(
            self.snapshot, partial(shortest_walltime_s, self.hooks), self.queue_path
        )

    def on_open_nodes(self, gang: Gang) -> AbstractContextManager[None]:
        """Inside, pods fit only nodes that Reservations leave open to the gang; see ``windows``."""
        if not self.snapshot.reservations:
            return nullcontext()
        closed = self.windows.closed_to(gang, speed=self._gpu_speed(gang))
        return self.class_infos.close_nodes(closed)

    # -- searching ---------------------------------------------------------------------------
    def record_search(self, record: SearchRecord) -> None:
        """Note what was searched for and how it ended, for metrics."""
        self._searches.append(record)

    @property
    def searches(self) -> Sequence[SearchRecord]:
        """Searches of this session, in the order in which they ended."""
        return self._searches

    # -- moving ------------------------------------------------------------------------------
    def statement(self) -> Statement:
        """An empty batch of moves."""
        return Statement(
            self.node_usage, self.queue_accounts, self.pod_counts, lambda: self.devices
        )

    def evict(self, statement: Statement, gang: Gang, member: Placed) -> None:
        """Add to a statement that a member leaves. Its node must exist.

        A place that the member was given in this session, or is nominated for, is taken back.
        """
        if not member.confirmed:
            path = self.queue_path(gang)
            place = self.placements.assigned_to(gang, member.pod.uid)
            if place is not None:
                statement.withdraw(gang, place, path=path)
                return
            place = self.nominations.place_of(gang, member.pod.uid)
            if place is not None:
                lasting = gang.is_lasting
                statement.unnominate(place, path=path, lasting=lasting)
                return
        row = self.snapshot.nodes.row[member.node]
        pod_class = member.pod.pod_class
        request = self._requests.get(pod_class.digest)
        if request is None:  # a trial evicts hundreds
            request = pod_class_vector(pod_class, self.snapshot.nodes.columns)
            self._requests[pod_class.digest] = request
        statement.evict(gang, member, row, request, path=self.queue_path(gang))

    @contextmanager
    def pipelining(self) -> Iterator[None]:
        """Inside, room of pods that leave is free and nominated room is taken.

        Places of statements are nominations then; pods that a statement evicts leave at once.
        """
        self._look_later(later=True)
        try:
            yield
        finally:
            self._look_later(later=False)

    def _look_later(self, *, later: bool) -> None:
        self.node_usage.show_usage(later=later)
        self.queue_accounts.counts_after_evictions = later

    @property
    def reservations(self) -> ReservationTracker | None:
        """Room reserved for gangs that are blocked now; None until an action reserves room."""
        return self._effects.reservations

    @contextmanager
    def enforcing_reservations(self) -> Iterator[None]:
        """Inside, room that breaks a reservation cannot be committed: it is a fault to try."""
        self._effects.enforces_reservations = True
        try:
            yield
        finally:
            self._effects.enforces_reservations = False

    def track_reservations(self, tracker: ReservationTracker) -> None:
        """From now on the tracker follows what the session places and nominates."""
        self._effects.reservations = tracker

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist

        def __getattr__(self, name: str) -> object:
            """Find what authors of actions called otherwise in version 0.1.0, with a warning."""
            known = _FORMER_NAMES.get(name)
            if known is None:
                raise AttributeError(f"a session has no attribute {name!r}")
            warnings.warn(
                f"session.{name} is called session.{known[0]} now", DeprecationWarning, stacklevel=2
            )
            return known[1](self)
