"""Sub-groups in sub-groups: every answer and every proof against all answers of tiny problems."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest

from gpusched.placement.cpsat import gang_search
from gpusched.placement.model.problem import (
    DomainLevel,
    Effort,
    Problem,
    Role,
    SubGroupHolder,
    SubGroupMinimum,
)
from gpusched.placement.model.sub_group_forms import with_fewer_holders
from gpusched.placement.model.verify import objective_names, solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from tests.placement.brute import answers, least
from tests.placement.test_several import AMPLE, agrees, domain_terms, too_high
from tests.placement.tiny import tiny
from tests.populations import one_of

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


def rigid(seed: int) -> Problem:
    """Sub-groups of which each gets all its members, most of them all in what is around them."""
    rng = random.Random(seed)
    problem = nested(seed)
    most = [0] * len(problem.parts)
    for role in problem.roles:
        if role.part >= 0:
            most[role.part] += role.most
    parts = tuple(
        attrs.evolve(part, least=count if rng.random() < 0.9 else part.least, homes=(), near=(),
                     preferred=part.preferred if rng.random() < 0.3 else -1)
        for part, count in zip(problem.parts, most, strict=True)
    )  # fmt: skip
    holders = list(problem.holders)
    for number in reversed(range(len(holders))):
        inside = [each.least > 0 for each in (*parts, *holders) if each.parent == number]
        whole = rng.random() < 0.8
        holders[number] = attrs.evolve(
            holders[number],
            least=sum(inside) if whole else holders[number].least,
            homes=(),
            near=(),
        )
    top = sum(each.least > 0 for each in (*parts, *holders) if each.parent < 0)
    few = sorted(part.least for part in parts)
    return attrs.evolve(
        problem, parts=parts, holders=tuple(holders), parts_least=top, minima=(),
        members=max(1, min(6, sum(few[: rng.randint(1, len(few))]))),
    )  # fmt: skip


@pytest.mark.parametrize("drawn", [nested, twins])
def test_patterns_find_the_best_answer_of_all_or_prove_that_there_is_none(drawn) -> None:
    wrong = {seed: said for seed in one_of(3, range(150)) if (said := agrees(drawn(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("drawn", [nested, twins])
def test_the_master_over_racks_equals_it_in_every_term_of_domains(drawn, monkeypatch) -> None:
    monkeypatch.setattr(gang_search, "WHOLE_MAX", 0)
    monkeypatch.setattr(gang_search, "_APART_MAX", 0)
    wrong = {}
    for seed in one_of(3, range(1_000, 1_100)):
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


@pytest.mark.parametrize("drawn", [nested, twins, rigid])
def test_simpler_forms_have_the_same_answers_worth_the_same(drawn) -> None:
    """What the whole pipeline answers or proves, for problems that it makes simpler before."""
    wrong, fewer = {}, 0
    for seed in one_of(3, range(3_000, 3_200)):
        problem = drawn(seed)
        try:
            best = least(problem)
        except ValueError:  # not tiny after all
            continue
        fewer += len(with_fewer_holders(problem).holders) < len(problem.holders)
        found = place_gang(problem, AMPLE)
        if found.faults or (best is None) != (found.outcome == "infeasible"):
            wrong[seed] = f"{found.outcome} {found.faults}, and there is {best}"
        elif best is not None:
            value = tuple(term.value for term in found.terms)
            terms = objective_names(problem).index("span")
            if value[:terms] != best[:terms] or (said := too_high(found, best)):
                wrong[seed] = f"{value} for {best}, {said if value == best else ''}"
    assert wrong == {}
    assert fewer >= 10


def test_slices_of_whole_groups_are_counted_like_groups() -> None:
    """Eight slices of two groups of two in a rack each, on a thousand nodes: proven, and soon."""
    count = 1_000
    rng = random.Random(7)
    free = np.array([[rng.choice((0, 4, 8, 8)), 64] for _ in range(count)], dtype=np.int64)
    rows = np.arange(count)
    levels = tuple(
        DomainLevel(name=name, domain=rows // size, real=-(-count // size))
        for name, size in (("zone", 512), ("block", 128), ("rack", 16))
    )
    ask = np.array([8, 8], dtype=np.int64)
    fits = np.minimum(2, free[:, 0] // 8)
    roles = tuple(Role(request=ask, most=2, fits=fits, gpus=8, part=n) for n in range(16))
    parts = tuple(SubGroupMinimum(least=2, parent=1 + n // 2) for n in range(16))
    slices = tuple(SubGroupHolder(least=2, level=2, parent=0) for _ in range(8))
    problem = Problem(
        free=free, roles=roles, members=32, parts=parts, parts_least=1, levels=levels,
        holders=(SubGroupHolder(least=8, level=1), *slices),
    )  # fmt: skip
    assert len(with_fewer_holders(problem).holders) == 1
    found = place_gang(problem, Effort())
    assert found.outcome == "optimal"
    assert solution_errors(problem, found.counts) == ""
