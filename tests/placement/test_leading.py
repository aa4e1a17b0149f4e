"""A large role with small ones beside it is placed, and proven, without a solver where it can be."""

from __future__ import annotations

import random

import attrs
import numpy as np

from gpusched.arrays.columns import how_many_fit
from gpusched.placement.model.problem import Effort, Problem, Role
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.pipeline.launcher_and_workers import place_launcher_and_workers
from tests.placement.brute import least
from tests.placement.tiny import tiny

QUICK = Effort(solver=False)


def with_launcher(rng: random.Random) -> Problem | None:
    """A tiny gang of one role with GPUs, and one or two members that take a CPU only."""
    problem = tiny(rng, nodes=5, members=4)
    (role,) = problem.roles
    count = rng.randint(1, 2)
    if not role.gpus or role.most < problem.members:
        return None
    ask = np.array([0, 1], dtype=np.int64)
    fits = np.minimum(how_many_fit(problem.free[:, 1:], ask[1:]), count)
    price = None if rng.random() < 0.7 else np.arange(problem.nodes, dtype=np.int64)
    launcher = Role(request=ask, most=count, fits=fits, price=price)
    worker = attrs.evolve(role, most=problem.members, fits=np.minimum(role.fits, problem.members))
    return attrs.evolve(
        problem,
        roles=(worker, launcher),
        members=problem.members + count,
        minima=(((0,), problem.members), ((1,), count)),
        hope=rng.choice((0, problem.hope + count)),
    )


def test_bounds_and_proofs_are_true() -> None:
    """What is called proven is the least of all answers, term by term."""
    rng = random.Random(51)
    proven = solved = 0
    for _ in range(700):
        problem = with_launcher(rng)
        if problem is None:
            continue
        best = least(problem)
        answer = place_gang(problem, QUICK)
        assert not answer.faults
        if not answer.counts.size:
            continue
        assert best is not None
        assert not solution_errors(problem, answer.counts)
        values = objective_values(problem, answer.counts)
        known = len(answer.proven)
        assert values[:known] == best[:known]
        if known < len(best):
            assert answer.terms[known].bound <= best[known]
        proven += answer.method == "tree" and known >= len(best) - 2
        solved += 1
    assert proven > solved // 2 > 80


def test_a_gang_that_it_is_not_meant_for_is_left_alone() -> None:
    """Two roles with GPUs, or sub-groups: nothing is said."""
    rng = random.Random(52)
    seen = 0
    for _ in range(300):
        problem = tiny(rng, roles=2, parts=True)
        if problem.parts or sum(role.gpus > 0 for role in problem.roles) != 1:
            assert place_launcher_and_workers(problem) is None
            seen += 1
    assert seen > 100
