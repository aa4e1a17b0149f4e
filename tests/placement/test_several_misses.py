"""No gang that fits is missed: planted answers that a quick method does not find."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest

from gpusched.placement.cpsat import exact_search, gang_search
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import (
    DomainLevel,
    Effort,
    Problem,
    Role,
    SearchOutcome,
    Solution,
)
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang

pytestmark = pytest.mark.long

SHAPES = ((7, 30), (6, 33), (5, 60), (3, 50), (1, 70), (0, 16))
"""GPUs and CPUs of a pod of each role."""


def levels(nodes: int) -> tuple[DomainLevel, ...]:
    rows = np.arange(nodes, dtype=np.int64)
    return tuple(
        DomainLevel(name=name, domain=rows // size, real=-(-nodes // size))
        for name, size in (("block", 32), ("rack", 8))
    )


def planted(rng: random.Random, nodes: int, *, spare: float = 0.0) -> Problem:
    """A gang that fills what is free exactly, cut out of nodes of 8 GPUs and 128 CPUs."""
    free, counts = [], [0] * len(SHAPES)
    for _ in range(nodes):
        gpus = cpu = 0
        for _ in range(rng.randint(0, 3)):
            shape = rng.randrange(len(SHAPES))
            if gpus + SHAPES[shape][0] <= 8 and cpu + SHAPES[shape][1] <= 128:
                gpus, cpu = gpus + SHAPES[shape][0], cpu + SHAPES[shape][1]
                counts[shape] += 1
        free.append((min(8, gpus + (rng.random() < spare)), cpu))
    table = np.array(free, dtype=np.int64)
    roles = tuple(
        role(table, shape, count) for shape, count in zip(SHAPES, counts, strict=True) if count
    )
    return Problem(
        free=table,
        roles=roles,
        members=sum(counts),
        minima=tuple(((number,), each.most) for number, each in enumerate(roles)),
        levels=levels(nodes),
    )


def role(free: np.ndarray, shape: tuple[int, int], count: int) -> Role:
    ask = np.array(shape, dtype=np.int64)
    wanted = np.flatnonzero(ask)
    fits = np.minimum((free[:, wanted] // ask[wanted]).min(axis=1), count)
    return Role(request=ask, most=count, fits=fits, gpus=shape[0])


def test_planted_gangs_of_six_roles_are_all_found_where_greedy_misses_most() -> None:
    """Not one slot or CPU is to spare, and still each is found within the usual budget."""
    missed = 0
    for seed in range(12):
        problem = planted(random.Random(seed), 80)
        found = place_gang(problem, Effort())
        assert solution_errors(problem, found.counts) == "", seed
        missed += place_greedily(problem) is None
    assert missed >= 6


def test_a_gang_one_member_too_large_is_never_placed_and_mostly_proven_impossible() -> None:
    """Sums allow it, nodes do not; nothing wrong is ever answered."""
    proven = 0
    for seed in range(8):
        problem = planted(random.Random(seed), 60)
        table = problem.free.copy()
        table[np.flatnonzero(table[:, 0])[0], 0] -= 1  # one slot fewer than are asked for
        roles = tuple(
            role(table, (each.gpus, int(each.request[1])), each.most) for each in problem.roles
        )
        found = place_gang(attrs.evolve(problem, free=table, roles=roles), Effort())
        assert found.outcome in (SearchOutcome.INFEASIBLE, SearchOutcome.UNKNOWN)
        proven += found.outcome is SearchOutcome.INFEASIBLE
    assert proven == 8


def values(found: Solution) -> tuple[int, ...]:
    return tuple(term.value for term in found.terms)


def test_more_room_never_hurts() -> None:
    """A slot more on a node costs neither the answer nor a proven number of domains."""
    for seed in range(4):
        problem = planted(random.Random(100 + seed), 40)
        before = place_gang(problem, Effort(budget_s=2.0))
        table = problem.free.copy()
        table[seed * 7 % 40] += (1, 16)
        roles = tuple(
            role(table, (each.gpus, int(each.request[1])), each.most) for each in problem.roles
        )
        after = place_gang(attrs.evolve(problem, free=table, roles=roles), Effort(budget_s=2.0))
        assert before.outcome is after.outcome is SearchOutcome.OPTIMAL
        assert values(after)[:2] <= values(before)[:2]


def test_too_many_racks_for_one_model_cost_the_proof_and_not_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the roomiest are searched; nothing is called impossible or best for it."""
    monkeypatch.setattr(gang_search, "_FLOWS_MAX", 12)
    monkeypatch.setattr(gang_search, "WHOLE_MAX", 0)
    monkeypatch.setattr(exact_search, "_SINGLES_MAX", 30)
    for seed in range(6):
        problem = planted(random.Random(200 + seed), 40)
        found = place_gang(problem, Effort())
        assert found.outcome is not SearchOutcome.INFEASIBLE
        assert not found.counts.size or solution_errors(problem, found.counts) == ""


def test_amounts_of_any_size_where_members_are_counted_by_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Amounts that had to be rounded never make an answer wrong, nor prove that there is none."""
    monkeypatch.setattr("gpusched.placement.cpsat.patterns.PATTERNS_MAX", 0)
    unit = np.array([1, 2**46 + 1], dtype=np.int64)
    for seed in range(6):
        problem = planted(random.Random(300 + seed), 12)
        roles = tuple(attrs.evolve(each, request=each.request * unit) for each in problem.roles)
        huge = attrs.evolve(problem, free=problem.free * unit, roles=roles)
        found = place_gang(huge, Effort())
        assert found.outcome is not SearchOutcome.INFEASIBLE, seed
        assert solution_errors(huge, found.counts) == "", seed


def test_the_required_domain_with_room_for_those_hoped_for_wins() -> None:
    """Room for members that are hoped for comes before every number of domains."""
    table = np.zeros((64, 2), dtype=np.int64)
    table[:5] = (4, 64)  # the first block just holds the gang
    table[32:48] = (4, 64)  # the second one has room for all that are hoped for
    roles = (role(table, (3, 8), 4), role(table, (1, 8), 30))
    problem = Problem(
        free=table,
        roles=roles,
        members=10,
        minima=(((0,), 4), ((1,), 6)),
        levels=levels(64),
        required=0,
    )
    tight = place_gang(problem, Effort())
    assert objective_values(problem, tight.counts)[:3] == (0, 1, 1)
    hopeful = attrs.evolve(problem, hope=34)
    found = place_gang(hopeful, Effort())
    assert found.outcome is SearchOutcome.OPTIMAL
    assert objective_values(hopeful, found.counts)[:3] == (0, 1, 1)
    assert int(found.counts[:, 32:].sum()) == 10
