"""Tiny random problems: a few nodes, up to three levels, one or more roles, filters, slots."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Ints, how_many_fit
from gpusched.placement.model.problem import (
    DomainLevel,
    Problem,
    Role,
    SubGroupHolder,
    SubGroupMinimum,
)
from gpusched.topology.slot_costs import Free, SlotTables

LAYOUTS: tuple[tuple[int, ...], ...] = ((4,), (2, 2), (2, 1, 1))


def tiny(
    rng: random.Random,
    *,
    nodes: int = 5,
    roles: int = 1,
    members: int = 5,
    parts: bool = False,
    nested: bool = False,
    level: int | None = None,
) -> Problem:
    """A random problem.

    Args:
        rng: all that is random comes from it.
        nodes: at most so many.
        roles: exactly so many.
        members: at most so many get a place.
        parts: whether roles are in sub-groups now and then.
        nested: whether sub-groups are in sub-groups, up to four deep.
        level: the required level; None draws one, which may be none.
    """
    count = rng.randint(1, nodes)
    levels = tree(rng, count)
    if level is None:
        level = rng.randint(-1, len(levels) - 1) if rng.random() < 0.6 else -1
    level = min(level, len(levels) - 1)
    islands = [_islands(rng) for _ in range(count)]
    states = tuple(sorted(set(islands)))
    slotted = rng.random() < 0.8
    gpus = np.array([sum(left for _, left in each) for each in islands], dtype=np.int64)
    cpu = np.array([rng.randint(2, 9) for _ in range(count)], dtype=np.int64)
    free = np.stack([gpus, cpu], axis=1)
    subs = _parts(rng, levels, roles) if parts and (nested or rng.random() < 0.7) else ()
    holders: tuple[SubGroupHolder, ...] = ()
    if nested:
        subs, holders = _nested(rng, levels, subs)
    kinds = tuple(_role(rng, free, len(subs)) for _ in range(roles))
    room = sum(min(role.most, int(role.fits.sum())) for role in kinds)
    asked = rng.randint(1, min(members, room) if room and rng.random() < 0.85 else members)
    return Problem(
        free=free,
        roles=kinds,
        members=asked,
        minima=_minima(rng, kinds, asked) if roles > 1 else (),
        parts=subs,
        parts_least=rng.randint(0, _lacking((*subs, *holders), -1)) if subs else 0,
        holders=holders,
        levels=levels,
        required=level,
        placed=_placed(rng, levels, level, count),
        hope=asked + rng.randint(0, 3) if rng.random() < 0.5 else 0,
        states=np.array([states.index(each) for each in islands], dtype=np.int64),
        slots=SlotTables(states) if slotted else None,
    )


def tree(rng: random.Random, nodes: int) -> tuple[DomainLevel, ...]:
    """Up to three nested levels; some nodes lack a label, and with it the narrower ones."""
    wider: list[tuple[int, ...] | None] = [()] * nodes
    levels = []
    for depth in range(rng.randint(0, 3)):
        below: list[tuple[int, ...] | None] = []
        for path in wider:
            known = path is not None and rng.random() >= 0.1
            below.append((*path, rng.randint(0, 2)) if path is not None and known else None)
        names = sorted({path for path in below if path is not None})
        alone = len(names)
        domain = []
        for path in below:
            if path is None:
                domain.append(alone)
                alone += 1
            else:
                domain.append(names.index(path))
        number = np.array(domain, dtype=np.int64)
        levels.append(DomainLevel(name=f"level-{depth}", domain=number, real=len(names)))
        wider = below
    return tuple(levels)


def _islands(rng: random.Random) -> Free:
    layout = rng.choice(LAYOUTS)
    return tuple(sorted((size, rng.choice((0, size, rng.randint(0, size)))) for size in layout))


def _role(rng: random.Random, free: Ints, parts: int) -> Role:
    gpus = rng.choice((0, 1, 1, 2, 2, 3, 4))
    ask = np.array([gpus, rng.choice((0, 1, 1, 2, 3)) or (0 if gpus else 1)], dtype=np.int64)
    most = rng.randint(1, 5)
    wanted = np.flatnonzero(ask)
    fits = np.minimum(how_many_fit(free[:, wanted], ask[wanted]), most)
    once = rng.random() < 0.15
    allowed = np.array([rng.random() < 0.9 for _ in range(len(free))], dtype=np.int64)
    price = np.array([rng.randint(0, 3) for _ in range(len(free))], dtype=np.int64)
    return Role(
        request=ask,
        most=most,
        fits=np.minimum(fits, 1 if once else most) * allowed,
        gpus=gpus,
        part=rng.randint(-1, parts - 1),
        price=price if rng.random() < 0.5 else None,
    )


def _minima(
    rng: random.Random, roles: tuple[Role, ...], members: int
) -> tuple[tuple[tuple[int, ...], int], ...]:
    if rng.random() < 0.4:
        return ()
    return tuple(
        ((index,), rng.randint(0, min(role.most, max(1, members // len(roles)))))
        for index, role in enumerate(roles)
    )


def _parts(
    rng: random.Random, levels: tuple[DomainLevel, ...], roles: int
) -> tuple[SubGroupMinimum, ...]:
    found = []
    for _ in range(rng.randint(1, roles)):
        level = rng.randint(-1, len(levels) - 1)
        preferred = rng.randint(-1, len(levels) - 1)
        homes, near = _where(rng, levels, level, preferred)
        least = rng.randint(0, 2)
        found.append(
            SubGroupMinimum(least=least, level=level, preferred=preferred, homes=homes, near=near)
        )
    return tuple(found)


def _lacking(groups: Sequence[SubGroupMinimum | SubGroupHolder], parent: int) -> int:
    return sum(each.least > 0 for each in groups if each.parent == parent)


def _nested(
    rng: random.Random, levels: tuple[DomainLevel, ...], parts: tuple[SubGroupMinimum, ...]
) -> tuple[tuple[SubGroupMinimum, ...], tuple[SubGroupHolder, ...]]:
    """The sub-groups put into others, at most three of these above each."""
    depth = [0]
    above = [-1]
    for number in range(1, rng.randint(1, 4)):
        parent = rng.choice([each for each in range(-1, number) if each < 0 or depth[each] < 2])
        above.append(parent)
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
    parts = tuple(
        attrs.evolve(part, parent=rng.choice((-1, *range(len(above)), *range(len(above)))))
        for part in parts
    )
    used = {part.parent for part in parts}
    for number in reversed(range(len(above))):
        if number in used:
            used.add(above[number])
    kept = [number for number in range(len(above)) if number in used]
    renamed = {-1: -1} | {number: at for at, number in enumerate(kept)}
    parts = tuple(attrs.evolve(part, parent=renamed[part.parent]) for part in parts)
    holders: list[SubGroupHolder] = []
    for number in kept:
        level = rng.choice((-1, rng.randint(-1, len(levels) - 1)))
        preferred = rng.choice((-1, rng.randint(-1, len(levels) - 1)))
        homes, near = _where(rng, levels, level, preferred)
        holders.append(
            SubGroupHolder(
                least=0,
                level=level,
                preferred=preferred,
                homes=homes,
                near=near,
                parent=renamed[above[number]],
            )
        )
    for number in reversed(range(len(holders))):
        most = _lacking((*parts, *holders), number)
        needed = rng.randint(0, most) if rng.random() < 0.5 else most
        holders[number] = attrs.evolve(holders[number], least=needed)
    return parts, tuple(holders)


def _where(
    rng: random.Random, levels: tuple[DomainLevel, ...], level: int, preferred: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Domains of both levels in which members of a sub-group are, where there are some."""
    if not levels or rng.random() < 0.75:
        return (), ()
    row = rng.randrange(len(levels[0].domain))
    homes, near = (
        (int(levels[each].domain[row]),) if each >= 0 else () for each in (level, preferred)
    )
    return homes, near


def _placed(rng: random.Random, levels: tuple[DomainLevel, ...], required: int, nodes: int) -> Ints:
    placed: Ints = np.zeros(nodes, dtype=np.int64)
    if rng.random() < 0.6:
        return np.zeros(0, dtype=np.int64) if rng.random() < 0.5 else placed
    able = list(range(nodes))
    if required >= 0:
        level = levels[required]
        home = rng.choice(level.domain.tolist())
        if home < level.real or rng.random() < 0.1:
            able = np.flatnonzero(level.domain == home).tolist()
        else:
            return placed
    for row in able:
        if rng.random() < 0.4:
            placed[row] = rng.randint(1, 2)
    return placed
