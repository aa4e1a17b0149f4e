"""Gangs of several roles or of sub-groups: asked of the solver, and counted again."""

from __future__ import annotations

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.errors import SolverFault
from gpusched.placement.cpsat.gang_search import GangSearchJob, GangSearchResult
from gpusched.placement.model.bounds import lower_bounds
from gpusched.placement.model.problem import (
    Certificate,
    Effort,
    Problem,
    SearchOutcome,
    SearchRunner,
    Solution,
    Term,
)
from gpusched.placement.model.verify import objective_names, objective_values, solution_errors

METHOD = "several"


def place_by_solver(
    problem: Problem, effort: Effort, search: SearchRunner, *, start: Ints | None = None
) -> Solution:
    """The best answer that can be found and proven within the effort.

    Args:
        problem: what is asked.
        effort: how hard to try.
        search: runs the job, here or in another process.
        start: members by role and node, an answer without trouble that is known already.

    Returns:
        OPTIMAL when hope, domains and sub-groups' domains are proven to be the fewest; FEASIBLE
        with bounds; INFEASIBLE with a certificate; UNKNOWN. A solver that fails costs what it
        would have found: the answer is then ``start``, and ``faults`` says why.
    """
    if problem.members == 0:
        return _empty_solution(problem)
    if not effort.solver:
        return _start_as_solution(problem, start, ())
    try:
        answer = search(GangSearchJob(problem=problem, effort=effort, start=start))
    except SolverFault as fault:
        return _start_as_solution(problem, start, (f"{METHOD}: {fault}",))
    if not isinstance(answer, GangSearchResult):
        return _start_as_solution(
            problem, start, (f"{METHOD}: the solver's answer is of another kind",)
        )
    if answer.outcome is SearchOutcome.INFEASIBLE and start is not None:
        return _start_as_solution(problem, start, (f"{METHOD}: it denies an answer that there is",))
    if answer.outcome is SearchOutcome.INFEASIBLE:
        return Solution(
            outcome=SearchOutcome.INFEASIBLE,
            certificate=answer.certificate,
            method=answer.method,
            seconds=answer.seconds,
            work=answer.work,
        )
    return _better_solution(problem, answer, start)


def _better_solution(problem: Problem, answer: GangSearchResult, start: Ints | None) -> Solution:
    """The better of what the solver found and what was known, with the solver's bounds."""
    faults: tuple[str, ...] = ()
    counts, method = answer.counts, answer.method
    if counts is not None:
        wrong = solution_errors(problem, counts)
        if wrong:
            counts, faults = None, (f"{method}: {wrong}",)
    if start is not None and (
        counts is None or objective_values(problem, start) < objective_values(problem, counts)
    ):
        counts, method = start, "greedy"
    bounds = lower_bounds(problem) if faults or not answer.bounds else answer.bounds
    return _build_solution(
        problem, counts, bounds=bounds, method=method, faults=faults, answer=answer
    )


def _start_as_solution(problem: Problem, start: Ints | None, faults: tuple[str, ...]) -> Solution:
    bounds = lower_bounds(problem)
    return _build_solution(
        problem, start, bounds=bounds, method="greedy", faults=faults, answer=None
    )


def _build_solution(
    problem: Problem,
    counts: Ints | None,
    *,
    bounds: tuple[int, ...],
    method: str,
    faults: tuple[str, ...],
    answer: GangSearchResult | None,
) -> Solution:
    seconds, work = (0.0, 0.0) if answer is None else (answer.seconds, answer.work)
    if counts is None:
        return Solution(
            outcome=SearchOutcome.UNKNOWN, method=method, faults=faults, seconds=seconds, work=work
        )
    terms = tuple(
        Term(name, value, min(value, bound))
        for name, value, bound in zip(
            objective_names(problem), objective_values(problem, counts), bounds, strict=True
        )
    )
    return Solution(
        outcome=SearchOutcome.OPTIMAL if all_domains_proven(terms) else SearchOutcome.FEASIBLE,
        counts=counts,
        terms=terms,
        method=method,
        faults=faults,
        seconds=seconds,
        work=work,
    )


def all_domains_proven(terms: tuple[Term, ...]) -> bool:
    """Whether hope, and the domains of the gang and of sub-groups, are proven the least."""
    wanted = [
        term for term in terms if term.name in ("hope", "parts") or term.name.startswith("domains:")
    ]
    return all(term.value == term.bound for term in wanted)


def _empty_solution(problem: Problem) -> Solution:
    """No member is asked for: nothing is placed, if that is allowed."""
    counts: Ints = np.zeros((len(problem.roles), problem.nodes), dtype=np.int64)
    if solution_errors(problem, counts):
        every = tuple(range(len(problem.roles)))
        proof = Certificate("role", -1, -1, every, 1, 0)
        return Solution(outcome=SearchOutcome.INFEASIBLE, certificate=proof, method=METHOD)
    values = objective_values(problem, counts)
    terms = tuple(
        Term(name, value, value)
        for name, value in zip(objective_names(problem), values, strict=True)
    )
    return Solution(outcome=SearchOutcome.OPTIMAL, counts=counts, terms=terms, method=METHOD)
