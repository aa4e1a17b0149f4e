"""How many members of each role a quick method places: simple rules, no search."""

from __future__ import annotations

from collections.abc import Iterable

from gpusched.placement.problem import Problem


def shares(problem: Problem) -> tuple[int, ...] | None:
    """Members of each role: what minima and sub-groups ask, then as many as are needed.

    Returns:
        By role, together ``members``; None where these rules find no such numbers.
    """
    share = [0] * len(problem.roles)
    most = [min(role.most, int(role.fits.sum())) for role in problem.roles]

    def give(roles: Iterable[int], count: int) -> None:
        for role in roles:
            more = min(max(0, count), most[role] - share[role])
            share[role] += more
            count -= more

    def given(roles: Iterable[int]) -> int:
        return sum(share[role] for role in roles)

    for roles, needed in sorted(problem.minima, key=lambda each: len(each[0])):
        give(roles, needed - given(roles))
    parts = [
        [role for role, each in enumerate(problem.roles) if each.part == part]
        for part in range(len(problem.parts))
    ]
    started = [index for index, roles in enumerate(parts) if given(roles)]
    for index in started:
        give(parts[index], problem.parts[index].least - given(parts[index]))
    completed = sum(bool(problem.parts[index].least) for index in started)
    for index, part in enumerate(problem.parts):
        room = sum(most[role] for role in parts[index])
        left = problem.members - sum(share)
        if index in started or not part.least or room < part.least:
            continue
        if completed < problem.parts_least or part.least <= left:
            give(parts[index], part.least)
            started.append(index)
            completed += 1
    # What is left goes to those who have some already, and to nobody's.
    complete = {-1, *started, *(i for i, part in enumerate(problem.parts) if part.least <= 1)}
    able = [role for role, each in enumerate(problem.roles) if each.part in complete]
    give(able, problem.members - sum(share))
    return tuple(share) if _right(problem, share) else None


def _right(problem: Problem, share: list[int]) -> bool:
    """Whether these numbers are what the hard rules allow."""
    if sum(share) != problem.members:
        return False
    if any(sum(share[role] for role in roles) < needed for roles, needed in problem.minima):
        return False
    completed = 0
    for index, part in enumerate(problem.parts):
        got = sum(share[role] for role, each in enumerate(problem.roles) if each.part == index)
        if 0 < got < part.least:
            return False
        completed += bool(part.least and got)
    return completed >= problem.parts_least
