"""How much of a session each tenant may use, in units of work: counted, never measured.

A unit is about a microsecond of a slow core. What a gang will cost at least is known before it is
looked at; what a search costs on top is charged while it runs. Both depend on the snapshot
alone, so that the same snapshot gives the same plan on every machine.

A tenant is a namespace in a queue: what one of them asks for costs the others nothing but its
own share. In a queue whose ordering is ``StrictFifo`` the queue as a whole is one tenant, as
there the order of arrival comes before all else.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.session.kinds import Kind, Kinds

if TYPE_CHECKING:  # it works with sessions
    from gpusched.session.session import Session

STRICT = "StrictFifo"
K = TypeVar("K", bound=Hashable)


class Tenant(NamedTuple):
    """Whose gangs share what they may cost; ``namespace`` is empty for a queue as a whole."""

    queue: str
    namespace: str


def tenant_of(session: Session, gang: Gang) -> Tenant:
    """The gang's tenant. Gangs of queues that do not exist share what one queue gets."""
    node = session.queue_of(gang)
    if node is None:
        return Tenant("", gang.key.namespace)
    strict = node.queue.ordering == STRICT
    return Tenant(gang.queue, "" if strict else gang.key.namespace)


def fair_split(asked: Mapping[K, int], total: int) -> dict[K, int]:
    """So much for each that nobody who gets less than it asks for gets less than anybody else."""
    given: dict[K, int] = {}
    left = total
    waiting = sorted(asked, key=lambda each: asked[each])
    for number, who in enumerate(waiting):
        given[who] = min(asked[who], left // (len(waiting) - number))
        left -= given[who]
    return given


class Costs:
    """What looking at gangs costs at least. One for each tenant and session.

    Args:
        kinds: of gangs; of equal ones the first is looked at, the others are told the same.
        nodes: how many the cluster has.
        evicts: whether others may be evicted for a gang: who finds no place is looked at again.
    """

    def __init__(self, kinds: Kinds, *, nodes: int, evicts: bool) -> None:
        self._kinds = kinds
        self._class = limits.WORK_CLASS + nodes // limits.WORK_NODES_A_UNIT
        self._times = 2 if evicts else 1
        self._seen: set[Kind] = set()

    def of(self, gang: Gang) -> int:
        """Units; less once one of its kind was asked about."""
        if not gang.tasks or gang.ready + gang.pending < gang.min_member or gang.trouble[0]:
            return limits.WORK_GANG
        kind = self._kinds.of(gang)
        if kind is not None:
            if kind in self._seen:
                return limits.WORK_GANG + gang.pending // limits.WORK_PODS_A_UNIT
            self._seen.add(kind)
        return limits.WORK_GANG + self._times * self._look(gang)

    def _look(self, gang: Gang) -> int:
        units = gang.pending // limits.WORK_PODS_A_UNIT
        for task in gang.tasks:
            ruled = task.pod_class.near or task.pod_class.apart or task.pod_class.spread
            units += self._class * (limits.WORK_RULES_TIMES if ruled else 1)
        if gang.sub_groups or gang.topology.required or gang.topology.preferred:
            units += self._class * (1 + len(gang.sub_groups))
        return units


class Work:
    """What was used in one action of a session, by tenant.

    Args:
        allowed: what each may use in one action; a tenant that is not there may use the least of
            these.
    """

    def __init__(self, allowed: Mapping[Tenant, int]) -> None:
        self._allowed = allowed
        self._least = min(allowed.values(), default=limits.SESSION_WORK_MAX)
        self._used: dict[Tenant, int] = {}
        self._turn: Tenant | None = None
        self.spent = 0
        """By everybody, in the whole session."""

    def begin(self) -> None:
        """Another action begins: everybody may use as much again."""
        self._used.clear()
        self._turn = None

    def may(self, tenant: Tenant) -> bool:
        """Whether the tenant may still use some; if so, it is charged from now on.

        Whoever has used nothing yet may always begin: one gang of each tenant is looked at in
        each session, whatever that costs.
        """
        used = self._used.get(tenant)
        if used is not None and used >= self._allowed.get(tenant, self._least):
            return False
        self._turn = tenant
        if used is None:
            self._used[tenant] = 0
        return True

    def spend(self, units: int) -> None:
        """Charge whoever's turn it is."""
        self.spent += units
        if self._turn is not None:
            self._used[self._turn] += units
