"""Which gangs a session looks at, where there are more than it can: a fair part of each tenant's.

Who is within its share is looked at as a whole in every session. Of the gangs of a tenant that
asks for more, the first in line are looked at every time, and the others in rounds: each session
goes on where the last one ended, and when everybody had a turn the next round begins. Nobody is
looked at while a gang that comes before it by the order of its queue has never been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


@attrs.define(slots=True, eq=False)
class _Line:
    """The gangs of a tenant that has more than its share.

    Attributes:
        gangs: all of them, by key.
        head: those that were first in line when the round began.
        chosen: those that this session looks at.
        left: those that this round is still to look at, in the order of their turns.
        before: how far the rounds had come.
    """

    tenant: Tenant
    gangs: Mapping[GangKey, Gang]
    head: Sequence[GangKey]
    chosen: set[GangKey]
    left: list[Gang]
    before: Round


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
        self._waiting: dict[Tenant, list[Gang]] = {}
        tenants: dict[tuple[str, str], list[Gang]] = {}
        for gang in session.every_gang:
            if not _always(session, gang):
                tenants.setdefault((gang.queue, gang.key.namespace), []).append(gang)
        for alike in tenants.values():
            self._waiting.setdefault(tenant_of(session, alike[0]), []).extend(alike)
        asked = {tenant: self._asked(gangs) for tenant, gangs in self._waiting.items()}
        shares = _shares(asked)
        self.work = Work(_allowed(shares))
        rounds = {Tenant(each.queue, each.namespace): each for each in session.snapshot.rounds}
        for tenant in sorted(asked):
            begun = rounds.get(tenant, Round(*tenant))
            if asked[tenant] > shares[tenant] or begun.left:
                gangs = {gang.key: gang for gang in self._waiting[tenant]}
                self._lines.append(self._line(tenant, gangs, shares[tenant], begun))
        if self._lines:
            self._keep_order()
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
        if self._put_off:
            lined = {line.tenant for line in self._lines}
            for tenant, gangs in self._waiting.items():
                cut = [gang for gang in gangs if gang.key in self._put_off]
                if cut and tenant not in lined:
                    found.append(self._cut(tenant, gangs, cut))
        return tuple(sorted(found, key=lambda each: (each.queue, each.namespace)))

    # -- choosing ----------------------------------------------------------------------------
    def _asked(self, gangs: Iterable[Gang]) -> int:
        """What they would cost together, as far as that matters: never far beyond a session."""
        costs, units = self._costs(), 0
        for gang in gangs:
            units += costs.of(gang)
            if units > limits.SESSION_WORK_MAX:
                break
        return units

    def _costs(self) -> Costs:
        session = self._session
        evicts = not session.actions.isdisjoint(("preempt", "reclaim"))
        return Costs(session.masks.kinds, nodes=len(session.snapshot.nodes), evicts=evicts)

    def _line(
        self, tenant: Tenant, gangs: Mapping[GangKey, Gang], share: int, before: Round
    ) -> _Line:
        costs = self._costs()
        if not tenant.namespace:
            ordered = self._in_order(gangs.values())
            chosen = _first(ordered, costs, share)
            return _Line(tenant, gangs, (), {each.key for each in chosen}, [], before)
        if not before.left:
            before = attrs.evolve(before, looked_at=(), head=(), cut=False)
            ordered = self._in_order(gangs.values())
            head = [each.key for each in _first(ordered, costs, share // _HEAD)]
            chosen = _first(ordered[len(head) :], costs, share - share // _HEAD)
            left = ordered[len(head) + len(chosen) :]
            return _Line(tenant, gangs, head, {*head, *(each.key for each in chosen)}, left, before)
        head = [key for key in before.head if key in gangs]
        chosen_head = (
            [] if before.cut else _first([gangs[key] for key in head], costs, share // _HEAD)
        )
        waiting = [gangs[key] for key in before.left if key in gangs]
        known = {*before.left, *before.looked_at}
        fresh = [gang for key, gang in gangs.items() if key not in known]
        nearest = len(_first(waiting, self._costs(), share))
        ordered = self._in_order([*waiting[:nearest], *fresh])
        rest = share if before.cut else share - share // _HEAD
        chosen = _first(ordered, costs, rest)
        left = [*ordered[len(chosen) :], *waiting[nearest:]]
        keys = {each.key for each in (*chosen_head, *chosen)}
        return _Line(tenant, gangs, head, keys, left, before)

    def _in_order(self, gangs: Iterable[Gang]) -> list[Gang]:
        return sorted(gangs, key=lambda gang: (self._key(gang), int(gang.created * 1e6), gang.key))

    def _key(self, gang: Gang) -> Any:
        key = self._session.turn_keys.of_gang(gang)
        return (1,) if key is None else (0, key)

    def _keep_order(self) -> None:
        """Nobody passes a gang of another namespace that comes first and was never looked at."""
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
                    key = self._key(first)
                    barred[queue] = min(barred.get(queue, key), key)
        lines = {line.tenant: line for line in self._lines}
        for queue, bar in barred.items():
            for tenant in tenants[queue]:
                self._bar(tenant, lines.get(tenant), bar)

    def _bar(self, tenant: Tenant, line: _Line | None, bar: Any) -> None:
        """Gangs of the tenant whose turn comes after this key must wait."""
        for gang in self._waiting[tenant]:
            if line is not None and gang.key not in line.chosen:
                continue
            if self._key(gang) <= bar:
                continue
            self.left_out[gang.key] = 0
            if line is not None:
                line.chosen.discard(gang.key)
                line.left.insert(0, gang)

    def _leave_out(self, line: _Line) -> None:
        for key in line.gangs:
            if key not in line.chosen:
                self.left_out[key] = 0
        for number, gang in enumerate(line.left):
            self.left_out[gang.key] = number

    # -- afterwards --------------------------------------------------------------------------
    def _after(self, line: _Line) -> Round:
        if not line.tenant.namespace:
            return Round(*line.tenant)
        cut = [line.gangs[key] for key in sorted(line.chosen & self._put_off)]
        looked_at = {*line.before.looked_at, *line.chosen} - self._put_off
        left = [*self._in_order(cut), *line.left]
        known = looked_at.union(line.before.known)
        return Round(
            *line.tenant,
            head=tuple(line.head),
            left=tuple(each.key for each in left),
            looked_at=tuple(sorted(key for key in looked_at if key in line.gangs)),
            known=tuple(sorted(key for key in known if key in line.gangs)),
            cut=bool(cut),
        )

    def _cut(self, tenant: Tenant, gangs: Sequence[Gang], cut: Sequence[Gang]) -> Round:
        if not tenant.namespace:
            return Round(*tenant)
        return Round(
            *tenant,
            left=tuple(each.key for each in self._in_order(cut)),
            looked_at=tuple(gang.key for gang in gangs if gang.key not in self._put_off),
            cut=True,
        )


def _shares(asked: Mapping[Tenant, int]) -> dict[Tenant, int]:
    """What each tenant gets of a session: its queue's part first, then its own part of that."""
    queues: dict[str, dict[Tenant, int]] = {}
    for tenant, units in asked.items():
        queues.setdefault(tenant.queue, {})[tenant] = units
    parts = fair_split(
        {name: sum(each.values()) for name, each in queues.items()}, limits.SESSION_WORK_MAX
    )
    shares: dict[Tenant, int] = {}
    for name, tenants in queues.items():
        shares |= fair_split(tenants, parts[name])
    return shares


def _allowed(shares: Mapping[Tenant, int]) -> dict[Tenant, int]:
    """What each may use at most: who asks for little may find out that it takes more."""
    tenants: dict[str, int] = {}
    for tenant in shares:
        tenants[tenant.queue] = tenants.get(tenant.queue, 0) + 1
    least = limits.SESSION_WORK_MAX // max(1, len(tenants))
    return {tenant: max(share, least // tenants[tenant.queue]) for tenant, share in shares.items()}


def _first(gangs: Sequence[Gang], costs: Costs, share: int) -> list[Gang]:
    """The first of them that cost no more than the share together, and one at least."""
    chosen: list[Gang] = []
    for gang in gangs:
        share -= costs.of(gang)
        if chosen and share < 0:
            break
        chosen.append(gang)
    return chosen


def _always(session: Session, gang: Gang) -> bool:
    """Whether a session must look at it: it costs little, or room is held for it."""
    return (
        (not gang.tasks and (bool(gang.placed) or not gang.need))
        or bool(gang.placed and gang.need)
        or gang.key in session.promises
        or gang.key in session.moved
        or (bool(gang.unborn) and not gang.suspended)
    )
