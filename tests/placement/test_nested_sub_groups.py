"""Sub-groups in sub-groups: every answer and every proof against all answers of tiny problems."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.placement.cpsat import gang_search
from gpusched.placement.model.problem import Effort, Problem, SubGroupHolder, SubGroupMinimum
from gpusched.placement.model.verify import solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from tests.placement.brute import answers
from tests.placement.test_several import agrees, domain_terms
from tests.placement.tiny import tiny

pytestmark = pytest.mark.long


def nested(seed: int) -> Problem:
    """A tiny problem with sub-groups up to four deep, with and without placed members."""
    rng = random.Random(seed)
    return tiny(
        rng,
        roles=rng.randint(2, 4),
        members=rng.choice((4, 5, 6)),
        nodes=rng.choice((3, 4, 5)),
        parts=True,
        nested=True,
    )


def twins(seed: int) -> Problem:
    """Equal sub-groups of members in equal sub-groups of these, so that they are counted."""
    rng = random.Random(seed)
    base = tiny(rng, roles=1, members=6, nodes=4, parts=False)
    base = attrs.evolve(base, placed=base.placed[:0], required=-1, hope=0, minima=())
    count, width = rng.choice(((2, 1), (2, 2), (1, 2), (1, 3), (3, 1)))
    narrow = len(base.levels) - 1
    (shape,) = base.roles
    least = rng.randint(1, shape.most)
    level = rng.choice((narrow, narrow, -1))
    holder = SubGroupHolder(
        least=rng.randint(1, width),
        level=rng.randint(-1, narrow),
        preferred=rng.choice((-1, narrow)),
    )
    parts = tuple(
        SubGroupMinimum(least=least, level=level, parent=number // width)
        for number in range(count * width)
    )
    return attrs.evolve(
        base,
        roles=tuple(attrs.evolve(shape, part=number) for number in range(len(parts))),
        members=min(8, least * rng.randint(1, len(parts)) + rng.choice((0, 0, 1))),
        parts=parts,
        holders=(holder,) * count,
        parts_least=rng.randint(0, count),
    )


@pytest.mark.parametrize("drawn", [nested, twins])
def test_patterns_find_the_best_answer_of_all_or_prove_that_there_is_none(drawn) -> None:
    wrong = {seed: said for seed in range(150) if (said := agrees(drawn(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("drawn", [nested, twins])
def test_the_master_over_racks_equals_it_in_every_term_of_domains(drawn, monkeypatch) -> None:
    monkeypatch.setattr(gang_search, "WHOLE_MAX", 0)
    monkeypatch.setattr(gang_search, "_APART_MAX", 0)
    wrong = {}
    for seed in range(1_000, 1_100):
        problem = drawn(seed)
        if said := agrees(problem, terms=domain_terms(problem)):
            wrong[seed] = said
    assert wrong == {}


@pytest.mark.parametrize("drawn", [nested, twins])
def test_without_the_solver_nothing_starts_wrongly_and_most_that_fits_is_found(drawn) -> None:
    """The quick method alone: what it answers is right, and it proves nothing that is not."""
    found = there = 0
    for seed in range(2_000, 2_200):
        problem = drawn(seed)
        try:
            some = len(answers(problem)) > 0
        except ValueError:  # not tiny after all
            continue
        answer = place_gang(problem, Effort(solver=False))
        assert not answer.faults
        assert answer.outcome != "infeasible" or not some, seed
        if answer.counts.size:
            assert solution_errors(problem, answer.counts) == ""
        found, there = found + bool(answer.counts.size), there + some
    assert there >= 40
    assert found >= 0.8 * there
