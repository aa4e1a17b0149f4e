"""All answers of a tiny problem, tried one by one: the oracle of every method of placement.

It knows nothing of tables, bounds or solvers. What an answer must obey and is worth is written
down here a second time, over all answers at once; ``test_brute.py`` holds it against the
verifier answer by answer.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.model.problem import Problem, SubGroupHolder, SubGroupMinimum

ANSWERS_MAX = 400_000


def answers(problem: Problem) -> Ints:
    """All counts that obey the hard rules.

    Args:
        problem: so small that it has few ways of choosing counts.

    Returns:
        int64, shape (answers, roles, nodes).
    """
    patterns = [_patterns(problem, node) for node in range(problem.nodes)]
    most = np.array([role.most for role in problem.roles], dtype=np.int64)
    totals = np.zeros((1, len(problem.roles)), dtype=np.int64)
    chosen = np.zeros((1, 0), dtype=np.int64)
    for each in patterns:
        ways, old = len(each), len(totals)
        totals = np.repeat(totals, ways, axis=0) + np.tile(each, (old, 1))
        picked = np.tile(np.arange(ways), old)[:, None]
        chosen = np.hstack([np.repeat(chosen, ways, axis=0), picked])
        keep = (totals <= most).all(axis=1) & (totals.sum(axis=1) <= problem.members)
        totals, chosen = totals[keep], chosen[keep]
        if len(totals) > ANSWERS_MAX:
            raise ValueError("the problem is not tiny")
    chosen = chosen[totals.sum(axis=1) == problem.members]
    counts = np.stack(
        [each[chosen[:, node]] for node, each in enumerate(patterns)], axis=2
    )  # (answers, roles, nodes)
    return counts[_allowed(problem, counts)]


def vectors(problem: Problem, counts: Ints) -> Ints:
    """What answers are worth, by the terms of ``verify.names``.

    Args:
        problem: tiny.
        counts: of answers without trouble, shape (answers, roles, nodes).

    Returns:
        int64, shape (answers, terms).
    """
    got = counts.sum(axis=1) > 0
    used = got | problem.open_rows[None, :]
    columns = []
    if problem.required >= 0:
        columns.append(_hope(problem, used))
    columns += [_domains(level.domain, used) for level in problem.levels]
    if any(each.preferred >= 0 for each in (*problem.parts, *problem.holders)):
        columns.append(_parts_spread(problem, counts))
    slots = _by_node(problem, counts)
    columns += [slots[:, 0], got.sum(axis=1), slots[:, 1]]
    price = np.zeros(len(counts), dtype=np.int64)
    for index, role in enumerate(problem.roles):
        if role.price is not None:
            price += counts[:, index] @ role.price
    columns.append(price)
    return np.stack(columns, axis=1)


def least(problem: Problem) -> tuple[int, ...] | None:
    """The lexicographically least objective of all answers, None when there is no answer."""
    counts = answers(problem)
    if not len(counts):
        return None
    values = vectors(problem, counts)
    return min(map(tuple, values.tolist()))


def _patterns(problem: Problem, node: int) -> Ints:
    """Counts of each role that one node takes together, shape (patterns, roles)."""
    asks = np.stack([role.request for role in problem.roles])
    found = []
    for pattern in product(*(range(int(role.fits[node]) + 1) for role in problem.roles)):
        need = np.array(pattern) @ asks
        if ((need <= problem.free[node]) | (need == 0)).all():
            found.append(pattern)
    return np.array(found, dtype=np.int64).reshape(-1, len(problem.roles))


def _rows(problem: Problem, part: int) -> list[int]:
    return [index for index, role in enumerate(problem.roles) if role.part == part]


def _inside_one(domain: Ints, real: int, used: Ints) -> Ints:
    """Whether the used nodes are in one labelled domain; shape (answers,)."""
    low = np.where(used, domain, np.iinfo(np.int64).max).min(axis=1)
    high = np.where(used, domain, -1).max(axis=1)
    return (high < 0) | ((low == high) & (high < real))


def _allowed(problem: Problem, counts: Ints) -> Ints:
    good = np.ones(len(counts), dtype=np.bool_)
    for roles, needed in problem.minima:
        good &= counts[:, list(roles)].sum(axis=(1, 2)) >= needed
    if problem.required >= 0:
        level = problem.levels[problem.required]
        used = (counts.sum(axis=1) > 0) | problem.open_rows[None, :]
        good &= _inside_one(level.domain, level.real, used)
    complete: dict[int, list[Ints]] = {}
    for index, part in enumerate(problem.parts):
        row = counts[:, _rows(problem, index)].sum(axis=1)
        given = row.sum(axis=1)
        good &= (given == 0) | (given >= part.least)
        if part.least > 0:
            complete.setdefault(part.parent, []).append(given >= part.least)
        good &= _at_home(problem, part, row)
    # From the innermost outwards: what is around something has a smaller number.
    for index in range(len(problem.holders) - 1, -1, -1):
        holder = problem.holders[index]
        row = counts[:, _rows_inside(problem, index)].sum(axis=1)
        enough = _how_many(complete.get(index, []), len(counts)) >= holder.least
        good &= ~row.any(axis=1) | enough
        if holder.least > 0:
            complete.setdefault(holder.parent, []).append(enough)
        good &= _at_home(problem, holder, row)
    return good & (_how_many(complete.get(-1, []), len(counts)) >= problem.parts_least)


def _how_many(each: list[Ints], count: int) -> Ints:
    return np.sum(each, axis=0).astype(np.int64) if each else np.zeros(count, dtype=np.int64)


def _rows_inside(problem: Problem, holder: int) -> list[int]:
    """Roles of sub-groups in a sub-group, however deep."""
    found = []
    for role, each in enumerate(problem.roles):
        at = problem.parts[each.part].parent if each.part >= 0 else -1
        while at >= 0 and at != holder:
            at = problem.holders[at].parent
        if at == holder:
            found.append(role)
    return found


def _at_home(problem: Problem, group: SubGroupMinimum | SubGroupHolder, row: Ints) -> Ints:
    """Whether members are in one domain of the level of their sub-group; shape (answers,)."""
    if group.level < 0:
        return np.ones(len(row), dtype=np.bool_)
    given = row.sum(axis=1)
    level = problem.levels[group.level]
    home = sorted(set(group.homes))
    inside = _inside_one(level.domain, level.real, row > 0)
    if len(home) > 1:
        inside &= given == 0
    elif home:
        off = ((row > 0) & (level.domain != home[0])).any(axis=1)
        inside &= ~off & ((given == 0) | (home[0] < level.real))
    return inside


def _hope(problem: Problem, used: Ints) -> Ints:
    domain = problem.levels[problem.required].domain
    wanted = max(problem.hope, problem.members)
    lost = []
    for number in domain:
        fits = (int(role.fits[domain == number].sum()) for role in problem.roles)
        room = sum(min(role.most, fit) for role, fit in zip(problem.roles, fits, strict=True))
        lost.append(max(0, wanted - room))
    first = used.argmax(axis=1)
    return np.where(used.any(axis=1), np.array([*lost, 0])[first], 0)


def _domains(domain: Ints, used: Ints) -> Ints:
    numbers = sorted(set(domain.tolist()))
    counts = [used[:, domain == number].any(axis=1) for number in numbers]
    return np.sum(counts, axis=0).astype(np.int64)


def _parts_spread(problem: Problem, counts: Ints) -> Ints:
    total = np.zeros(len(counts), dtype=np.int64)
    groups = [(_rows(problem, index), part) for index, part in enumerate(problem.parts)]
    groups += [(_rows_inside(problem, index), each) for index, each in enumerate(problem.holders)]
    for rows, part in groups:
        if part.preferred < 0 or not rows:
            continue
        domain = problem.levels[part.preferred].domain
        row = counts[:, rows].sum(axis=1) > 0
        homes = set(part.near)
        spread = np.zeros(len(counts), dtype=np.int64)
        for number in sorted({*domain.tolist(), *homes}):
            touched = row[:, domain == number].any(axis=1)
            spread += touched | (number in homes)
        total += np.where(row.any(axis=1), spread, 0)
    return total


def _by_node(problem: Problem, counts: Ints) -> Ints:
    """Span and fragmentation of each answer, shape (answers, 2)."""
    total = np.zeros((len(counts), 2), dtype=np.int64)
    if problem.slots is None:
        return total
    for node in range(problem.nodes):
        patterns, which = np.unique(counts[:, :, node], axis=0, return_inverse=True)
        costs = []
        for pattern in patterns.tolist():
            sizes = [
                role.gpus for role, n in zip(problem.roles, pattern, strict=True) for _ in range(n)
            ]
            taken = tuple(sorted((size for size in sizes if size), reverse=True))
            state = int(problem.states[node])
            costs.append(problem.slots.slot_cost(state, taken) if taken else (0, 0))
        total += np.array(costs, dtype=np.int64)[which.reshape(-1)]
    return total
