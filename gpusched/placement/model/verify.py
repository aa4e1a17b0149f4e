"""Counts an answer again, and what it is worth. Shares no code with the methods that find answers.

Every answer goes through here before it is used: nothing that a solver or a table says is
believed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.model.problem import Problem, SubGroupHolder, SubGroupMinimum

_DOMAINS: Final = "domains:"


def solution_errors(problem: Problem, counts: Ints) -> str:
    """What is wrong with an answer, empty when nothing is.

    Args:
        problem: that was to be solved.
        counts: shape (roles, nodes).
    """
    if counts.shape != (len(problem.roles), problem.nodes) or (counts < 0).any():
        return "it is no table of counts by role and node"
    if int(counts.sum()) != problem.members:
        return f"it places {int(counts.sum())} members, not {problem.members}"
    return (
        _over_counted(problem, counts)
        or _over_full(problem, counts)
        or _too_few_members(problem, counts)
        or _group_apart(problem, counts)
        or _parts_trouble(problem, counts)
        or _holders_trouble(problem, counts)
        or _over_cap(problem, counts)
        or _not_together(problem, counts)
    )


def _over_counted(problem: Problem, counts: Ints) -> str:
    for index, (role, row) in enumerate(zip(problem.roles, counts, strict=True)):
        if int(row.sum()) > role.most:
            return f"role {index} has only {role.most} members"
        if (row > role.fits).any():
            return f"role {index} does not fit where it was put"
    return ""


def _over_full(problem: Problem, counts: Ints) -> str:
    rows = np.flatnonzero(counts.any(axis=0))
    used = np.zeros((len(rows), problem.free.shape[1]), dtype=np.int64)
    for role, row in zip(problem.roles, counts, strict=True):
        used += row[rows, None] * role.request[None, :]
    over = (used > problem.free[rows]) & (used > 0)
    if over.any():
        return f"node {int(rows[np.flatnonzero(over.any(axis=1))[0]])} is over full"
    return ""


def _too_few_members(problem: Problem, counts: Ints) -> str:
    for roles, least in problem.minima:
        if int(counts[list(roles)].sum()) < least:
            return f"roles {roles} have fewer than {least} members"
    return ""


def _group_apart(problem: Problem, counts: Ints) -> str:
    if problem.required < 0:
        return ""
    level = problem.levels[problem.required]
    domains = np.unique(level.domain[_nodes_in_use(problem, counts)])
    if len(domains) > 1:
        return f"it uses {len(domains)} domains of level {level.name}"
    if len(domains) and int(domains[0]) >= level.real:
        return f"its nodes have no label of level {level.name}"
    return ""


def _parts_trouble(problem: Problem, counts: Ints) -> str:
    for index, part in enumerate(problem.parts):
        row = _row_of_parts(problem, counts, (index,))
        given = int(row.sum())
        if given and given < part.least:
            return f"sub-group {index} gets {given} of the {part.least} members it lacks"
        if _is_apart(problem, row, level=part.level, homes=part.homes):
            return f"sub-group {index} is not in one domain of level {_level_name(problem, part.level)}"
    return ""


def _row_of_parts(problem: Problem, counts: Ints, parts: tuple[int, ...]) -> Ints:
    """Members of these sub-groups on each node."""
    rows = [number for number, role in enumerate(problem.roles) if role.part in parts]
    row: Ints = counts[rows].sum(axis=0) if rows else np.zeros(problem.nodes, dtype=np.int64)
    return row


def _is_apart(problem: Problem, row: Ints, *, level: int, homes: tuple[int, ...]) -> bool:
    """Whether members that get places are not in one labelled domain with those that have some."""
    if level < 0 or not row.any():
        return False
    domains = {*np.unique(problem.levels[level].domain[row > 0]).tolist(), *homes}
    return len(domains) > 1 or max(domains) >= problem.levels[level].real


def _level_name(problem: Problem, level: int) -> str:
    return problem.levels[level].name


def _holders_trouble(problem: Problem, counts: Ints) -> str:
    """What is wrong with sub-groups of sub-groups, and with how many are complete at the top."""
    completed = [0] * (len(problem.holders) + 1)  # the last is the gang's, whose number is -1
    for index, part in enumerate(problem.parts):
        given = int(_row_of_parts(problem, counts, (index,)).sum())
        completed[part.parent] += bool(part.least and given >= part.least)
    for index in reversed(range(len(problem.holders))):
        holder = problem.holders[index]
        inside = tuple(
            part
            for part in range(len(problem.parts))
            if index in _numbers_around(problem, problem.parts[part].parent)
        )
        row = _row_of_parts(problem, counts, inside)
        if row.any() and completed[index] < holder.least:
            return f"{completed[index]} sub-groups of {index} are completed, not {holder.least}"
        if _is_apart(problem, row, level=holder.level, homes=holder.homes):
            name = _level_name(problem, holder.level)
            return f"the sub-groups of {index} are not in one domain of level {name}"
        completed[holder.parent] += bool(holder.least and completed[index] >= holder.least)
    if completed[-1] < problem.parts_least:
        return f"{completed[-1]} sub-groups are completed, not {problem.parts_least}"
    return ""


def _numbers_around(problem: Problem, holder: int) -> set[int]:
    found = set()
    while holder >= 0:
        found.add(holder)
        holder = problem.holders[holder].parent
    return found


def _over_cap(problem: Problem, counts: Ints) -> str:
    for cap in problem.caps:
        row = counts[list(cap.roles)].sum(axis=0)
        where = np.arange(problem.nodes) if cap.level < 0 else problem.levels[cap.level].domain
        held = np.zeros(len(cap.most), dtype=np.int64)
        np.add.at(held, where, row)
        if (held > cap.most).any():
            name = "node" if cap.level < 0 else problem.levels[cap.level].name
            return f"a {name} holds more members of roles {cap.roles} than it may"
    return ""


def _not_together(problem: Problem, counts: Ints) -> str:
    """The first node with members of roles that its devices do not serve together."""
    if problem.mixes is None:
        return ""
    places, tables = problem.mixes.roles, problem.mixes.tables
    for node, state in enumerate(problem.mixes.state.tolist()):
        held = [sum(int(counts[role, node]) for role in roles) for roles in places]
        if state < 0 or not any(held):
            continue
        if not any(all(map(int.__le__, held, vector)) for vector in tables[state]):
            return f"node {node} does not take {tuple(held)} members of roles {places} together"
    return ""


# -- what it is worth ------------------------------------------------------------------------
def objective_names(problem: Problem) -> tuple[str, ...]:
    """Names of the terms of the objective, the most important first."""
    levels = tuple(_DOMAINS + level.name for level in problem.levels)
    hope = ("hope",) if problem.required >= 0 else ()
    parts = ("parts",) if any(group.preferred >= 0 for group in problem.sub_groups) else ()
    return (*hope, *levels, *parts, "span", "nodes", "fragmentation", "price")


def objective_values(problem: Problem, counts: Ints) -> tuple[int, ...]:
    """The value of each term of ``names``, for an answer without trouble; smaller is better.

    In order: hoped-for members for which the domain of the required level has no room (each role
    counted alone); domains used at each level, widest first, those of placed members too;
    domains used by each sub-group at its preferred level, summed; islands spanned inside nodes;
    nodes that get members; fragmentation added; plugins' prices.
    """
    used = _nodes_in_use(problem, counts)
    values = []
    if problem.required >= 0:
        values.append(_missing_hope(problem, used))
    values += [len(np.unique(level.domain[used])) for level in problem.levels]
    if "parts" in objective_names(problem):
        values.append(_spread_of_sub_groups(problem, counts))
    span, fragmentation = _slot_costs(problem, counts)
    price = sum(
        int((role.price * row).sum())
        for role, row in zip(problem.roles, counts, strict=True)
        if role.price is not None
    )
    taking = int(np.count_nonzero(counts.any(axis=0)))
    return (*values, span, taking, fragmentation, price)


def _nodes_in_use(problem: Problem, counts: Ints) -> Ints:
    """Nodes with members, placed before or now."""
    used = counts.any(axis=0)
    return np.flatnonzero(used | problem.open_rows if problem.placed.size else used)


def _missing_hope(problem: Problem, used: Ints) -> int:
    if not used.size:
        return 0
    level = problem.levels[problem.required]
    inside = level.domain == level.domain[used[0]]
    room = sum(min(role.most, int(role.fits[inside].sum())) for role in problem.roles)
    return max(0, max(problem.hope, problem.members) - room)


def _spread_of_sub_groups(problem: Problem, counts: Ints) -> int:
    """Domains of its preferred level that each sub-group uses that gets members, summed."""
    total = 0
    for index, part in enumerate(problem.parts):
        total += _count_spread(problem, _row_of_parts(problem, counts, (index,)), part)
    for index, holder in enumerate(problem.holders):
        row = _row_of_parts(problem, counts, problem.parts_in_holder(index))
        total += _count_spread(problem, row, holder)
    return total


def _count_spread(problem: Problem, row: Ints, group: SubGroupMinimum | SubGroupHolder) -> int:
    if group.preferred < 0 or not row.any():
        return 0
    domain = problem.levels[group.preferred].domain
    return len({*np.unique(domain[row > 0]).tolist(), *group.near})


def _slot_costs(problem: Problem, counts: Ints) -> tuple[int, int]:
    span = fragmentation = 0
    if problem.slots is None:
        return 0, 0
    sizes = [role.gpus for role in problem.roles]
    for node in np.flatnonzero(counts.any(axis=0)).tolist():
        taken = sorted(
            (size for size, count in zip(sizes, counts[:, node].tolist(), strict=True)
             for _ in range(count) if size),
            reverse=True,
        )  # fmt: skip
        if taken:
            cost = problem.slots.slot_cost(int(problem.states[node]), tuple(taken))
            span, fragmentation = span + cost[0], fragmentation + cost[1]
    return span, fragmentation
