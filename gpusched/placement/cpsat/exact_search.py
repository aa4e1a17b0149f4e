"""The pattern model with every term in turn: proves an answer best, or that there is none."""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define, frozen
from gpusched.placement.cpsat.demand import (
    HostingBounds,
    build_hosting_bounds,
    fewest_domains_for_sub_groups,
)
from gpusched.placement.cpsat.flows import MemberFlows, build_member_flows
from gpusched.placement.cpsat.gang_model import GangModel, build_gang_model
from gpusched.placement.cpsat.model_values import hint_solution, read_members
from gpusched.placement.cpsat.pattern_model import (
    INSIDE,
    PatternModel,
    SolverBudget,
    build_pattern_model,
)
from gpusched.placement.cpsat.patterns import CellPatterns, build_cell_patterns
from gpusched.placement.cpsat.solver import new_solver_model
from gpusched.placement.model.problem import NODES, SearchOutcome
from gpusched.placement.model.verify import objective_values

_INSIDE_S: Final = 0.3
"""Deterministic seconds for what costs inside nodes: domains matter more."""
_SINGLES_MAX: Final = 10_000
_SLACK: Final = 1e-6


@frozen(eq=False, kw_only=True)
class SearchArea:
    """Cells of a field that a gang may use.

    Attributes:
        field, flows, rooms: what is known of the whole field.
        cells: numbers of the cells, ascending.
        start: an answer that is known, members by role and node; maybe in other cells.
    """

    field: CellPatterns
    flows: MemberFlows
    rooms: HostingBounds
    cells: tuple[int, ...]
    start: Ints | None = None

    def restricted_to(self, cells: tuple[int, ...]) -> SearchArea:
        """Fewer cells of the same field."""
        return attrs.evolve(self, cells=cells)


@frozen(eq=False, kw_only=True)
class AreaResult:
    """What a search in one area found.

    Attributes:
        outcome: OPTIMAL when every domain term that was asked about is proven; INFEASIBLE is
            a proof for the area.
        counts: members by role and node, None without an answer.
        bounds: proven lower bounds by name of the term, for answers in the area that are as
            good in the terms before.
        method: which one.
    """

    outcome: SearchOutcome
    counts: Ints | None = None
    bounds: dict[str, int] = attrs.field(factory=dict)
    method: str = "patterns"


def solve_exactly(
    area: SearchArea,
    book: SolverBudget,
    *,
    caps: dict[str, int] | None = None,
    quick: bool = False,
) -> AreaResult:
    """Find the best answer in an area by patterns, term after term.

    Args:
        area: to be searched.
        book: what it may cost.
        caps: terms of domains that are known: they may not be above, and are not searched.
        quick: whether any answer will do.
    """
    if book.seconds_left <= 0:
        return AreaResult(
            outcome=SearchOutcome.UNKNOWN
        )  # building a model takes as long as solving it
    model = new_solver_model()
    made = build_gang_model(
        model,
        field=area.field,
        flows=area.flows,
        room=area.rooms.alone,
        cells=area.cells,
        fewest=fewest_domains_for_sub_groups(area.field, area.rooms, area.cells),
    )
    packed = build_pattern_model(area.field, made, cover=quick)
    if area.start is not None:
        hint_solution(made, area.field, flows=area.flows, counts=area.start, packed=packed)
    search = _TermByTermSolve(area=area, book=book, made=made, packed=packed)
    if quick:
        search.minimize_term("any", 0, most=book.seconds_left)
        return search.build_result(SearchOutcome.FEASIBLE)
    proven = True
    for name, term in made.terms:
        if caps is not None and name in caps:
            model.add(term <= caps[name])
            continue
        if not search.minimize_term(name, term, most=0.5 * book.seconds_left):
            proven = False
        if search.failed:
            return search.build_result(SearchOutcome.UNKNOWN)
    inside = search.minimize_term("inside", packed.cost, most=min(_INSIDE_S, book.seconds_left))
    if inside and packed.exact and search.counts is not None:
        values = objective_values(area.field.problem, search.counts)[-len(INSIDE) :]
        search.bounds.update(zip(INSIDE, values, strict=True))
    return search.build_result(SearchOutcome.OPTIMAL if proven else SearchOutcome.FEASIBLE)


@define(eq=False, kw_only=True)
class _TermByTermSolve:
    """One model whose terms are made small one after the other."""

    area: SearchArea
    book: SolverBudget
    made: GangModel
    packed: PatternModel
    counts: Ints | None = None
    bounds: dict[str, int] = attrs.field(factory=dict)
    last: SearchOutcome = SearchOutcome.UNKNOWN
    solver: Any = None

    @property
    def failed(self) -> bool:
        """Whether there is nothing to go on with."""
        return self.counts is None

    def minimize_term(self, name: str, term: Any, *, most: float) -> bool:
        """Make a term small and keep it so; whether it is proven to be the least."""
        model = self.made.model
        if isinstance(term, int) and name not in ("any", "inside"):
            self.bounds[name] = term
            if not self.failed:
                return True
        if not isinstance(term, int):
            model.minimize(term)
        outcome, solver = self.book.solve_model(model, most=most)
        if outcome is SearchOutcome.INFEASIBLE and self.failed:
            self.last = outcome if self.packed.lossless else SearchOutcome.UNKNOWN
            return False
        if outcome not in (SearchOutcome.OPTIMAL, SearchOutcome.FEASIBLE):
            if self.solver is not None and not isinstance(term, int):
                model.add(term <= int(self.solver.value(term)))
            return False
        self.solver = solver
        self.counts = read_members(
            self.area.field, self.area.flows, made=self.made, packed=self.packed, solver=solver
        )
        self._add_hints(solver)
        if isinstance(term, int):
            return True
        model.add(term <= round(solver.objective_value))
        if name != "inside":
            self.bounds[name] = ceil(solver.best_objective_bound - _SLACK)
        return outcome is SearchOutcome.OPTIMAL

    def build_result(self, outcome: SearchOutcome) -> AreaResult:
        """The result, as far as it went."""
        if self.counts is None:
            return AreaResult(outcome=self.last)
        return AreaResult(outcome=outcome, counts=self.counts, bounds=self.bounds)

    def _add_hints(self, solver: Any) -> None:
        model = self.made.model
        model.clear_hints()
        inside = (*self.packed.takes.values(), *self.packed.single.values())
        for variable in (*self.made.variables, *inside):
            model.add_hint(variable, solver.value(variable))


