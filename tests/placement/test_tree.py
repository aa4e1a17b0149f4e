"""Members that are all alike get the best place that exists, in every term of the objective."""

from __future__ import annotations

import random

from gpusched.placement.certificates import doubt
from gpusched.placement.memory import Memory
from gpusched.placement.pipeline import place
from gpusched.placement.problem import Effort, Outcome
from tests.placement.brute import least
from tests.placement.tiny import tiny

QUICK = Effort(solver=False)


def test_one_role_gets_the_best_of_all_answers() -> None:
    """The objective of the tree is the least that exists; where it says none, there is none."""
    rng = random.Random(11)
    memory = Memory()
    outcomes = []
    for _ in range(1200):
        problem = tiny(rng)
        best = least(problem)
        answer = place(problem, QUICK, memory=memory)
        outcomes.append(answer.outcome)
        assert not answer.faults
        assert tuple(term.value for term in answer.terms) == (best or ())
        assert answer.outcome is (Outcome.INFEASIBLE if best is None else Outcome.OPTIMAL)
        if answer.certificate is not None:
            assert not doubt(problem, answer.certificate)
    assert outcomes.count(Outcome.OPTIMAL) > 500
    assert outcomes.count(Outcome.INFEASIBLE) > 200


def test_a_memory_of_other_problems_changes_no_answer() -> None:
    """With tables of hundreds of other problems the same nodes are chosen as with none."""
    rng = random.Random(12)
    memory = Memory()
    for _ in range(300):
        problem = tiny(rng, parts=True)
        alone = place(problem, QUICK)
        again = place(problem, QUICK, memory=memory)
        assert again.counts.tolist() == alone.counts.tolist()
        assert (again.outcome, again.terms) == (alone.outcome, alone.terms)
