"""What can be said by counting alone: how much room there is, how good an answer may be at best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.placement.model.problem import DomainLevel, Problem
from gpusched.placement.model.verify import objective_names


def demanded_members(problem: Problem) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Sets of roles and how many members of them every answer places; all roles first."""
    every = tuple(range(len(problem.roles)))
    return ((every, problem.members), *(each for each in problem.minima if each[1] > 0))


def candidate_domains(problem: Problem) -> tuple[int, ...]:
    """Domains of the required level that may hold the gang: the one of placed members, if any."""
    level = problem.levels[problem.required]
    opened = problem.opened_domains(level).tolist()
    if not opened:
        return tuple(range(level.real))
    return tuple(opened) if len(opened) == 1 and opened[0] < level.real else ()


def members_that_fit(problem: Problem, roles: Sequence[int], rows: Bools | None = None) -> int:
    """How many members of these roles fit at most, each role counted alone.

    Args:
        problem: what is asked.
        roles: numbers of the roles.
        rows: only these nodes, shape (nodes,).
    """
    return sum(
        min(role.most, int((role.fits if rows is None else role.fits[rows]).sum()))
        for role in (problem.roles[index] for index in roles)
    )


def members_that_fit_by_domain(problem: Problem, roles: Sequence[int], level: DomainLevel) -> Ints:
    """The same for each domain of a level, shape (domains,)."""
    total = np.zeros(max(level.count, level.real), dtype=np.int64)
    for role in (problem.roles[index] for index in roles):
        total[: level.count] += np.minimum(level.sum_by_domain(role.fits), role.most)
    return total


def lower_bounds(problem: Problem) -> tuple[int, ...]:
    """For each term of the objective a value that no answer is below."""
    levels = {f"domains:{level.name}": level for level in problem.levels}
    found = []
    for name in objective_names(problem):
        if name in levels:
            found.append(_fewest_domains(problem, levels[name]))
        elif name == "nodes":
            found.append(_fewest_nodes(problem))
        elif name == "fragmentation":
            found.append(_least_fragmentation(problem))
        else:
            found.append(0)
    return tuple(found)


def _fewest_domains(problem: Problem, level: DomainLevel) -> int:
    """The roomiest first, until each demand is met."""
    opened = problem.opened_domains(level)
    found = 0
    for roles, needed in demanded_members(problem):
        there = members_that_fit_by_domain(problem, roles, level)
        left = needed - int(there[opened].sum())
        there[opened] = 0
        found = max(found, _largest_first(there, left))
    for column, needed in _shared_demand(problem):
        held = np.zeros(int(level.domain.max(initial=-1)) + 1, dtype=np.int64)
        able = np.any([role.fits > 0 for role in problem.roles], axis=0)
        np.add.at(held, level.domain[able], problem.free[able, column])
        left = needed - int(held[opened].sum())
        held[opened] = 0
        found = max(found, _largest_first(held, left))
    return found + len(opened)


def _shared_demand(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Columns of which every answer takes so much, where several roles share the nodes."""
    if len(problem.roles) == 1:
        return ()
    asks = np.stack([role.request for role in problem.roles])
    alone = {roles[0]: needed for roles, needed in problem.minima if len(roles) == 1}
    least = np.array([alone.get(role, 0) for role in range(len(asks))], dtype=np.int64)
    rest = max(0, problem.members - int(least.sum()))
    needed = least @ asks + rest * asks.min(axis=0)
    able = np.any([role.fits > 0 for role in problem.roles], axis=0)
    # What nodes do not have is for the proofs to tell.
    known = (needed > 0) & (needed <= problem.free[able].sum(axis=0))
    return tuple((column, int(needed[column])) for column in np.flatnonzero(known).tolist())


def _fewest_nodes(problem: Problem) -> int:
    return max(
        _largest_first(np.sum([problem.roles[role].fits for role in roles], axis=0), needed)
        for roles, needed in demanded_members(problem)
    )


def _largest_first(held: Ints, needed: int) -> int:
    """How few of these hold so many."""
    if needed <= 0:
        return 0
    reached = np.cumsum(np.sort(held)[::-1])
    return int(np.searchsorted(reached, needed)) + 1


def _least_fragmentation(problem: Problem) -> int:
    """As if each of the most broken-up nodes were tidied by one member."""
    slotted = [role.fits for role in problem.roles if role.gpus]
    if problem.slots is None or not slotted:
        return 0
    able = np.any([fits > 0 for fits in slotted], axis=0)
    least = {
        int(state): problem.slots.least_fragmentation(int(state))
        for state in np.unique(problem.states)
    }
    tidied = sorted(least[state] for state in problem.states[able].tolist())
    return sum(tidied[: problem.members])
