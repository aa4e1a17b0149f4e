"""Members that flow into cells together, so that what is equal never enters a search twice.

Roles of one kind that no sub-group ties to a place share a flow; equal sub-groups that are
filled as a whole or not at all are counted by domain instead of being named.
"""

from __future__ import annotations

import attrs

from gpusched.base.classes import frozen
from gpusched.placement.cpsat.patterns import CellPatterns
from gpusched.placement.model.problem import Problem


@frozen(kw_only=True)
class IdenticalSubGroups:
    """Sub-groups that are equal, in the same one, need one domain of a level each, and are filled or left empty.

    Attributes:
        parts: their numbers.
        level: index of the level.
        forced: whether each of them must get members.
        preferred: whether each counts one domain of its preferred level when it gets members.
        amounts: members of each kind in one of them at most, pairs (kind, members).
        floors: the same at least, where it is more than none.
        least: members of one of them at least; as many as there are: it is filled as a whole.
    """

    parts: tuple[int, ...]
    level: int
    forced: bool
    preferred: bool
    amounts: tuple[tuple[int, int], ...]
    floors: tuple[tuple[int, int], ...]
    least: int

    @property
    def rigid(self) -> bool:
        """Whether one of them gets all its members or none."""
        return self.least == sum(amount for _, amount in self.amounts)


@frozen(kw_only=True)
class MemberFlow:
    """Members that flow into cells together.

    Attributes:
        kind: of the members.
        roles: that they are of.
        most: how many they are.
        alike: position of the equal sub-groups they belong to, -1 for none.
        part: the one sub-group with a place of its own they belong to, -1 for none.
    """

    kind: int
    roles: tuple[int, ...]
    most: int
    alike: int = -1
    part: int = -1


@frozen(kw_only=True)
class MemberFlows:
    """All flows of members in a problem, and the classes of sub-groups that are equal."""

    items: tuple[MemberFlow, ...]
    alikes: tuple[IdenticalSubGroups, ...]


def build_member_flows(field: CellPatterns) -> MemberFlows:
    """Equal members of a problem, as flows onto cells."""
    problem = field.problem
    kind_of = {role: index for index, kind in enumerate(field.kinds) for role in kind.roles}
    alikes = _identical_sub_groups(problem, kind_of)
    tied = {part: at for at, alike in enumerate(alikes) for part in alike.parts}
    found: list[MemberFlow] = []
    for at, alike in enumerate(alikes):
        for kind, amount in alike.amounts:
            roles = tuple(
                role for part in alike.parts for role in roles_of_sub_group(problem, part)
                if kind_of[role] == kind
            )  # fmt: skip
            most = amount * len(alike.parts)
            found.append(MemberFlow(kind=kind, roles=roles, most=most, alike=at))
    free: dict[int, list[int]] = {}
    for number, role in enumerate(problem.roles):
        if role.part >= 0 and role.part in tied:
            continue
        if role.part >= 0 and _placed_apart(problem, role.part):
            found.append(
                MemberFlow(kind=kind_of[number], roles=(number,), most=role.most, part=role.part)
            )
        else:
            free.setdefault(kind_of[number], []).append(number)
    for kind, numbers in free.items():
        most = sum(problem.roles[number].most for number in numbers)
        found.append(MemberFlow(kind=kind, roles=tuple(numbers), most=most))
    return MemberFlows(items=tuple(found), alikes=alikes)


def _placed_apart(problem: Problem, part: int) -> bool:
    """Whether it matters where the members of a sub-group are, for it or one that it is in."""
    return any(group.level >= 0 or group.preferred >= 0 for group in problem.groups_around(part))


def sub_group_of_flow(member_flow: MemberFlow, flows: MemberFlows) -> int:
    """A sub-group that the members of a flow are in; of equal ones any, -1 for none."""
    if member_flow.alike >= 0:
        return flows.alikes[member_flow.alike].parts[0]
    return member_flow.part


def roles_of_sub_group(problem: Problem, part: int) -> list[int]:
    """Numbers of the roles of a sub-group."""
    return [number for number, role in enumerate(problem.roles) if role.part == part]


def _identical_sub_groups(
    problem: Problem, kind_of: dict[int, int]
) -> tuple[IdenticalSubGroups, ...]:
    found: dict[IdenticalSubGroups, dict[tuple[object, ...], list[int]]] = {}
    for number, part in enumerate(problem.parts):
        one = _class_of_sub_group(problem, kind_of, number)
        if one is not None:
            marks = _counting_minima(problem, kind_of, roles_of_sub_group(problem, number))
            found.setdefault(one, {}).setdefault((part.preferred, part.parent, marks), []).append(
                number
            )
    return tuple(
        attrs.evolve(one, parts=tuple(numbers))
        for one, by_marks in found.items()
        for numbers in by_marks.values()
    )


def _class_of_sub_group(
    problem: Problem, kind_of: dict[int, int], number: int
) -> IdenticalSubGroups | None:
    """What a sub-group is, without its number; None when it is to be named.

    Members of equal sub-groups in one domain can be dealt evenly, so that each gets its least and
    no more than it has: by kinds, of which each role must then be one of its own.
    """
    part = problem.parts[number]
    roles = roles_of_sub_group(problem, number)
    amounts: dict[int, int] = {}
    for role in roles:
        amounts[kind_of[role]] = amounts.get(kind_of[role], 0) + problem.roles[role].most
    whole = sum(amounts.values())
    if (
        part.level < 0
        or part.homes
        or part.near
        or not 0 < part.least <= whole
        or part.preferred > part.level
    ):
        return None
    own = [each for each in problem.minima if each[1] > 0 and set(each[0]) <= set(roles)]
    floors: dict[int, int] = {}
    if part.least < whole:
        if len(amounts) < len(roles) or any(len(set(wanted)) > 1 for wanted, _ in own):
            return None
        for wanted, least in own:
            kind = kind_of[wanted[0]]
            floors[kind] = max(least, floors.get(kind, 0))
    return IdenticalSubGroups(
        parts=(),
        level=part.level,
        forced=bool(own),
        preferred=part.preferred >= 0,
        amounts=tuple(sorted(amounts.items())),
        floors=tuple(sorted(floors.items())),
        least=part.least,
    )


def _counting_minima(
    problem: Problem, kind_of: dict[int, int], roles: list[int]
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """In which minima over several sub-groups which of the roles count, by kind and members."""
    marks = []
    for index, (wanted, _) in enumerate(problem.minima):
        inside = [(kind_of[role], problem.roles[role].most) for role in roles if role in wanted]
        if inside and not set(wanted) <= set(roles):
            marks.append((index, tuple(sorted(inside))))
    return tuple(marks)
