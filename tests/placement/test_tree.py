"""Members that are all alike get the best place that exists, in every term of the objective."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.placement.model.problem import Effort, SearchOutcome, search_in_process
from gpusched.placement.model.verify import solution_errors
from gpusched.placement.pipeline.certificates import certificate_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.pipeline.solver_placement import place_by_solver
from gpusched.placement.tree.identical_members import IdenticalMembers
from gpusched.placement.tree.search import TreeResult, place_identical_members
from gpusched.placement.tree.table_cache import TableCache
from tests.placement.brute import least
from tests.placement.tiny import tiny

pytestmark = pytest.mark.long

QUICK = Effort(solver=False)


def test_one_role_gets_the_best_of_all_answers() -> None:
    """The objective of the tree is the least that exists; where it says none, there is none."""
    rng = random.Random(11)
    memory = TableCache()
    outcomes = []
    for _ in range(1200):
        problem = tiny(rng)
        best = least(problem)
        answer = place_gang(problem, QUICK, memory=memory)
        outcomes.append(answer.outcome)
        assert not answer.faults
        assert tuple(term.value for term in answer.terms) == (best or ())
        assert answer.outcome is (
            SearchOutcome.INFEASIBLE if best is None else SearchOutcome.OPTIMAL
        )
        if answer.certificate is not None:
            assert not certificate_errors(problem, answer.certificate)
    assert outcomes.count(SearchOutcome.OPTIMAL) > 500
    assert outcomes.count(SearchOutcome.INFEASIBLE) > 200


def test_a_memory_of_other_problems_changes_no_answer() -> None:
    """With tables of hundreds of other problems the same nodes are chosen as with none."""
    rng = random.Random(12)
    memory = TableCache()
    for _ in range(300):
        problem = tiny(rng, parts=True)
        alone = place_gang(problem, QUICK)
        again = place_gang(problem, QUICK, memory=memory)
        assert again.counts.tolist() == alone.counts.tolist()
        assert (again.outcome, again.terms) == (alone.outcome, alone.terms)


@pytest.mark.parametrize("scale", [10**9, 10**14, 10**19 // 40])
def test_terms_too_wide_for_one_int_are_exact_or_left_unproven(scale: int) -> None:
    """Prices of any size: the best of all answers, or a price that is not called proven."""
    rng = random.Random(13)
    proven = []
    for _ in range(150):
        problem = tiny(rng)
        (role,) = problem.roles
        if role.price is None:
            continue
        problem = attrs.evolve(problem, roles=(attrs.evolve(role, price=role.price * scale),))
        best = least(problem)
        answer = place_gang(problem, QUICK)
        assert not answer.faults
        assert (best is None) == (answer.outcome is SearchOutcome.INFEASIBLE)
        if best is not None:
            known = len(answer.proven)
            assert tuple(term.value for term in answer.terms)[:known] == best[:known]
            assert known >= len(best) - 1
            proven.append(known == len(best))
    assert any(proven)
    assert scale > 10**15 or all(proven)


def test_where_tables_would_take_too_long_the_quick_answer_has_true_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without tables a gang of one class that fits still gets a place, and no false proof."""
    monkeypatch.setattr("gpusched.placement.tree.search.WORK_MAX", -100)
    rng = random.Random(14)
    methods = []
    for _ in range(300):
        problem = tiny(rng)
        best = least(problem)
        answer = place_gang(problem, QUICK)
        methods.append(answer.method)
        assert (best is None) == (answer.outcome is SearchOutcome.INFEASIBLE)
        for term, value in zip(answer.terms, best or (), strict=True):
            assert term.bound <= value
            if term.value != value:
                break
    assert methods.count("greedy") > 100


def test_tables_that_lie_cost_their_answer_and_not_the_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong row and a wrong claim are found when they are counted again, and told."""
    problem = next(
        each for each in map(tiny, map(random.Random, range(100))) if least(each) is not None
    )
    true = place_gang(problem, QUICK)

    def wrong_row(
        one: IdenticalMembers, memory: TableCache | None, *, words: int
    ) -> TreeResult | None:
        found = place_identical_members(one, memory, words=words)
        return None if found is None else attrs.evolve(found, row=found.row * 0)

    def wrong_claim(
        one: IdenticalMembers, memory: TableCache | None, *, words: int
    ) -> TreeResult | None:
        found = place_identical_members(one, memory, words=words)
        return None if found is None else attrs.evolve(found, claim=(0,) * len(found.claim))

    for lie in (wrong_row, wrong_claim):
        monkeypatch.setattr(
            "gpusched.placement.pipeline.gang_placement.place_identical_members", lie
        )
        answer = place_gang(problem, QUICK)
        assert answer.faults
        assert answer.faults[0].startswith("tree: ")
        assert answer.method == "greedy"
        assert not solution_errors(problem, answer.counts)
        assert answer.counts.sum() == true.counts.sum()


def test_tables_and_patterns_of_the_solver_agree() -> None:
    """On clusters too large to try everything: what the solver proves is what the tables say."""
    rng = random.Random(15)
    compared = 0
    for _ in range(40):
        problem = tiny(rng, nodes=24, members=20)
        answer = place_gang(problem, QUICK)
        if not answer.counts.size:
            continue
        other = place_by_solver(problem, Effort(budget_s=0.3), search_in_process)
        assert not other.faults
        assert tuple(term.value for term in other.terms) >= tuple(
            term.value for term in answer.terms
        )
        known = len(other.proven)
        assert other.terms[:known] == answer.terms[:known]
        compared += known > 1
    assert compared > 15
