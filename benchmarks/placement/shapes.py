"""Small and large gangs of mixed shapes on nodes of mixed sizes, many of which just fit.

All is invented: sizes that do not divide each other, CPU or memory that runs out before GPUs do,
several roles with minima, sub-groups, levels that hold all or one part.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import attrs

Amounts = tuple[int, int, int]
"""GPUs, cores, GiB."""
LEVELS: Final = ("block", "rack")
"""Widest first."""
_SIZES: Final = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8)
_MACHINES: Final = ((2, 16, 64), (4, 32, 128), (6, 48, 256), (8, 64, 256), (8, 64, 256))


@attrs.frozen(kw_only=True)
class Crew:
    """Members that are equal.

    Attributes:
        ask: of one.
        count: of them.
        least: so many must start.
        part: number of their sub-group, -1 for none.
    """

    ask: Amounts
    count: int
    least: int = 0
    part: int = -1


@attrs.frozen(kw_only=True)
class Squad:
    """A sub-group: so many of it or none, in one domain of a level if one is named."""

    least: int
    level: str = ""


@attrs.frozen(kw_only=True)
class Case:
    """A gang and what is free.

    Attributes:
        free: by node.
        where: by node, the domain of each of ``LEVELS``; racks lie in blocks.
        members: so many start at least.
        squads_least: so many sub-groups are complete at least.
        required: the level of which one domain holds all; empty for none.
        planted: whether it was made so that it fits.
    """

    free: tuple[Amounts, ...]
    where: tuple[tuple[int, int], ...]
    crews: tuple[Crew, ...]
    members: int
    squads: tuple[Squad, ...] = ()
    squads_least: int = 0
    required: str = ""
    planted: bool = False


def small(rng: random.Random) -> Case:
    """Three to eight nodes and up to five roles, so that all answers can be gone through."""
    kind = rng.choice(("exact", "exact", "swapped", "loose", "parts", "required", "both"))
    nodes = rng.randint(3, 8)
    case = planted(
        rng,
        nodes=nodes,
        shapes=_shapes(rng, rng.randint(2, 5)),
        domain=rng.randint(2, 3) if kind in ("parts", "required", "both") else nodes,
        pods=4,
        tight=kind != "loose",
    )
    if kind in ("parts", "both"):
        case = _in_squads(rng, case)
    if kind in ("required", "both"):
        case = _in_one_domain(rng, case)
    if kind == "swapped" or rng.random() < 0.3:
        case = _swapped(rng, case)
    if rng.random() < 0.3:
        case = _fewer_needed(rng, case)
    return _sound(case)


def large(rng: random.Random, nodes: int) -> Case:
    """Six roles on tens or hundreds of nodes; all of them fit because they were cut out of it."""
    pods = 3 if nodes <= 100 else 2
    return planted(
        rng, nodes=nodes, shapes=_shapes(rng, 6), domain=rng.choice((8, 16)), pods=pods, tight=True
    )


def planted(
    rng: random.Random,
    *,
    nodes: int,
    shapes: Sequence[Amounts],
    domain: int,
    pods: int,
    tight: bool,
) -> Case:
    """Put members on nodes; what they take is what is free, and now and then a little more.

    Args:
        rng: all that is random comes from it.
        nodes: so many.
        shapes: of members.
        domain: nodes in a rack; two racks are a block.
        pods: at most so many on a node.
        tight: whether hardly anything is left over.
    """
    free: list[Amounts] = []
    counts = [0] * len(shapes)
    for _ in range(nodes):
        most = rng.choice(_MACHINES)
        used = (0, 0, 0)
        for _ in range(rng.randint(1, pods)):
            shape = rng.randrange(len(shapes))
            after = plus(used, shapes[shape])
            if all(a <= b for a, b in zip(after, most, strict=True)):
                used = after
                counts[shape] += 1
        spare = _spare(rng) if tight else (rng.randint(0, 1), rng.randint(0, 8), rng.randint(0, 32))
        free.append(tuple(min(a, b) for a, b in zip(plus(used, spare), most, strict=True)))  # type: ignore[arg-type]
    if not sum(counts):
        counts[0] = 1
        free[0] = shapes[0]
    crews = tuple(
        Crew(ask=shape, count=count, least=count)
        for shape, count in zip(shapes, counts, strict=True)
        if count
    )
    where = tuple((row // domain // 2, row // domain) for row in range(nodes))
    members = sum(counts)
    return Case(free=tuple(free), where=where, crews=crews, members=members, planted=True)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Their sum."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _shapes(rng: random.Random, count: int) -> list[Amounts]:
    """Different sizes of members; most take cores by GPU, some bind by cores or memory."""
    found: list[Amounts] = []
    while len(found) < count:
        gpus = 0 if rng.random() < 0.15 else rng.choice(_SIZES)
        cores = max(1, gpus * rng.choice((2, 4, 8)) + rng.randint(0, 3))
        shape = (gpus, min(cores, 48), max(1, gpus * rng.choice((4, 8, 24))))
        if shape not in found:
            found.append(shape)
    return found


def _spare(rng: random.Random) -> Amounts:
    if rng.random() < 0.7:
        return (0, 0, 0)
    return rng.choice(((0, 2, 8), (1, 0, 0), (1, 4, 0), (0, 0, 32)))


def _swapped(rng: random.Random, case: Case) -> Case:
    """One member of a role fewer and one of another more: it may fit or not."""
    crews = list(case.crews)
    one, other = rng.randrange(len(crews)), rng.randrange(len(crews))
    changed = [each.count for each in crews]
    changed[one] -= 1
    changed[other] += 1
    made = [
        attrs.evolve(each, count=count, least=min(each.least, count))
        for each, count in zip(crews, changed, strict=True)
        if count
    ]
    for index, count in enumerate(changed):
        if index == other and count and made:
            made = [
                attrs.evolve(e, least=e.count) if e.ask == crews[other].ask else e for e in made
            ]
    if not made:
        return case
    squads = tuple(
        attrs.evolve(squad, least=min(squad.least, _pods(made, number)))
        for number, squad in enumerate(case.squads)
    )
    return attrs.evolve(case, crews=tuple(made), squads=squads, planted=False)


def _pods(crews: Sequence[Crew], part: int) -> int:
    return sum(each.count for each in crews if each.part == part)


def _sound(case: Case) -> Case:
    """Without sub-groups that nobody is in."""
    kept = [part for part in range(len(case.squads)) if _pods(case.crews, part)]
    crews = tuple(
        attrs.evolve(each, part=kept.index(each.part)) if each.part >= 0 else each
        for each in case.crews
    )
    squads = tuple(
        attrs.evolve(case.squads[part], least=max(1, case.squads[part].least)) for part in kept
    )
    needed = min(case.squads_least, len(squads))
    return attrs.evolve(case, crews=crews, squads=squads, squads_least=needed, planted=False)


def _fewer_needed(rng: random.Random, case: Case) -> Case:
    """Minima are below the counts: some members may stay away, others may not."""
    crews = tuple(
        attrs.evolve(each, least=rng.randint(0, each.count), count=each.count + rng.randint(0, 1))
        for each in case.crews
    )
    least = max(1, sum(each.least for each in crews))
    members = rng.randint(least, max(least, case.members))
    squads = tuple(
        attrs.evolve(squad, least=rng.randint(1, max(1, squad.least))) for squad in case.squads
    )
    needed = rng.randint(0, len(squads))
    return attrs.evolve(case, crews=crews, members=members, squads=squads, squads_least=needed)


def _in_squads(rng: random.Random, case: Case) -> Case:
    """Roles are dealt to sub-groups; the answer that was planted may be none any more."""
    number = rng.randint(2, 3)
    crews = tuple(attrs.evolve(each, part=rng.randint(-1, number - 1)) for each in case.crews)
    level = rng.choice(("rack", "rack", "block", ""))
    squads = [Squad(least=_pods(crews, part), level=level) for part in range(number)]
    kept = [part for part, squad in enumerate(squads) if squad.least]
    crews = tuple(
        attrs.evolve(each, part=kept.index(each.part)) if each.part >= 0 else each for each in crews
    )
    chosen = tuple(squads[part] for part in kept)
    return attrs.evolve(
        case, crews=crews, squads=chosen, squads_least=len(chosen), planted=not level
    )


def _in_one_domain(rng: random.Random, case: Case) -> Case:
    """The gang needs one domain: its members are cut down to what one was planted with, or so."""
    level = rng.choice(LEVELS)
    share = max(1, len({each[LEVELS.index(level)] for each in case.where}))
    crews = tuple(
        attrs.evolve(each, count=count, least=count)
        for each in case.crews
        for count in ((each.count + rng.randint(0, share - 1)) // share,)
        if count
    ) or (attrs.evolve(case.crews[0], count=1, least=1),)
    squads = tuple(
        attrs.evolve(squad, least=_pods(crews, number)) for number, squad in enumerate(case.squads)
    )
    return attrs.evolve(
        case,
        crews=crews,
        squads=squads,
        squads_least=sum(squad.least > 0 for squad in squads),
        members=sum(each.count for each in crews),
        required=level,
        planted=False,
    )
