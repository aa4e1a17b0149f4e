"""Once searches are to end no model is built any more: building is what takes long then."""

from __future__ import annotations

import random
from functools import cache

import pytest

from benchmarks.placement.aged import aged, problem_of
from gpusched.placement import cpsat_exact, cpsat_master
from gpusched.placement.cpsat_patterns import Book
from gpusched.placement.cpsat_several import SeveralJob
from gpusched.placement.greedy import greedy
from gpusched.placement.problem import Effort, Problem, Solution, search_here
from gpusched.placement.several import place_several
from gpusched.placement.stopping import STOPPING
from gpusched.placement.verify import objective, trouble

GANG = ((16, 8), (12, 5), (16, 2), (6, 0))


@cache
def scattered() -> Problem:
    """Four roles on a cluster in use: too large for one model, so that racks come first."""
    return problem_of(aged(512, 0.8, random.Random(2)), GANG)


@cache
def best() -> Solution:
    """What a search that nobody stops says."""
    return place_several(scattered(), Effort(budget_s=20.0), search_here)


@pytest.fixture
def counted(monkeypatch):
    """Counts models by building, and solves; stops all searches after some solves."""

    def at(solves):
        counts = {"built": 0, "solved": 0, "late": 0}

        def counting(build):
            def frame(*args, **kwargs):
                counts["built"] += 1
                counts["late"] += STOPPING.stopped
                return build(*args, **kwargs)

            return frame

        solve = Book.solve

        def counted_solve(self, model, *, most):
            answer = solve(self, model, most=most)
            counts["solved"] += 1
            if counts["solved"] == solves:
                STOPPING.stop()
            return answer

        for module in (cpsat_exact, cpsat_master):
            monkeypatch.setattr(module, "frame", counting(module.frame))
        monkeypatch.setattr(Book, "solve", counted_solve)
        return counts

    yield at
    STOPPING.again()


def test_the_whole_search_builds_several_models(counted):
    """Otherwise the next test would promise nothing."""
    counts = counted(0)
    problem = scattered()
    place_several(problem, Effort(budget_s=5.0), search_here, start=greedy(problem))
    assert counts["built"] >= 2
    assert counts["solved"] >= 6


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("solves", [1, 2, 4, 6, 7])
def test_nothing_is_built_after_the_stop_and_what_is_known_comes_back(counted, solves, known):
    """The answer that was known, or was found first, with bounds that are true."""
    problem = scattered()
    best()
    counts = counted(solves)
    start = greedy(problem) if known else None
    answer = place_several(problem, Effort(budget_s=5.0), search_here, start=start)
    assert counts["late"] == 0
    assert answer.counts.size
    assert not trouble(problem, answer.counts)
    assert tuple(term.value for term in answer.terms) == objective(problem, answer.counts)
    for mine, least in zip(answer.terms, best().terms, strict=True):
        assert mine.bound <= least.value
        if mine.value != least.value:
            break


def test_a_search_that_is_stopped_before_it_begins_builds_nothing(counted):
    """Counting alone is done, and no bound is lost by it."""
    counts = counted(0)
    STOPPING.stop()
    answer = SeveralJob(problem=scattered(), effort=Effort()).run()
    assert counts["built"] == 0
    assert answer.counts is None
    assert answer.bounds
