"""Counts of members by role and node from the values of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.cpsat.flows import MemberFlows, roles_of_sub_group
from gpusched.placement.cpsat.gang_model import GangModel
from gpusched.placement.cpsat.pattern_model import PatternModel
from gpusched.placement.cpsat.patterns import CellPatterns


def read_members(
    field: CellPatterns, flows: MemberFlows, *, made: GangModel, packed: PatternModel, solver: Any
) -> Ints:
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
    shares = _read_shares(field, flows, made=made, solver=solver)
    counts: Ints = np.zeros((len(problem.roles), problem.nodes), dtype=np.int64)
    for (role, kind, cell), amount in sorted(shares.items()):
        left = amount
        for row in field.rows[cell].tolist():
            take = min(left, int(by_node[kind, row]))
            counts[role, row] += take
            by_node[kind, row] -= take
            left -= take
    return counts


def _read_shares(
    field: CellPatterns, flows: MemberFlows, *, made: GangModel, solver: Any
) -> dict[tuple[int, int, int], int]:
    """How many members of each role are in each cell, by (role, kind, cell)."""
    problem = field.problem
    shares: dict[tuple[int, int, int], int] = {}
    turns: dict[tuple[int, int], int] = {}
    flow = {key: solver.value(variable) for key, variable in made.flow.items()}
    for s, member_flow in enumerate(flows.items):
        cells = [cell for cell in made.cells if flow.get((s, cell))]
        if member_flow.alike < 0:
            wanted = {
                role: solver.value(made.given[role]) if role in made.given else member_flow.most
                for role in member_flow.roles
            }
            _assign_flow_to_roles(
                shares, flow, member_flow=s, kind=member_flow.kind, cells=cells, wanted=wanted
            )
            continue
        alike = flows.alikes[member_flow.alike]
        parts = iter(alike.parts)
        for (at, domain), number in sorted(made.filled.items()):
            if at != member_flow.alike:
                continue
            chosen = [next(parts) for _ in range(solver.value(number))]
            inside = [c for c in cells if int(field.at[alike.level, c]) == domain]
            roles = [role for role in member_flow.roles if problem.roles[role].part in chosen]
            wanted = {role: problem.roles[role].most for role in roles}
            if not alike.rigid:
                held = sum(flow[s, cell] for cell in inside)
                wanted = _spread_over_roles(roles, held, first=turns.get((at, domain), 0))
                turns[at, domain] = turns.get((at, domain), 0) + held
            _assign_flow_to_roles(
                shares, flow, member_flow=s, kind=member_flow.kind, cells=inside, wanted=wanted
            )
    return shares


def _spread_over_roles(roles: list[int], held: int, *, first: int) -> dict[int, int]:
    """One role of each sub-group in turn, from where the last kind ended: none gets two more."""
    count = max(1, len(roles))
    wanted = dict.fromkeys(roles, held // count)
    for turn in range(first, first + held % count):
        wanted[roles[turn % count]] += 1
    return wanted


def _assign_flow_to_roles(
    shares: dict[tuple[int, int, int], int],
    flow: dict[tuple[int, int], int],
    *,
    member_flow: int,
    kind: int,
    cells: list[int],
    wanted: dict[int, int],
) -> None:
    """Give what flows into cells to roles, in order."""
    for cell in cells:
        for role in sorted(wanted):
            take = min(flow[member_flow, cell], wanted[role])
            if take:
                shares[role, kind, cell] = shares.get((role, kind, cell), 0) + take
                flow[member_flow, cell] -= take
                wanted[role] -= take


def hint_solution(
    made: GangModel,
    field: CellPatterns,
    *,
    flows: MemberFlows,
    counts: Ints,
    packed: PatternModel | None = None,
) -> None:
    """Hint every variable that an answer says something about; an answer outside is left out.

    Args:
        made: variables above the nodes.
        field: the nodes.
        flows: of its members.
        counts: members by role and node.
        packed: variables inside the nodes, if the model has them.
    """
    wanted: dict[int, tuple[Any, int]] = {}
    used = np.flatnonzero(counts.sum(axis=0))
    if not np.isin(field.cell[used], np.array(made.cells, dtype=np.int64)).all():
        return
    by_cell = np.zeros((len(counts), len(field.rows)), dtype=np.int64)
    np.add.at(by_cell.T, field.cell[used], counts[:, used].T)

    def says(variable: Any, value: int) -> None:
        wanted[variable.index] = (variable, int(value))

    for (kind, cell), variable in made.held.items():
        says(variable, by_cell[list(field.kinds[kind].roles), cell].sum())
    for (member_flow, cell), variable in made.flow.items():
        says(variable, by_cell[list(flows.items[member_flow].roles), cell].sum())
    for (level, domain), variable in made.used.items():
        says(variable, bool((field.problem.levels[level].domain[used] == domain).any()))
    for role, variable in made.given.items():
        says(variable, counts[role].sum())
    _sub_groups(says, made, field, flows=flows, counts=counts)
    if packed is not None:
        _set_inside(says, field, counts=counts, packed=packed)
    for variable, value in wanted.values():
        made.model.add_hint(variable, value)


def _sub_groups(
    says: Any, made: GangModel, field: CellPatterns, *, flows: MemberFlows, counts: Ints
) -> None:
    for part, variable in made.active.items():
        says(variable, bool(counts[roles_of_sub_group(field.problem, part)].any()))
    for holder, variable in made.holding.items():
        says(variable, bool(_members_inside(field, counts, holder).any()))
    for (holder, domain), variable in made.home.items():
        there = field.problem.levels[field.problem.holders[holder].level].domain == domain
        says(variable, bool(_members_inside(field, counts, holder)[there].any()))
    for (at, domain), variable in made.filled.items():
        alike = flows.alikes[at]
        inside = field.problem.levels[alike.level].domain == domain
        parts = [roles_of_sub_group(field.problem, part) for part in alike.parts]
        says(variable, sum(bool(counts[roles][:, inside].any()) for roles in parts))


def _members_inside(field: CellPatterns, counts: Ints, holder: int) -> Ints:
    """Members by node that are inside of a sub-group of sub-groups."""
    parts = field.problem.parts_in_holder(holder)
    roles = [role for role, each in enumerate(field.problem.roles) if each.part in parts]
    return np.asarray(counts[roles].sum(axis=0), dtype=np.int64)


def _set_inside(says: Any, field: CellPatterns, *, counts: Ints, packed: PatternModel) -> None:
    by_kind = np.stack([counts[list(kind.roles)].sum(axis=0) for kind in field.kinds])
    for (kind, row), variable in packed.single.items():
        says(variable, by_kind[kind, row])
    if field.patterns is None:
        return
    number = {tuple(pattern): at for at, pattern in enumerate(field.patterns.tolist())}
    for at, group in enumerate(packed.groups):
        chosen = [number.get(tuple(by_kind[:, row].tolist()), -1) for row in group.rows]
        for place, pattern in enumerate(group.patterns):
            says(packed.takes[at, place], chosen.count(pattern))
