"""What nodes can hold of several kinds of members together: patterns, and what racks can hold.

A pattern is how many members of each kind one node takes. Nodes that can take the same patterns
are of one class, however different their free amounts are. For whole numbers ``a`` the best
``a . pattern`` of each node, summed over the nodes of a rack, bounds what the rack can host:
inequalities of this form are what the models over racks are built of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import gcd
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen
from gpusched.placement.model.problem import NODES, MemberCap, Problem
from gpusched.placement.model.role_mixes import RoleMixes

PATTERNS_MAX: Final = 1_500
"""With more patterns than these members are counted node by node."""
_WAYS_MAX: Final = 400_000
_AMOUNT_MAX: Final = 2**53
_ROOM_MAX: Final = 2**40
_EXACT_MAX: Final = 2**50
_SLOTS_MAX: Final = 1_000


@frozen(eq=False, kw_only=True)
class RoleClass:
    """Roles whose members ask for the same and may use the same nodes.

    Attributes:
        roles: their numbers.
        request, gpus, price: as of each of the roles.
        most: members of all of them.
        limit: how many of the kind alone each node takes, int64, shape (nodes,).
    """

    roles: tuple[int, ...]
    request: Ints
    gpus: int
    price: Ints | None
    most: int
    limit: Ints


@frozen(eq=False, kw_only=True)
class CellPatterns:
    """A problem's nodes by cells, the domains of the narrowest level.

    Attributes:
        problem: it is about.
        kinds: of members.
        patterns: int64, shape (patterns, kinds), the empty one first; None when they are too many.
        need: of each pattern, base units, shape (patterns, resources).
        sign: class of each node by what it can take, shape (nodes,).
        able: which patterns each class can take, shape (classes, patterns).
        rows: nodes of each cell that can take anything, ascending.
        at: domain of each cell, shape (levels, cells).
        cell: of each node, -1 where it can take nothing.
    """

    problem: Problem
    kinds: tuple[RoleClass, ...]
    patterns: Ints | None
    sign: Ints
    able: Bools
    rows: tuple[Ints, ...]
    at: Ints
    cell: Ints

    def best_in_direction(self, direction: Sequence[int]) -> Ints:
        """A bound on ``direction . counts`` in each cell, shape (cells,); see ``by_node``."""
        by_node = self.by_node(direction)
        total = np.zeros(len(self.rows), dtype=np.int64)
        inside = self.cell >= 0
        np.add.at(total, self.cell[inside], by_node[inside])
        return total

    def by_node(self, direction: Sequence[int]) -> Ints:
        """What each node hosts at most of ``direction . counts``, shape (nodes,).

        Args:
            direction: a weight for each kind, none negative.
        """
        weights = np.array(direction, dtype=np.int64)
        if self.patterns is None:
            return _most_by_sums(self, weights)
        worth = self.patterns @ weights
        most: Ints = np.where(self.able, worth[None, :], 0).max(axis=1)[self.sign]
        return most

    def scaled_sums(self) -> tuple[Ints, Ints]:
        """Asks of kinds, rounded down, and room of cells, rounded up, in the same small units.

        Returns:
            Shapes (kinds, resources) and (cells, resources): sums over a gang stay far below
            2**63, and what truly fits fits these too.
        """
        asks = np.stack([kind.request for kind in self.kinds])
        free = self.problem.free
        total = np.zeros((len(self.rows), free.shape[1]), dtype=np.int64)
        small = np.zeros_like(asks)
        for column in range(free.shape[1]):
            wanted = asks[:, column][asks[:, column] > 0]
            if not wanted.size:
                continue
            unit = int(np.gcd.reduce(wanted))
            cap = int(free[:, column].max(initial=0)) // unit
            unit *= max(1, -(-cap // _ROOM_MAX))
            small[:, column] = asks[:, column] // unit
            room = free[:, column] // unit + (unit > int(np.gcd.reduce(wanted)))
            inside = self.cell >= 0
            np.add.at(total[:, column], self.cell[inside], room[inside])
        return small, total


def build_cell_patterns(problem: Problem) -> CellPatterns:
    """The problem's kinds, patterns and cells."""
    kinds = _role_classes(problem)
    limits = np.stack([kind.limit for kind in kinds], axis=1)  # (nodes, kinds)
    asks = np.stack([kind.request for kind in kinds])
    active: Bools = np.any(limits > 0, axis=1)
    patterns = _enumerate_patterns(
        problem.free[active],
        limits[active],
        asks,
        mixed=partial(_mixed_somewhere, problem, kinds, active),
    )
    if patterns is None:
        sign = np.zeros(problem.nodes, dtype=np.int64)
        able = np.ones((1, 1), dtype=np.bool_)
    else:
        sign, able = _classify_nodes(problem, kinds, patterns)
        seen = able.any(axis=0)
        patterns, able = patterns[seen], able[:, seen]
    if problem.levels:
        narrow = problem.levels[-1].domain
    else:
        narrow = np.zeros(problem.nodes, dtype=np.int64)
    numbers, cell = np.unique(narrow[active], return_inverse=True)
    cells: Ints = np.full(problem.nodes, -1, dtype=np.int64)
    cells[active] = cell
    order = np.flatnonzero(active)[np.argsort(cell, kind="stable")]
    ends = np.cumsum(np.bincount(cell, minlength=len(numbers)))
    rows = tuple(np.split(order, ends[:-1])) if len(numbers) else ()
    first = np.array([each[0] for each in rows], dtype=np.int64)
    at = np.array([level.domain[first] for level in problem.levels], dtype=np.int64)
    return CellPatterns(
        problem=problem,
        kinds=kinds,
        patterns=patterns,
        sign=sign,
        able=able,
        rows=rows,
        at=at.reshape(len(problem.levels), len(rows)),
        cell=cells,
    )


