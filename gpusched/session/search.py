"""Members of several classes compete for nodes: what one pass misses, a search finds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.arrays.columns import Bools
from gpusched.cache.gangs import Gang
from gpusched.errors import SolverFault
from gpusched.placement.counting import ClassAsk, Problem, Solution
from gpusched.placement.cpsat import solve
from gpusched.placement.problem import Outcome
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.statement import Statement

_MEMBERS_MAX = 2_000
"""Larger gangs of several classes are left to one pass: their models take seconds to build."""


def search(
    session: Session, gang: Gang, statement: Statement, areas: Sequence[Bools | None]
) -> str | None:
    """Place the gang's minimum in the first area that holds it.

    Args:
        session: whose nodes are searched.
        gang: with members of several classes.
        statement: takes the places that are found.
        areas: rows of each area, best first; None for all rows.

    Returns:
        None when it was placed, else what the search found out, for the sentence.
    """
    if gang.at_once > _MEMBERS_MAX:
        return f"gangs of several kinds above {_MEMBERS_MAX} pods are not searched"
    proven = True
    for rows in areas:
        problem = _problem(session, gang, rows)
        if _hopeless(problem):
            continue
        solution = _solve(session, problem)
        if solution.outcome is Outcome.FEASIBLE:
            _carry_out(session, gang, statement, solution)
            return None
        proven = proven and solution.outcome is Outcome.INFEASIBLE
    if proven:
        return "a complete search proves that no placement exists now"
    return "no placement was found within the time budget of the search"


def _problem(session: Session, gang: Gang, rows: Bools | None) -> Problem:
    bench = session.bench
    classes = []
    for task in gang.tasks:
        seat = session.seat(task.pod_class)
        fits = seat.board.fits if rows is None else np.where(rows, seat.board.fits, 0)
        classes.append(ClassAsk(seat.ask, len(task.pods), np.minimum(fits, len(task.pods))))
    minima = [
        (tuple(i for i, task in enumerate(gang.tasks) if task.role == role), missing)
        for role, missing in gang.missing_roles
    ]
    free = np.maximum(bench.nodes.allocatable - bench.used, 0)
    return Problem(free, tuple(classes), gang.at_once, tuple(minima))


def _hopeless(problem: Problem) -> bool:
    """Whether sums alone show that it cannot be."""
    reach = [min(each.most, int(each.fits.sum())) for each in problem.classes]
    if sum(reach) < problem.members:
        return True
    return any(sum(reach[i] for i in indices) < least for indices, least in problem.minima)


def _solve(session: Session, problem: Problem) -> Solution:
    settings = session.placement
    try:
        solution = solve(
            problem,
            budget_s=settings.time_budget_s,
            workers=settings.workers,
            seed=settings.seed,
        )
    except SolverFault as fault:
        session.hooks.faults.append(str(fault))
        solution = Solution(Outcome.INVALID, np.zeros((0, 0), dtype=np.int64))
    session.searches.append(
        Record(outcome=solution.outcome, seconds=solution.seconds, method="counts")
    )
    return solution


def _carry_out(session: Session, gang: Gang, statement: Statement, solution: Solution) -> None:
    for task, row_counts in zip(gang.tasks, solution.counts, strict=True):
        seat = session.seat(task.pod_class)
        pods = iter(task.pods)
        for row in np.flatnonzero(row_counts).tolist():
            for _ in range(int(row_counts[row])):
                statement.place(next(pods), row, seat.ask)
