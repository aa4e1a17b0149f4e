"""Gangs of several roles and of sub-groups: against all answers of tiny problems."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest

from gpusched.base.errors import SolverFault
from gpusched.placement.cpsat import gang_search
from gpusched.placement.cpsat.gang_search import GangSearchJob, GangSearchResult
from gpusched.placement.model.problem import (
    DomainLevel,
    Effort,
    Problem,
    Role,
    SearchJob,
    SearchOutcome,
    Solution,
    SubGroupMinimum,
    search_in_process,
)
from gpusched.placement.model.verify import objective_names, objective_values, solution_errors
from gpusched.placement.pipeline.solver_placement import place_by_solver
from tests.placement.brute import least
from tests.placement.tiny import tiny
from tests.populations import one_of

pytestmark = pytest.mark.long

AMPLE = Effort(budget_s=5.0)


def drawn(seed: int) -> Problem:
    """A tiny problem of up to three roles; every second one has sub-groups."""
    rng = random.Random(seed)
    return tiny(rng, roles=rng.randint(1, 3), members=5, nodes=6, parts=bool(seed % 2))


def solved(problem: Problem) -> Solution:
    return place_by_solver(problem, AMPLE, search_in_process)


def domain_terms(problem: Problem) -> int:
    """How many of the first terms are about domains of the gang."""
    found = objective_names(problem)
    return found.index("parts" if "parts" in found else "span")


def agrees(problem: Problem, *, terms: int | None = None) -> str:
    """What the method says that all answers together do not, empty when nothing."""
    try:
        best = least(problem)
    except ValueError:  # not tiny after all
        return ""
    found = solved(problem)
    if best is None:
        proof = found.certificate
        if (
            found.outcome is not SearchOutcome.INFEASIBLE
            or proof is None
            or proof.room >= proof.needed
        ):
            return f"no proof that there is none: {found.outcome}, {proof}"
        return ""
    if found.faults or not found.counts.size or solution_errors(problem, found.counts):
        return f"missed: {found.outcome}, {found.faults}"
    if len(found.proven) < (
        domain_terms(problem) if terms else objective_names(problem).index("span")
    ):
        return f"only {found.proven} are proven"
    value = objective_values(problem, found.counts)
    if value[:terms] != best[:terms]:
        return f"{value} is not the best, which is {best}"
    return too_high(found, best)


def too_high(found: Solution, best: tuple[int, ...]) -> str:
    """Which bound an answer is below, up to the first term in which the answers differ."""
    for term, least_value in zip(found.terms, best, strict=True):
        if term.bound > least_value:
            return f"{term} has a bound that an answer is below: {best}"
        if term.value != least_value:
            break
    return ""


def test_patterns_find_the_best_answer_of_all_or_prove_that_there_is_none() -> None:
    """Every term, on problems with and without sub-groups, filters, levels and open domains."""
    wrong = {seed: said for seed in one_of(3, range(200)) if (said := agrees(drawn(seed)))}
    assert wrong == {}


def test_the_master_over_racks_equals_it_in_every_term_of_domains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same with the racks chosen first, cut and packed: no answer missed, none worse."""
    monkeypatch.setattr(gang_search, "WHOLE_MAX", 0)
    monkeypatch.setattr(gang_search, "_APART_MAX", 0)
    wrong = {}
    for seed in range(1_000, 1_200):
        problem = drawn(seed)
        if said := agrees(problem, terms=domain_terms(problem)):
            wrong[seed] = said
    assert wrong == {}


