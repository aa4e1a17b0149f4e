"""Problems with fewer sub-groups of sub-groups that have the same answers, worth the same.

Equal sub-groups of members are counted by the searches, those that hold others are named: so what
can be said without the latter is. Roles stay as they are, and with them the form of an answer.
"""

from __future__ import annotations

from collections import Counter

import attrs

from gpusched.placement.model.problem import Problem, SubGroupHolder, SubGroupMinimum

_SubGroup = SubGroupMinimum | SubGroupHolder


def with_fewer_holders(problem: Problem) -> Problem:
    """The problem with sub-groups of sub-groups left out that others can stand for."""
    for number in reversed(range(len(problem.holders))):
        problem = (
            _as_one_part(problem, number)
            or _as_only_child(problem, number)
            or _dissolve_sub_group(problem, number)
            or problem
        )
    return problem


def _split_children(problem: Problem, holder: int) -> tuple[list[int], list[int]]:
    """Sub-groups of members, and those that hold others, right in one; -1 is the gang."""
    return (
        [n for n, part in enumerate(problem.parts) if part.parent == holder],
        [n for n, each in enumerate(problem.holders) if each.parent == holder],
    )


def _as_one_part(problem: Problem, number: int) -> Problem | None:
    """One sub-group of members, for those that all come, each with all of its members."""
    holder = problem.holders[number]
    parts, holders = _split_children(problem, number)
    if holders or not parts or holder.least != len(parts):
        return None
    most: Counter[int] = Counter()
    for role in problem.roles:
        most[role.part] += role.most
    for at in parts:
        part = problem.parts[at]
        free = part.level <= holder.level and part.preferred < 0 and not part.homes
        if not free or most[at] != part.least:
            return None
    together = SubGroupMinimum(
        least=sum(problem.parts[at].least for at in parts),
        level=holder.level,
        preferred=holder.preferred,
        homes=holder.homes,
        near=holder.near,
        parent=holder.parent,
    )
    moved = dict.fromkeys(parts, parts[0])
    parts_now = [together if at == parts[0] else part for at, part in enumerate(problem.parts)]
    return _without_holder(problem, number, parts_now, problem.holders, moved)


def _as_only_child(problem: Problem, number: int) -> Problem | None:
    """The only sub-group in it, with what both ask for."""
    holder = problem.holders[number]
    parts, holders = _split_children(problem, number)
    if len(parts) + len(holders) != 1:
        return None
    child: _SubGroup = problem.parts[parts[0]] if parts else problem.holders[holders[0]]
    if holder.least != bool(child.least) or (holder.preferred >= 0 and child.preferred >= 0):
        return None
    if child.level > holder.level:
        if holder.homes:
            return None
        level, homes = child.level, child.homes
    else:
        if child.homes and child.homes != holder.homes:
            return None
        level, homes = holder.level, holder.homes
    wished = holder if holder.preferred >= 0 else child
    merged = attrs.evolve(
        child, level=level, homes=homes, preferred=wished.preferred, near=wished.near,
        parent=holder.parent,
    )  # fmt: skip
    parts_now, holders_now = list(problem.parts), list(problem.holders)
    if isinstance(merged, SubGroupMinimum):
        parts_now[parts[0]] = merged
    else:
        holders_now[holders[0]] = merged
    return _without_holder(problem, number, parts_now, tuple(holders_now), {})


def _dissolve_sub_group(problem: Problem, number: int) -> Problem | None:
    """Its sub-groups right in the one around it, where all of them, there and here, must come."""
    holder = problem.holders[number]
    if holder.level >= 0 or holder.preferred >= 0 or not holder.least:
        return None
    here, around = _lacking_members(problem, number), _lacking_members(problem, holder.parent)
    needed = problem.parts_least if holder.parent < 0 else problem.holders[holder.parent].least
    if holder.least != here or needed != around:
        return None
    parts_now = [
        attrs.evolve(part, parent=holder.parent) if part.parent == number else part
        for part in problem.parts
    ]
    holders_now = [
        attrs.evolve(each, parent=holder.parent) if each.parent == number else each
        for each in problem.holders
    ]
    if holder.parent < 0:
        problem = attrs.evolve(problem, parts_least=needed - 1 + here)
    else:
        holders_now[holder.parent] = attrs.evolve(
            holders_now[holder.parent], least=needed - 1 + here
        )
    return _without_holder(problem, number, parts_now, tuple(holders_now), {})


def _lacking_members(problem: Problem, holder: int) -> int:
    return sum(group.least > 0 for group in problem.sub_groups if group.parent == holder)


def _without_holder(
    problem: Problem,
    number: int,
    parts: list[SubGroupMinimum],
    holders: tuple[SubGroupHolder, ...],
    moved: dict[int, int],
) -> Problem:
    """The problem without one of the holders; parts that moved into another one are left out."""
    gone = {at for at, into in moved.items() if at != into}
    kept = [at for at in range(len(parts)) if at not in gone]
    place = {at: n for n, at in enumerate(kept)} | {-1: -1}
    above = {at: at - (at > number) for at in range(-1, len(holders))}
    return attrs.evolve(
        problem,
        roles=tuple(
            attrs.evolve(role, part=place[moved.get(role.part, role.part)])
            for role in problem.roles
        ),
        parts=tuple(attrs.evolve(parts[at], parent=above[parts[at].parent]) for at in kept),
        holders=tuple(
            attrs.evolve(each, parent=above[each.parent])
            for at, each in enumerate(holders)
            if at != number
        ),
    )
