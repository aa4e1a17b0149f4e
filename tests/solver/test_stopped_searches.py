"""Searches that are ended early: at any moment what is said is true, and quick methods answer."""

from __future__ import annotations

import random

import pytest

from gpusched.placement.pipeline import place
from gpusched.placement.problem import Effort, Outcome, search_here
from gpusched.placement.stopping import STOPPING
from gpusched.placement.verify import objective, trouble
from tests.placement.tiny import tiny


@pytest.fixture
def stopped_after(monkeypatch):
    """Searches of this process end after so many solvers were begun."""

    def at(count):
        left = [count]
        begun = STOPPING.begun

        def counted(solver):
            if not left[0]:
                STOPPING.stop()
            left[0] -= 1
            begun(solver)

        monkeypatch.setattr(STOPPING, "begun", counted)
        if not count:
            STOPPING.stop()

    yield at
    monkeypatch.undo()
    STOPPING.again()


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_stopped_search_claims_nothing_that_is_not_so(stopped_after, after):
    """No proof, bound or answer that the whole search contradicts."""
    effort = Effort(budget_s=5.0)
    problems = [tiny(random.Random(seed), roles=2, parts=seed % 2 == 0) for seed in range(60)]
    whole = [place(problem, effort) for problem in problems]
    for problem, right in zip(problems, whole, strict=True):
        stopped_after(after)
        answer = place(problem, effort, search=search_here)
        STOPPING.again()
        assert not answer.faults
        if answer.outcome is Outcome.INFEASIBLE:
            assert right.outcome is Outcome.INFEASIBLE
        if answer.counts.size:
            assert not trouble(problem, answer.counts)
            assert tuple(term.value for term in answer.terms) == objective(problem, answer.counts)
            for mine, best in zip(answer.terms, right.terms, strict=True):
                assert mine.bound <= best.value
                if mine.value != best.value:
                    break
