"""Caps between members in the tables and in the solver, against all answers of tiny problems."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest

from gpusched.placement.model.problem import NODES, Effort, MemberCap, Problem, SearchOutcome
from gpusched.placement.model.verify import objective_names
from gpusched.placement.pipeline.elastic_placement import EXTRA, place_most_members
from gpusched.placement.pipeline.gang_placement import place_gang
from tests.placement.brute import answers, vectors
from tests.placement.tiny import tiny
from tests.populations import one_of

pytestmark = pytest.mark.long

AMPLE = Effort(budget_s=5.0)
PROBLEMS = 250


def drawn(seed: int) -> Problem:
    """A tiny problem with one or two caps, of one role or of three."""
    rng = random.Random(f"caps-{seed}")
    problem = tiny(rng, roles=rng.choice((1, 1, 2, 3)), members=5, nodes=5)
    every = tuple(range(len(problem.roles)))
    caps = []
    for _ in range(rng.randint(1, 2)):
        level = rng.randint(NODES, len(problem.levels) - 1)
        size = problem.nodes if level == NODES else problem.levels[level].count
        most = np.array([rng.choice((0, 1, 1, 2, 9)) for _ in range(size)], dtype=np.int64)
        roles = every if rng.random() < 0.6 else (rng.choice(every),)
        caps.append(MemberCap(roles=roles, most=most, level=level))
    return attrs.evolve(problem, caps=tuple(caps))


def kept(problem: Problem, counts: np.ndarray) -> np.ndarray:
    """Those answers that keep the caps."""
    good = np.ones(len(counts), dtype=np.bool_)
    for cap in problem.caps:
        held = counts[:, list(cap.roles)].sum(axis=1)
        where = np.arange(problem.nodes) if cap.level == NODES else problem.levels[cap.level].domain
        for number, most in enumerate(cap.most.tolist()):
            good &= held[:, where == number].sum(axis=1) <= most
    return counts[good]


def best(problem: Problem) -> tuple[int, ...] | None:
    """The least objective of all answers that keep the caps."""
    counts = kept(problem, answers(problem))
    if not len(counts):
        return None
    return min(map(tuple, vectors(problem, counts).tolist()))


def test_caps_are_kept_and_nothing_better_is_missed() -> None:
    """Equal members to the last term, others in all terms about domains."""
    for seed in one_of(3, range(PROBLEMS)):
        problem = drawn(seed)
        right, answer = best(problem), place_gang(problem, AMPLE)
        assert not answer.faults, seed
        if right is None:
            assert answer.outcome is SearchOutcome.INFEASIBLE, seed
            continue
        found = tuple(term.value for term in answer.terms)
        until = len(right) if answer.method == "tree" else objective_names(problem).index("span")
        assert found[:until] == right[:until], (seed, answer.method)


def test_the_largest_number_that_fits_is_placed() -> None:
    """From none to five members, with caps: no larger number has any answer."""
    for seed in one_of(3, range(PROBLEMS)):
        problem = attrs.evolve(
            drawn(seed), members=0, minima=(), hope=0, placed=np.zeros(0, np.int64)
        )
        answer = place_most_members(problem, 5, AMPLE)
        largest = next(
            count
            for count in (5, 4, 3, 2, 1, 0)
            if not count or best(attrs.evolve(problem, members=count)) is not None
        )
        assert int(answer.counts.sum()) == largest, (seed, largest)
        if largest:
            (extra, *_) = answer.terms
            assert (extra.name, extra.value, extra.bound) == (EXTRA, 5 - largest, 5 - largest), seed
