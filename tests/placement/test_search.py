"""Gangs of several classes: what one pass misses, the search finds or proves impossible."""

from __future__ import annotations

from itertools import product

import attrs
import numpy as np
import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.arrays.columns import Demand, how_many_fit
from gpusched.config.model import DEFAULT, Placement
from gpusched.errors import SolverFault
from gpusched.placement import cpsat
from gpusched.placement.counting import ClassAsk, Problem, Solution, holds
from gpusched.placement.problem import Outcome
from gpusched.testing.given import Given


def awkward(**config: object) -> Given:
    """Two nodes with 5 and 6 GPUs; members of 4, 3, 2 and 2 fit in one way only."""
    placement = Placement(**config)  # type: ignore[arg-type]
    c = Given(config=attrs.evolve(DEFAULT, placement=placement))
    c.node("a", gpus=5).node("b", gpus=6).group("mixed", min_member=4)
    for name, gpus in (("four", 4), ("three", 3), ("two", 2), ("deux", 2)):
        c.pod(name, group="mixed", spec=None, gpus=gpus)
    return c


def test_search_finds_the_only_placement() -> None:
    """Largest first onto the fullest node fails here; the complete search does not."""
    c = awkward()
    plan = c.when.one_session()
    nodes = {bind.key.name: bind.node for bind in plan.binds[0].binds}
    assert {nodes["four"], nodes["three"]} == {"a", "b"}
    assert nodes["four"] == nodes["two"] == nodes["deux"] or nodes["four"] != nodes["three"]
    assert len(nodes) == 4


def test_greedy_alone_misses_it_and_says_so() -> None:
    """The solver can be switched off; then one pass is all there is."""
    c = awkward(solver="greedy")
    plan = c.when.one_session()
    assert plan.binds == ()
    assert c.then.reason("mixed") == "InsufficientResources"
    assert "search" not in c.then.why("mixed")


def test_proof_of_infeasibility_is_told() -> None:
    """A gang that fits by sums but not by nodes waits with a proof, not with a guess."""
    c = Given().node("a", gpus=5).node("b", gpus=5).group("mixed", min_member=3)
    for name, gpus in (("big", 4), ("mid", 3), ("dle", 3)):
        c.pod(name, group="mixed", gpus=gpus)
    assert c.when.one_session().binds == ()
    assert "a complete search proves that no placement exists now" in c.then.why("mixed")


def test_a_wrong_answer_of_the_solver_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is counted again; one that does not hold costs the gang its turn, no more."""

    def lies(problem: Problem, **_: object) -> Solution:
        raise SolverFault("the solver's answer does not hold when it is counted again")

    monkeypatch.setattr("gpusched.session.search.solve", lies)
    c = awkward()
    assert c.when.one_session().binds == ()
    assert c.decision is not None
    assert c.decision.searches[0].outcome == "invalid"


def small(free: list[list[int]], asks: list[tuple[int, int]], most: list[int], members: int):
    """A problem over two resources."""
    columns = np.arange(2)
    table = np.array(free, dtype=np.int64)
    classes = []
    for (first, second), count in zip(asks, most, strict=True):
        ask = Demand(columns, np.array([first, second], dtype=np.int64), "")
        classes.append(ClassAsk(ask, count, np.minimum(how_many_fit(table, ask.amounts), count)))
    return Problem(table, tuple(classes), members, ())


def possible(problem: Problem) -> bool:
    """Whether any assignment holds, by trying all of them."""
    ranges = [range(int(fit) + 1) for each in problem.classes for fit in each.fits]
    shape = (len(problem.classes), problem.free.shape[0])
    return any(
        holds(problem, np.array(counts, dtype=np.int64).reshape(shape))
        for counts in product(*ranges)
    )


@settings(max_examples=60, deadline=None)
@generated(
    free=st.lists(st.lists(st.integers(0, 8), min_size=2, max_size=2), min_size=1, max_size=3),
    asks=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=2),
    counts=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    members=st.integers(1, 5),
)
def test_search_agrees_with_brute_force(free, asks, counts, members) -> None:
    """The solver finds a placement exactly when there is one, and what it finds holds."""
    problem = small(free, asks, counts[: len(asks)], members)
    answer = cpsat.solve(problem, budget_s=5.0, workers=1, seed=1)
    assert (answer.outcome is Outcome.FEASIBLE) == possible(problem)
    assert answer.outcome is not Outcome.UNKNOWN
    if answer.outcome is Outcome.FEASIBLE:
        assert holds(problem, answer.counts)


def test_same_problem_same_answer() -> None:
    """Fixed seed, one worker: the search repeats itself."""
    problem = small([[8, 8]] * 6, [(3, 1), (2, 3), (5, 2)], [4, 4, 3], 9)
    first = cpsat.solve(problem, budget_s=5.0, workers=1, seed=1)
    again = cpsat.solve(problem, budget_s=5.0, workers=1, seed=1)
    assert first.outcome is Outcome.FEASIBLE
    assert (first.counts == again.counts).all()
