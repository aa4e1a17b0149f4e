"""Which gangs of a window to admit, by counts of kinds in pools; CP-SAT, repeatable.

Nothing but admission is weighed: which domain a gang gets and how compact its place is are
decided afterwards, else nothing is proven in time.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.base.errors import SolverFault
from gpusched.placement.admission.model import AdmissionLimit
from gpusched.placement.admission.pools import PoolConstraint, PooledBatch
from gpusched.placement.cpsat.solver import configure_solver, new_solver_model
from gpusched.placement.model.problem import Effort, SearchOutcome


@frozen(eq=False, kw_only=True)
class PoolSearchResult:
    """How a search ended.

    Attributes:
        admitted: numbers of contenders, ascending.
        counts: members by kind and pool, shape (kinds, pools).
        homes: by lump that has a level and starts, its domain.
        bound: no set of candidates is worth more.
        seconds, work: spent in the solver, by the clock and deterministic.
    """

    outcome: SearchOutcome
    admitted: tuple[int, ...] = ()
    counts: Ints = attrs.field(factory=lambda: np.zeros((0, 0), dtype=np.int64))
    homes: dict[int, int] = attrs.field(factory=dict)
    bound: int = 0
    seconds: float = 0.0
    work: float = 0.0


@frozen(eq=False, kw_only=True)
class AdmissionJob:
    """Admit the contenders of pools that are worth the most together. It pickles.

    With ``divided``, members of each kind are counted in each pool, and the answer says how many
    go where. Without, each domain is only asked whether its room is the sum of what lies in it:
    a much smaller model, whose answer may promise more.

    Attributes:
        pools: of the window.
        weights: one for each contender.
        effort: how long to try.
        divided: whether pools are told apart, see above.
        must: candidates without which there is no answer.
        quotas: of the window.
        apart: sets of contenders that cannot all start together.
        above: only answers worth more than this count.
        homes: lumps whose domain is decided already.
    """

    pools: PooledBatch
    weights: tuple[int, ...]
    effort: Effort
    divided: bool = True
    must: tuple[int, ...] = ()
    quotas: tuple[AdmissionLimit, ...] = ()
    apart: tuple[tuple[int, ...], ...] = ()
    above: int = -1
    homes: Mapping[int, int] = attrs.field(factory=dict)

    def run(self) -> PoolSearchResult:
        """Search until proven or out of budget.

        Raises:
            SolverFault: the model was refused.
        """
        from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when needed

        model = new_solver_model()
        built = _AdmissionModel(model, self)
        total = sum(w * a for w, a in zip(self.weights, built.admits, strict=True))
        free = [number for number in range(len(self.weights)) if number not in self.must]
        if free:
            model.add(total >= self.above + 1)
            model.maximize(total)
        solver = cp_model.CpSolver()
        effort = self.effort
        configure_solver(solver, budget_s=effort.budget_s, workers=effort.workers, seed=effort.seed)
        status = solver.solve(model)
        seconds, work = solver.wall_time, solver.response_proto.deterministic_time
        if status == cp_model.MODEL_INVALID:
            raise SolverFault(f"the solver refused its model: {model.validate()[:200]}")
        if status == cp_model.INFEASIBLE:
            return PoolSearchResult(outcome=SearchOutcome.INFEASIBLE, seconds=seconds, work=work)
        everything = sum(self.weights)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return PoolSearchResult(
                outcome=SearchOutcome.UNKNOWN, bound=everything, seconds=seconds, work=work
            )
        proven = status == cp_model.OPTIMAL
        bound = int(solver.best_objective_bound + 1e-6) if free else everything
        return PoolSearchResult(
            outcome=SearchOutcome.OPTIMAL if proven else SearchOutcome.FEASIBLE,
            admitted=tuple(n for n, a in enumerate(built.admits) if solver.boolean_value(a)),
            counts=built.read_counts(solver),
            homes=built.read_homes(solver),
            bound=min(bound, everything),
            seconds=seconds,
            work=work,
        )


@frozen(slots=True, eq=False)
class _GroupInDomain:
    """A lump, and the boolean that says whether it lies in a certain domain."""

    lump: int
    there: Any


class _AdmissionModel:
    """Variables and rows of one job, in the order of contenders, kinds and pools."""

    def __init__(self, model: Any, job: AdmissionJob) -> None:
        self._model = model
        self._pools = job.pools
        self.admits = [model.new_bool_var(f"a{number}") for number in range(len(job.weights))]
        for number in job.must:
            model.add(self.admits[number] == 1)
        for quota in job.quotas:
            amounts = zip(quota.amounts, self.admits, strict=True)
            model.add(sum(amount * admit for amount, admit in amounts) <= quota.most)
        for together in job.apart:
            model.add(sum(self.admits[number] for number in together) <= len(together) - 1)
        self._in: list[dict[int, Any]] = []
        """By lump, a boolean for each of its homes."""
        for number, lump in enumerate(job.pools.lumps):
            self._in.append(self._homes_of(number))
            if lump.level >= 0:
                model.add(sum(self._in[-1].values()) == self.admits[lump.contender])
            if number in job.homes:
                model.add(self._in[-1][job.homes[number]] == 1)
        self._loose: list[dict[int, Any]] = [{} for _ in self._pools.kinds]
        if job.divided:
            self._loose = self._make_counts()
            self._limit_totals()
            self._link_domains()
            self._limit_pools()
        else:
            self._limit_domain_room()

    def _homes_of(self, number: int) -> dict[int, Any]:
        lump = self._pools.lumps[number]
        made = {home: self._model.new_bool_var(f"z{number}_{home}") for home in lump.homes}
        if lump.parent >= 0:
            parent = self._pools.lumps[lump.parent]
            wide = self._pools.domain_above(lump.level, parent.level)
            for home, inside in made.items():
                outside = self._in[lump.parent].get(int(wide[home]))
                self._model.add(inside <= outside if outside is not None else inside == 0)
        return made

    def _make_counts(self) -> list[dict[int, Any]]:
        """By kind and pool, members of lumps that pools may divide."""
        pools = self._pools
        most = np.zeros(len(pools.kinds), dtype=np.int64)
        for lump in pools.lumps:
            if not pools.lies_in_one_pool(lump):
                for kind, count in lump.demand:
                    most[kind] += count
        limits = np.minimum(pools.caps, most[:, None])
        return [
            {
                pool: self._model.new_int_var(0, int(row[pool]), f"x{kind}_{pool}")
                for pool in np.flatnonzero(row).tolist()
            }
            for kind, row in enumerate(limits)
        ]

    def _limit_totals(self) -> None:
        for kind, counts in enumerate(self._loose):
            wanted = [
                count * self.admits[lump.contender]
                for lump in self._pools.lumps
                if not self._pools.lies_in_one_pool(lump)
                for each, count in lump.demand
                if each == kind
            ]
            if wanted:
                self._model.add(sum(counts.values()) == sum(wanted))

    def _link_domains(self) -> None:
        """A domain holds what is pinned to it, and to domains inside it."""
        pools = self._pools
        for level, domain_of in sorted(pools.above.items()):
            wanted: dict[tuple[int, int], list[Any]] = {}
            for number, lump in enumerate(pools.lumps):
                if lump.level < level or pools.lies_in_one_pool(lump):
                    continue
                wide = pools.domain_above(lump.level, level)
                for home, inside in self._in[number].items():
                    for kind, count in lump.demand:
                        wanted.setdefault((kind, int(wide[home])), []).append(count * inside)
            for (kind, domain), terms in sorted(wanted.items(), key=lambda each: each[0]):
                counts = self._loose[kind]
                held = [
                    counts[p] for p in np.flatnonzero(domain_of == domain).tolist() if p in counts
                ]
                self._model.add(sum(held) >= sum(terms))

    def _limit_domain_room(self) -> None:
        """A domain has the room of all that is pinned to it or inside; the cluster that of all."""
        pools = self._pools
        inside = self._groups_inside()
        lost: dict[tuple[int, int], dict[int, Any]] = {}
        narrower = dict(itertools.pairwise((-1, *pools.levels)))
        for level, domain in sorted(inside, reverse=True):
            lumps = inside[level, domain]
            for number, row in enumerate(pools.rows):
                inner = self._inner_losses(
                    lost.get((number, narrower.get(level, -1)), {}), level, domain
                )
                loss = self._lost_slots(row, level, domain, lumps, inner)
                if loss is not None:
                    lost.setdefault((number, level), {})[domain] = loss
                room = int(pools.sum_by_domain(row.room, level)[domain])
                terms = [(self._count_amounts(row.factors, each), each.there) for each in lumps]
                self._limit_room(terms, room, loss)
            for kind in range(len(pools.kinds)):
                alone = tuple(int(each == kind) for each in range(len(pools.kinds)))
                room = int(pools.sum_by_domain(pools.caps[kind], level)[domain])
                self._limit_room(
                    [(self._count_amounts(alone, each), each.there) for each in lumps], room
                )

    def _inner_losses(self, lost: dict[int, Any], level: int, domain: int) -> list[Any]:
        """Of losses by domain of the next narrower level, those inside a domain."""
        if not lost:
            return []
        levels = self._pools.levels
        narrow = levels[0] if level < 0 else levels[levels.index(level) + 1]
        wide = self._pools.domain_above(narrow, level)
        return [loss for home, loss in sorted(lost.items()) if wide[home] == domain]

    def _groups_inside(self) -> dict[tuple[int, int], list[_GroupInDomain]]:
        """By level and domain, the lumps that may lie there or inside."""
        pools = self._pools
        inside: dict[tuple[int, int], list[_GroupInDomain]] = {}
        for number, lump in enumerate(pools.lumps):
            admit = self.admits[lump.contender]
            for level in (-1, *pools.levels):
                if level > lump.level:
                    continue
                if level < 0:
                    inside.setdefault((-1, 0), []).append(_GroupInDomain(number, admit))
                    continue
                wide = pools.domain_above(lump.level, level)
                for home, there in self._in[number].items():
                    inside.setdefault((level, int(wide[home])), []).append(
                        _GroupInDomain(number, there)
                    )
        return inside

    def _lost_slots(
        self,
        row: PoolConstraint,
        level: int,
        domain: int,
        lumps: Sequence[_GroupInDomain],
        inner: Sequence[Any],
    ) -> Any:
        """Slots of a row that smaller members in a domain take, at least; None for none."""
        needs = []
        for below in row.below:
            waste = int(self._pools.sum_by_domain(below.waste, level)[domain])
            terms = [(self._count_amounts(below.amounts, each), each.there) for each in lumps]
            if sum(amount for amount, _ in terms) > waste:
                needs.append((terms, waste))
        if not needs and not inner:
            return None
        room = int(self._pools.sum_by_domain(row.room, level)[domain])
        loss = self._model.new_int_var(0, room, "")
        for terms, waste in needs:
            taken = sum(amount * there for amount, there in terms if amount)
            self._model.add(row.size * loss >= taken - waste)
        if inner:
            self._model.add(loss >= sum(inner))
        return loss

    def _count_amounts(self, amounts: Sequence[int], each: _GroupInDomain) -> int:
        lump = self._pools.lumps[each.lump]
        return sum(amounts[kind] * count for kind, count in lump.demand)

    def _limit_room(self, terms: Sequence[tuple[int, Any]], room: int, loss: Any = None) -> None:
        if sum(amount for amount, _ in terms) > room or loss is not None:
            taken = sum(amount * there for amount, there in terms if amount)
            self._model.add(taken + (0 if loss is None else loss) <= room)

    def _limit_pools(self) -> None:
        pools = self._pools
        wholes: list[dict[int, list[tuple[int, Any]]]] = [{} for _ in pools.kinds]
        for number, lump in enumerate(pools.lumps):
            if pools.lies_in_one_pool(lump):
                for kind, count in lump.demand:
                    for pool, inside in self._in[number].items():
                        wholes[kind].setdefault(pool, []).append((count, inside))
        for pool in range(pools.caps.shape[1]):
            for kind, counts in enumerate(self._loose):
                terms = [count * inside for count, inside in wholes[kind].get(pool, ())]
                if terms:
                    alone = [counts[pool]] if pool in counts else []
                    self._model.add(sum(terms) + sum(alone) <= int(pools.caps[kind, pool]))
            self._limit_pool_row(pool, [each.get(pool, []) for each in wholes])

    def _limit_pool_row(self, pool: int, wholes: Sequence[Sequence[tuple[int, Any]]]) -> None:
        for row in self._pools.rows:
            room = int(row.room[pool])
            terms, most = [], 0
            for kind, factor in enumerate(row.factors):
                loose = self._loose[kind].get(pool)
                if not factor:
                    continue
                cap = int(self._pools.caps[kind, pool])
                if loose is not None:
                    terms.append(factor * loose)
                terms += [factor * count * inside for count, inside in wholes[kind]]
                if loose is not None or wholes[kind]:
                    most += factor * cap
            if terms and most > room:
                self._model.add(sum(terms) <= room)

    # -- the answer ------------------------------------------------------------------------
    def read_counts(self, solver: Any) -> Ints:
        """Of all lumps, by kind and pool."""
        found: Ints = np.zeros(self._pools.caps.shape, dtype=np.int64)
        for kind, counts in enumerate(self._loose):
            for pool, variable in counts.items():
                found[kind, pool] = solver.value(variable)
        homes = self.read_homes(solver)
        for number, lump in enumerate(self._pools.lumps):
            if number in homes and self._pools.lies_in_one_pool(lump):
                for kind, count in lump.demand:
                    found[kind, homes[number]] += count
        return found

    def read_homes(self, solver: Any) -> dict[int, int]:
        """The domain of each lump that has one."""
        return {
            number: home
            for number, homes in enumerate(self._in)
            for home, inside in homes.items()
            if solver.boolean_value(inside)
        }
