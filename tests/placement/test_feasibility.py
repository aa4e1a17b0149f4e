"""No gang that fits is refused: a sample of ``benchmarks.placement.feasibility``."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.placement.exhaustive import fits
from benchmarks.placement.feasibility import by_pipeline, by_sessions, problem_of
from benchmarks.placement.shapes import Case, Crew, Squad, large, small
from gpusched.placement.cpsat.pattern_model import maximal_patterns
from tests.placement.brute import answers

pytestmark = pytest.mark.long


def test_no_small_gang_that_fits_is_refused_and_none_that_does_not_is_placed() -> None:
    """Every verdict of the pipeline is that of going through all answers."""
    tally = by_pipeline([small(random.Random(seed)) for seed in range(5_000, 5_090)])
    assert 50 < tally.feasible < 88
    assert len(tally.quick) >= 5
    assert (tally.missed, tally.wrong, tally.broken, tally.unsure) == ((), (), (), ())


def test_no_gang_that_was_cut_out_of_the_free_room_is_refused() -> None:
    """Six roles, hardly anything to spare: the quick method misses nearly all of them."""
    tally = by_pipeline([large(random.Random(seed), 20 + 20 * seed) for seed in range(6)])
    assert tally.feasible == 6
    assert len(tally.quick) >= 3
    assert (tally.missed, tally.wrong, tally.broken) == ((), (), ())


def test_no_gang_that_fits_is_refused_by_a_session() -> None:
    """Nodes with pods on them, roles, sub-groups, levels: with the solver all start, legally."""
    tally = by_sessions([small(random.Random(seed)) for seed in range(6_000, 6_036)])
    assert 18 < tally.feasible < 36
    assert tally.quick
    assert (tally.missed, tally.broken) == ((), ())


def test_the_exhaustive_answer_agrees_with_trying_every_table_of_counts() -> None:
    """Two oracles that share nothing say the same of problems with sub-groups and levels."""
    seen = {True: 0, False: 0}
    for seed in range(7_000, 7_200):
        case = small(random.Random(seed))
        if case.members > 5 or len(case.free) > 5:
            continue
        there = len(answers(problem_of(case))) > 0
        assert fits(case, exactly=True) == there, seed
        seen[there] += 1
    assert min(seen.values()) >= 5


NODES = ((0, 0), (0, 0), (0, 1), (0, 1))
"""Four nodes in two racks of one block."""


def case(free: tuple[int, ...], *crews: Crew, squads: tuple[Squad, ...], **numbers: int) -> Case:
    """Nodes with so many GPUs left, and cores and memory in plenty."""
    return Case(
        free=tuple((gpus, 40, 200) for gpus in free),
        where=NODES[: len(free)],
        crews=crews,
        squads=squads,
        members=numbers.get("members", 1),
        squads_least=numbers.get("least", 0),
    )


def test_a_gang_may_have_to_start_with_more_members_than_it_needs() -> None:
    """One member is enough, but sub-groups come in pairs: a pair starts."""
    crews = (Crew(ask=(3, 1, 1), count=2, part=0), Crew(ask=(1, 1, 1), count=2, part=1))
    pairs = (Squad(least=2, level="rack"), Squad(least=2, level="rack"))
    tally = by_sessions([case((1, 1, 2, 0), *crews, squads=pairs)])
    assert (tally.feasible, tally.missed, tally.broken) == (1, (), ())


def test_roles_minima_add_to_what_sub_groups_need() -> None:
    """Two leaders of no sub-group and three workers of one: five start, though need says three."""
    crews = (Crew(ask=(2, 1, 1), count=2, least=2), Crew(ask=(1, 1, 1), count=3, part=0))
    tally = by_sessions([case((4, 3), *crews, squads=(Squad(least=3),), members=1, least=1)])
    assert (tally.feasible, tally.missed, tally.broken) == (1, (), ())


def test_members_beyond_a_sub_groups_minimum_stay_in_its_domain() -> None:
    """The role needs four, the sub-group one in one rack: three fit, and nobody starts."""
    crew = Crew(ask=(2, 1, 1), count=4, least=4, part=0)
    tally = by_sessions(
        [case((2, 2, 6, 0), crew, squads=(Squad(least=1, level="rack"),), members=4, least=1)]
    )
    assert (tally.feasible, tally.broken) == (0, ())


@pytest.mark.parametrize("seed", range(4))
def test_maximal_patterns_are_those_to_which_nothing_can_be_added(seed: int) -> None:
    """Every pattern is below one of them, and none of them is below another."""
    rng = np.random.default_rng(seed)
    patterns = np.unique(rng.integers(0, 4, size=(40, 3)), axis=0)
    able = tuple(range(0, len(patterns), 2))
    kept = maximal_patterns(patterns, able)
    for number in able:
        above = [each for each in kept if (patterns[each] >= patterns[number]).all()]
        assert above == [number] if number in kept else above
