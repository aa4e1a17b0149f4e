"""A window of gangs seen from far: kinds of pods, lumps of them that stay together, pools of room.

A *kind* is a request with the nodes that may take it. A *lump* is the part of a gang that must
lie in one domain of a level, or anywhere. A *pool* is a set of nodes that no level in the window
divides; what all its nodes together can take bounds what is put there. Where the sizes of pods
divide each other and one resource binds, these bounds are exact; elsewhere they promise too much
and the places are counted afterwards. With every node a pool of its own they are exact always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.placement.admission.model import AdmissionBatch, request_fits_by_node
from gpusched.placement.model.problem import DomainLevel, Problem, Role

_COEFFICIENT_MAX: Final = 2**40
"""Amounts are scaled below this, so that sums over a window stay exact in the solver."""


@frozen(eq=False)
class RequestClass:
    """Pods that are equal in what they ask and where they may be.

    Attributes:
        request: as ``Role.ask``.
        caps: how many of it alone each node takes, int64, shape (nodes,).
    """

    request: Ints
    caps: Ints


@frozen(kw_only=True)
class ColocatedMembers:
    """Members of one contender that lie in one domain together.

    Attributes:
        level: index of that level, -1 for none.
        parent: number of the lump in whose domain it lies, -1 for none.
        demand: pairs of kind and count.
        roles: role, kind and count of the members.
        homes: domains of the level that have room for all of it.
    """

    contender: int
    level: int
    parent: int
    demand: tuple[tuple[int, int], ...]
    roles: tuple[tuple[int, int, int], ...]
    homes: tuple[int, ...]


@frozen(eq=False)
class SmallerRequests:
    """Pods smaller than a row's slots fill what is waste to it first, and then take slots.

    Attributes:
        amounts: by kind, units that a member takes if it is smaller, counted in whole slots of a
            size that divides the row's.
        waste: units that are slots of that size and none of the row's, int64, shape (pools,).
    """

    amounts: tuple[int, ...]
    waste: Ints


@frozen(eq=False)
class PoolConstraint:
    """In each pool, the sum of ``factors`` by kind times members is at most ``room``.

    Attributes:
        factors: one for each kind.
        room: int64, shape (pools,).
        size: what one slot of the room takes, in units of the resource.
        below: what kinds that count nothing here may still cost, see ``Below``.
    """

    factors: tuple[int, ...]
    room: Ints
    size: int
    below: tuple[SmallerRequests, ...] = ()


@frozen(eq=False, kw_only=True)
class PooledBatch:
    """The window for the solver: small, whatever the number of nodes.

    Attributes:
        kinds: in the order in which contenders have them.
        lumps: parents before those inside.
        pool: of each node, shape (nodes,).
        caps: how many of each kind each pool takes, shape (kinds, pools).
        rows: what pools bound.
        level: index of the level whose domains are pools; -1 when none is.
        above: by index of each other level with lumps: the domain of each pool, shape (pools,).
        wider: by pairs of levels with lumps, the second not narrower: the domain of the second
            in which each domain of the first lies.
    """

    kinds: tuple[RequestClass, ...]
    lumps: tuple[ColocatedMembers, ...]
    pool: Ints
    caps: Ints
    rows: tuple[PoolConstraint, ...]
    level: int
    above: dict[int, Ints]
    wider: dict[tuple[int, int], Ints]

    def lies_in_one_pool(self, lump: ColocatedMembers) -> bool:
        """Whether it lies in one pool as a whole."""
        return lump.level >= 0 and lump.level == self.level

    @property
    def levels(self) -> tuple[int, ...]:
        """Those with lumps, widest first."""
        return (*sorted(self.above), *([self.level] if self.level >= 0 else []))

    def sum_by_domain(self, amounts: Ints, level: int) -> Ints:
        """Amounts by pool, summed by domain of a level with lumps; -1 for the whole cluster."""
        if level < 0:
            return np.array([amounts.sum()], dtype=np.int64)
        if level == self.level:
            return amounts
        domain = self.above[level]
        sums: Ints = np.zeros(int(domain.max(initial=-1)) + 1, dtype=np.int64)
        known = domain >= 0
        np.add.at(sums, domain[known], amounts[known])
        return sums

    def domain_above(self, level: int, wider: int) -> Ints:
        """The domain of a wider level in which each domain of a level lies; -1: the cluster."""
        if wider < 0:
            size = int(self.pool.max(initial=0)) + 1 if level < 0 else len(self.wider[level, level])
            return np.zeros(size, dtype=np.int64)
        return self.wider[level, wider]

    @property
    def size(self) -> int:
        """How many counts its model has."""
        return int((self.caps > 0).sum())


def build_pooled_batch(window: AdmissionBatch, *, by_node: bool = False) -> PooledBatch:
    """The pools of a window.

    Args:
        window: at least one contender.
        by_node: each node is a pool.
    """
    kinds, numbers = _request_classes(window)
    levels = window.contenders[0].problem.levels
    lumps: list[ColocatedMembers] = []
    for contender, each in enumerate(window.contenders):
        lumps += _colocated_groups(contender, each.problem, numbers[contender], kinds, len(lumps))
    pinned = sorted({lump.level for lump in lumps if lump.level >= 0})
    nodes = window.free.shape[0]
    level = -1
    pool: Ints = np.zeros(nodes, dtype=np.int64)
    if by_node:
        pool = np.arange(nodes, dtype=np.int64)
    elif pinned:
        level = pinned[-1]
        pool = levels[level].domain
    count = int(pool.max()) + 1 if nodes else 0
    caps = np.array([_sum_by_domain(kind.caps, pool, count) for kind in kinds], dtype=np.int64)
    return PooledBatch(
        kinds=kinds,
        lumps=tuple(lumps),
        pool=pool,
        caps=caps,
        rows=_resource_constraints(window, kinds, pool, count),
        level=level,
        above={each: _pool_domains(levels[each], pool, count) for each in pinned if each != level},
        wider={
            (narrow, wide): _pool_domains(levels[wide], levels[narrow].domain, -1)
            for narrow in pinned
            for wide in pinned
            if wide <= narrow
        },
    )


def _request_classes(window: AdmissionBatch) -> tuple[tuple[RequestClass, ...], list[list[int]]]:
    """The kinds, and for each contender those of its roles."""
    found: dict[tuple[bytes, bytes], int] = {}
    kinds: list[RequestClass] = []
    numbers: list[list[int]] = []
    for contender in window.contenders:
        numbers.append([])
        for role in contender.problem.roles:
            kind = _request_class(window.free, role)
            key = (kind.request.tobytes(), kind.caps.tobytes())
            if key not in found:
                found[key] = len(kinds)
                kinds.append(kind)
            numbers[-1].append(found[key])
    return tuple(kinds), numbers


def _request_class(free: Ints, role: Role) -> RequestClass:
    """What fits of a role, not cut at its members where nothing else limits it."""
    alone = request_fits_by_node(free, role.request)
    open_to = role.fits > 0
    if (role.fits[open_to] == np.minimum(alone, role.most)[open_to]).all():
        return RequestClass(role.request, np.where(open_to, np.minimum(alone, 2**31), 0))
    return RequestClass(role.request, role.fits)


def _colocated_groups(
    contender: int,
    problem: Problem,
    kind_of: Sequence[int],
    kinds: Sequence[RequestClass],
    first: int,
) -> list[ColocatedMembers]:
    """The gang's own lump first, which may be empty; then those of sub-groups with a level."""
    apart: dict[int, list[int]] = {-1: []}
    for role, one in enumerate(problem.roles):
        # A level that is no narrower than the gang's own says nothing more.
        inside = one.part >= 0 and problem.parts[one.part].level > problem.required
        apart.setdefault(one.part if inside else -1, []).append(role)
    made = []
    for part, roles in sorted(apart.items()):
        own = part < 0
        level = problem.required if own else problem.parts[part].level
        # The domain of the gang holds its sub-groups too.
        together = range(len(problem.roles)) if own else roles
        made.append(
            ColocatedMembers(
                contender=contender,
                level=level,
                parent=-1 if own or problem.required < 0 else first,
                demand=_kind_demand(problem, kind_of, roles),
                roles=tuple((role, kind_of[role], problem.roles[role].most) for role in roles),
                homes=_allowed_domains(
                    problem, kinds, level, _kind_demand(problem, kind_of, together)
                ),
            )
        )
    return made


