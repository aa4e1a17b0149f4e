"""What must hold of every answer, whatever the method: laws that need no second method."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import numpy as np
import pytest

from gpusched.arrays.columns import Ints
from gpusched.placement.model.problem import (
    DomainLevel,
    Effort,
    Problem,
    Role,
    SearchOutcome,
    Solution,
)
from gpusched.placement.model.verify import objective_values, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.tree.table_cache import TableCache
from tests.placement.tiny import tiny

FULL = Effort(budget_s=0.5)
MEMORY = TableCache()


def problems(seed: int, count: int) -> Iterator[tuple[random.Random, Problem]]:
    """Mostly one role, now and then several."""
    rng = random.Random(seed)
    for index in range(count):
        yield rng, tiny(rng, roles=2 if index % 10 == 0 else 1, nodes=6)


def solved(problem: Problem) -> Solution:
    answer = place_gang(problem, FULL, memory=MEMORY)
    assert not answer.faults
    assert answer.outcome is not SearchOutcome.UNKNOWN
    return answer


def worth(answer: Solution) -> tuple[int, ...]:
    return tuple(term.value for term in answer.terms)


def topology(problem: Problem, answer: Solution) -> tuple[int, ...]:
    """The terms that no state of slots is in."""
    hope = int(problem.required >= 0)
    return worth(answer)[: hope + len(problem.levels)]


def reordered(problem: Problem, order: Ints, rng: random.Random) -> Problem:
    """The same nodes in another order, with other numbers for domains."""
    levels = []
    for level in problem.levels:
        size = int(level.domain.max(initial=-1)) + 1
        named, alone = list(range(level.real)), list(range(level.real, size))
        rng.shuffle(named)
        rng.shuffle(alone)
        number = np.array([*named, *alone], dtype=np.int64)
        levels.append(
            DomainLevel(name=level.name, domain=number[level.domain][order], real=level.real)
        )
    return attrs.evolve(
        problem,
        free=problem.free[order],
        roles=tuple(_on(role, order) for role in problem.roles),
        levels=tuple(levels),
        placed=problem.placed[order] if problem.placed.size else problem.placed,
        states=problem.states[order],
    )


def _on(role: Role, order: Ints) -> Role:
    price = None if role.price is None else role.price[order]
    return attrs.evolve(role, fits=role.fits[order], price=price)


def test_order_of_nodes_and_names_of_domains_change_no_term() -> None:
    """Nodes shuffled and domains renumbered: the same outcome and objective."""
    found = 0
    for rng, problem in problems(31, 150):
        order = list(range(problem.nodes))
        rng.shuffle(order)
        first = solved(problem)
        second = solved(reordered(problem, np.array(order, dtype=np.int64), rng))
        assert first.outcome is second.outcome
        if first.method == second.method == "tree":
            assert first.terms == second.terms
        found += first.counts.size > 0
    assert found > 60


def test_the_unit_of_a_resource_changes_no_answer() -> None:
    """Amounts in other units: the same counts."""
    for _, problem in problems(32, 60):
        scale = np.array([1, 1024], dtype=np.int64)
        roles = tuple(attrs.evolve(role, request=role.request * scale) for role in problem.roles)
        other = attrs.evolve(problem, free=problem.free * scale, roles=roles)
        assert solved(other).counts.tolist() == solved(problem).counts.tolist()


def test_a_node_less_is_never_better() -> None:
    """Without one node: no answer appears, and no term of topology gets better."""
    compared = 0
    for rng, problem in problems(33, 200):
        if problem.nodes < 2 or problem.required >= 0:
            continue
        gone = rng.randrange(problem.nodes)
        if problem.placed.size and problem.placed[gone]:
            continue
        roles = []
        for role in problem.roles:
            fits = role.fits.copy()
            fits[gone] = 0
            roles.append(attrs.evolve(role, fits=fits))
        more, less = solved(problem), solved(attrs.evolve(problem, roles=tuple(roles)))
        if less.counts.size:
            assert more.counts.size
            if less.method == more.method == "tree":
                assert worth(more) <= worth(less)
            assert topology(problem, more) <= topology(problem, less)
            compared += 1
    assert compared > 40


def test_more_room_on_a_node_is_never_worse() -> None:
    """With more members fitting a node: no answer is lost, nor a term of topology worse."""
    compared = 0
    for rng, problem in problems(34, 200):
        row = rng.randrange(problem.nodes)
        free = problem.free.copy()
        asks = sum(role.request * role.most for role in problem.roles)
        free[row] += asks
        roles = []
        for role in problem.roles:
            fits = role.fits.copy()
            fits[row] = role.most
            roles.append(attrs.evolve(role, fits=fits))
        more = attrs.evolve(problem, free=free, roles=tuple(roles), slots=None)
        before, after = solved(attrs.evolve(problem, slots=None)), solved(more)
        if before.counts.size:
            assert after.counts.size
            assert topology(problem, after) <= topology(problem, before)
            compared += 1
    assert compared > 60


def test_a_member_more_never_makes_room() -> None:
    """What does not fit does not fit with another member."""
    for _, problem in problems(35, 150):
        if len(problem.roles) > 1:
            continue
        if solved(problem).outcome is not SearchOutcome.INFEASIBLE:
            continue
        more = attrs.evolve(problem, members=problem.members + 1)
        assert solved(more).outcome is SearchOutcome.INFEASIBLE


def test_the_same_problem_has_the_same_answer() -> None:
    """Twice in a row: the same counts and terms."""
    for _, problem in problems(36, 60):
        first, second = solved(problem), solved(problem)
        assert first.counts.tolist() == second.counts.tolist()
        assert first.terms == second.terms


@pytest.mark.parametrize("way", ["one more", "one less", "moved"])
def test_an_answer_that_was_tampered_with_is_refused_or_no_better(way: str) -> None:
    """A member added, dropped or moved: trouble, or an answer that is not worth more."""
    refused = 0
    for rng, problem in problems(37, 120):
        answer = solved(problem)
        if not answer.counts.any():
            continue
        counts = answer.counts.copy()
        role, row = (int(each) for each in rng.choice(np.argwhere(counts).tolist()))
        if way != "one more":
            counts[role, row] -= 1
        if way != "one less":
            counts[role, rng.randrange(problem.nodes)] += 1
        wrong = solution_errors(problem, counts)
        refused += bool(wrong)
        if way != "moved":
            assert wrong
        elif not wrong and answer.method == "tree":
            assert objective_values(problem, counts) >= worth(answer)
    assert refused > 15
