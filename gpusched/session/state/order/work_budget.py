"""The part of a session that each tenant may use, in units of work: counted, never measured.

A unit is about a microsecond of a slow core. What a gang will cost at least is known before it is
looked at; what a search costs on top is charged while it runs. Both depend on the snapshot
alone, so that the same snapshot gives the same plan on every machine.

A tenant is a namespace in a queue: what one of them requests costs the others nothing but its
own share. In a queue whose ordering is ``StrictFifo`` the queue as a whole is one tenant, as
there the order of arrival comes before all else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueTree
from gpusched.cache.snapshot import Snapshot, TenantRound
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses
from gpusched.session.state.order.order_keys import OrderKeys

STRICT_FIFO = "StrictFifo"
K = TypeVar("K", bound=Hashable)


class Tenant(NamedTuple):
    """Gangs that share one budget; ``namespace`` is empty for a queue as a whole."""

    queue: str
    namespace: str


def tenant_of_gang(gang: Gang, queues: QueueTree) -> Tenant:
    """The gang's tenant. Gangs of queues that do not exist share what one queue gets."""
    node = queues.get(gang.queue)
    if node is None:
        return Tenant("", gang.key.namespace)
    strict = node.queue.ordering == STRICT_FIFO
    return Tenant(gang.queue, "" if strict else gang.key.namespace)


