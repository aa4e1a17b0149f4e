"""Bounds are true, and proofs hold when they are counted again."""

from __future__ import annotations

import random

import attrs
import numpy as np

from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.bounds import lower_bounds
from gpusched.placement.model.verify import solution_errors
from gpusched.placement.pipeline.certificates import (
    certificate_errors,
    feasible_wider_level,
    infeasibility_proof,
)
from tests.placement.brute import answers, least, vectors
from tests.placement.tiny import tiny


def test_no_answer_is_below_a_bound() -> None:
    """Each term of each answer of tiny problems with several roles and sub-groups."""
    rng = random.Random(41)
    seen = 0
    for _ in range(500):
        problem = tiny(rng, roles=rng.randint(1, 3), parts=True)
        counts = answers(problem)
        if len(counts):
            below = vectors(problem, counts) < np.array(lower_bounds(problem))
            assert not below.any()
            seen += 1
    assert seen > 150


def test_a_proof_is_made_only_where_nothing_fits_and_can_be_counted_again() -> None:
    """Where counting says no there is no answer; the second count agrees."""
    rng = random.Random(42)
    kinds = []
    for _ in range(600):
        problem = tiny(rng, roles=rng.randint(1, 3))
        certificate = infeasibility_proof(problem)
        if certificate is not None:
            assert least(problem) is None
            assert not certificate_errors(problem, certificate)
            kinds.append(certificate.kind)
    assert kinds.count("role") > 100
    assert kinds.count("domain") > 10


def test_a_proof_that_was_tampered_with_is_doubted() -> None:
    """Room understated, a domain left out, more members than asked: each is noticed."""
    rng = random.Random(43)
    doubted = 0
    for _ in range(600):
        problem = tiny(rng)
        made = infeasibility_proof(problem)
        if made is None:
            continue
        if made.kind == "role":
            lies = [attrs.evolve(made, room=made.room - 1), attrs.evolve(made, needed=99)]
        else:
            low = tuple((d, roles, n, fit - 1) for d, roles, n, fit in made.breaches)
            lies = [attrs.evolve(made, breaches=low)] if low else []
            lies += [attrs.evolve(made, breaches=made.breaches[1:])] if low else []
            lies += [attrs.evolve(made, level=made.level + 1)]
        assert all(certificate_errors(problem, lie) for lie in lies)
        doubted += len(lies)
    assert doubted > 200


def test_greedy_finds_a_place_for_one_role_wherever_there_is_one() -> None:
    """For members that are all alike it never misses, and what it finds is right."""
    rng = random.Random(44)
    found = 0
    for _ in range(500):
        problem = tiny(rng)
        counts = place_greedily(problem)
        assert (counts is None) == (least(problem) is None)
        if counts is not None:
            assert not solution_errors(problem, counts)
            found += 1
    assert found > 200


def test_what_greedy_finds_for_roles_and_sub_groups_is_right() -> None:
    """It may miss a place, and never gives one that breaks a rule."""
    rng = random.Random(45)
    found = missed = 0
    for _ in range(900):
        problem = tiny(rng, roles=rng.randint(2, 3), parts=rng.random() < 0.6)
        counts = place_greedily(problem)
        assert counts is None or not solution_errors(problem, counts)
        found += counts is not None
        missed += counts is None and least(problem) is not None
    assert found > 250
    assert missed < found // 8


def test_the_level_that_would_do_is_the_narrowest_with_a_place() -> None:
    """One role without a place in one domain: what wider level has one, by all answers."""
    rng = random.Random(46)
    found = []
    for _ in range(500):
        problem = tiny(rng, level=2)
        if problem.required < 0 or infeasibility_proof(problem) is None:
            continue
        wider = range(problem.required - 1, -2, -1)
        able = [each for each in wider if least(attrs.evolve(problem, required=each)) is not None]
        assert feasible_wider_level(problem) == (able[0] if able else None)
        found.append(feasible_wider_level(problem))
    assert len({*found}) == 4
