"""With how many members a gang may start: sub-groups come whole, so that not every number works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.cache.gangs import Gang
from gpusched.placement.problem import Part

SIZES_MAX: Final = 8
"""Numbers of members that are tried for one gang; each may cost a search."""
_STATES_MAX: Final = 4_000


def start_sizes(gang: Gang, parts: Sequence[Part], least: int) -> list[int]:
    """Numbers of members to try, the fewest first.

    Whoever can be taken away from a start is not needed for it. So a start either has exactly as
    many members as the gang needs, or it is a set of sub-groups with what each needs, and of
    roles with their minima, of which none can be left out.

    Args:
        gang: with tasks.
        parts: one for each of its sub-groups.
        least: how many of those that lack members must be completed.
    """
    need = gang.at_once
    needs = [part.least for part in parts]
    alone, forced = _by_minima(gang, parts)
    lacking = [
        (max(count, forced[number]), bool(forced[number]))
        for number, count in enumerate(needs)
        if count and _waiting(gang, number) >= count
    ]
    # Those that a role's minimum calls for first; then the small ones.
    lacking.sort(key=lambda each: (not each[1], each[0]))
    done: set[int] = set()
    states = {(0, alone)}
    for size, must in lacking:
        more = {(min(least, number + 1), total + size) for number, total in states}
        states = more if must else states | more
        if not must:
            full = {each for each in states if each[0] >= least and each[1] >= need}
            done |= {total for _, total in full}
            states -= full
        if len(states) > _STATES_MAX:
            states = set(sorted(states)[-_STATES_MAX:])
    done |= {total for number, total in states if number >= least and total >= need}
    found = sorted(each for each in {need, *done} if each <= max(need, gang.pending))
    return found if len(found) <= SIZES_MAX else [*found[: SIZES_MAX - 1], found[-1]]


def _by_minima(gang: Gang, parts: Sequence[Part]) -> tuple[int, list[int]]:
    """Members that roles' minima ask of nobody's members, and of each sub-group.

    A role whose members are in several sub-groups, or partly in none, asks nobody in particular.
    """
    named = {part.name: number for number, part in enumerate(gang.sub_groups)}
    alone, forced = 0, [0] * len(parts)
    for role, missing in gang.missing_roles:
        where = {named.get(task.sub_group, -1) for task in gang.tasks if task.role == role}
        if where == {-1}:
            alone += missing
        elif len(where) == 1:
            forced[where.pop()] += missing
    return alone, forced


def _waiting(gang: Gang, number: int) -> int:
    name = gang.sub_groups[number].name
    return sum(len(task.pods) for task in gang.tasks if task.sub_group == name)
