"""What ``placement`` in the configuration means for a session's searches."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from gpusched.config.model import PlacementConfig
from gpusched.placement.model.problem import Problem, SearchOutcome, Solution, Term
from gpusched.session.state.search_records import SearchRecord, search_effort

PROBLEM = Problem(free=np.zeros((1, 1), dtype=np.int64), roles=(), members=0)


@pytest.mark.parametrize("budget_s", [0.001, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0])
def test_a_budget_ends_in_time_where_the_solver_is_slowest(budget_s):
    """Deterministic seconds take up to 1.7 real ones: the sum stays within budget and a second."""
    got = search_effort(PlacementConfig(time_budget_s=budget_s))
    assert 0 < got.budget_s <= budget_s
    assert 1.7 * got.budget_s <= budget_s + 0.9
    assert got.budget_s == budget_s or budget_s > 0.8


def test_settings_are_passed_on():
    """The solver can be left out; workers and seed are the solver's."""
    got = search_effort(PlacementConfig(solver="greedy", workers=3, seed=7))
    assert (got.solver, got.workers, got.seed) == (False, 3, 7)
    assert search_effort(PlacementConfig()).solver


def test_a_record_has_a_gap_only_where_there_is_an_answer():
    """The gap of UNKNOWN is not 0."""
    terms = (Term("domains:zone", 1, 1), Term("domains:rack", 6, 4), Term("nodes", 9, 9))
    answer = Solution(
        outcome=SearchOutcome.FEASIBLE,
        counts=np.ones((1, 1), dtype=np.int64),
        terms=terms,
        method="greedy",
        seconds=0.25,
        work=0.2,
        faults=("master: it places 3 members, not 4",),
    )
    record = SearchRecord.from_solution(answer, PROBLEM)
    assert (record.gap, record.method, record.seconds, record.work) == (0.5, "greedy", 0.25, 0.2)
    assert (record.faults, record.problem) == (answer.faults, PROBLEM)
    assert SearchRecord.from_solution(attrs.evolve(answer, faults=()), PROBLEM).problem is None
    for outcome in (SearchOutcome.UNKNOWN, SearchOutcome.INFEASIBLE, SearchOutcome.INVALID):
        unanswered = attrs.evolve(answer, outcome=outcome, terms=())
        assert SearchRecord.from_solution(unanswered, PROBLEM).gap is None
