"""Counts of members by role and node from the values of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.cpsat_frame import Frame
from gpusched.placement.cpsat_patterns import Packing
from gpusched.placement.patterns import Field
from gpusched.placement.streams import Streams


def read(field: Field, flows: Streams, *, made: Frame, packed: Packing, solver: Any) -> Ints:
    """Members by role and node, as the solver chose."""
    problem = field.problem
    by_node: Ints = np.zeros((len(field.kinds), problem.nodes), dtype=np.int64)
    for (kind, row), variable in packed.single.items():
        by_node[kind, row] = solver.value(variable)
    for number, group in enumerate(packed.groups):
        assert field.patterns is not None
        at = 0
        for place, pattern in enumerate(group.patterns):
            for _ in range(solver.value(packed.takes[number, place])):
                by_node[:, group.rows[at]] = field.patterns[pattern]
                at += 1
    shares = _shares(field, flows, made=made, solver=solver)
    counts: Ints = np.zeros((len(problem.roles), problem.nodes), dtype=np.int64)
    for (role, kind, cell), amount in sorted(shares.items()):
        left = amount
        for row in field.rows[cell].tolist():
            take = min(left, int(by_node[kind, row]))
            counts[role, row] += take
            by_node[kind, row] -= take
            left -= take
    return counts


def _shares(
    field: Field, flows: Streams, *, made: Frame, solver: Any
) -> dict[tuple[int, int, int], int]:
    """How many members of each role are in each cell, by (role, kind, cell)."""
    problem = field.problem
    shares: dict[tuple[int, int, int], int] = {}
    turns: dict[tuple[int, int], int] = {}
    flow = {key: solver.value(variable) for key, variable in made.flow.items()}
    for s, stream in enumerate(flows.streams):
        cells = [cell for cell in made.cells if flow.get((s, cell))]
        if stream.alike < 0:
            wanted = {
                role: solver.value(made.given[role]) if role in made.given else stream.most
                for role in stream.roles
            }
            _deal(shares, flow, stream=s, kind=stream.kind, cells=cells, wanted=wanted)
            continue
        alike = flows.alikes[stream.alike]
        parts = iter(alike.parts)
        for (at, domain), number in sorted(made.filled.items()):
            if at != stream.alike:
                continue
            chosen = [next(parts) for _ in range(solver.value(number))]
            inside = [c for c in cells if int(field.at[alike.level, c]) == domain]
            roles = [role for role in stream.roles if problem.roles[role].part in chosen]
            wanted = {role: problem.roles[role].most for role in roles}
            if not alike.rigid:
                held = sum(flow[s, cell] for cell in inside)
                wanted = _evenly(roles, held, first=turns.get((at, domain), 0))
                turns[at, domain] = turns.get((at, domain), 0) + held
            _deal(shares, flow, stream=s, kind=stream.kind, cells=inside, wanted=wanted)
    return shares


def _evenly(roles: list[int], held: int, *, first: int) -> dict[int, int]:
    """One role of each sub-group in turn, from where the last kind ended: none gets two more."""
    count = max(1, len(roles))
    wanted = dict.fromkeys(roles, held // count)
    for turn in range(first, first + held % count):
        wanted[roles[turn % count]] += 1
    return wanted


def _deal(
    shares: dict[tuple[int, int, int], int],
    flow: dict[tuple[int, int], int],
    *,
    stream: int,
    kind: int,
    cells: list[int],
    wanted: dict[int, int],
) -> None:
    """Give what flows into cells to roles, in order."""
    for cell in cells:
        for role in sorted(wanted):
            take = min(flow[stream, cell], wanted[role])
            if take:
                shares[role, kind, cell] = shares.get((role, kind, cell), 0) + take
                flow[stream, cell] -= take
                wanted[role] -= take
