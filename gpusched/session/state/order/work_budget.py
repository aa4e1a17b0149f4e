"""The part of a session that each tenant may use, in units of work: counted, never measured.

A unit is about a microsecond of a slow core. What a gang will cost at least is known before it is
looked at; what a search costs on top is charged while it runs. Both depend on the snapshot
alone, so that the same snapshot gives the same plan on every machine.

A tenant is a namespace in a queue: what one of them requests costs the others nothing but its
own share. In a queue whose ordering is ``StrictFifo`` the queue as a whole is one tenant, as
there the order of arrival comes before all else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueTree
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses

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


def asks_for_place(gang: Gang) -> bool:
    """Whether a place is looked for: pods enough are there, and nothing is wrong about the gang."""
    if not gang.pod_sets or gang.error[0]:
        return False
    pending, least = gang.pending, gang.min_member
    return pending >= least or gang.ready_members + pending >= least


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
        if not asks_for_place(gang):
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

    def turns_left(self, tenant: Tenant, units: int) -> int:
        """How many turns of so many units a tenant may still have that has begun."""
        left = self._allowed.get(tenant, self._least) - self._used.get(tenant, 0)
        return max(0, -(-left // units))

    def spend_units(self, units: int) -> None:
        """Charge the tenant whose turn it is."""
        self.spent += units
        if self._turn is not None:
            self._used[self._turn] += units


class WorkNeeded:
    """Units that the gangs of each tenant need, for one session after another: counted where one of them changed."""

    def __init__(self) -> None:
        self._known: dict[Tenant, tuple[Sequence[Gang], Hashable, int]] = {}

    def count_by_tenant(
        self,
        waiting: Mapping[Tenant, Sequence[Gang]],
        count: Callable[[Sequence[Gang]], int],
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


def work_by_tenant(asked: Mapping[Tenant, int], most: int) -> dict[Tenant, int]:
    """Units of ``most`` for each tenant: its queue's part first, then its own part of that."""
    queues: dict[str, dict[Tenant, int]] = {}
    for tenant, units in asked.items():
        queues.setdefault(tenant.queue, {})[tenant] = units
    parts = max_min_fair_split({name: sum(each.values()) for name, each in queues.items()}, most)
    shares: dict[Tenant, int] = {}
    for name, tenants in queues.items():
        shares |= max_min_fair_split(tenants, parts[name])
    return shares


def work_limits(shares: Mapping[Tenant, int], most: int) -> dict[Tenant, int]:
    """Units that each tenant may use at most: gangs may cost more than their estimate."""
    tenants: dict[str, int] = {}
    for tenant in shares:
        tenants[tenant.queue] = tenants.get(tenant.queue, 0) + 1
    least = most // max(1, len(tenants))
    return {tenant: max(share, least // tenants[tenant.queue]) for tenant, share in shares.items()}
