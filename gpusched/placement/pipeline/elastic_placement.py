"""The largest number of a gang's members that fits, in the fewest domains.

A gang that may have more members than it needs gets as many as fit: that comes first, and all
that docs/placement.md compares after it. For members that are all alike their largest number is
counted; for others numbers are tried from the largest on, each by the search for exactly so many.
"""

from __future__ import annotations

from typing import Final

import attrs

from gpusched.placement.model.bounds import (
    candidate_domains,
    members_that_fit,
    members_that_fit_by_domain,
)
from gpusched.placement.model.problem import (
    Effort,
    Problem,
    SearchOutcome,
    SearchRunner,
    Solution,
    Term,
    search_in_process,
)
from gpusched.placement.pipeline.certificates import room_by_domain
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.tree.identical_members import as_identical_members
from gpusched.placement.tree.table_cache import TableCache

EXTRA: Final = "extra"
"""The first term of the objective: members beyond those that are needed that get no place."""
SIZES_TRIED_MAX: Final = 6
"""Numbers of members that are tried for roles or sub-groups; each may cost a search."""


def place_most_members(
    problem: Problem,
    extra: int,
    effort: Effort,
    *,
    search: SearchRunner = search_in_process,
    memory: TableCache | None = None,
) -> Solution:
    """Give places to the members and to as many more as fit.

    Args:
        problem: what is asked of the members that are needed, of which there may be none.
        extra: members beyond them that would like a place.
        effort: how hard to try, all numbers of members together.
        search: as of ``place_gang``.
        memory: as of ``place_gang``.

    Returns:
        As ``place_gang`` for the number that was placed, with the term ``EXTRA`` first. Where no
        number has an answer it is that for the members that are needed.
    """
    wanted = problem.members + extra
    most = largest_number(problem, wanted)
    proven = True
    share = effort
    tries = 0
    count = most
    while True:
        solution = place_gang(
            attrs.evolve(problem, members=count, hope=max(problem.hope, count)),
            share,
            search=search,
            memory=memory,
        )
        tries += 1
        last = count <= max(problem.members, 1) or tries == SIZES_TRIED_MAX
        if solution.counts.size or last:
            break
        proven = proven and solution.outcome is SearchOutcome.INFEASIBLE
        share = attrs.evolve(effort, budget_s=max(0.0, share.budget_s - solution.work))
        count = _next_smaller(problem, solution, count, tries)
    if not solution.counts.size:
        return solution
    left = wanted - count
    bound = left if proven else wanted - most
    outcome = solution.outcome if left == bound else SearchOutcome.FEASIBLE
    return attrs.evolve(
        solution, terms=(Term(EXTRA, left, bound), *solution.terms), outcome=outcome
    )


def largest_number(problem: Problem, wanted: int) -> int:
    """Up to so many members a number that counting does not refute; never below those needed."""
    roles = tuple(range(len(problem.roles)))
    if problem.required < 0:
        room = members_that_fit(problem, roles)
    else:
        there = members_that_fit_by_domain(problem, roles, problem.levels[problem.required])
        room = int(there[list(candidate_domains(problem))].max(initial=0))
    most = max(problem.members, min(wanted, room))
    one = as_identical_members(attrs.evolve(problem, members=most)) if most else None
    if one is not None and one.unit == 1:
        most = max(problem.members, min(most, max(room_by_domain(one).values())))
    return most


def _next_smaller(problem: Problem, solution: Solution, count: int, tries: int) -> int:
    """The next number to try: all between are refuted by what was found."""
    proof = solution.certificate
    least = max(problem.members, 1)
    if tries == SIZES_TRIED_MAX - 1:
        return least
    if proof is None or problem.parts:
        return max(least, count - 1)
    # Of each domain it is told how many do not fit it at least.
    told = [(proof.needed, proof.room), *(each[2:] for each in proof.breaches)]
    short = min(needed - room for needed, room in told)
    return max(least, count - max(1, short))
