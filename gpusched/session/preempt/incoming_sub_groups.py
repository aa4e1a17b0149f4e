"""Sub-groups of a claimant for the model of victims: equal ones are counted together."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.api.gang.pod_group import SubGroup
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.victims.search import (
    IncomingHolderGroup,
    IncomingMembers,
    IncomingRoles,
    IncomingSubGroups,
    RoleMinimum,
)
from gpusched.session.allocate.placement_problem import missing_inside, placed_rows
from gpusched.session.state.session import Session

_Shape = tuple[tuple[str, str, int], ...]
"""Class, role and number of the pods of a sub-group that wait, sorted."""


@frozen(slots=True)
class _SubGroupKind:
    """What makes sub-groups equal.

    Attributes:
        level: name of the level of which one domain holds each, empty for none.
        lacks: members that each lacks.
        homes: domains in which members of it run; empty where it may be in any.
        parent: the sub-group that each is in, empty at the top.
    """

    level: str
    lacks: int
    homes: tuple[int, ...]
    parent: str
    shape: _Shape


def with_sub_groups(
    session: Session,
    claimant: Gang,
    incoming: Sequence[IncomingMembers],
    minima: Sequence[RoleMinimum],
) -> IncomingRoles:
    """A claimant's members, with its sub-groups.

    Args:
        session: whose topology counts.
        claimant: with or without sub-groups.
        incoming: members of each of its pod sets.
        minima: by numbers of pod sets.
    """
    if not claimant.sub_groups:
        return IncomingRoles(tuple(incoming), claimant.members_at_start, tuple(minima))
    kinds, alone = _sub_group_kinds(session, claimant)
    merged = [incoming[number] for number in alone]
    role_of = {number: role for role, number in enumerate(alone)}
    parts = []
    holders = sorted(claimant.parent_groups, key=lambda x: len(claimant.groups_around(x.name)))
    number_of = {each.name: number for number, each in enumerate(holders)}
    for kind, alike in kinds.items():
        first = len(merged)
        for place, number in enumerate(alike[0]):
            for numbers in alike:
                role_of[numbers[place]] = len(merged)
            each = incoming[number]
            merged.append(attrs.evolve(each, most=each.most * len(alike)))
        parts.append(
            IncomingSubGroups(
                roles=tuple(range(first, len(merged))),
                count=len(alike),
                least=kind.lacks,
                most=tuple(count for _, _, count in kind.shape),
                domain=_domain_of_rows(session, kind.level, kind.homes),
                counted=kind.lacks > 0,
                parent=number_of.get(kind.parent, -1),
            )
        )
    return IncomingRoles(
        tuple(merged),
        claimant.members_at_start,
        tuple(
            (tuple(sorted({role_of[n] for n in numbers})), missing) for numbers, missing in minima
        ),
        tuple(parts),
        missing_inside(claimant, "", claimant.min_sub_groups),
        tuple(
            IncomingHolderGroup(
                missing_inside(claimant, each.name, each.min_sub_groups),
                _domain_of_rows(
                    session, each.topology.required, _required_domains(session, claimant, each)
                ),
                number_of.get(each.parent, -1),
            )
            for each in holders
        ),
    )


def _sub_group_kinds(
    session: Session, claimant: Gang
) -> tuple[dict[_SubGroupKind, list[list[int]]], list[int]]:
    """Numbers of the pod sets of each sub-group, by what makes them equal; those of none."""
    by_name: dict[str, list[int]] = {}
    for number, pod_set in enumerate(claimant.pod_sets):
        by_name.setdefault(pod_set.sub_group, []).append(number)
    kinds: dict[_SubGroupKind, list[list[int]]] = {}
    for part in claimant.sub_groups:
        numbers = by_name.pop(part.name, [])
        if numbers:
            numbers.sort(
                key=lambda n: (claimant.pod_sets[n].pod_class.digest, claimant.pod_sets[n].role)
            )
            kinds.setdefault(_kind_of(session, claimant, part, numbers), []).append(numbers)
    return kinds, [number for numbers in by_name.values() for number in numbers]


def _kind_of(
    session: Session, claimant: Gang, part: SubGroup, numbers: Sequence[int]
) -> _SubGroupKind:
    return _SubGroupKind(
        part.topology.required,
        claimant.missing_in_sub_group(part),
        _required_domains(session, claimant, part),
        part.parent,
        tuple(
            (
                claimant.pod_sets[n].pod_class.digest,
                claimant.pod_sets[n].role,
                len(claimant.pod_sets[n].pods),
            )
            for n in numbers
        ),
    )


def _required_domains(session: Session, claimant: Gang, part: SubGroup) -> tuple[int, ...]:
    """Domains of the level that a sub-group requires in which members of it are."""
    level = part.topology.required
    found = next((each for each in session.levels if each.name == level), None)
    if found is None:
        return ()
    return tuple(
        sorted({int(found.domain[row]) for row in placed_rows(session, claimant, part.name)})
    )


def _domain_of_rows(session: Session, name: str, homes: tuple[int, ...]) -> dict[int, int] | None:
    """Domain of each row of a level; nothing where there is no such level."""
    if not name:
        return None
    level = next((each for each in session.levels if each.name == name), None)
    if level is None or len(homes) > 1:
        return {}
    return {
        row: domain
        for row, domain in enumerate(level.domain.tolist())
        if 0 <= domain < len(level.names) and (not homes or domain in homes)
    }