def inequality_directions(
    kinds: Sequence[RoleClass],
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Weights of inequalities worth looking at, as few as tell something new.

    Returns:
        All of them, and the positions of the plain ones: each kind alone, all kinds together,
        and slots of each size that is asked for.
    """
    count = len(kinds)
    plain = [tuple(int(i == k) for i in range(count)) for k in range(count)]
    plain.append((1,) * count)
    sizes = sorted({kind.gpus for kind in kinds if 0 < kind.gpus <= _SLOTS_MAX} | {1})
    plain += [tuple(min(kind.gpus, _SLOTS_MAX) // size for kind in kinds) for size in sizes]
    entry = 3 if count <= 3 else 2 if count <= 4 else 1 if count <= 7 else 0
    further = [] if not entry else list(product(range(entry + 1), repeat=count))
    found = dict.fromkeys(
        each for each in (*plain, *further) if any(each) and (each in plain or gcd(*each) == 1)
    )
    every = tuple(found)
    simple = dict.fromkeys(each for each in plain if any(each))
    return every, tuple(every.index(each) for each in simple)


def _role_classes(problem: Problem) -> tuple[RoleClass, ...]:
    found: dict[tuple[object, ...], list[int]] = {}
    naturals = []
    for number, role in enumerate(problem.roles):
        wanted = np.flatnonzero(role.request)
        quotient: Ints = np.full(problem.nodes, _AMOUNT_MAX, dtype=np.int64)
        if wanted.size:
            quotient = (problem.free[:, wanted] // role.request[wanted]).min(axis=1)
        place = -1 if problem.mixes is None else problem.mixes.place_of(number)
        if problem.mixes is not None and place >= 0:
            quotient = np.minimum(quotient, problem.mixes.most_alone(place))
        naturals.append(quotient)
        able = role.fits > 0
        plain = bool((np.where(able, np.minimum(quotient, role.most), 0) == role.fits).all())
        price = b"" if role.price is None else role.price.tobytes()
        mine = tuple(index for index, cap in enumerate(problem.caps) if number in cap.roles)
        alone = -1 if plain else number
        key = (role.request.tobytes(), role.gpus, price, able.tobytes(), alone, mine, place)
        found.setdefault(key, []).append(number)
    kinds = []
    for numbers in found.values():
        role = problem.roles[numbers[0]]
        most = sum(problem.roles[number].most for number in numbers)
        limit = role.fits
        if len(numbers) > 1:
            limit = np.where(role.fits > 0, np.minimum(naturals[numbers[0]], most), 0)
        kinds.append(
            RoleClass(
                roles=tuple(numbers),
                request=role.request,
                gpus=role.gpus,
                price=role.price,
                most=most,
                limit=np.minimum(limit, problem.members),
            )
        )
    return tuple(kinds)


def _enumerate_patterns(
    free: Ints, limits: Ints, asks: Ints, *, mixed: Callable[[Ints], Bools]
) -> Ints | None:
    """All patterns that might fit a node with the most of everything; None when too many.

    Args:
        free: of the nodes that take anything, shape (nodes, resources).
        limits: of the same nodes, members of each kind alone, shape (nodes, kinds).
        asks: of one member of each kind.
        mixed: which patterns some node may have, as far as the mixes of roles go.
    """
    room = free.max(axis=0, initial=0)
    found: Ints = np.zeros((1, len(asks)), dtype=np.int64)
    for kind in range(len(asks)):
        count = int(limits[:, kind].max(initial=0)) + 1
        if len(found) * count > _WAYS_MAX:
            return None
        found = np.repeat(found, count, axis=0)
        found[:, kind] = np.tile(np.arange(count), len(found) // count)
        found = found[(found @ asks <= room).all(axis=1)]
        found = found[mixed(found)]
        if len(found) > PATTERNS_MAX:
            return None
    return found


def kinds_of_cap(kinds: Sequence[RoleClass], cap: MemberCap) -> list[int]:
    """Numbers of the kinds that a cap counts; each is counted as a whole or not at all."""
    return _kinds_within(kinds, cap.roles)


def _kinds_within(kinds: Sequence[RoleClass], roles: Sequence[int]) -> list[int]:
    return [number for number, kind in enumerate(kinds) if set(kind.roles) <= set(roles)]


def kinds_of_mixes(mixes: RoleMixes, kinds: Sequence[RoleClass]) -> list[list[int]]:
    """By place in the vectors the numbers of the kinds that count there, each as a whole."""
    return [_kinds_within(kinds, roles) for roles in mixes.roles]


def _by_place(mixes: RoleMixes, kinds: Sequence[RoleClass], patterns: Ints) -> Ints:
    """Members by place of the vectors in each pattern, shape (patterns, places)."""
    columns = [patterns[:, mine].sum(axis=1) for mine in kinds_of_mixes(mixes, kinds)]
    return np.stack(columns, axis=1)


def _mixed_somewhere(
    problem: Problem, kinds: Sequence[RoleClass], active: Bools, patterns: Ints
) -> Bools:
    """Which patterns the mixes of roles allow on any of these nodes, shape (patterns,)."""
    mixes = problem.mixes
    tables = () if mixes is None else tuple(np.unique(mixes.state[active]).tolist())
    if mixes is None or -1 in tables:
        return np.ones(len(patterns), dtype=np.bool_)
    placed = _by_place(mixes, kinds, patterns)
    allowed: Bools = ~np.any(placed, axis=1)
    for table in tables:
        allowed |= mixes.allow_counts(table, placed)
    return allowed


def node_caps(problem: Problem, kinds: Sequence[RoleClass]) -> list[tuple[list[int], Ints]]:
    """Caps of single nodes: numbers of the kinds, and members by node, shape (nodes,)."""
    return [(kinds_of_cap(kinds, cap), cap.most) for cap in problem.caps if cap.level == NODES]


def _classify_nodes(
    problem: Problem, kinds: Sequence[RoleClass], patterns: Ints
) -> tuple[Ints, Bools]:
    """Class of each node, and which patterns each class can take."""
    limits = np.stack([kind.limit for kind in kinds], axis=1)
    asks = np.stack([kind.request for kind in kinds])
    caps, mixes = node_caps(problem, kinds), problem.mixes
    need = patterns @ asks
    used = np.flatnonzero(asks.any(axis=0))
    room = np.minimum(problem.free[:, used], need[:, used].max(axis=0, initial=0))
    capped = (
        np.stack([np.minimum(most, problem.members) for _, most in caps], axis=1)
        if caps
        else limits[:, :0]
    )
    states = limits[:, :0] if mixes is None else mixes.state[:, None]
    shapes, which = np.unique(
        np.hstack([room, limits, capped, states]), axis=0, return_inverse=True
    )
    able = np.ones((len(shapes), len(patterns)), dtype=np.bool_)
    for place, column in enumerate(used.tolist()):
        able &= need[None, :, column] <= shapes[:, place, None]
    for kind in range(patterns.shape[1]):
        able &= patterns[None, :, kind] <= shapes[:, len(used) + kind, None]
    for place, (mine, _) in enumerate(caps):
        column = len(used) + patterns.shape[1] + place
        able &= patterns[:, mine].sum(axis=1)[None, :] <= shapes[:, column, None]
    if mixes is not None:
        placed = _by_place(mixes, kinds, patterns)
        for table in np.unique(mixes.state[mixes.state >= 0]).tolist():
            able[shapes[:, -1] == table] &= mixes.allow_counts(table, placed)[None, :]
    _, first, sign = np.unique(
        np.packbits(able, axis=1), axis=0, return_index=True, return_inverse=True
    )
    return sign.reshape(-1)[which.reshape(-1)], able[first]


def _most_by_sums(each: CellPatterns, weights: Ints) -> Ints:
    """What each node hosts at most of ``weights . counts``, by limits and by each resource."""
    limits = np.stack([kind.limit for kind in each.kinds], axis=1)
    most: Ints = limits @ weights
    asks = np.stack([kind.request for kind in each.kinds])
    heavy = np.flatnonzero(weights)
    for column in range(asks.shape[1]):
        if (asks[heavy, column] <= 0).any():
            continue
        free = each.problem.free[:, column]
        if int(free.max(initial=0)) < _EXACT_MAX:
            by_kind = [free * int(weights[k]) // int(asks[k, column]) for k in heavy.tolist()]
        else:
            by_kind = [(free // int(asks[k, column]) + 1) * int(weights[k]) for k in heavy.tolist()]
        most = np.minimum(most, np.max(by_kind, axis=0))
    return most
