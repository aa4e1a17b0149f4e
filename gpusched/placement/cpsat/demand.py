"""What a gang needs at least, in sums over its kinds of members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.placement.cpsat.patterns import CellPatterns, inequality_directions
from gpusched.placement.model.problem import Problem


@frozen(eq=False, kw_only=True)
class HostingBounds:
    """What cells host at most, by direction.

    Attributes:
        directions: weights by kind, see ``directions``.
        plain: positions of the plain ones; the first ones are each kind alone.
        most: ``Field.best`` of each, shape (directions, cells).
        needs: what every answer places of each at least, see ``demanded``.
        by_node: ``Field.by_node`` of the plain ones, shape (plain, nodes).
    """

    directions: Ints
    plain: tuple[int, ...]
    most: Ints
    needs: tuple[int, ...]
    by_node: Ints

    @property
    def alone(self) -> Ints:
        """Of each kind alone, shape (kinds, cells)."""
        return self.most[: self.directions.shape[1]]


def build_hosting_bounds(each: CellPatterns) -> HostingBounds:
    """What cells host at most in all directions worth looking at."""
    every, plain = inequality_directions(each.kinds)
    return HostingBounds(
        directions=np.array(every, dtype=np.int64),
        plain=plain,
        most=np.stack([each.best_in_direction(direction) for direction in every]),
        needs=tuple(demand_in_direction(each, direction) for direction in every),
        by_node=np.stack([each.by_node(every[at]) for at in plain]),
    )


def least_members_by_class(field: CellPatterns) -> tuple[int, ...]:
    """Members of each kind that every answer places, at least."""
    problem = field.problem
    most = [min(kind.most, problem.members) for kind in field.kinds]
    found = []
    for number, kind in enumerate(field.kinds):
        roles = set(kind.roles)
        single: dict[int, int] = {}
        together = 0
        for wanted, least in problem.minima:
            if set(wanted) <= roles:
                together = max(together, least)
                if len(wanted) == 1:
                    single[wanted[0]] = max(least, single.get(wanted[0], 0))
        rest = problem.members - (sum(most) - most[number])
        found.append(max(0, together, sum(single.values()), rest))
    return tuple(found)


def demand_in_direction(field: CellPatterns, direction: Sequence[int]) -> int:
    """What ``direction . counts`` is at least, summed over all nodes, in every answer.

    Args:
        field: the problem's.
        direction: a weight for each kind, none negative.
    """
    least = least_members_by_class(field)
    total = sum(weight * count for weight, count in zip(direction, least, strict=True))
    left = field.problem.members - sum(least)
    for weight, kind, count in sorted(
        (weight, number, least[number]) for number, weight in enumerate(direction)
    ):
        more = min(left, max(0, field.kinds[kind].most - count))
        if more <= 0:
            continue
        total += weight * more
        left -= more
    return total


def demand_shortfall(
    field: CellPatterns, rooms: HostingBounds, cells: tuple[int, ...]
) -> tuple[tuple[int, ...], int, int] | None:
    """A proof by counting that these cells do not hold the gang, None when there is none.

    Returns:
        Roles, how many members of them are needed, and how many fit at most.
    """
    problem = field.problem
    most = rooms.most[:, list(cells)].sum(axis=1).tolist()
    for at, (needed_sum, room) in enumerate(zip(rooms.needs, most, strict=True)):
        over = needed_sum - room
        if over <= 0:
            continue
        least = least_members_by_class(field)
        direction = rooms.directions[at].tolist()
        kinds = [number for number, weight in enumerate(direction) if weight]
        roles = tuple(sorted(role for number in kinds for role in field.kinds[number].roles))
        outside = [kind for number, kind in enumerate(field.kinds) if number not in kinds]
        needed = max(
            sum(least[number] for number in kinds),
            problem.members - sum(kind.most for kind in outside),
        )
        # Each member that is left out lowers the sum by the largest weight at most.
        return roles, needed, needed - -(-over // max(direction))
    return None


def fewest_domains(
    field: CellPatterns, rooms: HostingBounds, level: int, cells: tuple[int, ...]
) -> int:
    """How few domains of a level may do among these cells, placed members' ones counted."""
    problem = field.problem
    domains, which = np.unique(field.at[level, list(cells)], return_inverse=True)
    opened = np.unique(problem.levels[level].domain[problem.open_rows])
    if len(domains) == 1 and not len(opened):
        return 1
    free = ~np.isin(domains, opened)
    fewest = 0
    for at in rooms.plain:
        room = np.zeros(len(domains), dtype=np.int64)
        np.add.at(room, which, rooms.most[at, list(cells)])
        left = rooms.needs[at] - int(room[~free].sum())
        if left > 0:
            reached = np.cumsum(np.sort(room[free])[::-1])
            fewest = max(fewest, int(np.searchsorted(reached, left)) + 1)
    return fewest + len(opened)


