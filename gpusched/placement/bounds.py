"""What can be said by counting alone: that there is no answer, or how good one may be at best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.placement.problem import Certificate, Level, Problem
from gpusched.placement.verify import names


def room(problem: Problem, roles: Sequence[int], rows: Bools | None = None) -> int:
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


def demands(problem: Problem) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Sets of roles and how many members of them every answer places; all roles first."""
    every = tuple(range(len(problem.roles)))
    return ((every, problem.members), *(each for each in problem.minima if each[1] > 0))


def homes(problem: Problem) -> tuple[int, ...]:
    """Domains of the required level that may hold the gang: the one of placed members, if any."""
    level = problem.levels[problem.required]
    opened = np.unique(level.domain[problem.open_rows]).tolist()
    if not opened:
        return tuple(range(level.real))
    return tuple(opened) if len(opened) == 1 and opened[0] < level.real else ()


def infeasible(problem: Problem) -> Certificate | None:
    """A proof by counting that there is no answer; None when counting does not tell."""
    for roles, needed in demands(problem):
        there = room(problem, roles)
        if there < needed:
            return Certificate("role", -1, -1, roles, needed, there)
    return None if problem.required < 0 else _no_domain(problem)


def _no_domain(problem: Problem) -> Certificate | None:
    """Each domain of the required level has too little room for some demand."""
    level = problem.levels[problem.required]
    allowed = homes(problem)
    wanted = demands(problem)
    rooms = np.stack([_rooms(problem, roles, level) for roles, _ in wanted])  # (demands, domains)
    needs = np.array([needed for _, needed in wanted], dtype=np.int64)
    shut = np.ones(rooms.shape[1], dtype=np.bool_)
    shut[list(allowed)] = False
    rooms = np.where(shut[None, :], 0, rooms)[:, : level.real]
    short = rooms < needs[:, None]
    if not short.any(axis=0).all():
        return None
    if not level.real:
        return Certificate("domain", problem.required, -1, wanted[0][0], wanted[0][1], 0)
    first = short.argmax(axis=0)
    found = tuple(
        (domain, wanted[which][0], wanted[which][1], int(rooms[which, domain]))
        for domain, which in enumerate(first.tolist())
    )
    best = max(found, key=lambda each: (each[3] / each[2], -each[0]))
    return Certificate(
        "domain", problem.required, best[0], best[1], best[2], best[3], breaches=found
    )


def _rooms(problem: Problem, roles: Sequence[int], level: Level) -> Ints:
    """Of each domain, each role counted alone; shape (domains,)."""
    size = int(level.domain.max(initial=-1)) + 1
    total = np.zeros(max(size, level.real), dtype=np.int64)
    for role in (problem.roles[index] for index in roles):
        held = np.zeros_like(total)
        np.add.at(held, level.domain, role.fits)
        total += np.minimum(held, role.most)
    return total


# -- how good an answer may be ---------------------------------------------------------------
def lower_bounds(problem: Problem) -> tuple[int, ...]:
    """For each term of the objective a value that no answer is below."""
    levels = {f"domains:{level.name}": level for level in problem.levels}
    found = []
    for name in names(problem):
        if name in levels:
            found.append(_fewest_domains(problem, levels[name]))
        elif name == "nodes":
            found.append(_fewest_nodes(problem))
        elif name == "fragmentation":
            found.append(_least_fragmentation(problem))
        else:
            found.append(0)
    return tuple(found)


def _fewest_domains(problem: Problem, level: Level) -> int:
    opened = np.unique(level.domain[problem.open_rows])
    found = 0
    for roles, needed in demands(problem):
        rooms = _rooms(problem, roles, level)
        left = needed - int(rooms[opened].sum())
        rooms[opened] = 0
        found = max(found, _largest_first(rooms, left))
    return found + len(opened)


def _fewest_nodes(problem: Problem) -> int:
    return max(
        _largest_first(np.sum([problem.roles[role].fits for role in roles], axis=0), needed)
        for roles, needed in demands(problem)
    )


def _largest_first(rooms: Ints, needed: int) -> int:
    """How few of these hold so many."""
    if needed <= 0:
        return 0
    reached = np.cumsum(np.sort(rooms)[::-1])
    return int(np.searchsorted(reached, needed)) + 1


def _least_fragmentation(problem: Problem) -> int:
    """As if each of the most broken-up nodes were tidied by one member."""
    if problem.slots is None:
        return 0
    able = np.sum([role.fits for role in problem.roles if role.gpus], axis=0)
    if not np.ndim(able):
        return 0
    least = {int(state): problem.slots.least(int(state)) for state in np.unique(problem.states)}
    tidied = sorted(least[state] for state in problem.states[able > 0].tolist())
    return sum(tidied[: problem.members])
