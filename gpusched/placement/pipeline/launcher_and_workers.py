"""Gangs of one large role and of small ones beside it, such as workers and their launcher.

The tables place the large role as if it were alone. No answer for all roles is better than that
in hope, domains, span and nodes; where the small roles find room on the same nodes, and take no
GPUs, in fragmentation neither. So a quick fill may be proven the best, without a solver.
"""

from __future__ import annotations

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.placement.greedy import members_of_each_role, place_around
from gpusched.placement.model.problem import Problem
from gpusched.placement.model.verify import objective_names, objective_values, solution_errors
from gpusched.placement.tree.identical_members import as_identical_members
from gpusched.placement.tree.search import machine_words_of, place_identical_members
from gpusched.placement.tree.table_cache import TableCache


@frozen(eq=False)
class LauncherPlacement:
    """Counts of all roles, and bounds of the first terms of the objective.

    Attributes:
        counts: may still be wrong: the caller counts again.
        bounds: of the first terms; no answer that is as good before is below them.
    """

    counts: Ints
    bounds: tuple[int, ...]


def place_launcher_and_workers(
    problem: Problem, memory: TableCache | None = None
) -> LauncherPlacement | None:
    """The best place of the role that takes GPUs, the others beside it; None if not plain."""
    share = members_of_each_role(problem)
    heavy = [index for index, role in enumerate(problem.roles) if role.gpus]
    if problem.parts or problem.caps or share is None or len(heavy) != 1 or len(problem.roles) < 2:
        return None
    (leader,) = heavy
    alone = _launcher_problem(problem, leader, share[leader])
    if alone is None:
        return None
    one = as_identical_members(alone)
    words = 0 if one is None else machine_words_of(one)
    found = place_identical_members(one, memory, words=words) if one is not None and words else None
    if found is None or solution_errors(alone, found.row[None]):
        return None
    counts = place_around(problem, leader, found.row, share)
    if counts is None:
        return None
    values = objective_values(alone, found.row[None])
    if not found.agrees_with(values):
        return None
    proven = found.proven
    if problem.roles[leader].most > share[leader]:
        # With more of its members there may be less fragmentation, if not fewer nodes.
        proven = min(proven, objective_names(alone).index("fragmentation"))
    return LauncherPlacement(counts, values[:proven])


def _launcher_problem(problem: Problem, leader: int, members: int) -> Problem | None:
    """The leader's members and nothing else, if every answer places so many of them."""
    others = sum(role.most for index, role in enumerate(problem.roles) if index != leader)
    forced = max(
        problem.members - others,
        *(needed for roles, needed in problem.minima if roles == (leader,)),
        0,
    )
    role = problem.roles[leader]
    if members != forced or not members:
        return None
    return attrs.evolve(
        problem,
        roles=(attrs.evolve(role, most=members, fits=np.minimum(role.fits, members)),),
        members=members,
        minima=(),
        hope=0,
        mixes=None,
    )
