"""Roles that compete for the devices of a node, against all answers of tiny problems."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import subprocess
import sys
from itertools import product
from pathlib import Path

import attrs
import numpy as np
import pytest

from gpusched.placement.cpsat import gang_search
from gpusched.placement.cpsat.patterns import build_cell_patterns
from gpusched.placement.greedy import place_greedily
from gpusched.placement.model.problem import Effort, Problem, Role, SearchOutcome
from gpusched.placement.model.role_mixes import RoleMixes
from gpusched.placement.model.verify import objective_names, solution_errors
from gpusched.placement.pipeline.certificates import certificate_errors
from gpusched.placement.pipeline.elastic_placement import EXTRA, place_most_members
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.placement.tree.identical_members import as_identical_members
from tests.placement.brute import answers, vectors
from tests.placement.tiny import tiny

AMPLE = Effort(budget_s=5.0)
QUICK = attrs.evolve(AMPLE, solver=False, tables=False)
QUICK_TABLES = attrs.evolve(AMPLE, solver=False)
PROBLEMS = 150


def drawn(seed: int) -> Problem:
    """A tiny problem of two or three roles on two to four nodes, all or two of which compete."""
    rng = random.Random(f"mixes-{seed}")
    problem = tiny(rng, roles=rng.choice((2, 2, 3)), members=5, nodes=4, parts=rng.random() < 0.3)
    while problem.nodes < 2:
        problem = tiny(rng, roles=len(problem.roles), members=5, nodes=4)
    numbers = range(len(problem.roles))
    places: tuple[tuple[int, ...], ...] = tuple((role,) for role in numbers)
    if len(places) == 3:
        places = rng.choice((places, ((0,), (2,)), ((0, 1), (2,))))
    tables = tuple(_table(rng, len(places)) for _ in range(rng.randint(1, 3)))
    states = [
        rng.randint(-1 if rng.random() < 0.5 else 0, len(tables) - 1) for _ in range(problem.nodes)
    ]
    mixes = RoleMixes(roles=places, state=np.array(states, dtype=np.int64), tables=tables)
    return attrs.evolve(problem, mixes=mixes)


def _table(rng: random.Random, places: int) -> tuple[tuple[int, ...], ...]:
    """Maximal vectors; now and then none at all."""
    found = {tuple(rng.randint(0, 3) for _ in range(places)) for _ in range(rng.randint(0, 3))}
    return tuple(sorted(each for each in found if not any(_below(each, other) for other in found)))


def _below(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def kept(problem: Problem, counts: np.ndarray) -> np.ndarray:
    """Those answers in which each node has members that fit together, all of them listed."""
    assert problem.mixes is not None
    good = np.ones(len(counts), dtype=np.bool_)
    for node, state in enumerate(problem.mixes.state.tolist()):
        if state < 0:
            continue
        places = [counts[:, list(roles), node].sum(axis=1) for roles in problem.mixes.roles]
        allowed = {(0,) * len(places)}
        for vector in problem.mixes.tables[state]:
            allowed |= set(product(*(range(most + 1) for most in vector)))
        held = zip(*(row.tolist() for row in places), strict=True)
        good &= np.array([each in allowed for each in held], dtype=np.bool_)
    return counts[good]


def best(problem: Problem) -> tuple[int, ...] | None:
    """The least objective of all answers in which members fit together."""
    counts = kept(problem, answers(problem))
    if not len(counts):
        return None
    return min(map(tuple, vectors(problem, counts).tolist()))


def disagreement(problem: Problem) -> str:
    """What the methods say that trying all answers does not, empty for nothing."""
    right, answer = best(problem), place_gang(problem, AMPLE)
    if answer.faults:
        return str(answer.faults)
    if right is None:
        proof = answer.certificate
        if answer.outcome is not SearchOutcome.INFEASIBLE or proof is None:
            return f"{answer.outcome} where there is no answer"
        if proof.room >= proof.needed:
            return f"no proof: {proof}"
        counted = proof.kind in ("role", "domain")
        return certificate_errors(problem, proof) if counted else ""
    found = tuple(term.value for term in answer.terms)
    names = objective_names(problem)
    until = max(len(answer.proven), names.index("parts" if "parts" in names else "span"))
    if answer.outcome is SearchOutcome.OPTIMAL:
        until = max(until, names.index("span"))
    if len(answer.proven) < until:  # the master over racks leaves the sub-groups' own term open
        return f"only {answer.proven} are proven"
    return "" if found[:until] == right[:until] else f"{found} instead of {right}"


def disagreements(first: int, count: int = PROBLEMS) -> dict[int, str]:
    """Of so many problems from a number on those that are solved wrongly."""
    said = {seed: disagreement(drawn(seed)) for seed in range(first, first + count)}
    return {seed: each for seed, each in said.items() if each}


def test_drawn_problems_are_both_possible_and_impossible_because_of_mixes() -> None:
    """The problems of this file tell something: each kind is among them often."""
    kinds = []
    for seed in range(PROBLEMS):
        problem = drawn(seed)
        kinds.append((best(problem) is not None, len(answers(problem)) > 0))
    assert min(kinds.count(kind) for kind in ((True, True), (False, True), (False, False))) > 10


def test_members_fit_together_and_nothing_better_is_missed() -> None:
    """Feasibility always, the terms about domains always, and each term that is told as proven."""
    assert disagreements(0) == {}


def test_racks_chosen_first_keep_the_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the master chooses racks and the pattern model packs them."""
    monkeypatch.setattr(gang_search, "WHOLE_MAX", 0)
    monkeypatch.setattr(gang_search, "_APART_MAX", 0)
    assert disagreements(1_000) == {}