def max_min_fair_split(asked: Mapping[K, int], total: int) -> dict[K, int]:
    """Max-min fair shares: a share below its request is no less than any other share."""
    given: dict[K, int] = {}
    left = total
    waiting = sorted(asked, key=lambda one: asked[one])
    for number, each in enumerate(waiting):
        given[each] = min(asked[each], left // (len(waiting) - number))
        left -= given[each]
    return given


class GangCosts:
    """What looking at gangs costs at least. One for each tenant and session.

    Args:
        kinds: equivalence classes; of equal gangs one is looked at, the others get the same answer.
        nodes: how many the cluster has.
        evicts: whether pods may be evicted for a gang: without a place it is looked at again.
    """

    def __init__(self, kinds: EquivalenceClasses, *, nodes: int, evicts: bool) -> None:
        self._kinds = kinds
        self._class = limits.WORK_CLASS + nodes // limits.WORK_NODES_A_UNIT
        self._times = 2 if evicts else 1
        self._seen: set[EquivalenceClass] = set()

    def units_for(self, gang: Gang) -> int:
        """Units for the gang; less for each further one of its equivalence class."""
        if (
            not gang.pod_sets
            or gang.ready_members + gang.pending < gang.min_member
            or gang.error[0]
        ):
            return limits.WORK_GANG
        kind = self._kinds.class_of(gang)
        if kind is not None:
            if kind in self._seen:
                return limits.WORK_GANG + gang.pending // limits.WORK_PODS_A_UNIT
            self._seen.add(kind)
        return limits.WORK_GANG + self._times * self._estimate_cost(gang)

    def _estimate_cost(self, gang: Gang) -> int:
        units = gang.pending // limits.WORK_PODS_A_UNIT
        for pod_set in gang.pod_sets:
            ruled = (
                pod_set.pod_class.pod_affinity
                or pod_set.pod_class.pod_anti_affinity
                or pod_set.pod_class.spread
            )
            units += self._class * (limits.WORK_RULES_TIMES if ruled else 1)
        if gang.sub_groups or gang.topology.required or gang.topology.preferred:
            units += self._class * (1 + len(gang.sub_groups))
        return units


class WorkBudget:
    """Units used in one action of a session, by tenant.

    Args:
        allowed: what each may use in one action; a tenant that is not there may use the least of
            these.
        most: what all may use together, ``limits.sessionWork``.
    """

    def __init__(self, allowed: Mapping[Tenant, int], *, most: int) -> None:
        self._allowed = allowed
        self._least = min(allowed.values(), default=most)
        self._used: dict[Tenant, int] = {}
        self._turn: Tenant | None = None
        self.spent = 0
        """Units spent by all tenants in the whole session."""

    def begin_action(self) -> None:
        """Begin another action, in which each tenant may use as much again."""
        self._used.clear()
        self._turn = None

    def may_spend(self, tenant: Tenant) -> bool:
        """Whether the tenant may still use some; if so, it is charged from now on.

        A tenant that has used nothing yet may always begin: one gang of each is looked at in
        each session, whatever that costs.
        """
        used = self._used.get(tenant)
        if used is not None and used >= self._allowed.get(tenant, self._least):
            return False
        self._turn = tenant
        if used is None:
            self._used[tenant] = 0
        return True

    def spend_units(self, units: int) -> None:
        """Charge the tenant whose turn it is."""
        self.spent += units
        if self._turn is not None:
            self._used[self._turn] += units


class WorkNeeded:
    """Units that the gangs of each tenant need, for one session after another: counted where one of them changed."""

    def __init__(self) -> None:
        self._known: dict[Tenant, tuple[list[Gang], Hashable, int]] = {}

    def count_by_tenant(
        self,
        waiting: Mapping[Tenant, list[Gang]],
        count: Callable[[list[Gang]], int],
        *,
        rests_on: Hashable,
    ) -> dict[Tenant, int]:
        """Units by tenant.

        Args:
            waiting: gangs of each tenant, which are other objects when anything about them changed.
            count: counts the units of gangs.
            rests_on: all else on which that depends.
        """
        known, self._known = self._known, {}
        for tenant, gangs in waiting.items():
            before = known.get(tenant)
            if before is None or before[1] != rests_on or before[0] != gangs:
                before = (gangs, rests_on, count(gangs))
            self._known[tenant] = before
        return {tenant: units for tenant, (_, _, units) in self._known.items()}


_HEAD_DIVISOR = 4
"""A fourth of a tenant's share is for the gangs that are first in line, in every session."""


@attrs.define(slots=True, eq=False)
class _TenantBacklog:
    """The gangs of a tenant that has more than its share.

    Attributes:
        gangs: all of them, by key.
        head: keys of gangs that were first in line when the round began.
        chosen: keys of gangs that this session looks at.
        left: gangs that this round is still to look at, in queue order.
        before: how far the rounds had come.
    """

    tenant: Tenant
    gangs: Mapping[GangKey, Gang]
    head: Sequence[GangKey]
    chosen: set[GangKey]
    left: list[Gang]
    before: TenantRound


class GangSelection:
    """Gangs that one session looks at, and those that it leaves to the next ones.

    Args:
        snapshot: says how far the last session came.
        gangs: all that are not finished.
        order_keys: their order inside each queue.
        equivalence: classes of gangs, of which all but the first cost less.
        work_needed: as it was counted for earlier sessions.
        nominated: keys of gangs for which room is held; each of them is looked at.
        evicts: whether this session may evict pods.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        gangs: Iterable[Gang],
        order_keys: OrderKeys,
        equivalence: EquivalenceClasses,
        work_needed: WorkNeeded,
        *,
        nominated: Container[GangKey],
        evicts: bool,
    ) -> None:
        self._order_keys = order_keys
        self._equivalence = equivalence
        self._nodes = len(snapshot.nodes)
        self._evicts = evicts
        self._most = snapshot.limits.session_work
        self._lines: list[_TenantBacklog] = []
        self._put_off: set[GangKey] = set()
        self.left_out: dict[GangKey, int] = {}
        """Gangs that this session does not look at, and how many of their tenant come before."""
        self._waiting: dict[Tenant, list[Gang]] = {}
        tenants: dict[tuple[str, str], list[Gang]] = {}
        for gang in gangs:
            if not (gang.key in nominated or _is_always_included(gang)):
                tenants.setdefault((gang.queue, gang.key.namespace), []).append(gang)
        for alike in tenants.values():
            tenant = tenant_of_gang(alike[0], snapshot.queues)
            self._waiting.setdefault(tenant, []).extend(alike)
        asked = work_needed.count_by_tenant(
            self._waiting, self._work_needed, rests_on=(self._nodes, evicts, self._most)
        )
        shares = _work_by_tenant(asked, self._most)
        self.work_budget = WorkBudget(_work_limits(shares, self._most), most=self._most)
        rounds = {Tenant(each.queue, each.namespace): each for each in snapshot.tenant_rounds}
        for tenant in sorted(asked):
            begun = rounds.get(tenant, TenantRound(*tenant))
            if asked[tenant] > shares[tenant] or begun.left:
                by_key = {gang.key: gang for gang in self._waiting[tenant]}
                self._lines.append(self._build_backlog(tenant, by_key, shares[tenant], begun))
        if self._lines:
            self._defer_overtakers()
            for line in self._lines:
                self._leave_out(line)

    def defer_gang(self, gang: Gang) -> None:
        """Put the gang off to the next session, as its tenant has used up its share of this one."""
        self._put_off.add(gang.key)

    def is_deferred(self, gang: Gang) -> bool:
        """Whether the gang was put off to the next session."""
        return gang.key in self._put_off

    def tenant_rounds(self) -> tuple[TenantRound, ...]:
        """How far this session came, for the next one; empty for tenants that were served in full."""
        found = [self._round_after(line) for line in self._lines]
        if self._put_off:
            lined = {line.tenant for line in self._lines}
            for tenant, gangs in self._waiting.items():
                cut = [gang for gang in gangs if gang.key in self._put_off]
                if cut and tenant not in lined:
                    found.append(self._cut_round(tenant, gangs, cut))
        return tuple(sorted(found, key=lambda each: (each.queue, each.namespace)))

    # -- choosing ----------------------------------------------------------------------------
    def _work_needed(self, gangs: Iterable[Gang]) -> int:
        """Units for all of them together, counted up to a session's worth."""
        costs, units = self._gang_costs(), 0
        for gang in gangs:
            units += costs.units_for(gang)
            if units > self._most:
                break
        return units

    def _gang_costs(self) -> GangCosts:
        return GangCosts(self._equivalence, nodes=self._nodes, evicts=self._evicts)

    def _build_backlog(
        self, tenant: Tenant, gangs: Mapping[GangKey, Gang], share: int, before: TenantRound
    ) -> _TenantBacklog:
        costs = self._gang_costs()
        if not tenant.namespace:
            ordered = self._in_order(gangs.values())
            chosen = _first_within_share(ordered, costs, share)
            return _TenantBacklog(tenant, gangs, (), {each.key for each in chosen}, [], before)
        if not before.left:
            before = attrs.evolve(before, looked_at=(), head=(), cut=False)
            ordered = self._in_order(gangs.values())
            head = [
                each.key for each in _first_within_share(ordered, costs, share // _HEAD_DIVISOR)
            ]
            chosen = _first_within_share(
                ordered[len(head) :], costs, share - share // _HEAD_DIVISOR
            )
            left = ordered[len(head) + len(chosen) :]
            return _TenantBacklog(
                tenant, gangs, head, {*head, *(each.key for each in chosen)}, left, before
            )
        head = [key for key in before.head if key in gangs]
        chosen_head = (
            []
            if before.cut
            else _first_within_share([gangs[key] for key in head], costs, share // _HEAD_DIVISOR)
        )
        waiting = [gangs[key] for key in before.left if key in gangs]
        known = {*before.left, *before.looked_at}
        fresh = [gang for key, gang in gangs.items() if key not in known]
        nearest = len(_first_within_share(waiting, self._gang_costs(), share))
        ordered = self._in_order([*waiting[:nearest], *fresh])
        rest = share if before.cut else share - share // _HEAD_DIVISOR
        chosen = _first_within_share(ordered, costs, rest)
        left = [*ordered[len(chosen) :], *waiting[nearest:]]
        keys = {each.key for each in (*chosen_head, *chosen)}
        return _TenantBacklog(tenant, gangs, head, keys, left, before)

    def _in_order(self, gangs: Iterable[Gang]) -> list[Gang]:
        return sorted(
            gangs, key=lambda gang: (self._order_key(gang), int(gang.waits_since * 1e6), gang.key)
        )

    def _order_key(self, gang: Gang) -> Any:
        key = self._order_keys.gang_key(gang)
        return (1,) if key is None else (0, key)

    def _defer_overtakers(self) -> None:
        """Leave out gangs that would pass one of another namespace that was never looked at."""
        tenants: dict[str, list[Tenant]] = {}
        for tenant in self._waiting:
            tenants.setdefault(tenant.queue, []).append(tenant)
        barred: dict[str, Any] = {}
        for line in self._lines:
            queue = line.tenant.queue
            if queue and len(tenants[queue]) > 1:
                known = {*line.before.known, *line.before.looked_at}
                first = next((each for each in line.left if each.key not in known), None)
                if first is not None:
                    key = self._order_key(first)
                    barred[queue] = min(barred.get(queue, key), key)
        lines = {line.tenant: line for line in self._lines}
        for queue, bar in barred.items():
            for tenant in tenants[queue]:
                self._defer_after(tenant, lines.get(tenant), bar)

    def _defer_after(self, tenant: Tenant, line: _TenantBacklog | None, bar: Any) -> None:
        """Leave out gangs of the tenant whose turn comes after this key."""
        for gang in self._waiting[tenant]:
            if line is not None and gang.key not in line.chosen:
                continue
            if self._order_key(gang) <= bar:
                continue
            self.left_out[gang.key] = 0
            if line is not None:
                line.chosen.discard(gang.key)
                line.left.insert(0, gang)

    def _leave_out(self, line: _TenantBacklog) -> None:
        chosen = line.chosen
        self.left_out |= {key: 0 for key in line.gangs if key not in chosen}
        self.left_out |= {gang.key: number for number, gang in enumerate(line.left)}

    # -- afterwards --------------------------------------------------------------------------
    def _round_after(self, line: _TenantBacklog) -> TenantRound:
        if not line.tenant.namespace:
            return TenantRound(*line.tenant)
        cut = [line.gangs[key] for key in sorted(line.chosen & self._put_off)]
        looked_at = {*line.before.looked_at, *line.chosen} - self._put_off
        left = [*self._in_order(cut), *line.left]
        known = looked_at.union(line.before.known)
        return TenantRound(
            *line.tenant,
            head=tuple(line.head),
            left=tuple(each.key for each in left),
            looked_at=tuple(sorted(key for key in looked_at if key in line.gangs)),
            known=tuple(sorted(key for key in known if key in line.gangs)),
            cut=bool(cut),
        )

    def _cut_round(self, tenant: Tenant, gangs: Sequence[Gang], cut: Sequence[Gang]) -> TenantRound:
        if not tenant.namespace:
            return TenantRound(*tenant)
        return TenantRound(
            *tenant,
            left=tuple(each.key for each in self._in_order(cut)),
            looked_at=tuple(gang.key for gang in gangs if gang.key not in self._put_off),
            cut=True,
        )


def _work_by_tenant(asked: Mapping[Tenant, int], most: int) -> dict[Tenant, int]:
    """Units of ``most`` for each tenant: its queue's part first, then its own part of that."""
    queues: dict[str, dict[Tenant, int]] = {}
    for tenant, units in asked.items():
        queues.setdefault(tenant.queue, {})[tenant] = units
    parts = max_min_fair_split({name: sum(each.values()) for name, each in queues.items()}, most)
    shares: dict[Tenant, int] = {}
    for name, tenants in queues.items():
        shares |= max_min_fair_split(tenants, parts[name])
    return shares


def _work_limits(shares: Mapping[Tenant, int], most: int) -> dict[Tenant, int]:
    """Units that each tenant may use at most: gangs may cost more than their estimate."""
    tenants: dict[str, int] = {}
    for tenant in shares:
        tenants[tenant.queue] = tenants.get(tenant.queue, 0) + 1
    least = most // max(1, len(tenants))
    return {tenant: max(share, least // tenants[tenant.queue]) for tenant, share in shares.items()}


def _first_within_share(gangs: Sequence[Gang], costs: GangCosts, share: int) -> list[Gang]:
    """The first of them that cost no more than the share together, and one at least."""
    chosen: list[Gang] = []
    for gang in gangs:
        share -= costs.units_for(gang)
        if chosen and share < 0:
            break
        chosen.append(gang)
    return chosen


def _is_always_included(gang: Gang) -> bool:
    """Whether every session must look at the gang, as it costs little, holds GPUs or was promised some."""
    was_started = gang.job is not None and bool(gang.job.admitted) and not gang.suspended
    return (
        (not gang.pod_sets and (bool(gang.placed) or not gang.missing_members))
        or bool((gang.placed or was_started) and gang.missing_members)
        or (bool(gang.expected_count) and not gang.suspended)
    )