def fewest_nodes(field: CellPatterns, rooms: HostingBounds, cells: tuple[int, ...]) -> int:
    """How few nodes of these cells may do."""
    inside = np.concatenate([field.rows[cell] for cell in cells])
    fewest = 0
    for place, at in enumerate(rooms.plain):
        needed = rooms.needs[at]
        if needed > 0:
            reached = np.cumsum(np.sort(rooms.by_node[place, inside])[::-1])
            fewest = max(fewest, int(np.searchsorted(reached, needed)) + 1)
    return fewest


def fewest_domains_for_sub_groups(
    field: CellPatterns, rooms: HostingBounds, cells: tuple[int, ...]
) -> dict[int, int]:
    """How few domains of its preferred level each sub-group may do with, if it gets members."""
    problem = field.problem
    kind_of = {role: at for at, kind in enumerate(field.kinds) for role in kind.roles}
    found = {}
    for number, part in enumerate(problem.parts):
        roles = [role for role, each in enumerate(problem.roles) if each.part == number]
        if part.preferred < 0 or not roles:
            continue
        most = [0] * len(field.kinds)
        for role in roles:
            most[kind_of[role]] += problem.roles[role].most
        domains, which = np.unique(field.at[part.preferred, list(cells)], return_inverse=True)
        fewest = max(1, len(set(part.near)))
        for at in rooms.plain if not part.near else ():
            needed = _least_cost(rooms.directions[at].tolist(), most, part.least)
            room = np.zeros(len(domains), dtype=np.int64)
            np.add.at(room, which, rooms.most[at, list(cells)])
            reached = np.cumsum(np.sort(room)[::-1])
            fewest = max(fewest, int(np.searchsorted(reached, needed)) + 1)
        found[number] = fewest
    return found


def _least_cost(direction: Sequence[int], most: Sequence[int], count: int) -> int:
    """The least ``direction . counts`` of so many members."""
    total = 0
    for weight, there in sorted(zip(direction, most, strict=True)):
        total += weight * min(there, count)
        count -= min(there, count)
    return total


def least_spread(problem: Problem, fewest_of: Mapping[int, int]) -> int:
    """Domains of what sub-groups prefer that every answer uses, summed over sub-groups.

    Args:
        problem: with sub-groups.
        fewest_of: as ``fewest_domains_for_sub_groups`` has it.
    """
    inside: dict[int, list[int]] = {}
    for number, part in enumerate(problem.parts):
        if part.least:
            inside.setdefault(part.parent, []).append(fewest_of.get(number, 0))
    for number, holder in reversed(list(enumerate(problem.holders))):
        if holder.least:
            own = max(1, len(set(holder.near))) if holder.preferred >= 0 else 0
            least = own + sum(sorted(inside.get(number, ()))[: holder.least])
            inside.setdefault(holder.parent, []).append(least)
    by_number = sum(sorted(inside.get(-1, ()))[: problem.parts_least])
    return max(by_number, sum(fewest_of.get(part, 0) for part in _asked_by_roles(problem)))


def _asked_by_roles(problem: Problem) -> Iterator[int]:
    """Sub-groups of members that get some in every answer because a role's minimum says so."""
    for number in range(len(problem.parts)):
        roles = {role for role, each in enumerate(problem.roles) if each.part == number}
        if any(least > 0 and set(wanted) <= roles for wanted, least in problem.minima):
            yield number