def test_members_counted_by_node_keep_the_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where patterns are too many: each node chooses one maximal vector."""
    monkeypatch.setattr("gpusched.placement.cpsat.patterns.PATTERNS_MAX", 0)
    assert disagreements(2_000) == {}


def test_the_quick_method_gives_nothing_that_does_not_fit_together() -> None:
    """What greedy finds keeps the mixes, and it finds most of what there is."""
    possible = found = 0
    for seed in range(3_000, 3_000 + PROBLEMS):
        problem = drawn(seed)
        counts = place_greedily(problem)
        possible += best(problem) is not None
        if counts is not None:
            assert not solution_errors(problem, counts), seed
            assert len(kept(problem, counts[None])) == 1, seed
            found += 1
        quick = place_gang(problem, QUICK)
        assert not quick.faults, seed
    assert 0.7 * possible < found <= possible


def test_the_verifier_agrees_with_the_list_of_all_answers() -> None:
    """An answer is wrong exactly when some node has members that do not fit together."""
    for seed in range(4_000, 4_060):
        problem = drawn(seed)
        every = answers(problem)[:400]
        right = {counts.tobytes() for counts in kept(problem, every)}
        for counts in every:
            assert (not solution_errors(problem, counts)) == (counts.tobytes() in right), seed


def test_the_largest_number_that_fits_together_is_placed() -> None:
    """From none to five members: no larger number has any answer."""
    for seed in range(5_000, 5_080):
        problem = attrs.evolve(
            drawn(seed), members=0, minima=(), hope=0, placed=np.zeros(0, np.int64),
            parts_least=0,
        )  # fmt: skip
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


def halves_and_whole(nodes: int, wholes: int, halves: int, **more: object) -> Problem:
    """Nodes with two GPUs each that are not in their amounts: whole, or in two halves."""
    free = np.full((nodes, 1), 100, dtype=np.int64)
    one = np.ones(1, dtype=np.int64)
    roles = (
        Role(request=one, most=wholes, fits=np.full(nodes, min(2, wholes), dtype=np.int64)),
        Role(request=one, most=halves, fits=np.full(nodes, min(4, halves), dtype=np.int64)),
    )
    mixes = RoleMixes(
        roles=((0,), (1,)),
        state=np.zeros(nodes, dtype=np.int64),
        tables=(((0, 4), (1, 2), (2, 0)),),
    )
    return attrs.evolve(
        Problem(
            free=free,
            roles=roles,
            members=wholes + halves,
            minima=(((0,), wholes), ((1,), halves)),
            mixes=mixes,
        ),
        **more,
    )


def test_whole_and_half_gpus_fill_the_fewest_nodes() -> None:
    """Six whole and eight halves are ten GPUs: five nodes of two."""
    answer = place_gang(halves_and_whole(6, 6, 8), AMPLE)
    assert answer.counts.sum() == 14
    assert (2 * answer.counts[0] + answer.counts[1] <= 4).all()
    assert np.count_nonzero(answer.counts.any(axis=0)) == 5


def test_what_only_mixes_forbid_is_a_proof_of_the_search_and_no_shortage_of_an_amount() -> None:
    """Each role fits alone, together they need one half more than there is."""
    problem = halves_and_whole(3, 4, 5)
    answer = place_gang(problem, AMPLE)
    assert answer.outcome is SearchOutcome.INFEASIBLE
    assert answer.certificate is not None
    assert (answer.certificate.kind, answer.certificate.resource) == ("search", -1)
    assert (answer.certificate.needed, answer.certificate.room) == (9, 8)
    without = place_gang(attrs.evolve(problem, mixes=None), AMPLE)
    assert without.counts.sum() == 9


def replicas(nodes: int, count: int, members: int) -> Problem:
    """Sub-groups that are no different: each has a role with whole GPUs and one with halves."""
    one = np.ones(1, dtype=np.int64)
    kinds = [
        Role(request=one, most=members, fits=np.full(nodes, min(members, most), dtype=np.int64))
        for most in (1, 2)
    ]
    return Problem(
        free=np.full((nodes, 1), 100, dtype=np.int64),
        roles=(kinds[0],) * count + (kinds[1],) * count,
        members=2 * count * members,
        mixes=RoleMixes(
            roles=(tuple(range(count)), tuple(range(count, 2 * count))),
            state=np.zeros(nodes, dtype=np.int64),
            tables=(((0, 2), (1, 0)),),
        ),
    )


def test_equal_roles_of_one_place_are_one_kind_of_members() -> None:
    """Forty roles of sub-groups are two kinds: no more patterns than for two roles."""
    problem = replicas(90, 20, 3)
    cells = build_cell_patterns(problem)
    assert [len(kind.roles) for kind in cells.kinds] == [20, 20]
    assert cells.patterns is not None
    assert sorted(cells.patterns.tolist()) == [[0, 0], [0, 1], [0, 2], [1, 0]]
    answer = place_gang(problem, AMPLE)
    assert answer.counts.sum() == 120
    assert np.count_nonzero(answer.counts.any(axis=0)) == 90


def test_roles_that_ask_for_the_same_amounts_and_compete_are_not_alike() -> None:
    """The tables of equal members know nothing of devices: they leave it to others."""
    problem = replicas(3, 1, 1)
    assert as_identical_members(problem) is None
    assert as_identical_members(attrs.evolve(problem, mixes=None)) is not None
    answer = place_gang(problem, AMPLE)
    assert not answer.faults
    assert np.count_nonzero(answer.counts.any(axis=0)) == 2


@pytest.mark.parametrize(("poor", "method"), [(0, "greedy"), (2, "tree")])
def test_a_launcher_that_competes_goes_where_workers_leave_devices(poor: int, method: str) -> None:
    """One node has no device left for the launcher beside its workers; tables may choose it."""
    free = np.array([[8, 9], [8, 9], [8, 9]], dtype=np.int64)
    worker, launcher = (
        Role(request=np.array(ask), most=most, fits=np.full(3, most, dtype=np.int64), gpus=ask[0])
        for ask, most in (([4, 1], 2), ([0, 1], 1))
    )
    problem = Problem(
        free=free,
        roles=(worker, launcher),
        members=3,
        minima=(((0,), 2), ((1,), 1)),
        mixes=RoleMixes(
            roles=((0,), (1,)),
            state=np.where(np.arange(3) == poor, 0, 1).astype(np.int64),
            tables=(((0, 1), (2, 0)), ((2, 1),)),
        ),
    )
    answer = place_gang(problem, QUICK_TABLES)
    assert (answer.method, answer.outcome) == (method, SearchOutcome.OPTIMAL)
    assert not answer.counts[:, poor].all()
    if method == "tree":
        assert "nodes" in answer.proven
        assert np.count_nonzero(answer.counts.any(axis=0)) == 1


def test_same_answer_again_and_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    """A problem with mixes pickles, and its answer depends on nothing else."""
    problems = [drawn(seed) for seed in range(6_000, 6_030)]
    file = tmp_path / "problems"
    file.write_bytes(pickle.dumps(problems))
    script = (
        "import pickle, sys, hashlib\n"
        "from gpusched.placement.model.problem import Effort\n"
        "from gpusched.placement.pipeline.gang_placement import place_gang\n"
        "for problem in pickle.loads(open(sys.argv[1], 'rb').read()):\n"
        "    found = place_gang(problem, Effort(budget_s=5.0))\n"
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
    here = [place_gang(problem, AMPLE) for problem in problems]
    told = "".join(
        f"{each.outcome} {hashlib.sha256(each.counts.tobytes()).hexdigest()}\n" for each in here
    )
    assert outputs == [told, told]
