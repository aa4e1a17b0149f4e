"""One gang's places: quick methods first, then complete ones, and the verifier after all.

The answer is a pure function of the problem and the effort. Nothing that a method says is used
before it was counted again; a method that answers nonsense costs its answer, never the gang.
"""

from __future__ import annotations

import attrs

from gpusched.arrays.columns import Ints
from gpusched.placement.bounds import infeasible, lower_bounds
from gpusched.placement.greedy import greedy
from gpusched.placement.problem import (
    Effort,
    Outcome,
    Problem,
    Search,
    Solution,
    Term,
    search_here,
)
from gpusched.placement.verify import names, objective, trouble


def place(
    problem: Problem,
    effort: Effort,  # noqa: ARG001 - of the complete methods, which are not here yet
    *,
    search: Search = search_here,  # noqa: ARG001 - as above
) -> Solution:
    """Give places to the members, or prove that there are none.

    Args:
        problem: what is asked.
        effort: how hard to try.
        search: runs what may take long, here or in another process.

    Returns:
        OPTIMAL or FEASIBLE with counts that were counted again, INFEASIBLE with a certificate,
        or UNKNOWN. ``faults`` says which methods gave answers that could not be used.
    """
    certificate = infeasible(problem)
    if certificate is not None:
        return Solution(outcome=Outcome.INFEASIBLE, certificate=certificate, method="bounds")
    bounds = lower_bounds(problem)
    counts = greedy(problem)
    if counts is None:
        return Solution(outcome=Outcome.UNKNOWN, method="greedy")
    return _checked(problem, counts, bounds, "greedy")


def _checked(problem: Problem, counts: Ints, bounds: tuple[int, ...], method: str) -> Solution:
    """The answer as it is when it was counted again."""
    wrong = trouble(problem, counts)
    if wrong:
        return Solution(outcome=Outcome.UNKNOWN, method=method, faults=(f"{method}: {wrong}",))
    values = objective(problem, counts)
    terms = tuple(
        Term(name, value, bound)
        for name, value, bound in zip(names(problem), values, bounds, strict=True)
    )
    answer = Solution(outcome=Outcome.FEASIBLE, counts=counts, terms=terms, method=method)
    if len(answer.proven) == len(terms):
        return attrs.evolve(answer, outcome=Outcome.OPTIMAL)
    return answer
