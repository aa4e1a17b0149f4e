"""Random trees of sub-groups on small clusters, and by trying everything where they may be.

Shares nothing with the product: a tree is a few nested records, an answer is a number of pods of
each leaf on each machine, and all answers are gone through.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

ZONE, RACK = 0, 1
LEVELS = ("zone", "rack")


class Box(NamedTuple):
    """A machine: its free GPUs, its zone and its rack (by its full name)."""

    name: str
    gpus: int
    path: tuple[str, str]


class Leaf(NamedTuple):
    """Pods of so many GPUs, of which some run already: on these machines."""

    name: str
    pods: int
    gpus: int
    least: int
    level: int | None
    runs: tuple[int, ...] = ()


class Knot(NamedTuple):
    """A sub-group of sub-groups."""

    name: str
    inside: tuple[Knot | Leaf, ...]
    least: int
    level: int | None
    preferred: int | None = None


class Tree(NamedTuple):
    """A gang on machines; the outermost knot is the gang."""

    boxes: tuple[Box, ...]
    gang: Knot
    members: int


Answer = dict[str, tuple[int, ...]]
"""New pods of each leaf on each machine."""


def leaves(knot: Knot | Leaf) -> Iterator[Leaf]:
    if isinstance(knot, Leaf):
        yield knot
        return
    for each in knot.inside:
        yield from leaves(each)


def knots(knot: Knot) -> Iterator[Knot]:
    yield knot
    for each in knot.inside:
        if isinstance(each, Knot):
            yield from knots(each)


def has(leaf: Leaf, answer: Answer) -> int:
    return len(leaf.runs) + sum(answer[leaf.name])


def new(each: Knot | Leaf, answer: Answer) -> int:
    return sum(sum(answer[leaf.name]) for leaf in leaves(each))


def complete(each: Knot | Leaf, answer: Answer) -> bool:
    if isinstance(each, Leaf):
        return has(each, answer) >= each.least
    return sum(complete(inside, answer) for inside in each.inside) >= each.least


def used(tree: Tree, each: Knot | Leaf, answer: Answer, *, runs: bool = True) -> set[int]:
    found = set()
    for leaf in leaves(each):
        found |= {n for n, count in enumerate(answer[leaf.name]) if count}
        found |= set(leaf.runs) if runs else set()
    return found


def domains(tree: Tree, rows: set[int], level: int) -> set[str]:
    return {tree.boxes[row].path[level] for row in rows}


def broken(tree: Tree, answer: Answer) -> str:
    """What rule an answer breaks; empty for none. Nothing at all is no answer."""
    for n, box in enumerate(tree.boxes):
        if sum(answer[leaf.name][n] * leaf.gpus for leaf in leaves(tree.gang)) > box.gpus:
            return f"{box.name} is over full"
    for each in (*leaves(tree.gang), *knots(tree.gang)):
        if not new(each, answer):
            continue
        if isinstance(each, Leaf) and sum(answer[each.name]) > each.pods:
            return f"{each.name} has only {each.pods} pods"
        if not complete(each, answer):
            return f"{each.name} gets pods and is not complete"
        if each.level is not None:
            inside = domains(tree, used(tree, each, answer), each.level)
            if len(inside) > 1 or "" in inside:
                return f"{each.name} is in {sorted(inside)}"
    if sum(has(leaf, answer) for leaf in leaves(tree.gang)) < tree.members:
        return "fewer members than needed"
    return "" if complete(tree.gang, answer) else "the gang is not complete"


def worth(tree: Tree, answer: Answer) -> tuple[int, ...]:
    """Pods left out, zones, racks, racks of leaves with what knots prefer: less is better."""
    every = used(tree, tree.gang, answer)
    spread = 0
    pinned = {
        leaf.name for knot in knots(tree.gang) if knot.name and knot.level == RACK
        for leaf in leaves(knot)
    }  # fmt: skip
    for leaf in leaves(tree.gang):
        # One that must be in one rack anyway, or is in one that must, is not counted.
        if new(leaf, answer) and leaf.level != RACK and leaf.name not in pinned:
            spread += len(domains(tree, used(tree, leaf, answer), RACK))
    for knot in knots(tree.gang):
        if knot.preferred is not None and new(knot, answer):
            spread += len(domains(tree, used(tree, knot, answer), knot.preferred))
    left = sum(leaf.pods for leaf in leaves(tree.gang)) - new(tree.gang, answer)
    return (
        left, *(len(domains(tree, every, level)) for level in (ZONE, RACK)), spread
    )  # fmt: skip


def answers(tree: Tree) -> Iterator[Answer]:
    """All answers that break no rule."""
    every = list(leaves(tree.gang))

    def ways(leaf: Leaf) -> list[tuple[int, ...]]:
        most = [range(min(leaf.pods, box.gpus // leaf.gpus) + 1) for box in tree.boxes]
        found = []
        for way in product(*most):
            count = sum(way)
            if count > leaf.pods or (count and count + len(leaf.runs) < leaf.least):
                continue
            rows = {n for n, some in enumerate(way) if some} | set(leaf.runs)
            if count and leaf.level is not None and len(domains(tree, rows, leaf.level)) > 1:
                continue
            found.append(way)
        return found

    def deal(number: int, free: list[int], answer: Answer) -> Iterator[Answer]:
        if number == len(every):
            if any(map(sum, answer.values())) and not broken(tree, answer):
                yield dict(answer)
            return
        leaf = every[number]
        for way in options[leaf.name]:
            left = [a - leaf.gpus * b for a, b in zip(free, way, strict=True)]
            if min(left) >= 0:
                answer[leaf.name] = way
                yield from deal(number + 1, left, answer)

    options = {leaf.name: ways(leaf) for leaf in every}
    yield from deal(0, [box.gpus for box in tree.boxes], {})


def drawn(rng: random.Random, *, started: bool = False) -> Tree:
    """A tree up to four sub-groups deep with two to four leaves of one or two pods."""
    boxes = tuple(
        Box(f"n{n}", rng.choice((1, 1, 2, 3)), (f"z{n % 2}", f"z{n % 2}r{rng.randint(0, 1)}"))
        for n in range(rng.randint(3, 5))
    )
    number = rng.randint(2, 4)

    def level() -> int | None:
        return rng.choice((None, None, ZONE, RACK))

    parts: list[Knot | Leaf] = []
    for n in range(number):
        pods = rng.randint(1, 2)
        least = rng.randint(1, pods)
        parts.append(Leaf(f"l{n}", pods, rng.choice((1, 1, 2)), least, level()))
    for n in range(rng.randint(1, 3)):
        # Some of those at the top, or one that holds others already, get one around them.
        some = rng.sample(parts, rng.randint(1, len(parts)))
        around = Knot(
            f"k{n}", tuple(some), rng.randint(1, len(some)), level(),
            rng.choice((None, None, ZONE, RACK)),
        )  # fmt: skip
        parts = [*(each for each in parts if each not in some), around]
    gang = Knot("", tuple(parts), rng.randint(1, len(parts)), rng.choice((None, None, None, ZONE)))
    tree = Tree(boxes, gang, rng.choice((1, 1, rng.randint(1, 4))))
    if not started:
        return tree
    return with_a_start(tree, rng)


def with_a_start(tree: Tree, rng: random.Random) -> Tree:
    """The same gang when it runs, with one or two pods lost."""
    some = [each for each, _ in zip(answers(tree), range(300), strict=False)]
    if not some:
        return tree
    answer = rng.choice(some)
    placed = [
        (name, n) for name, way in answer.items() for n, c in enumerate(way) for _ in range(c)
    ]
    lost = rng.sample(placed, min(len(placed) - 1, rng.randint(1, 2)))
    for each in lost:
        placed.remove(each)
    if not placed:
        return tree
    left = {n: box.gpus for n, box in enumerate(tree.boxes)}

    def kept(each: Knot | Leaf) -> Knot | Leaf:
        if isinstance(each, Knot):
            return each._replace(inside=tuple(kept(inside) for inside in each.inside))
        runs = tuple(n for name, n in placed if name == each.name)
        for n in runs:
            left[n] -= each.gpus
        return each._replace(runs=runs, pods=each.pods - len(runs))

    gang = kept(tree.gang)
    assert isinstance(gang, Knot)
    boxes = tuple(box._replace(gpus=left[n]) for n, box in enumerate(tree.boxes))
    return tree._replace(boxes=boxes, gang=gang)
