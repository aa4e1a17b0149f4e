"""How hard a session's searches try, and what they came to: one record for each."""

from __future__ import annotations

from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.config.model import PlacementConfig
from gpusched.placement.model.problem import Effort, Problem, SearchOutcome, Solution

_SECONDS_PER_WORK_MAX: Final = 1.7
"""Seconds that a deterministic second of the solver took where it took longest."""
_OVERRUN_S: Final = 0.6
"""Seconds after the time budget in which an answer may come: the second that the contract allows, less what is
done around the solver and the moment in which its process is stopped."""


@frozen(kw_only=True)
class SearchRecord:
    """How one search ended, for metrics.

    Attributes:
        outcome: how it ended.
        seconds: spent in a solver, as it says itself; no decision depends on it.
        work: deterministic seconds spent in a solver.
        gap: (value - bound) / max(1, bound) of the first term up to nodes that is not proven; None where
            there is no answer or no bound.
        method: that found the answer, as ``Solution.method``; ``victims`` for a choice of victims.
        faults: sentences about methods whose answers could not be used.
        problem: that they were given, for a dump; None when there was no fault.
    """

    outcome: SearchOutcome
    seconds: float = 0.0
    work: float = 0.0
    gap: float | None = None
    method: str = ""
    faults: tuple[str, ...] = ()
    problem: Problem | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def from_solution(cls, solution: Solution, problem: Problem) -> SearchRecord:
        """The record of a placement."""
        answered = solution.outcome in (SearchOutcome.OPTIMAL, SearchOutcome.FEASIBLE)
        return cls(
            outcome=solution.outcome,
            seconds=solution.seconds,
            work=solution.work,
            gap=_unproven_gap(solution) if answered else None,
            method=solution.method,
            faults=solution.faults,
            problem=problem if solution.faults else None,
        )


def _unproven_gap(solution: Solution) -> float:
    """As ``Solution.gap``, of domains and nodes: what comes after them is worth no wait."""
    for term in solution.terms:
        if term.name == "span":
            continue
        if term.value != term.bound:
            return (term.value - term.bound) / max(1, term.bound)
        if term.name == "nodes":
            break
    return 0.0


def search_effort(placement: PlacementConfig) -> Effort:
    """How hard to try for one problem.

    Budgets are deterministic seconds, so that answers repeat; a large one is cut so far that an
    answer comes in time on the slowest machine that was measured.
    """
    budget_s = placement.time_budget_s
    return Effort(
        solver=placement.solver == "cpsat",
        tables=placement.solver != "heuristic",
        budget_s=min(budget_s, (budget_s + _OVERRUN_S) / _SECONDS_PER_WORK_MAX),
        workers=placement.workers,
        seed=placement.seed,
    )
