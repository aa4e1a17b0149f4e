"""One gang's places, whatever method finds them: right, never a wrong proof, and repeatable."""

from __future__ import annotations

import random

from gpusched.placement.model.problem import Effort, SearchOutcome
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from tests.placement.brute import least
from tests.placement.tiny import tiny

QUICK = Effort(solver=False)


def test_answers_hold_and_bounds_are_true() -> None:
    """Against all answers of tiny problems: no wrong proof, no bound above the best value."""
    rng = random.Random(3)
    outcomes = []
    for _ in range(600):
        problem = tiny(rng, roles=rng.randint(1, 3), parts=True)
        best = least(problem)
        answer = place_gang(problem, QUICK)
        outcomes.append(answer.outcome)
        if answer.outcome is SearchOutcome.INFEASIBLE:
            assert best is None
            assert answer.certificate is not None
        if answer.counts.size:
            assert best is not None
            assert not solution_errors(problem, answer.counts)
            values = objective_values(problem, answer.counts)
            assert tuple(term.value for term in answer.terms) == values
            proven = len(answer.proven)
            assert values[:proven] == best[:proven]
            if proven < len(best) and values[:proven] == best[:proven]:
                assert answer.terms[proven].bound <= best[proven]
    assert outcomes.count(SearchOutcome.OPTIMAL) > 40
    assert outcomes.count(SearchOutcome.INFEASIBLE) > 50
