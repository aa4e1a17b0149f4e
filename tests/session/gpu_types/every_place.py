"""All places of tiny gangs on nodes of several GPU types, tried one by one: the oracle of the choice.

It shares no code with the product: types, speeds, domains and what they are worth are written down
here a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ortools.linear_solver import pywraplp


@dataclass(frozen=True)
class TinyNode:
    """A node with free GPUs of a type, in a rack of a block."""

    name: str
    kind: str
    block: str
    rack: str
    free: int


@dataclass(frozen=True)
class TinyGang:
    """Equal pods that start together.

    Attributes:
        speeds: in thousandths by type, for types that it takes; empty for all, equally fast.
        same: True, None or False, as ``gpuTypes.sameType``.
        only: the type that a node selector names; empty for none.
    """

    name: str
    pods: int
    gpus: int
    speeds: tuple[tuple[str, int], ...] = ()
    same: bool | None = None
    only: str = ""

    def relative_speeds(self, kinds: Sequence[str]) -> dict[str, int]:
        """Speed on each type that is there and that it takes, relative to the fastest, in thousandths."""
        admitted = [kind for kind in kinds if self.only in ("", kind)]
        if not self.speeds:
            return dict.fromkeys(admitted, 1_000)
        there = {kind: speed for kind, speed in self.speeds if kind in admitted}
        fastest = max(there.values(), default=1)
        return {kind: speed * 1_000 // fastest for kind, speed in there.items()}


def counts(gang: TinyGang, nodes: Sequence[TinyNode]) -> Iterator[tuple[int, ...]]:
    """Every way to put all pods on the nodes that it may use, whatever types they make together."""
    kinds = sorted({node.kind for node in nodes})
    takes = gang.relative_speeds(kinds)
    most = [node.free // gang.gpus if node.kind in takes else 0 for node in nodes]
    for each in product(*(range(min(limit, gang.pods) + 1) for limit in most)):
        if sum(each) == gang.pods:
            yield each


def lost_by_kind(
    gang: TinyGang, others: Sequence[TinyGang], nodes: Sequence[TinyNode]
) -> dict[str, int]:
    """For each type that the gang takes what all together do less, if it gets that type.

    The others may be divided over types, as far as the GPUs of the types go.
    """
    kinds = sorted({node.kind for node in nodes})
    room = {kind: 1_000 * sum(node.free for node in nodes if node.kind == kind) for kind in kinds}
    takes = gang.relative_speeds(kinds)
    demand = 1_000 * gang.pods * gang.gpus
    totals = {}
    for kind, speed in takes.items():
        left = dict(room)
        left[kind] = max(0, left[kind] - demand)
        totals[kind] = (demand * speed + _most(others, kinds, left)) // 1_000
    best = max(totals.values(), default=0)
    lost = {kind: best - total for kind, total in totals.items()}
    least = min((each for kind, each in lost.items() if room[kind] >= demand), default=0)
    return {kind: max(0, each - least) for kind, each in lost.items()}


def _most(others: Sequence[TinyGang], kinds: Sequence[str], room: dict[str, int]) -> int:
    """The greatest sum of GPUs times speed, as a linear program."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    by_kind: dict[str, list[object]] = {kind: [] for kind in kinds}
    for number, gang in enumerate(others):
        parts = []
        for kind, speed in gang.relative_speeds(kinds).items():
            part = solver.NumVar(0, solver.infinity(), f"{number} {kind}")
            solver.Objective().SetCoefficient(part, speed)
            parts.append(part)
            by_kind[kind].append(part)
        solver.Add(sum(parts) <= 1_000 * gang.pods * gang.gpus)
    for kind, parts in by_kind.items():
        if parts:
            solver.Add(sum(parts) <= room[kind])
    solver.Objective().SetMaximization()
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return round(solver.Objective().Value())


def value(
    gang: TinyGang, where: Sequence[int], nodes: Sequence[TinyNode], lost: dict[str, int]
) -> tuple[int, ...]:
    """Types, lost throughput, blocks, racks and nodes that a place uses; without types if they may mix."""
    used = [node for node, count in zip(nodes, where, strict=True) if count]
    kinds = {node.kind for node in used}
    indifferent = gang.same is False and not gang.speeds
    domains = (
        0 if indifferent else max(lost[kind] for kind in kinds),
        len({node.block for node in used}),
        len({(node.block, node.rack) for node in used}),
        len(used),
    )
    return domains if gang.same is False else (len(kinds), *domains)


def best_value(
    gang: TinyGang, others: Sequence[TinyGang], nodes: Sequence[TinyNode]
) -> tuple[int, ...] | None:
    """Worth of the best place; None where there is none."""
    lost = lost_by_kind(gang, others, nodes)
    worth = [value(gang, each, nodes, lost) for each in counts(gang, nodes)]
    if gang.same is True or (gang.same is None and gang.speeds and _one_type_holds(gang, nodes)):
        worth = [each for each in worth if each[0] == 1]
    return min(worth, default=None)


def _one_type_holds(gang: TinyGang, nodes: Sequence[TinyNode]) -> bool:
    """Whether some type that it takes has as many GPUs as it needs, by number."""
    kinds = sorted({node.kind for node in nodes})
    needed = gang.pods * gang.gpus
    return any(
        sum(node.free for node in nodes if node.kind == kind) >= needed
        for kind in gang.relative_speeds(kinds)
    )
