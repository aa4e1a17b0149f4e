"""The oracle of placement agrees with the verifier, answer by answer."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from gpusched.placement.model.verify import objective_names, objective_values, solution_errors
from tests.placement.brute import answers, vectors
from tests.placement.tiny import tiny


def test_the_oracle_finds_exactly_the_answers_that_the_verifier_lets_pass() -> None:
    """Every table of counts is an answer of the oracle if and only if it has no trouble."""
    rng = random.Random(1)
    seen = 0
    for _ in range(250):
        problem = tiny(rng, nodes=3, roles=rng.randint(1, 2), members=3, parts=True)
        shape = (len(problem.roles), problem.nodes)
        found = {each.tobytes() for each in answers(problem)}
        highest = [min(int(fit), problem.members) for role in problem.roles for fit in role.fits]
        every = (
            np.array(each, dtype=np.int64).reshape(shape)
            for each in product(*(range(high + 1) for high in highest))
            if sum(each) == problem.members
        )
        assert {each.tobytes() for each in every if not solution_errors(problem, each)} == found
        seen += len(found)
    assert seen > 240


def test_the_oracle_values_answers_as_the_verifier_does() -> None:
    """Each term of the objective, for answers of problems with every feature."""
    rng = random.Random(2)
    seen = 0
    for _ in range(250):
        problem = tiny(rng, nodes=4, roles=rng.randint(1, 3), members=4, parts=True)
        counts = answers(problem)
        picked = rng.sample(range(len(counts)), min(8, len(counts)))
        values = vectors(problem, counts[picked]) if picked else ()
        for index, value in zip(picked, values, strict=True):
            assert tuple(value.tolist()) == objective_values(problem, counts[index])
            assert len(value) == len(objective_names(problem))
        seen += len(picked)
    assert seen > 240
