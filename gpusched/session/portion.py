"""Which gangs a session looks at, where there are more than it can: a fair part of each tenant's.

Who is within its share is looked at as a whole in every session. Of the gangs of a tenant that
asks for more, the first in line are looked at every time, and the others in rounds: each session
goes on where the last one ended, and when everybody had a turn the next round begins. Nobody is
looked at while a gang that comes before it by the order of its queue has never been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.cache.snapshot import Round
from gpusched.objects.meta import GangKey
from gpusched.session.work import Costs, Tenant, Work, fair_split, tenant_of

if TYPE_CHECKING:  # it works with sessions
    from gpusched.session.session import Session

_HEAD = 4
"""A fourth of a tenant's share is for those who are first in line, in every session."""


@attrs.frozen(slots=True, eq=False)
class _Line:
    """The gangs of a tenant that has more than its share, in the order of their turns.

    Attributes:
        gangs: each with its key among those of its queue.
        chosen: those that this session looks at.
        known: those that an earlier one has looked at.
    """

    tenant: Tenant
    gangs: Sequence[tuple[Any, Gang]]
    chosen: set[GangKey]
    known: frozenset[GangKey]
    looked_at: frozenset[GangKey]


class Portion:
    """See the module. Of one session, worked out when its policies are open.

    Args:
        session: whose snapshot says who waits and how far the last session came.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lines: list[_Line] = []
        self._put_off: set[GangKey] = set()
        self.left_out: dict[GangKey, int] = {}
        """Gangs that this session does not look at, and how many of their tenant come before."""
        waiting: dict[Tenant, list[Gang]] = {}
        for gang in session.every_gang:
            if not _always(session, gang):
                waiting.setdefault(tenant_of(session, gang), []).append(gang)
        asked = {tenant: self._asked(gangs) for tenant, gangs in waiting.items()}
        total = limits.SESSION_WORK_MAX
        queues: dict[str, dict[Tenant, int]] = {}
        for tenant, units in asked.items():
            queues.setdefault(tenant.queue, {})[tenant] = units
        of_queue = fair_split({name: sum(each.values()) for name, each in queues.items()}, total)
        shares: dict[Tenant, int] = {}
        for name, tenants in queues.items():
            shares |= fair_split(tenants, of_queue[name])
        least = total // max(1, len(queues))
        self.work = Work(
            {
                tenant: max(share, least // len(queues[tenant.queue]))
                for tenant, share in shares.items()
            }
        )
        rounds = {Tenant(each.queue, each.namespace): each for each in session.snapshot.rounds}
        over = [
            tenant
            for tenant in sorted(asked)
            if asked[tenant] > shares[tenant] or (tenant in rounds and rounds[tenant].looked_at)
        ]
        if over:
            for tenant in over:
                known = rounds.get(tenant, Round(*tenant, ()))
                self._lines.append(self._line(tenant, waiting[tenant], shares[tenant], known))
            self._keep_order(waiting)
            for line in self._lines:
                self._leave_out(line)

    def put_off(self, gang: Gang) -> None:
        """Its tenant has used up its share of this session: the gang is among the next."""
        self._put_off.add(gang.key)

    def is_put_off(self, gang: Gang) -> bool:
        """Whether it was."""
        return gang.key in self._put_off

    def rounds(self) -> tuple[Round, ...]:
        """How far this session came, for the next one; empty for who was served as a whole."""
        found = [self._after(line) for line in self._lines]
        lined = {line.tenant for line in self._lines}
        cut: dict[Tenant, list[Gang]] = {}
        if self._put_off:
            for gang in self._session.every_gang:
                tenant = tenant_of(self._session, gang)
                if tenant not in lined and not _always(self._session, gang):
                    cut.setdefault(tenant, []).append(gang)
        for tenant, gangs in cut.items():
            if any(gang.key in self._put_off for gang in gangs):
                done = tuple(gang.key for gang in gangs if gang.key not in self._put_off)
                found.append(Round(*tenant, done, cut=True))
        return tuple(sorted(found, key=lambda each: (each.queue, each.namespace)))

    def _asked(self, gangs: Sequence[Gang]) -> int:
        costs = self._costs()
        return sum(costs.of(gang) for gang in gangs)

    def _costs(self) -> Costs:
        session = self._session
        evicts = not session.actions.isdisjoint(("preempt", "reclaim"))
        return Costs(session.masks.kinds, nodes=len(session.snapshot.nodes), evicts=evicts)

    def _line(self, tenant: Tenant, gangs: Sequence[Gang], share: int, known: Round) -> _Line:
        keyed = sorted(
            (self._keyed(gang) for gang in gangs),
            key=lambda each: (each[0], int(each[1].created * 1e6), each[1].key),
        )
        looked_at = frozenset(known.looked_at)
        if all(gang.key in looked_at for _, gang in keyed):
            looked_at = frozenset()
        costs = self._costs()
        in_line = not tenant.namespace
        head = 0 if known.cut and not in_line else share if in_line else share // _HEAD
        chosen = _first([gang for _, gang in keyed], costs, head) if head else set()
        if not in_line:
            rest = [gang for _, gang in keyed if gang.key not in looked_at | chosen]
            chosen |= _first(rest, costs, share - head)
        return _Line(tenant, keyed, chosen, looked_at.union(known.known), looked_at)

    def _keyed(self, gang: Gang) -> tuple[Any, Gang]:
        key = self._session.turn_keys.of_gang(gang)
        return ((1,) if key is None else (0, key)), gang

    def _keep_order(self, waiting: dict[Tenant, list[Gang]]) -> None:
        """Nobody passes a gang of another namespace that comes first and was never looked at."""
        barred: dict[str, Any] = {}
        for line in self._lines:
            for key, gang in line.gangs:
                if gang.key not in line.chosen and gang.key not in line.known:
                    queue = line.tenant.queue
                    barred[queue] = min(barred.get(queue, key), key)
                    break
        for line in self._lines:
            bar = barred.get(line.tenant.queue)
            if bar is not None:
                line.chosen.difference_update(gang.key for key, gang in line.gangs if key > bar)
        lined = {line.tenant for line in self._lines}
        for tenant, gangs in waiting.items():
            bar = barred.get(tenant.queue)
            if bar is not None and tenant.queue and tenant not in lined:
                for gang in gangs:
                    if self._keyed(gang)[0] > bar:
                        self.left_out[gang.key] = 0

    def _leave_out(self, line: _Line) -> None:
        before = 0
        for _, gang in line.gangs:
            if gang.key in line.chosen:
                continue
            self.left_out[gang.key] = before
            before += gang.key not in line.looked_at

    def _after(self, line: _Line) -> Round:
        keys = [gang.key for _, gang in line.gangs]
        now = line.chosen - self._put_off
        done = sorted(key for key in keys if key in line.looked_at or key in now)
        known = line.known.union(done)
        complete = len(done) == len(keys)
        return Round(
            *line.tenant,
            looked_at=() if complete else tuple(done),
            known=tuple(sorted(key for key in keys if key in known)),
            cut=not line.chosen.isdisjoint(self._put_off),
        )


def _first(gangs: Sequence[Gang], costs: Costs, share: int) -> set[GangKey]:
    """The first of them that cost no more than the share together, and one at least."""
    chosen: set[GangKey] = set()
    for gang in gangs:
        share -= costs.of(gang)
        if chosen and share < 0:
            break
        chosen.add(gang.key)
    return chosen


def _always(session: Session, gang: Gang) -> bool:
    """Whether a session must look at it: it costs little, or room is held for it."""
    return (
        not gang.tasks
        or bool(gang.placed and gang.need)
        or gang.key in session.promises
        or gang.key in session.moved
        or (bool(gang.unborn) and not gang.suspended)
    )
