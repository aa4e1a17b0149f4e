"""Which racks a gang of several roles uses: proven level by level, then packed, and cut if wrong.

The master knows racks by what they host at most: inequalities that every packing obeys, of slots,
of amounts, and of further directions where an answer breaks them. Its least number of domains is
a lower bound at each level, widest first. When the pattern model packs the racks it chose, the
bound is met and the answer proven; when it cannot, the set of racks is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define
from gpusched.placement.cpsat.demand import demand_in_direction, fewest_domains
from gpusched.placement.cpsat.exact_search import AreaResult, SearchArea, solve_exactly
from gpusched.placement.cpsat.gang_model import GangModel, build_gang_model
from gpusched.placement.cpsat.model_values import hint_solution
from gpusched.placement.cpsat.pattern_model import EXACT_MAX, SolverBudget, pattern_model_size
from gpusched.placement.cpsat.solver import new_solver_model
from gpusched.placement.model.problem import SearchOutcome
from gpusched.placement.model.verify import objective_names, objective_values

_TRIES: Final = 8
_ROUNDS: Final = 12
_WORST: Final = 4
_SLACK: Final = 1e-6
_STAGE_SHARE: Final = 0.5
_CHOICE_SHARE: Final = 0.7
_WIDER: Final = (2, 4, 8)


@define(eq=False, kw_only=True)
class RackCuts:
    """What was learned about an area, kept over all tries.

    Attributes:
        broken: positions of directions whose inequality holds in every cell.
        sets: of cells that together do not hold the gang.
    """

    broken: list[int] = attrs.field(factory=list)
    sets: list[frozenset[int]] = attrs.field(factory=list)


@define(eq=False, kw_only=True)
class _RackChoice:
    """What one pass over the levels chose.

    Attributes:
        outcome: OPTIMAL: every level proven for what is known; INFEASIBLE: there is no answer.
        again: whether cuts of a narrow level showed that a wider one was taken too lightly.
        bounds: by name of the term.
        values: by name of the term.
        cells: with members.
    """

    outcome: SearchOutcome = SearchOutcome.UNKNOWN
    again: bool = False
    bounds: dict[str, int] = attrs.field(factory=dict)
    values: dict[str, int] = attrs.field(factory=dict)
    cells: tuple[int, ...] = ()


def solve_by_racks(area: SearchArea, book: SolverBudget) -> AreaResult:
    """Choose racks, pack them, learn, and choose again."""
    cuts = RackCuts()
    choice = _RackChoice()
    for _ in range(_TRIES):
        if book.seconds_left <= 0:
            break
        share = book.split_share(_CHOICE_SHARE)
        choice = _choose_racks(area, share, cuts)
        book.add_spent(share)
        if choice.again:
            continue
        if choice.outcome is SearchOutcome.INFEASIBLE:
            return AreaResult(outcome=SearchOutcome.INFEASIBLE, method="master")
        if choice.outcome is SearchOutcome.UNKNOWN:
            break
        found = _fill_racks(area, book, choice=choice)
        if found.counts is not None:
            return _with_bounds(area, found, choice)
        if found.outcome is SearchOutcome.INFEASIBLE:
            cuts.sets.append(frozenset(choice.cells))
            continue
        wider = _try_wider(area, book, choice=choice)
        if wider is not None:
            return _with_bounds(area, wider, choice)
        break
    found = AreaResult(outcome=SearchOutcome.UNKNOWN)
    if pattern_model_size(area.field, area.cells) <= EXACT_MAX:
        found = solve_exactly(area, book, quick=True)
    if found.counts is None:
        return attrs.evolve(found, bounds=_term_bounds(area, choice))
    return _with_bounds(area, found, choice)


def _term_bounds(area: SearchArea, choice: _RackChoice) -> dict[str, int]:
    """What the master proved and holds for the known answer: each for the values before it."""
    values: dict[str, int] = {}
    if area.start is not None:
        problem = area.field.problem
        values = dict(
            zip(objective_names(problem), objective_values(problem, area.start), strict=True)
        )
    bounds: dict[str, int] = {}
    for name, bound in choice.bounds.items():
        bounds[name] = bound
        if values.get(name) != bound:
            break
    return bounds


def _with_bounds(area: SearchArea, found: AreaResult, choice: _RackChoice) -> AreaResult:
    """The packed answer with what the master proved; later bounds hold while values meet them."""
    problem = area.field.problem
    assert found.counts is not None
    values = dict(
        zip(objective_names(problem), objective_values(problem, found.counts), strict=True)
    )
    bounds: dict[str, int] = {}
    proven = choice.outcome is SearchOutcome.OPTIMAL and not choice.again
    for name, bound in choice.bounds.items():
        bounds[name] = min(bound, values[name])
        if values[name] > choice.values[name]:
            proven = False
            break
        proven = proven and values[name] == bound
    outcome = SearchOutcome.OPTIMAL if proven else SearchOutcome.FEASIBLE
    return attrs.evolve(found, outcome=outcome, bounds=bounds, method="master")


def _fill_racks(area: SearchArea, book: SolverBudget, *, choice: _RackChoice) -> AreaResult:
    """Fill the chosen racks; their number is known to be the least."""
    known = {name: value for name, value in choice.values.items() if name != "parts"}
    return solve_exactly(area.restricted_to(choice.cells), book, caps=known)


def _try_wider(area: SearchArea, book: SolverBudget, *, choice: _RackChoice) -> AreaResult | None:
    """Try with a few more racks, of the same wider domains first."""
    field = area.field
    chosen = set(choice.cells)
    wide = field.at[-2] if len(field.at) > 1 else np.zeros(len(field.rows), dtype=np.int64)
    near = {int(wide[cell]) for cell in chosen}
    room = area.rooms.most[area.field.patterns.shape[1] if area.field.patterns is not None else 0]
    others = sorted(
        (cell for cell in area.cells if cell not in chosen),
        key=lambda cell: (int(wide[cell]) not in near, -int(room[cell]), cell),
    )
    for more in _WIDER:
        cells = tuple(sorted((*chosen, *others[:more])))
        found = solve_exactly(area.restricted_to(cells), book, quick=True)
        if found.counts is not None:
            return found
        if book.seconds_left <= 0:
            break
    return None


def _choose_racks(area: SearchArea, book: SolverBudget, cuts: RackCuts) -> _RackChoice:
    """One pass: each level as few domains as what is known allows, widest first."""
    model = new_solver_model()
    made = build_gang_model(
        model, field=area.field, flows=area.flows, room=area.rooms.alone, cells=area.cells
    )
    _limit_amounts(made, area)
    for at in (*area.rooms.plain, *cuts.broken):
        _limit_direction(made, area, at, area.cells)
    _cover_levels(made, area)
    for together in cuts.sets:
        _not_only(made, area, together)
    if area.start is not None:
        hint_solution(made, area.field, flows=area.flows, counts=area.start)
    choice = _RackChoice(outcome=SearchOutcome.OPTIMAL)
    met = _terms_shown_least(area, made)
    for done, (name, term) in enumerate(made.terms):
        last = done == len(made.terms) - 1
        if not last and (isinstance(term, int) or name in met):
            choice.bounds[name] = choice.values[name] = met.get(name, term)
            model.add(term <= choice.values[name])
            continue
        narrow = done >= len(area.field.problem.levels) - 1
        if not _minimize_term(choice, made, area, book=book, cuts=cuts, stage=(name, term, narrow)):
            break
    return choice


def _terms_shown_least(area: SearchArea, made: GangModel) -> dict[str, int]:
    """Terms from the first on of which counting shows that the known answer has the least."""
    problem = area.field.problem
    if area.start is None:
        return {}
    values = dict(zip(objective_names(problem), objective_values(problem, area.start), strict=True))
    met: dict[str, int] = {}
    for level in range(len(problem.levels)):
        name = made.terms[level][0]
        if fewest_domains(area.field, area.rooms, level, area.cells) != values[name]:
            break
        met[name] = values[name]
    return met


def _minimize_term(
    choice: _RackChoice,
    made: GangModel,
    area: SearchArea,
    *,
    book: SolverBudget,
    cuts: RackCuts,
    stage: tuple[str, Any, bool],
) -> bool:
    """Make one term small; False when the pass cannot go on."""
    name, term, narrow = stage
    model = made.model
    if not isinstance(term, int):
        model.minimize(term)
    learned = False
    for _ in range(_ROUNDS if narrow else 1):
        outcome, solver = book.solve_model(model, most=_STAGE_SHARE * book.seconds_left)
        if outcome is SearchOutcome.INFEASIBLE:
            # Without an earlier stage's answer and without new rows nothing was assumed.
            choice.again = learned or bool(choice.cells)
            choice.outcome = SearchOutcome.INFEASIBLE
            return False
        if outcome is SearchOutcome.UNKNOWN:
            choice.outcome = SearchOutcome.FEASIBLE if choice.cells else SearchOutcome.UNKNOWN
            return False
        held = _members_in_racks(made, area, solver)
        choice.cells = tuple(np.flatnonzero(held.any(axis=0)).tolist())
        _add_hints(made, solver)
        broken = _overfilled_directions(area, held, cuts) if narrow else []
        for at in broken:
            _limit_direction(made, area, at, area.cells)
        cuts.broken += broken
        learned = learned or bool(broken)
        if not broken:
            break
    choice.values[name] = term if isinstance(term, int) else round(solver.objective_value)
    choice.bounds[name] = (
        term if isinstance(term, int) else ceil(solver.best_objective_bound - _SLACK)
    )
    if outcome is SearchOutcome.FEASIBLE:
        choice.outcome = outcome
    model.add(term <= choice.values[name])
    return True


def _members_in_racks(made: GangModel, area: SearchArea, solver: Any) -> Ints:
    held = np.zeros((len(area.field.kinds), len(area.field.rows)), dtype=np.int64)
    for (kind, cell), variable in made.held.items():
        held[kind, cell] = solver.value(variable)
    return held


def _overfilled_directions(area: SearchArea, held: Ints, cuts: RackCuts) -> list[int]:
    """Directions in which some rack was given more than it hosts, the worst first."""
    over = (area.rooms.directions @ held - area.rooms.most).max(axis=1)
    known = {*area.rooms.plain, *cuts.broken}
    worst = sorted((-int(by), at) for at, by in enumerate(over.tolist()) if by > 0)
    return [at for _, at in worst if at not in known][:_WORST]


def _add_hints(made: GangModel, solver: Any) -> None:
    made.model.clear_hints()
    for variable in made.variables:
        made.model.add_hint(variable, solver.value(variable))


# -- rows of the master ----------------------------------------------------------------------
def _used_domains(made: GangModel, level: int, domain: int) -> Any:
    return made.used.get((level, domain), 1)


def _cell_used(made: GangModel, area: SearchArea, cell: int) -> Any:
    level = len(area.field.problem.levels) - 1
    return 1 if level < 0 else _used_domains(made, level, int(area.field.at[level, cell]))


def _limit_direction(made: GangModel, area: SearchArea, at: int, cells: Sequence[int]) -> None:
    """No cell hosts more than it can in this direction."""
    weights = area.rooms.directions[at].tolist()
    if sum(1 for weight in weights if weight) < 2:
        return  # one kind alone: the frame says it
    for cell in cells:
        parts = [
            weight * made.held[kind, cell]
            for kind, weight in enumerate(weights)
            if weight and (kind, cell) in made.held
        ]
        if parts:
            room = int(area.rooms.most[at, cell])
            made.model.add(sum(parts) <= room * _cell_used(made, area, cell))


def _limit_amounts(made: GangModel, area: SearchArea) -> None:
    """No cell gives more of a resource than its nodes have together."""
    asks, room = area.field.scaled_sums()
    caps = area.rooms.alone
    for column in range(asks.shape[1]):
        kinds = [kind for kind in range(len(asks)) if asks[kind, column]]
        if len(kinds) < 2:
            continue
        for cell in area.cells:
            mine = [kind for kind in kinds if (kind, cell) in made.held]
            most = sum(int(asks[kind, column]) * int(caps[kind, cell]) for kind in mine)
            if len(mine) > 1 and most > int(room[cell, column]):
                total = sum(int(asks[kind, column]) * made.held[kind, cell] for kind in mine)
                made.model.add(total <= int(room[cell, column]) * _cell_used(made, area, cell))


def _cover_levels(made: GangModel, area: SearchArea) -> None:
    """At each level the used domains together host what is demanded."""
    for at in area.rooms.plain:
        _cover_demand(made, area, needed=area.rooms.needs[at], most=area.rooms.most[at])
    asks, room = area.field.scaled_sums()
    for column in range(asks.shape[1]):
        if np.count_nonzero(asks[:, column]) > 1:
            needed = demand_in_direction(area.field, asks[:, column].tolist())
            _cover_demand(made, area, needed=needed, most=room[:, column])


def _cover_demand(made: GangModel, area: SearchArea, *, needed: int, most: Ints) -> None:
    if needed <= 0:
        return
    cells = np.array(area.cells, dtype=np.int64)
    for level in range(len(area.field.problem.levels)):
        domains, which = np.unique(area.field.at[level, cells], return_inverse=True)
        room = np.zeros(len(domains), dtype=np.int64)
        np.add.at(room, which, most[cells])
        total = sum(
            min(needed, there) * _used_domains(made, level, domain)
            for domain, there in zip(domains.tolist(), room.tolist(), strict=True)
            if there
        )
        made.model.add(total >= needed)


def _not_only(made: GangModel, area: SearchArea, together: frozenset[int]) -> None:
    """These cells alone do not hold the gang."""
    others = [cell for cell in area.cells if cell not in together]
    parts = [
        made.held[kind, cell]
        for cell in others
        for kind in range(len(area.field.kinds))
        if (kind, cell) in made.held
    ]
    made.model.add(sum(parts) >= 1)
    made.model.add(sum(_cell_used(made, area, cell) for cell in others) >= 1)
