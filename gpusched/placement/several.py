"""Gangs of several roles or of sub-groups: asked of the solver, and counted again."""

from __future__ import annotations

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.errors import SolverFault
from gpusched.placement.bounds import lower_bounds
from gpusched.placement.cpsat_several import Answer, SeveralJob
from gpusched.placement.problem import (
    Certificate,
    Effort,
    Outcome,
    Problem,
    Search,
    Solution,
    Term,
)
from gpusched.placement.verify import names, objective, trouble

METHOD = "several"


def place_several(
    problem: Problem, effort: Effort, search: Search, *, start: Ints | None = None
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
        return _nobody(problem)
    if not effort.solver:
        return _only(problem, start, ())
    try:
        answer = search(SeveralJob(problem=problem, effort=effort, start=start))
    except SolverFault as fault:
        return _only(problem, start, (f"{METHOD}: {fault}",))
    if not isinstance(answer, Answer):
        return _only(problem, start, (f"{METHOD}: the solver's answer is of another kind",))
    if answer.outcome is Outcome.INFEASIBLE and start is not None:
        return _only(problem, start, (f"{METHOD}: it denies an answer that there is",))
    if answer.outcome is Outcome.INFEASIBLE:
        return Solution(
            outcome=Outcome.INFEASIBLE,
            certificate=answer.certificate,
            method=answer.method,
            seconds=answer.seconds,
            work=answer.work,
        )
    return _chosen(problem, answer, start)


def _chosen(problem: Problem, answer: Answer, start: Ints | None) -> Solution:
    """The better of what the solver found and what was known, with the solver's bounds."""
    faults: tuple[str, ...] = ()
    counts, method = answer.counts, answer.method
    if counts is not None:
        wrong = trouble(problem, counts)
        if wrong:
            counts, faults = None, (f"{method}: {wrong}",)
    if start is not None and (
        counts is None or objective(problem, start) < objective(problem, counts)
    ):
        counts, method = start, "greedy"
    bounds = lower_bounds(problem) if faults or not answer.bounds else answer.bounds
    return _solution(problem, counts, bounds=bounds, method=method, faults=faults, answer=answer)


def _only(problem: Problem, start: Ints | None, faults: tuple[str, ...]) -> Solution:
    bounds = lower_bounds(problem)
    return _solution(problem, start, bounds=bounds, method="greedy", faults=faults, answer=None)


def _solution(
    problem: Problem,
    counts: Ints | None,
    *,
    bounds: tuple[int, ...],
    method: str,
    faults: tuple[str, ...],
    answer: Answer | None,
) -> Solution:
    seconds, work = (0.0, 0.0) if answer is None else (answer.seconds, answer.work)
    if counts is None:
        return Solution(
            outcome=Outcome.UNKNOWN, method=method, faults=faults, seconds=seconds, work=work
        )
    terms = tuple(
        Term(name, value, min(value, bound))
        for name, value, bound in zip(
            names(problem), objective(problem, counts), bounds, strict=True
        )
    )
    return Solution(
        outcome=Outcome.OPTIMAL if all_domains_proven(terms) else Outcome.FEASIBLE,
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


def _nobody(problem: Problem) -> Solution:
    """No member is asked for: nothing is placed, if that is allowed."""
    counts: Ints = np.zeros((len(problem.roles), problem.nodes), dtype=np.int64)
    if trouble(problem, counts):
        every = tuple(range(len(problem.roles)))
        proof = Certificate("role", -1, -1, every, 1, 0)
        return Solution(outcome=Outcome.INFEASIBLE, certificate=proof, method=METHOD)
    values = objective(problem, counts)
    terms = tuple(
        Term(name, value, value) for name, value in zip(names(problem), values, strict=True)
    )
    return Solution(outcome=Outcome.OPTIMAL, counts=counts, terms=terms, method=METHOD)
