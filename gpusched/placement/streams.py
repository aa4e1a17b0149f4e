"""Members that flow into cells together, so that what is equal never enters a search twice.

Roles of one kind that no sub-group ties to a place share a stream; equal sub-groups that are
filled as a whole or not at all are counted by domain instead of being named.
"""

from __future__ import annotations

import attrs

from gpusched.placement.patterns import Field
from gpusched.placement.problem import Part, Problem


@attrs.frozen(kw_only=True)
class Alike:
    """Sub-groups that are equal, need one domain of a level each, and are filled or left empty.

    Attributes:
        parts: their numbers.
        level: index of the level.
        forced: whether each of them must be filled.
        preferred: whether each counts one domain of its preferred level when filled.
        amounts: members of each kind in one of them, pairs (kind, members).
    """

    parts: tuple[int, ...]
    level: int
    forced: bool
    preferred: bool
    amounts: tuple[tuple[int, int], ...]


@attrs.frozen(kw_only=True)
class Stream:
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


@attrs.frozen(kw_only=True)
class Streams:
    """All streams of a problem."""

    streams: tuple[Stream, ...]
    alikes: tuple[Alike, ...]


def streams(field: Field) -> Streams:
    """How members flow."""
    problem = field.problem
    kind_of = {role: index for index, kind in enumerate(field.kinds) for role in kind.roles}
    alikes = _alikes(problem, kind_of)
    tied = {part: at for at, alike in enumerate(alikes) for part in alike.parts}
    found: list[Stream] = []
    for at, alike in enumerate(alikes):
        for kind, amount in alike.amounts:
            roles = tuple(
                role for part in alike.parts for role in members_of(problem, part)
                if kind_of[role] == kind
            )  # fmt: skip
            most = amount * len(alike.parts)
            found.append(Stream(kind=kind, roles=roles, most=most, alike=at))
    free: dict[int, list[int]] = {}
    for number, role in enumerate(problem.roles):
        if role.part >= 0 and role.part in tied:
            continue
        if role.part >= 0 and _placed_apart(problem.parts[role.part]):
            found.append(
                Stream(kind=kind_of[number], roles=(number,), most=role.most, part=role.part)
            )
        else:
            free.setdefault(kind_of[number], []).append(number)
    for kind, numbers in free.items():
        most = sum(problem.roles[number].most for number in numbers)
        found.append(Stream(kind=kind, roles=tuple(numbers), most=most))
    return Streams(streams=tuple(found), alikes=alikes)


def _placed_apart(part: Part) -> bool:
    return part.level >= 0 or part.preferred >= 0


def members_of(problem: Problem, part: int) -> list[int]:
    """Numbers of the roles of a sub-group."""
    return [number for number, role in enumerate(problem.roles) if role.part == part]


def _alikes(problem: Problem, kind_of: dict[int, int]) -> tuple[Alike, ...]:
    found: dict[tuple[object, ...], list[int]] = {}
    for number, part in enumerate(problem.parts):
        roles = members_of(problem, number)
        whole = sum(problem.roles[role].most for role in roles)
        inside = part.preferred <= part.level
        if part.level < 0 or part.homes or not whole or part.least != whole or not inside:
            continue
        amounts: dict[int, int] = {}
        for role in roles:
            amounts[kind_of[role]] = amounts.get(kind_of[role], 0) + problem.roles[role].most
        marks, forced = _marks(problem, roles)
        key = (part.level, part.preferred >= 0, tuple(sorted(amounts.items())), marks, forced)
        found.setdefault(key, []).append(number)
    alikes = []
    for numbers in found.values():
        first = problem.parts[numbers[0]]
        roles = members_of(problem, numbers[0])
        amounts = {}
        for role in roles:
            amounts[kind_of[role]] = amounts.get(kind_of[role], 0) + problem.roles[role].most
        alikes.append(
            Alike(
                parts=tuple(numbers),
                level=first.level,
                forced=_marks(problem, roles)[1],
                preferred=first.preferred >= 0,
                amounts=tuple(sorted(amounts.items())),
            )
        )
    return tuple(alikes)


def _marks(problem: Problem, roles: list[int]) -> tuple[tuple[tuple[int, int], ...], bool]:
    """How much the roles count in which minima over several sub-groups; whether one forces them."""
    marks = []
    forced = False
    for index, (wanted, least) in enumerate(problem.minima):
        own = sum(problem.roles[role].most for role in roles if role in wanted)
        if own and set(wanted) <= set(roles):
            forced = forced or least > 0
        elif own:
            marks.append((index, own))
    return tuple(marks), forced
