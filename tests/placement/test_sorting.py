"""Nodes that are sorted from how they were before come out as if nothing had been known."""

from __future__ import annotations

import random

import attrs

from gpusched.placement.model.problem import Effort, Problem
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.tree.identical_members import as_identical_members
from gpusched.placement.tree.node_costs import NodeCostTables, SortedNodes
from gpusched.placement.tree.table_cache import TableCache
from tests.placement.tiny import tiny

QUICK = Effort(solver=False)


def changed(problem: Problem, rng: random.Random) -> Problem:
    """The same gang where a few nodes take other numbers, at other prices, in other states."""
    (role,) = problem.roles
    fits, states = role.fits.copy(), problem.states.copy()
    price = None if role.price is None else role.price.copy()
    for _ in range(rng.randint(0, 2)):
        row = rng.randrange(problem.nodes)
        fits[row] = rng.randint(0, int(fits[row]))
        if price is not None:
            price[row] = rng.randint(0, 4)
        if states.size:
            other = rng.randrange(problem.nodes)
            states[row], fits[row] = states[other], min(int(fits[row]), int(fits[other]))
    return attrs.evolve(problem, roles=(attrs.evolve(role, fits=fits, price=price),), states=states)


def told(leaves: NodeCostTables) -> list[object]:
    """All that is said of each node."""
    return [
        kind if kind < 0 else (
            kind,
            *(each[kind, : leaves.most[kind] + 1].tolist()
              for each in (leaves.span, leaves.fragmentation, leaves.price)),
        )
        for kind in leaves.kind.tolist()
    ]  # fmt: skip


def test_a_history_of_small_changes_leaves_no_trace() -> None:
    """Kinds, costs and ranges are those of the problem alone, and so is the answer."""
    rng = random.Random(31)
    gone_on = 0
    for _ in range(150):
        problem = tiny(rng, nodes=6, members=rng.randint(1, 5))
        sorting, memory = SortedNodes(), TableCache()
        for _ in range(6):
            one = as_identical_members(problem)
            if one is None:
                break
            before = sorting.counts
            known, alone = sorting.sort_nodes(one), SortedNodes().sort_nodes(one)
            gone_on += sorting.counts is before
            assert told(known) == told(alone)
            assert known.term_ranges(problem.members) == alone.term_ranges(problem.members)
            with_memory, without = (
                place_gang(problem, QUICK, memory=memory),
                place_gang(problem, QUICK),
            )
            assert with_memory.terms == without.terms
            assert with_memory.counts.tolist() == without.counts.tolist()
            problem = changed(problem, rng)
    assert gone_on > 200, "most were sorted from what was known"
