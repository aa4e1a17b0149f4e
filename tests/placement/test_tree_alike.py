"""Roles that only differ by name, and sub-groups that are alike, are one class to the tree."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest

from gpusched.arrays.columns import how_many_fit
from gpusched.placement.model.problem import Effort, Problem, Role, SearchOutcome, SubGroupMinimum
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.tree.identical_members import IdenticalMembers, as_identical_members
from tests.placement.brute import least
from tests.placement.tiny import tiny

pytestmark = pytest.mark.long

QUICK = Effort(solver=False)


def plain(rng: random.Random, *, members: int) -> Problem:
    """One role of ``members`` that only room and filters limit."""
    while True:
        problem = tiny(rng, nodes=5, members=members)
        (role,) = problem.roles
        asked = np.flatnonzero(role.request)
        fits = how_many_fit(problem.free[:, asked], role.request[asked])
        fits = np.where(role.fits > 0, np.minimum(fits, members), 0)
        if fits.any():
            whole = attrs.evolve(role, most=members, fits=fits)
            return attrs.evolve(problem, roles=(whole,), members=members, minima=(), hope=0)


def in_pieces(role: Role, sizes: list[int], *, parts: bool = False) -> tuple[Role, ...]:
    """The same members as roles of these sizes."""
    return tuple(
        attrs.evolve(role, most=size, fits=np.minimum(role.fits, size), part=index if parts else -1)
        for index, size in enumerate(sizes)
    )


def test_a_role_in_two_equal_ones_is_worth_the_same() -> None:
    """Splitting a role changes no term of the best answer, and no proof that there is none."""
    rng = random.Random(21)
    found = 0
    for _ in range(250):
        whole = plain(rng, members=rng.randint(2, 5))
        size = rng.randint(1, whole.members - 1)
        sizes = [size, whole.members - size]
        minima = tuple(((index,), each) for index, each in enumerate(sizes))
        split = attrs.evolve(whole, roles=in_pieces(whole.roles[0], sizes), minima=minima)
        assert as_identical_members(split) is not None
        one, two = place_gang(whole, QUICK), place_gang(split, QUICK)
        assert one.outcome is two.outcome
        assert one.terms == two.terms
        assert not two.faults
        found += one.outcome is SearchOutcome.OPTIMAL
    assert found > 100


def test_members_that_fill_all_room_are_worth_what_tables_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is one answer, which is counted in place of searched for; where a level binds it there may be none."""
    rng = random.Random(24)
    found = []
    for _ in range(250):
        whole = plain(rng, members=rng.randint(2, 5))
        (role,) = whole.roles
        members = int(role.fits.sum())
        problem = attrs.evolve(whole, members=members, roles=(attrs.evolve(role, most=members),))
        one = as_identical_members(problem)
        assert one is not None
        counted = place_gang(problem, QUICK)
        with monkeypatch.context() as patch:
            patch.setattr(IdenticalMembers, "fill_all_room", False)
            searched = place_gang(problem, QUICK)
        assert counted.outcome is searched.outcome
        assert counted.terms == searched.terms
        assert np.array_equal(counted.counts, searched.counts)
        found.append((one.fill_all_room, counted.outcome))
    assert found.count((True, SearchOutcome.OPTIMAL)) > 50
    assert found.count((False, SearchOutcome.INFEASIBLE)) > 10


def test_minima_over_several_equal_roles_are_met() -> None:
    """Where each role needs some and all together need more, the best of all answers is found."""
    rng = random.Random(22)
    outcomes = []
    for _ in range(250):
        whole = plain(rng, members=rng.randint(2, 4))
        sizes = [rng.randint(1, 3) for _ in range(rng.randint(2, 3))]
        roles = in_pieces(whole.roles[0], sizes)
        minima = (((0,), rng.randint(0, sizes[0])), ((0, 1), rng.randint(0, 3)))
        problem = attrs.evolve(whole, roles=roles, minima=minima)
        best = least(problem)
        answer = place_gang(problem, QUICK)
        assert not answer.faults
        if (
            as_identical_members(problem) is not None
            and answer.outcome is not SearchOutcome.UNKNOWN
        ):
            assert tuple(term.value for term in answer.terms) == (best or ())
            outcomes.append(answer.outcome)
    assert outcomes.count(SearchOutcome.OPTIMAL) > 80


def test_equal_sub_groups_each_get_a_domain() -> None:
    """Some of the sub-groups, whole, each in one domain, at the least cost of all answers."""
    rng = random.Random(23)
    outcomes = []
    for _ in range(900):
        unit, groups = rng.randint(1, 3), rng.randint(2, 3)
        whole = plain(rng, members=unit * groups)
        if not whole.levels:
            continue
        level = rng.randint(0, len(whole.levels) - 1)
        started = rng.randint(1, groups)
        problem = attrs.evolve(
            whole,
            members=started * unit,
            roles=in_pieces(whole.roles[0], [unit] * groups, parts=True),
            parts=tuple(SubGroupMinimum(least=unit, level=level) for _ in range(groups)),
            parts_least=started,
        )
        assert as_identical_members(problem) is not None
        best = least(problem)
        answer = place_gang(problem, QUICK)
        assert not answer.faults
        assert tuple(term.value for term in answer.terms) == (best or ())
        assert answer.outcome is (
            SearchOutcome.INFEASIBLE if best is None else SearchOutcome.OPTIMAL
        )
        outcomes.append(answer.outcome)
    assert outcomes.count(SearchOutcome.OPTIMAL) > 150
    assert outcomes.count(SearchOutcome.INFEASIBLE) > 100