def _kind_demand(
    problem: Problem, kind_of: Sequence[int], roles: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    demand: dict[int, int] = {}
    for role in roles:
        demand[kind_of[role]] = demand.get(kind_of[role], 0) + problem.roles[role].most
    return tuple(sorted(demand.items()))


def _allowed_domains(
    problem: Problem, kinds: Sequence[RequestClass], level: int, demand: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    if level < 0:
        return ()
    domains = problem.levels[level]
    holds = np.ones(domains.real, dtype=np.bool_)
    for kind, count in demand:
        holds &= _sum_by_domain(kinds[kind].caps, domains.domain, domains.real) >= count
    return tuple(np.flatnonzero(holds).tolist())


def _sum_by_domain(amounts: Ints, domain: Ints, count: int) -> Ints:
    """Of nodes by domain, those at or above ``count`` left out; shape (count,)."""
    sums: Ints = np.zeros(count, dtype=np.int64)
    inside = domain < count
    np.add.at(sums, domain[inside], amounts[inside])
    return sums


def _pool_domains(level: DomainLevel, pool: Ints, count: int) -> Ints:
    """The domain of each pool; -1 for a number that no node has."""
    size = count if count >= 0 else int(pool.max(initial=-1)) + 1
    found: Ints = np.full(size, -1, dtype=np.int64)
    found[pool] = level.domain
    return found


# -- what pools bound ------------------------------------------------------------------------
def _resource_constraints(
    window: AdmissionBatch, kinds: Sequence[RequestClass], pool: Ints, count: int
) -> tuple[PoolConstraint, ...]:
    """By resource: members of each size or larger by the slots of that size, then plain sums.

    A pod of t takes the room of t/s pods of s, rounded down; a node with f free has f/s of them,
    rounded down. Both hold for any sizes.
    """
    rows: list[PoolConstraint] = []
    for column in range(window.free.shape[1]):
        asks = [int(kind.request[column]) for kind in kinds]
        sizes = {ask for ask in asks if ask}
        if not sizes:
            continue
        unit = int(np.gcd.reduce(sorted(sizes)))
        wanted = [ask // unit for ask in asks]
        scale = max(1, -(-max(wanted) // _COEFFICIENT_MAX))
        wanted = [each // scale for each in wanted]
        free = window.free[:, column] // unit // scale
        sizes = {1, *(each for each in wanted if each)}
        plain = {size: _size_constraint(free, kinds, wanted, size=size, pool=pool, count=count)
                 for size in sorted(sizes)}  # fmt: skip
        rows += [_with_smaller_requests(plain, size, wanted) for size in plain]
    return _without_repetitions(rows)


def _size_constraint(
    free: Ints,
    kinds: Sequence[RequestClass],
    asks: Sequence[int],
    *,
    size: int,
    pool: Ints,
    count: int,
) -> PoolConstraint:
    """The row of one size; ``free`` and ``asks`` are rounded down, which never forbids too much."""
    usable = np.zeros(len(free), dtype=np.bool_)
    for kind, ask in zip(kinds, asks, strict=True):
        if ask >= size:
            usable |= kind.caps > 0
    slots = np.where(usable, free // size, 0)
    return PoolConstraint(
        tuple(ask // size for ask in asks), _sum_by_domain(slots, pool, count), size
    )


def _with_smaller_requests(
    rows: Mapping[int, PoolConstraint], size: int, asks: Sequence[int]
) -> PoolConstraint:
    row = rows[size]
    below = []
    for smaller, other in rows.items():
        amounts = tuple(ask // smaller * smaller if ask < size else 0 for ask in asks)
        if smaller < size and size % smaller == 0 and any(amounts):
            below.append(SmallerRequests(amounts, smaller * other.room - size * row.room))
    return attrs.evolve(row, below=tuple(below))


def _without_repetitions(rows: Sequence[PoolConstraint]) -> tuple[PoolConstraint, ...]:
    found: dict[tuple[tuple[int, ...], bytes], PoolConstraint] = {}
    for row in rows:
        if any(row.factors):
            found.setdefault((row.factors, row.room.tobytes()), row)
    return tuple(found.values())