def test_members_counted_by_node_where_patterns_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without patterns the same holds for domains: only ties inside nodes are not looked at."""
    monkeypatch.setattr("gpusched.placement.cpsat.patterns.PATTERNS_MAX", 0)
    wrong = {}
    for seed in range(2_000, 2_100):
        problem = drawn(seed)
        if said := agrees(problem, terms=domain_terms(problem)):
            wrong[seed] = said
    assert wrong == {}


def shuffled(problem: Problem, rng: random.Random) -> tuple[Problem, list[int]]:
    """The same nodes in another order."""
    order = list(range(problem.nodes))
    rng.shuffle(order)
    rows = np.array(order)
    return (
        attrs.evolve(
            problem,
            free=problem.free[rows],
            roles=tuple(
                attrs.evolve(
                    role,
                    fits=role.fits[rows],
                    price=None if role.price is None else role.price[rows],
                )
                for role in problem.roles
            ),
            levels=tuple(
                attrs.evolve(level, domain=level.domain[rows]) for level in problem.levels
            ),
            placed=problem.placed[rows] if problem.placed.size else problem.placed,
            states=problem.states[rows],
        ),
        order,
    )


def test_order_of_nodes_changes_nothing_in_what_an_answer_is_worth() -> None:
    """The objective is the same under any order of the nodes."""
    rng = random.Random(5)
    for seed in range(3_000, 3_040):
        problem = drawn(seed)
        other, _ = shuffled(problem, rng)
        first, second = solved(problem), solved(other)
        assert first.outcome is second.outcome, seed
        assert [term.value for term in first.terms] == [term.value for term in second.terms], seed


def test_same_answer_again_and_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    """Nothing depends on the order of sets, on the clock, or on what ran before."""
    problems = [drawn(seed) for seed in range(4_000, 4_040)]
    file = tmp_path / "problems"
    file.write_bytes(pickle.dumps(problems))
    script = (
        "import pickle, sys, hashlib\n"
        "from gpusched.placement.model.problem import Effort, search_in_process\n"
        "from gpusched.placement.pipeline.solver_placement import place_by_solver\n"
        "for problem in pickle.loads(open(sys.argv[1], 'rb').read()):\n"
        "    found = place_by_solver(problem, Effort(budget_s=5.0), search_in_process)\n"
        "    print(found.outcome, hashlib.sha256(found.counts.tobytes()).hexdigest())\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script, str(file)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "77")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == len(problems)


def test_more_budget_is_never_worse() -> None:
    """From none at all to plenty: an answer is kept or bettered, and bounds hold at each."""
    for seed in range(5_000, 5_040):
        problem = drawn(seed)
        try:
            best = least(problem)
        except ValueError:
            continue
        before: tuple[int, ...] | None = None
        for budget in (0.0, 1e-4, 1e-2, 5.0):
            found = place_by_solver(problem, Effort(budget_s=budget), search_in_process)
            if best is None:
                assert found.outcome in (SearchOutcome.INFEASIBLE, SearchOutcome.UNKNOWN), seed
                continue
            assert found.outcome is not SearchOutcome.INFEASIBLE, seed
            value = tuple(term.value for term in found.terms) or None
            assert before is None or (value is not None and value <= before), seed
            before = value or before
        assert before == best, seed


def with_equal_parts(seed: int) -> Problem:
    """Two or three equal sub-groups that may get fewer members than they have."""
    rng = random.Random(seed)
    base = tiny(rng, roles=2, members=6, nodes=4, level=-1)
    count = rng.choice((2, 2, 3))
    width = 1 if count == 3 else 2
    shapes = [attrs.evolve(each, price=None) for each in base.roles[:width]]
    shapes = [attrs.evolve(each, most=min(3, each.most)) for each in shapes]
    roles = [
        attrs.evolve(each, part=part, fits=np.minimum(each.fits, each.most))
        for part in range(count)
        for each in shapes
    ]
    whole = sum(each.most for each in shapes)
    part = SubGroupMinimum(
        least=rng.randint(1, whole),
        level=rng.randint(-1, len(base.levels) - 1),
        preferred=rng.choice((-1, len(base.levels) - 1)),
    )
    minima: tuple[tuple[tuple[int, ...], int], ...] = ()
    draw = rng.random()
    if draw < 0.3:
        minima = tuple(((number,), rng.randint(0, 1)) for number in range(len(roles)))
    elif draw < 0.6:  # of all roles of one shape together
        minima = ((tuple(range(0, len(roles), width)), rng.randint(1, 3)),)
    elif draw < 0.7:
        minima = (((0,), 1),)
    return attrs.evolve(
        base,
        roles=tuple(roles),
        members=rng.randint(1, whole * count),
        minima=minima,
        parts=(part,) * count,
        parts_least=rng.randint(0, count),
        hope=0,
    )


def test_equal_sub_groups_are_counted_and_nothing_is_lost() -> None:
    """What is dealt evenly among equal sub-groups is right for each, and the best of all answers."""
    wrong = {}
    for seed in range(6_000, 6_200):
        if said := agrees(with_equal_parts(seed)):
            wrong[seed] = said
    assert wrong == {}


# -- sub-groups ------------------------------------------------------------------------------
def racks_of(nodes: int, *, each: int, blocks: int) -> tuple[DomainLevel, DomainLevel]:
    rows = np.arange(nodes, dtype=np.int64)
    per_block = nodes // blocks
    return (
        DomainLevel(name="block", domain=rows // per_block, real=blocks),
        DomainLevel(name="rack", domain=rows // each, real=-(-nodes // each)),
    )


def role(free: np.ndarray, gpus: int, cpu: int, most: int, part: int = -1) -> Role:
    ask = np.array([gpus, cpu], dtype=np.int64)
    fits = np.full(len(free), most, dtype=np.int64)
    for column, amount in enumerate(ask.tolist()):
        if amount:
            fits = np.minimum(fits, free[:, column] // amount)
    return Role(request=ask, most=most, fits=fits, gpus=gpus, part=part)


def replicas(free: list[list[int]], *, count: int, level: int) -> Problem:
    """Replicas of two big and three small members, each in one domain of a level."""
    table = np.array(free, dtype=np.int64)
    roles = []
    for part in range(count):
        roles += [role(table, 4, 8, 2, part), role(table, 1, 4, 3, part)]
    return Problem(
        free=table,
        roles=tuple(roles),
        members=5 * count,
        parts=tuple(SubGroupMinimum(least=5, level=level) for _ in range(count)),
        parts_least=count,
        levels=racks_of(len(table), each=2, blocks=2),
    )


def test_replicas_of_two_roles_get_one_rack_each() -> None:
    """Room for a replica is in four of six racks, and not where the greedy looks first."""
    gpus = (8, 3, 8, 2, 4, 8, 4, 7, 8, 8, 1, 1)
    free = [[each, 64] for each in gpus]
    problem = replicas(free, count=4, level=1)
    found = solved(problem)
    assert found.outcome is SearchOutcome.OPTIMAL
    assert solution_errors(problem, found.counts) == ""
    assert dict(zip(objective_names(problem), objective_values(problem, found.counts), strict=True)) == {
        "domains:block": 2, "domains:rack": 4, "span": 0, "nodes": 8, "fragmentation": 0,
        "price": 0,
    }  # fmt: skip


def test_replicas_that_fit_the_sums_but_no_rack_each_are_refused_with_a_proof() -> None:
    """Enough GPUs in all, but every rack is one short of a replica."""
    free = [[8, 64], [2, 64]] * 6
    problem = replicas(free, count=5, level=1)
    found = solved(problem)
    assert found.outcome is SearchOutcome.INFEASIBLE
    assert found.certificate is not None
    assert found.certificate.room < found.certificate.needed == 25


# -- faults ----------------------------------------------------------------------------------
def test_a_solver_that_crashes_costs_what_it_would_have_found_and_no_more() -> None:
    """The answer that was known is given with the bounds of counting, and the fault told."""
    problem = replicas([[8, 64], [3, 64]] * 2, count=1, level=1)
    start = solved(problem).counts

    def crashed(job: SearchJob) -> object:
        raise SolverFault("the solver process ended")

    found = place_by_solver(problem, AMPLE, crashed, start=start)
    assert (found.counts == start).all()
    assert "the solver process ended" in found.faults[0]
    nothing = place_by_solver(problem, AMPLE, crashed)
    assert nothing.outcome is SearchOutcome.UNKNOWN
    assert nothing.faults


def test_a_solver_that_answers_nonsense_is_not_believed() -> None:
    """Counts are counted again; a denial of an answer that is known is a fault."""
    problem = replicas([[8, 64], [3, 64]] * 2, count=1, level=1)
    good = solved(problem)

    def lies(job: SearchJob) -> object:
        answer = search_in_process(job)
        assert isinstance(answer, GangSearchResult)
        assert answer.counts is not None
        return attrs.evolve(answer, counts=answer.counts + 1)

    found = place_by_solver(problem, AMPLE, lies)
    assert found.outcome is SearchOutcome.UNKNOWN
    assert found.faults
    denied = place_by_solver(
        problem,
        AMPLE,
        lambda _: GangSearchResult(outcome=SearchOutcome.INFEASIBLE),
        start=good.counts,
    )
    assert (denied.counts == good.counts).all()
    assert denied.faults
    assert place_by_solver(problem, AMPLE, lambda _: None).outcome is SearchOutcome.UNKNOWN


def test_job_and_answer_travel_between_processes() -> None:
    """Both pickle, and the answer of the copy is the same."""
    job = GangSearchJob(problem=drawn(7), effort=AMPLE)
    copy = pickle.loads(pickle.dumps(job))
    first, second = job.run(), pickle.loads(pickle.dumps(copy.run()))
    assert first.outcome is second.outcome
    assert first.bounds == second.bounds


def test_without_a_solver_nothing_is_searched() -> None:
    """``placement.solver: greedy``: what is known already is the answer."""
    problem = replicas([[8, 64], [3, 64]] * 2, count=1, level=1)

    def never(job: SearchJob) -> object:
        raise AssertionError("the solver was asked")

    assert place_by_solver(problem, Effort(solver=False), never).outcome is SearchOutcome.UNKNOWN


@pytest.mark.parametrize("unit", [1, 3, 2**20 + 7, 2**47 - 1])
def test_amounts_may_be_absurd(unit: int) -> None:
    """The unit of a resource changes nothing: no amount is rounded where patterns are counted."""
    small = replicas([[8, 64], [3, 63], [8, 31], [2, 17]], count=2, level=0)
    scale = np.array([1, unit], dtype=np.int64)
    problem = attrs.evolve(
        small,
        free=small.free * scale,
        roles=tuple(attrs.evolve(each, request=each.request * scale) for each in small.roles),
    )
    first, second = solved(small), solved(problem)
    assert first.outcome is second.outcome
    assert [term.value for term in first.terms] == [term.value for term in second.terms]
