"""Once searches are to end no model is built any more: building is what takes long then."""

from __future__ import annotations

import random
from functools import cache

import pytest

from benchmarks.placement.aged import aged, problem_of
from gpusched.placement.cpsat import exact_search, rack_search
from gpusched.placement.cpsat.gang_search import GangSearchJob
from gpusched.placement.cpsat.pattern_model import SolverBudget
from gpusched.placement.cpsat.solver import SEARCH_STOPPER
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import Effort, Problem, Solution, search_in_process
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.solver_placement import place_by_solver

GANG = ((16, 8), (12, 5), (16, 2), (6, 0))


@cache
def scattered() -> Problem:
    """Four roles on a cluster in use: too large for one model, so that racks come first."""
    return problem_of(aged(512, 0.8, random.Random(2)), GANG)


@cache
def best() -> Solution:
    """What a search that nobody stops says."""
    return place_by_solver(scattered(), Effort(budget_s=20.0), search_in_process)


@pytest.fixture
def counted(monkeypatch):
    """Counts models by building, and solves; stops all searches after some solves."""

    def at(solves):
        counts = {"built": 0, "solved": 0, "late": 0}

        def counting(build):
            def counted_build(*args, **kwargs):
                counts["built"] += 1
                counts["late"] += SEARCH_STOPPER.stopped
                return build(*args, **kwargs)

            return counted_build

        solve = SolverBudget.solve_model

        def counted_solve(self, model, *, most):
            answer = solve(self, model, most=most)
            counts["solved"] += 1
            if counts["solved"] == solves:
                SEARCH_STOPPER.stop()
            return answer

        for module in (exact_search, rack_search):
            monkeypatch.setattr(module, "build_gang_model", counting(module.build_gang_model))
        monkeypatch.setattr(SolverBudget, "solve_model", counted_solve)
        return counts

    yield at
    SEARCH_STOPPER.reset()


def test_the_whole_search_builds_several_models(counted):
    """Otherwise the next test would promise nothing."""
    counts = counted(0)
    problem = scattered()
    place_by_solver(problem, Effort(budget_s=5.0), search_in_process, start=place_greedily(problem))
    assert counts["built"] >= 2
    assert counts["solved"] >= 6


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("solves", [1, 2, 4, 6, 7])
def test_nothing_is_built_after_the_stop_and_what_is_known_comes_back(counted, solves, known):
    """The answer that was known, or was found first, with bounds that are true."""
    problem = scattered()
    best()
    counts = counted(solves)
    start = place_greedily(problem) if known else None
    answer = place_by_solver(problem, Effort(budget_s=5.0), search_in_process, start=start)
    assert counts["late"] == 0
    assert answer.counts.size
    assert not solution_errors(problem, answer.counts)
    assert tuple(term.value for term in answer.terms) == objective_values(problem, answer.counts)
    for mine, least in zip(answer.terms, best().terms, strict=True):
        assert mine.bound <= least.value
        if mine.value != least.value:
            break


def test_a_search_that_is_stopped_before_it_begins_builds_nothing(counted):
    """Counting alone is done, and no bound is lost by it."""
    counts = counted(0)
    SEARCH_STOPPER.stop()
    answer = GangSearchJob(problem=scattered(), effort=Effort()).run()
    assert counts["built"] == 0
    assert answer.counts is None
    assert answer.bounds
