"""The cheapest victims for a gang of any shape: one model for each area where it may sit.

Areas come in the order of what their victims cost at least. Members of equal sub-groups are
counted together. Whoever uses a choice proves it by placing the gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from gpusched.api.meta.identity import UID
from gpusched.arrays.columns import Bools, RequestVector
from gpusched.base import limits
from gpusched.base.errors import SolverFault
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import SearchOutcome
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.lower_bound import VictimLowerBound, victim_lower_bound
from gpusched.placement.victims.model import VictimRank
from gpusched.placement.victims.search import (
    IncomingMembers,
    find_cheaper_victims_for_roles,
)
from gpusched.session.allocate.node_sets import NodeSet
from gpusched.session.preempt.incoming_sub_groups import with_sub_groups
from gpusched.session.preempt.pools.loss_accounts import LossAccounts
from gpusched.session.preempt.victim_pool import VictimGroup, VictimPool, VictimTable
from gpusched.session.preempt.victim_selection import record_victim_search
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.nodes.devices.device_columns import device_columns
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session import Session


class RoleVictimSearch:
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

    def find_cheapest(
        self,
        claimant: Gang,
        gangs: Sequence[Gang],
        areas: Iterable[NodeSet],
        *,
        accounts: LossAccounts,
        known: list[VictimGroup] | None = None,
        refused: Sequence[frozenset[UID]] = (),
    ) -> list[VictimGroup] | None:
        """A choice, cheaper than the known one if there is one; None where none was found.

        Args:
            claimant: of any classes and sub-groups.
            gangs: who may be a victim; policies agreed already.
            areas: where the claimant may sit.
            accounts: of the queues of all possible victims.
            known: a choice that makes room.
            refused: members that policies do not let go together, or that do not make room.
        """
        if not self._session.effort.solver or self.budget <= 0:
            return None
        found = []
        best: tuple[VictimRank, int] | None = None
        table: VictimTable | None = None
        for number, area in enumerate(areas):
            place = _NodeSetVictims(
                self._session,
                self._victims,
                claimant,
                area,
                action=self._action,
                gangs=gangs,
                accounts=accounts,
                table=table,
            )
            table = place.table if place.shares_table else None
            if not place.pool.fixed:
                return None  # whose turn it is to lose comes before what is lost
            bound = place.lower_bound()
            if known is not None and best is None:
                best = place.pool.weigh_parts(known)
            if bound is not None:
                found.append((bound, number, place))
        if known is not None and best is None:
            return None
        found.sort(key=lambda each: (each[0].rank, each[0].cost, each[1]))
        chosen: list[VictimGroup] | None = None
        for bound, _, place in found:
            if self.budget <= 0 or (best is not None and not bound.allows_better(*best)):
                continue
            better = self._search_node_set(place, best, bound, refused, alone=len(found) == 1)
            if better is not None:
                chosen, best = better
        return chosen

    def _search_node_set(
        self,
        place: _NodeSetVictims,
        best: tuple[VictimRank, int] | None,
        bound: VictimLowerBound,
        refused: Sequence[frozenset[UID]],
        *,
        alone: bool,
    ) -> tuple[list[VictimGroup], tuple[VictimRank, int]] | None:
        session = self._session
        budget_s = self.budget if alone else min(self.budget, limits.VICTIM_MODEL_S)
        effort = attrs.evolve(session.effort, budget_s=budget_s)
        try:
            answer = find_cheaper_victims_for_roles(
                place.pool.search_state,
                place.wanted,
                best,
                effort,
                bound=bound,
                search=session.search,
                forbidden=[place.pool.bundles_with(members) for members in refused],
            )
        except SolverFault as fault:
            session.hooks.faults.append(str(fault))
            session.record_search(SearchRecord(outcome=SearchOutcome.INVALID, method="victims"))
            return None
        self.budget -= answer.spent
        record_victim_search(session, answer)
        if answer.choice is None:
            return None
        return place.pool.victim_groups(answer.choice), (answer.choice.rank, answer.choice.cost)


class _NodeSetVictims:
    """An area with its victims, for members of several classes."""

    def __init__(
        self,
        session: Session,
        victims: Victims,
        claimant: Gang,
        area: NodeSet,
        *,
        action: str,
        gangs: Iterable[Gang],
        accounts: LossAccounts,
        table: VictimTable | None = None,
    ) -> None:
        seats = [session.class_info(pod_set.pod_class) for pod_set in claimant.pod_sets]
        allowed = [
            _rows_in_node_set(seat.class_fit.allowed & (not seat.request.missing), area)
            for seat in seats
        ]
        asks = [seat.request for seat in seats]
        together = _largest_demand(asks)
        rows = np.logical_or.reduce(allowed)
        classes = [each.pod_class for each in claimant.pod_sets]
        devices = device_columns(session, classes, rows)
        self.table = table or VictimTable(
            session,
            victims,
            claimant,
            together,
            devices=devices,
            action=action,
            gangs=gangs,
            accounts=accounts,
        )
        self.pool = VictimPool(
            session, victims, self.table, together, devices=devices, rows=rows, accounts=accounts
        )
        self.shares_table = not devices.requests
        columns = together.columns.tolist()
        incoming = [
            IncomingMembers(
                (*_amount_columns(ask, columns), *claimed),
                len(pod_set.pods),
                frozenset(np.flatnonzero(where).tolist()),
            )
            for pod_set, ask, where, claimed in zip(
                claimant.pod_sets, asks, allowed, devices.amounts, strict=True
            )
        ]
        minima = [
            (
                tuple(n for n, pod_set in enumerate(claimant.pod_sets) if pod_set.role == role),
                missing,
            )
            for role, missing in claimant.missing_roles
        ]
        self.wanted = with_sub_groups(session, claimant, incoming, minima)

    def lower_bound(self) -> VictimLowerBound | None:
        """What victims cost at least: the dearest bound of any single role."""
        worst = VictimLowerBound((), 0)
        for number, role in enumerate(self.wanted.roles):
            needed = self._needed_members(number)
            if needed <= 0:
                continue
            bound = victim_lower_bound(self._state_for_role(role), needed)
            if bound is None:
                return None
            if (bound.rank, bound.cost) > (worst.rank, worst.cost):
                worst = bound
        return worst

    def _needed_members(self, number: int) -> int:
        """How many of a role any choice must place."""
        others = sum(role.most for n, role in enumerate(self.wanted.roles) if n != number)
        least = max((m for roles, m in self.wanted.minima if roles == (number,)), default=0)
        return max(least, self.wanted.members - others)

    def _state_for_role(self, role: IncomingMembers) -> VictimSearchState:
        """The same victims, for members of one role."""
        field = self.pool.search_state
        columns = tuple([column for column, amount in enumerate(role.request) if amount])
        rows = field.free.keys() & (role.rows or frozenset())
        index = self.table.index_for_columns(columns)
        return VictimSearchState(
            [role.request[column] for column in columns],
            {row: [field.free[row][column] for column in columns] for row in sorted(rows)},
            index.members,
            index.bundles,
            limits=field.left,
            source_key=self.table.source_key,
            index=index,
        )


def _rows_in_node_set(allowed: Bools, area: NodeSet) -> Bools:
    return allowed if area.rows is None else allowed & area.rows


def _largest_demand(asks: Sequence[RequestVector]) -> RequestVector:
    """Every column that any of them asks for, with the largest amount."""
    amounts: dict[int, int] = {}
    for ask in asks:
        for column, amount in zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True):
            amounts[column] = max(amount, amounts.get(column, 0))
    columns = sorted(amounts)
    return RequestVector(
        np.array(columns, dtype=np.int64),
        np.array([amounts[column] for column in columns], dtype=np.int64),
        "",
    )


def _amount_columns(ask: RequestVector, columns: Sequence[int]) -> list[int]:
    known = dict(zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True))
    return [known.get(column, 0) for column in columns]