def solve_as_one_pool(area: SearchArea, book: SolverBudget) -> AreaResult:
    """Any answer in an area, of all its nodes as one pool: equal nodes of all cells are counted.

    Much smaller than the model that knows cells. Where sub-groups must be in one domain each it
    can only prove that there is no answer.
    """
    if book.seconds_left <= 0:
        return AreaResult(outcome=SearchOutcome.UNKNOWN)
    kinds = len(area.field.kinds)
    if area.field.patterns is None:
        nodes = sum(len(area.field.rows[cell]) for cell in area.cells)
        less = roomiest_cells(area, max(1, nodes * kinds // len(area.cells)), _SINGLES_MAX)
        if less is not area:
            return partial_result(_solve_by_pools(less, book))
    return _solve_by_pools(area, book)


def _solve_by_pools(area: SearchArea, book: SolverBudget) -> AreaResult:
    problem = area.field.problem
    inside = np.isin(area.field.cell, np.array(area.cells, dtype=np.int64))
    flat = attrs.evolve(
        problem,
        roles=tuple(attrs.evolve(role, fits=role.fits * inside) for role in problem.roles),
        parts=tuple(
            attrs.evolve(part, level=-1, preferred=-1, homes=(), near=()) for part in problem.parts
        ),
        holders=tuple(
            attrs.evolve(holder, level=-1, preferred=-1, homes=(), near=())
            for holder in problem.holders
        ),
        levels=(),
        required=-1,
        placed=np.zeros(0, dtype=np.int64),
        caps=tuple(cap for cap in problem.caps if cap.level == NODES),
    )
    pool_of = build_cell_patterns(flat)
    pool = SearchArea(
        field=pool_of,
        flows=build_member_flows(pool_of),
        rooms=build_hosting_bounds(pool_of),
        cells=(0,),
    )
    found = solve_exactly(pool, book, quick=True)
    tied = len(flat.caps) < len(problem.caps) or any(
        group.level >= 0 for group in problem.sub_groups
    )
    if tied and found.counts is not None:
        return AreaResult(outcome=SearchOutcome.UNKNOWN)
    return attrs.evolve(found, bounds={})


def roomiest_cells(area: SearchArea, each: int, most: int) -> SearchArea:
    """The roomiest cells, wide domains together, where all are too many for one model.

    Args:
        area: to be narrowed; it comes back itself when it is small enough.
        each: variables for one cell.
        most: variables in all.
    """
    count = max(1, most // max(1, each))
    if len(area.cells) <= count:
        return area
    field = area.field
    every = area.rooms.most[area.rooms.plain[len(field.kinds) % len(area.rooms.plain)]]
    kept: list[int] = []
    if area.start is not None:
        kept = np.unique(field.cell[area.start.any(axis=0)]).tolist()
    wide = field.at[0] if len(field.at) else np.zeros(len(field.rows), dtype=np.int64)
    room_of: dict[int, int] = {}
    for cell in area.cells:
        room_of[int(wide[cell])] = room_of.get(int(wide[cell]), 0) + int(every[cell])
    order = sorted(
        (cell for cell in area.cells if cell not in set(kept)),
        key=lambda cell: (-room_of[int(wide[cell])], int(wide[cell]), -int(every[cell]), cell),
    )
    return area.restricted_to(tuple(sorted([*kept, *order[: max(0, count - len(kept))]])))


def partial_result(found: AreaResult) -> AreaResult:
    """What was found when not all cells were looked at: an answer perhaps, but no proof."""
    outcome = SearchOutcome.UNKNOWN if found.counts is None else SearchOutcome.FEASIBLE
    return attrs.evolve(found, outcome=outcome, bounds={})


def members_that_do_not_fit(area: SearchArea, book: SolverBudget) -> int:
    """How many members at least do not fit in an area, 0 when that is not known."""
    if book.seconds_left <= 0:
        return 0
    model = new_solver_model()
    made = build_gang_model(
        model,
        field=area.field,
        flows=area.flows,
        room=area.rooms.alone,
        cells=area.cells,
        loose=True,
    )
    packed = build_pattern_model(area.field, made)
    model.minimize(made.terms[0][1])
    outcome, solver = book.solve_model(model, most=book.seconds_left)
    if outcome not in (SearchOutcome.OPTIMAL, SearchOutcome.FEASIBLE) or not packed.lossless:
        return 0
    least: int = ceil(solver.best_objective_bound - _SLACK)
    return max(0, least)
