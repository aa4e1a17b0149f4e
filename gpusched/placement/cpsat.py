"""Complete search for gangs of several classes: CP-SAT finds a placement or proves there is none.

One count for each class and node; pods of a class are
interchangeable and never enter the model. One worker, a fixed seed and a deterministic limit:
the same problem gets the same answer on every machine.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.errors import SolverFault
from gpusched.placement.counting import NO_COUNTS, Problem, Solution, holds
from gpusched.placement.problem import Outcome
from gpusched.placement.stopping import STOPPING

_WALL_GUARD: Final = 10.0
"""Wall seconds per deterministic second after which a search is given up all the same: far
beyond what was ever seen, so that only a broken solver meets it."""
_COEFFICIENT_MAX: Final = 2**40
"""Amounts are scaled below this, so that sums over a gang stay exact in the solver."""


def solve(problem: Problem, *, budget_s: float, workers: int, seed: int) -> Solution:
    """Search until found, proven impossible, or out of budget.

    Args:
        problem: to be solved.
        budget_s: deterministic seconds.
        workers: threads; more than one may give another answer each time.
        seed: of the search.

    Raises:
        SolverFault: the model was refused, or the answer does not hold.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when needed

    model = cp_model.CpModel()
    variables = _variables(model, problem)
    _totals(model, problem, variables)
    _capacities(model, problem, variables)
    solver = cp_model.CpSolver()
    tune(solver, budget_s=budget_s, workers=workers, seed=seed)
    status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        raise SolverFault(f"the solver refused its model: {model.validate()[:200]}")
    if status == cp_model.INFEASIBLE:
        return Solution(Outcome.INFEASIBLE, NO_COUNTS, solver.wall_time)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(Outcome.UNKNOWN, NO_COUNTS, solver.wall_time)
    counts: Ints = np.zeros((len(problem.classes), problem.free.shape[0]), dtype=np.int64)
    for (index, row), variable in variables.items():
        counts[index, row] = solver.value(variable)
    if not holds(problem, counts):
        raise SolverFault("the solver's answer does not hold when it is counted again")
    return Solution(Outcome.FEASIBLE, counts, solver.wall_time)


def tune(solver: Any, *, budget_s: float, workers: int, seed: int) -> None:
    """Parameters of every search of ours: bounded, repeatable, and quick on counts of equal pods.

    Args:
        solver: a ``CpSolver`` that has not run yet.
        budget_s: deterministic seconds.
        workers: threads.
        seed: of the search.
    """
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = budget_s
    solver.parameters.max_time_in_seconds = budget_s * _WALL_GUARD
    solver.parameters.linearization_level = 2
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.max_presolve_iterations = 1
    STOPPING.begun(solver)


def _variables(model: Any, problem: Problem) -> dict[tuple[int, int], Any]:
    return {
        (index, row): model.new_int_var(
            0, min(int(each.fits[row]), each.most, problem.members), f"x{index}_{row}"
        )
        for index, each in enumerate(problem.classes)
        for row in np.flatnonzero(each.fits > 0).tolist()
    }


def _totals(model: Any, problem: Problem, variables: dict[tuple[int, int], Any]) -> None:
    by_class: list[list[Any]] = [[] for _ in problem.classes]
    for (index, _), variable in variables.items():
        by_class[index].append(variable)
    for each, members in zip(problem.classes, by_class, strict=True):
        model.add(sum(members) <= each.most)
    model.add(sum(variables.values()) == problem.members)
    for indices, least in problem.minima:
        model.add(sum(variable for index in indices for variable in by_class[index]) >= least)


def _capacities(model: Any, problem: Problem, variables: dict[tuple[int, int], Any]) -> None:
    by_row: dict[int, list[tuple[int, Any]]] = {}
    for (index, row), variable in variables.items():
        by_row.setdefault(row, []).append((index, variable))
    for row, members in sorted(by_row.items()):
        if len(members) < 2:
            continue  # the bound of the only variable says it already
        asked: dict[int, list[tuple[int, Any]]] = {}
        for index, variable in members:
            ask = problem.classes[index].ask
            for column, amount in zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True):
                asked.setdefault(column, []).append((amount, variable))
        for column, terms in sorted(asked.items()):
            free = int(problem.free[row, column])
            scale = max(1, -(-max(free, *(amount for amount, _ in terms)) // _COEFFICIENT_MAX))
            # Requests round up and capacity rounds down: a scaled answer always fits.
            model.add(
                sum(-(-amount // scale) * variable for amount, variable in terms) <= free // scale
            )
