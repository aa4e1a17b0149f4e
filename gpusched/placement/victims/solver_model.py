"""Cheaper victims than the best known, or the proof that there are none: one model for each domain.

One boolean for each bundle, one count for each row and role of the newcomers. As in
``placement.cpsat``: one worker, a fixed seed, a deterministic limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Protocol

from gpusched.base.classes import frozen
from gpusched.base.errors import SolverFault
from gpusched.placement.cpsat.solver import configure_solver, new_solver_model
from gpusched.placement.model.problem import SearchOutcome
from gpusched.placement.victims.loss_limits import NO_LIMITS, BundleLoss, LossLimits
from gpusched.placement.victims.loss_model import add_loss_limits

_COEFFICIENT_MAX: Final = 2**40


@frozen(slots=True)
class CandidateRow:
    """A row on which claimants fit when all candidates left.

    Attributes:
        free: amounts by column.
        freed: numbers of bundles and what they free here.
        most: how many of each role fit when all candidates left.
    """

    free: tuple[int, ...]
    freed: tuple[tuple[int, tuple[int, ...]], ...]
    most: tuple[int, ...]


@frozen(slots=True)
class IncomingPart:
    """Equal sub-groups of the newcomers: each is complete in one domain, or has nobody.

    Attributes:
        roles: numbers of the roles of their members.
        count: sub-groups of this sort.
        least: members that one needs, of all its roles together.
        most: members of one sub-group by role, in the order of ``roles``.
        domain: domain of each row of the model; rows that are in none are -1.
        counted: whether they count for the smallest number of sub-groups; one that is complete
            already does not, and only gets more members.
        parent: number of the sub-group that they are in, -1 at the top.
    """

    roles: tuple[int, ...]
    count: int
    least: int
    most: tuple[int, ...]
    domain: tuple[int, ...]
    counted: bool = True
    parent: int = -1


@frozen(slots=True)
class IncomingHolder:
    """A sub-group of sub-groups: it is complete, in one domain, or nobody in it gets room.

    Attributes:
        least: of the sub-groups in it, how many must be completed; 0 when it is complete already.
        domain: as of ``IncomingPart``, for all members inside.
        parent: as of ``IncomingPart``, a smaller number than its own.
    """

    least: int
    domain: tuple[int, ...]
    parent: int = -1


@frozen(slots=True)
class VictimModelResult:
    """How a search ended.

    Attributes:
        picked: numbers of bundles, for FEASIBLE and OPTIMAL.
        counts: newcomers by row and role, for these.
        seconds: in the solver, for metrics only.
        spent: deterministic seconds.
    """

    outcome: SearchOutcome
    picked: tuple[int, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()
    seconds: float = 0.0
    spent: float = 0.0


@frozen(kw_only=True)
class VictimModel:
    """A job for the solver: the cheapest bundles whose leaving lets the newcomers in.

    Attributes:
        requests: of one newcomer of each role, amounts by column.
        most: how many of each role there are.
        members: newcomers that must fit in all.
        minima: pairs of role numbers and how many of these together must fit.
        rows: where they may fit.
        costs: of each bundle.
        limits: pairs of what bundles draw, as pairs of bundle and count, and what there is.
        exclusive: pairs of bundles of which one at most may be picked.
        cost_max: no answer may cost more.
        followers: roles whose members do not come by themselves: pairs of a role and, as pairs of
            bundle and count, how many of it must fit for each bundle that is picked.
        forbidden: sets of bundles that may not be picked together.
        parts: sub-groups of the newcomers.
        parts_least: how many of those at the top must be complete.
        holders: sub-groups that hold others.
        loss_limits: what queues may lose.
        losses: what each bundle takes, as these limits see it; empty where nothing is limited.
        groups: sets of bundles that are parts of one gang, of which any costs ``group_cost`` more.
        budget_s: deterministic seconds.
    """

    requests: tuple[tuple[int, ...], ...]
    most: tuple[int, ...]
    members: int
    minima: tuple[tuple[tuple[int, ...], int], ...]
    rows: tuple[CandidateRow, ...]
    costs: tuple[int, ...]
    limits: tuple[tuple[tuple[tuple[int, int], ...], int], ...]
    exclusive: tuple[tuple[int, int], ...]
    cost_max: int
    budget_s: float
    followers: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    parts: tuple[IncomingPart, ...] = ()
    parts_least: int = 0
    holders: tuple[IncomingHolder, ...] = ()
    loss_limits: LossLimits = NO_LIMITS
    losses: tuple[BundleLoss, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    group_cost: int = 0
    workers: int = 1
    seed: int = 1

    def run(self) -> VictimModelResult:
        """Search until the cheapest is found, proven not to exist, or the budget is spent.

        Raises:
            SolverFault: the model was refused.
        """
        from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when needed

        model = new_solver_model()
        leaves = [model.new_bool_var(f"b{number}") for number in range(len(self.costs))]
        counts = [self._add_row(model, leaves, row, number) for number, row in enumerate(self.rows)]
        self._require_totals(model, counts, leaves)
        for terms, left in self.limits:
            model.add(sum(count * leaves[number] for number, count in terms) <= left)
        for one, other in self.exclusive:
            model.add_at_most_one([leaves[one], leaves[other]])
        for numbers in self.forbidden:
            model.add(sum(leaves[number] for number in numbers) <= len(numbers) - 1)
        self._sub_groups(model, counts)
        if not self.loss_limits.empty:
            add_loss_limits(model, leaves, self.loss_limits, self.losses)
        self._minimize_cost(model, leaves)
        solver = cp_model.CpSolver()
        configure_solver(solver, budget_s=self.budget_s, workers=self.workers, seed=self.seed)
        solver.parameters.cp_model_probing_level = 2  # a third of the work for sub-groups
        status = solver.solve(model)
        spent = solver.response_proto.deterministic_time
        if status == cp_model.MODEL_INVALID:
            raise SolverFault(f"the solver refused its model: {model.validate()[:200]}")
        if status == cp_model.INFEASIBLE:
            return VictimModelResult(
                SearchOutcome.INFEASIBLE, seconds=solver.wall_time, spent=spent
            )
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return VictimModelResult(SearchOutcome.UNKNOWN, seconds=solver.wall_time, spent=spent)
        optimal = status == cp_model.OPTIMAL
        picked = tuple(n for n, variable in enumerate(leaves) if solver.boolean_value(variable))
        if self._picked_cost(picked) > self.cost_max:
            outcome = SearchOutcome.INFEASIBLE if optimal else SearchOutcome.UNKNOWN
            return VictimModelResult(outcome, seconds=solver.wall_time, spent=spent)
        return VictimModelResult(
            SearchOutcome.OPTIMAL if optimal else SearchOutcome.FEASIBLE,
            picked,
            tuple(tuple(0 if x is None else int(solver.value(x)) for x in each) for each in counts),
            seconds=solver.wall_time,
            spent=spent,
        )

    def _minimize_cost(self, model: Any, leaves: list[Any]) -> None:
        total = sum(cost * leaves[number] for number, cost in enumerate(self.costs))
        for numbers in self.groups:
            touched = model.new_bool_var("")
            for number in numbers:
                model.add_implication(leaves[number], touched)
            total += self.group_cost * touched
        # The bound is no constraint: with a row that equals the objective, presolve of OR-Tools 9.15
        # called an answer of one model optimal that was not.
        for number, cost in enumerate(self.costs):
            if cost > self.cost_max:
                model.add(leaves[number] == 0)
        model.minimize(total)

    def _picked_cost(self, picked: Sequence[int]) -> int:
        gone = frozenset(picked)
        groups = sum(1 for each in self.groups if not gone.isdisjoint(each))
        return sum(self.costs[number] for number in picked) + groups * self.group_cost

    def _add_row(self, model: Any, leaves: list[Any], row: CandidateRow, number: int) -> list[Any]:
        """One count for each role that fits the row; together they get what is free and freed."""
        counts = [
            model.new_int_var(0, min(fits, self.most[role]), f"x{number}_{role}") if fits else None
            for role, fits in enumerate(row.most)
        ]
        for column, free in enumerate(row.free):
            asks = [
                (ask[column], x)
                for ask, x in zip(self.requests, counts, strict=True)
                if x is not None
            ]
            asks = [(ask, x) for ask, x in asks if ask]
            reach = sum(
                ask[column] * min(fits, most)
                for ask, fits, most in zip(self.requests, row.most, self.most, strict=True)
            )
            if not asks or free >= reach:
                continue
            largest = max(abs(free), reach, *(freed[column] for _, freed in row.freed))
            scale = max(1, -(-largest // _COEFFICIENT_MAX))
            # Requests round up, room rounds down: a scaled answer always fits.
            model.add(
                sum(-(-ask // scale) * x for ask, x in asks)
                <= free // scale
                + sum(freed[column] // scale * leaves[bundle] for bundle, freed in row.freed)
            )
        self._tighten_row(model, leaves, row, counts)
        return counts

    def _tighten_row(
        self, model: Any, leaves: list[Any], row: CandidateRow, counts: list[Any]
    ) -> None:
        """Where few fit unless a certain bundle leaves, say so: sums of resources alone let halves fit.

        A pod that needs a whole node is there only when each bundle on it left.
        """
        for bundle, _ in row.freed:
            either = {bundle, *self.partners.get(bundle, ())}
            others = [(n, freed) for n, freed in row.freed if n not in either]
            inside = {n for n, _ in others}
            room = list(row.free)
            for n, freed in others:
                if not self._is_covered(n, freed, row, inside):
                    room = [a + b for a, b in zip(room, freed, strict=True)]
            for role, x in enumerate(counts):
                if x is None:
                    continue
                most = min(row.most[role], self.most[role])
                least = fitting(room, self.requests[role])
                if least < most:
                    here = sum(leaves[n] for n, _ in row.freed if n in either)
                    model.add(x <= least + (most - least) * here)

    def _is_covered(
        self, bundle: int, freed: tuple[int, ...], row: CandidateRow, inside: set[int]
    ) -> bool:
        """Whether a partner that may leave in place of a bundle frees at least as much on the row."""
        partners = self.partners.get(bundle, ())
        return any(
            n in partners
            and n in inside
            and all(a >= b for a, b in zip(other, freed, strict=True))
            and (other != freed or n < bundle)
            for n, other in row.freed
        )

    @cached_property
    def partners(self) -> dict[int, set[int]]:
        """Of each bundle, those of which one at most may be picked with it."""
        partners: dict[int, set[int]] = {}
        for one, other in self.exclusive:
            partners.setdefault(one, set()).add(other)
            partners.setdefault(other, set()).add(one)
        return partners

    def _sub_groups(self, model: Any, counts: list[list[Any]]) -> None:
        """Members of a sub-group are in one domain: so many sub-groups of a sort in each."""
        complete: dict[int, list[Any]] = {}
        active = [model.new_bool_var("") for _ in self.holders]
        for part in self.parts:
            here = []
            for _, inside in _rows_by_domain(part.domain):
                of_role = [
                    [x for row in inside if (x := counts[row][role]) is not None]
                    for role in part.roles
                ]
                if not any(of_role):
                    continue
                groups = model.new_int_var(0, self._groups_at_most(part, inside), "")
                members = sum(sum(each) for each in of_role)
                model.add(members >= part.least * groups)
                for each, most in zip(of_role, part.most, strict=True):
                    if each:
                        model.add(sum(each) <= most * groups)
                here.append(groups)
            model.add(sum(here) <= part.count)
            if part.parent >= 0:
                model.add(sum(here) <= part.count * active[part.parent])
            if part.counted:
                complete.setdefault(part.parent, []).extend(here)
        for number, holder in reversed(list(enumerate(self.holders))):
            model.add(sum(complete.get(number, ())) >= holder.least * active[number])
            self._in_one_domain(model, counts, number)
            if holder.parent >= 0:
                model.add_implication(active[number], active[holder.parent])
            if holder.least:
                complete.setdefault(holder.parent, []).append(active[number])
        if self.parts_least:
            model.add(sum(complete.get(-1, ())) >= self.parts_least)

    def _in_one_domain(self, model: Any, counts: list[list[Any]], number: int) -> None:
        """All members inside of a sub-group of sub-groups, on rows that are in a domain."""
        roles = roles_in_holder(self.parts, self.holders, number)
        domains = self.holders[number].domain
        most = sum(self.most[role] for role in roles)
        chosen = []
        for _, inside in _rows_by_domain(domains):
            members = [x for row in inside for r in roles if (x := counts[row][r]) is not None]
            if members:
                chosen.append(model.new_bool_var(""))
                model.add(sum(members) <= most * chosen[-1])
        model.add(sum(chosen) <= 1)
        for row, domain in enumerate(domains):
            for role in roles if domain < 0 else ():
                if counts[row][role] is not None:
                    model.add(counts[row][role] == 0)

    def _groups_at_most(self, part: IncomingPart, inside: Sequence[int]) -> int:
        """How many sub-groups of a sort fit the rows of one domain when everybody left."""
        reach = [
            sum(min(self.rows[row].most[role], self.most[role]) for row in inside)
            for role in part.roles
        ]
        groups = part.count
        while groups and part.least * groups > sum(
            min(fit, most * groups) for fit, most in zip(reach, part.most, strict=True)
        ):
            groups -= 1
        return groups

    def _require_totals(self, model: Any, counts: list[list[Any]], leaves: list[Any]) -> None:
        by_role = [
            [each[role] for each in counts if each[role] is not None]
            for role in range(len(self.requests))
        ]
        following = dict(self.followers)
        for members, most in zip(by_role, self.most, strict=True):
            if len(self.most) > 1:
                model.add(sum(members) <= most)
        own = [x for role, each in enumerate(by_role) if role not in following for x in each]
        model.add(sum(own) >= self.members)
        for roles, least in self.minima:
            model.add(sum(x for role in roles for x in by_role[role]) >= least)
        for role, terms in self.followers:
            model.add(sum(by_role[role]) >= sum(count * leaves[number] for number, count in terms))


def _rows_by_domain(domains: Sequence[int]) -> list[tuple[int, list[int]]]:
    rows: dict[int, list[int]] = {}
    for row, domain in enumerate(domains):
        if domain >= 0:
            rows.setdefault(domain, []).append(row)
    return sorted(rows.items())


class _InHolder(Protocol):
    """A sub-group that may be in another one."""

    @property
    def parent(self) -> int:
        """Number of that one, -1 for none."""


class _OfRoles(_InHolder, Protocol):
    """A sub-group of members."""

    @property
    def roles(self) -> tuple[int, ...]:
        """Numbers of the roles of its members."""


def roles_in_holder(
    parts: Sequence[_OfRoles], holders: Sequence[_InHolder], number: int
) -> list[int]:
    """Numbers of the roles of all sub-groups inside of one that holds others."""
    found: list[int] = []
    for part in parts:
        at = part.parent
        while at not in (-1, number):
            at = holders[at].parent
        if at == number:
            found += part.roles
    return found


def fitting(free: Sequence[int], request: Sequence[int]) -> int:
    """How many fit; of a column that is not asked for, any amount will do."""
    return max(0, min((a // b for a, b in zip(free, request, strict=True) if b), default=0))
