"""Cheaper victims for a gang of several classes, where a choice for it is known already.

The known choice was proven by placing; it is bettered by one model for each area, areas in the
order of what their victims cost at least. Whoever uses a choice proves it by placing again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from gpusched import limits
from gpusched.arrays.columns import Bools, Demand
from gpusched.cache.gangs import Gang
from gpusched.errors import SolverFault
from gpusched.placement.problem import Outcome
from gpusched.placement.victim_field import Field
from gpusched.placement.victim_floor import Floor, floor
from gpusched.placement.victim_search import Newcomer, Wanted, cheaper_for_roles
from gpusched.placement.victims import Lane, Member
from gpusched.session.areas import Area
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.victim_choice import note
from gpusched.session.victim_pool import Leaving, Pool
from gpusched.session.victims import Victims


class RoleSearch:
    """See the module.

    Args:
        session: looked at as it will be.
        victims: of the session.
        action: ``preempt`` or ``reclaim``.
        budget_s: deterministic seconds in all.
    """

    def __init__(self, session: Session, victims: Victims, *, action: str, budget_s: float) -> None:
        self._session = session
        self._victims = victims
        self._action = action
        self.budget = budget_s

    def better(
        self, claimant: Gang, gangs: Sequence[Gang], areas: Iterable[Area], known: list[Leaving]
    ) -> list[Leaving] | None:
        """A cheaper choice than the known one; None where none was found.

        Args:
            claimant: of several classes, without sub-groups.
            gangs: who may be a victim; policies agreed already.
            areas: where the claimant may sit.
            known: a choice that makes room.
        """
        if not self._session.effort.solver or self.budget <= 0:
            return None
        found = []
        for number, area in enumerate(areas):
            place = _Place(
                self._session, self._victims, claimant, area, action=self._action, gangs=gangs
            )
            if place.pool.field.sources > 1:
                return None  # whose turn it is to lose comes before what is lost
            bound = place.floor()
            best = place.pool.weighed(known)
            if bound is not None:
                found.append((bound, number, place, best))
        best = next((each[3] for each in found if each[3] is not None), None)
        if best is None:
            return None
        found.sort(key=lambda each: (each[0].lane, each[0].cost, each[1]))
        chosen: list[Leaving] | None = None
        for bound, _, place, _ in found:
            if self.budget <= 0 or not bound.allows(*best):
                continue
            better = self._search(place, best, bound)
            if better is not None:
                chosen, best = better
        return chosen

    def _search(
        self, place: _Place, best: tuple[Lane, int], bound: Floor
    ) -> tuple[list[Leaving], tuple[Lane, int]] | None:
        session = self._session
        effort = attrs.evolve(session.effort, budget_s=min(self.budget, limits.VICTIM_MODEL_S))
        try:
            answer = cheaper_for_roles(
                place.pool.field, place.wanted, best, effort, bound=bound, search=session.search
            )
        except SolverFault as fault:
            session.hooks.faults.append(str(fault))
            session.searches.append(Record(outcome=Outcome.INVALID, method="victims"))
            return None
        self.budget -= answer.spent
        note(session, answer)
        if answer.choice is None:
            return None
        return place.pool.leaving(answer.choice), (answer.choice.lane, answer.choice.cost)


class _Place:
    """An area with its victims, for members of several classes."""

    def __init__(
        self,
        session: Session,
        victims: Victims,
        claimant: Gang,
        area: Area,
        *,
        action: str,
        gangs: Iterable[Gang],
    ) -> None:
        seats = [session.seat(task.pod_class) for task in claimant.tasks]
        allowed = [_within(seat.board.allowed & (not seat.ask.missing), area) for seat in seats]
        asks = [seat.ask for seat in seats]
        together = _together(asks)
        self.pool = Pool(
            session,
            victims,
            claimant,
            together,
            action=action,
            rows=np.logical_or.reduce(allowed),
            gangs=gangs,
        )
        columns = together.columns.tolist()
        self.wanted = Wanted(
            tuple(
                Newcomer(
                    tuple(_amounts(ask, columns)),
                    len(task.pods),
                    frozenset(np.flatnonzero(rows).tolist()),
                )
                for task, ask, rows in zip(claimant.tasks, asks, allowed, strict=True)
            ),
            claimant.at_once,
            tuple(
                (tuple(n for n, task in enumerate(claimant.tasks) if task.role == role), missing)
                for role, missing in claimant.missing_roles
            ),
        )

    def floor(self) -> Floor | None:
        """What victims cost at least: the dearest bound of any single role."""
        worst = Floor((), 0)
        for number, role in enumerate(self.wanted.roles):
            needed = self._needed(number)
            if needed <= 0:
                continue
            bound = floor(self._alone(role), needed)
            if bound is None:
                return None
            if (bound.lane, bound.cost) > (worst.lane, worst.cost):
                worst = bound
        return worst

    def _needed(self, number: int) -> int:
        """How many of a role any choice must place."""
        others = sum(role.most for n, role in enumerate(self.wanted.roles) if n != number)
        least = max((m for roles, m in self.wanted.minima if roles == (number,)), default=0)
        return max(least, self.wanted.members - others)

    def _alone(self, role: Newcomer) -> Field:
        """The same victims, for members of one role."""
        field = self.pool.field
        columns = [column for column, amount in enumerate(role.ask) if amount]
        rows = field.free.keys() & (role.rows or frozenset())
        members = [
            Member(
                each.row if each.row in rows else -1,
                tuple(each.frees[column] for column in columns),
                each.cost,
                each.draws,
            )
            for each in field.members
        ]
        return Field(
            [role.ask[column] for column in columns],
            {row: [field.free[row][column] for column in columns] for row in sorted(rows)},
            members,
            field.bundles,
            limits=field.left,
            source_key=self.pool.source_key,
        )


def _within(allowed: Bools, area: Area) -> Bools:
    return allowed if area.rows is None else allowed & area.rows


def _together(asks: Sequence[Demand]) -> Demand:
    """Every column that any of them asks for, with the largest amount."""
    amounts: dict[int, int] = {}
    for ask in asks:
        for column, amount in zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True):
            amounts[column] = max(amount, amounts.get(column, 0))
    columns = sorted(amounts)
    return Demand(
        np.array(columns, dtype=np.int64),
        np.array([amounts[column] for column in columns], dtype=np.int64),
        "",
    )


def _amounts(ask: Demand, columns: Sequence[int]) -> list[int]:
    known = dict(zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True))
    return [known.get(column, 0) for column in columns]
