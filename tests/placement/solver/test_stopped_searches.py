"""Searches that are ended early: at any moment what is said is true, and quick methods answer."""

from __future__ import annotations

import random

import pytest

from gpusched.placement.cpsat.solver import SEARCH_STOPPER
from gpusched.placement.model.problem import Effort, SearchOutcome, search_in_process
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from tests.placement.tiny import tiny


@pytest.fixture
def stopped_after(monkeypatch):
    """Searches of this process end after so many solvers were begun."""

    def at(count):
        left = [count]
        begun = SEARCH_STOPPER.enter_search

        def counted(solver):
            if not left[0]:
                SEARCH_STOPPER.stop()
            left[0] -= 1
            begun(solver)

        monkeypatch.setattr(SEARCH_STOPPER, "enter_search", counted)
        if not count:
            SEARCH_STOPPER.stop()

    yield at
    monkeypatch.undo()
    SEARCH_STOPPER.reset()


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_stopped_search_claims_nothing_that_is_not_so(stopped_after, after):
    """No proof, bound or answer that the whole search contradicts."""
    effort = Effort(budget_s=5.0)
    problems = [tiny(random.Random(seed), roles=2, parts=seed % 2 == 0) for seed in range(60)]
    whole = [place_gang(problem, effort) for problem in problems]
    for problem, right in zip(problems, whole, strict=True):
        stopped_after(after)
        answer = place_gang(problem, effort, search=search_in_process)
        SEARCH_STOPPER.reset()
        assert not answer.faults
        if answer.outcome is SearchOutcome.INFEASIBLE:
            assert right.outcome is SearchOutcome.INFEASIBLE
        if answer.counts.size:
            assert not solution_errors(problem, answer.counts)
            assert tuple(term.value for term in answer.terms) == objective_values(
                problem, answer.counts
            )
            for mine, best in zip(answer.terms, right.terms, strict=True):
                assert mine.bound <= best.value
                if mine.value != best.value:
                    break
