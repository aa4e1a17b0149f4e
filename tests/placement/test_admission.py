"""A window of gangs: the set that is worth the most, each gang with a place, or the proof of none."""

from __future__ import annotations

import pickle
import random

import attrs
import numpy as np
import pytest

from gpusched.base.errors import SolverFault
from gpusched.placement.admission.admit import admit_batch, best_greedy_order
from gpusched.placement.admission.model import (
    Admission,
    AdmissionBatch,
    AdmissionCandidate,
    AdmissionLimit,
    admission_errors,
)
from gpusched.placement.admission.pools import build_pooled_batch
from gpusched.placement.admission.solver_model import AdmissionJob, PoolSearchResult
from gpusched.placement.model.problem import (
    DomainLevel,
    Effort,
    Problem,
    Role,
    SearchJob,
    SearchOutcome,
    search_in_process,
)
from gpusched.placement.model.role_mixes import RoleMixes
from tests.placement.windows import best_weight, divisible, tiny_window
from tests.populations import one_of

pytestmark = pytest.mark.long

EFFORT = Effort(budget_s=2.0)


def checked(window: AdmissionBatch, answer: Admission) -> None:
    """What holds for every answer."""
    if answer.admitted:
        assert admission_errors(window, answer.admitted, answer.places) == ""
        assert answer.weight == window.total_weight(answer.admitted)
    assert answer.weight <= answer.bound


def racks(*nodes: tuple[int, ...]) -> tuple[np.ndarray, tuple[DomainLevel, ...]]:
    """Free GPUs of the nodes of each rack, and the level."""
    free = np.array([[gpus] for rack in nodes for gpus in rack], dtype=np.int64)
    of_node = [number for number, rack in enumerate(nodes) for _ in rack]
    return free, (DomainLevel(name="rack", domain=np.array(of_node), real=len(nodes)),)


def gang(free, levels, pods: int, gpus: int, *, rack: bool = False) -> Problem:
    """Equal pods, in one rack or anywhere."""
    fits = np.minimum(free[:, 0] // gpus, pods)
    role = Role(request=np.array([gpus]), most=pods, fits=fits, gpus=gpus)
    return Problem(
        free=free, roles=(role,), members=pods, levels=levels, required=0 if rack else -1
    )


def two_racks() -> AdmissionBatch:
    """Two racks with ten free GPUs, gangs of 5 to 2 that fill them in one way only.

    Each order puts the 4 beside the 5, as that is tightest; then the 2 finds no rack.
    """
    free, levels = racks((1,) * 10, (1,) * 10)
    gangs = tuple(
        AdmissionCandidate(problem=gang(free, levels, pods, 1, rack=True), weight=pods)
        for pods in (5, 4, 3, 3, 3, 2)
    )
    return AdmissionBatch(free=free, contenders=gangs)


@pytest.mark.parametrize("seed", one_of(3, range(150)))
def test_the_admitted_weight_is_that_of_trying_everything(seed: int) -> None:
    """Sizes that do not divide each other, filters, quotas, sub-groups, two resources."""
    rng = random.Random(seed)
    window = tiny_window(rng, parts=seed % 3 == 0, must=seed % 5 == 0)
    answer = admit_batch(window, EFFORT)
    checked(window, answer)
    best = best_weight(window)
    if best is None:
        assert answer.outcome is SearchOutcome.INFEASIBLE
    else:
        assert answer.outcome is SearchOutcome.OPTIMAL
        assert answer.weight == best


@pytest.mark.parametrize("seed", one_of(3, range(60)))
def test_pools_alone_are_exact_where_sizes_divide_each_other_and_gpus_alone_bind(
    seed: int,
) -> None:
    """The first set that the solver names is the best; sums of domains never say less."""
    window = divisible(random.Random(seed))
    best = best_weight(window)
    for divided in (True, False):
        job = AdmissionJob(
            pools=build_pooled_batch(window),
            weights=tuple(each.weight for each in window.contenders),
            must=window.required_numbers,
            quotas=window.quotas,
            effort=EFFORT,
            divided=divided,
        )
        answer = job.run()
        if divided:
            assert answer.outcome is (
                SearchOutcome.INFEASIBLE if best is None else SearchOutcome.OPTIMAL
            )
            assert best is None or window.total_weight(answer.admitted) == best
        elif best is not None:
            assert answer.outcome is SearchOutcome.OPTIMAL
            assert window.total_weight(answer.admitted) >= best


@pytest.mark.parametrize("seed", range(0, 150, 7))
def test_the_greedy_orders_never_promise_more_than_they_found(seed: int) -> None:
    """Without the solver: what was found, and no claim that it is the best."""
    window = tiny_window(random.Random(seed))
    answer = admit_batch(window, attrs.evolve(EFFORT, solver=False))
    checked(window, answer)
    best = best_weight(window)
    assert answer.outcome in (SearchOutcome.OPTIMAL, SearchOutcome.FEASIBLE, SearchOutcome.UNKNOWN)
    assert answer.weight <= (best or 0)
    if answer.outcome is SearchOutcome.OPTIMAL:
        assert answer.weight == best


def test_together_all_start_where_in_any_order_one_is_stranded() -> None:
    """Nobody beside the 5 but a 3 and the 2: the solver finds it, greedy orders do not."""
    window = two_racks()
    greedy = best_greedy_order(window)
    assert greedy is not None
    assert window.total_weight([*greedy]) == 18
    answer = admit_batch(window, EFFORT)
    assert answer.outcome is SearchOutcome.OPTIMAL
    assert answer.admitted == (0, 1, 2, 3, 4, 5)
    checked(window, answer)


def test_candidates_that_compete_for_devices_of_nodes_are_not_admitted_together() -> None:
    """What devices one leaves to another is not known: no answer, and no proof."""
    batch = two_racks()
    mixes = [
        RoleMixes(
            roles=((0,),), state=np.zeros(each.problem.nodes, dtype=np.int64), tables=(((9,),),)
        )
        for each in batch.contenders
    ]
    with_mixes = tuple(
        attrs.evolve(each, problem=attrs.evolve(each.problem, mixes=its))
        for each, its in zip(batch.contenders, mixes, strict=True)
    )
    answer = admit_batch(attrs.evolve(batch, contenders=with_mixes), EFFORT)
    assert (answer.outcome, answer.places) == (SearchOutcome.UNKNOWN, ())
    one = attrs.evolve(batch, contenders=(with_mixes[0], *batch.contenders[1:]))
    assert admit_batch(one, EFFORT).outcome is SearchOutcome.OPTIMAL


def test_a_quota_row_is_kept_although_there_is_room() -> None:
    """The row allows 17 pods in all: somebody stays out, and the rest is worth 17."""
    window = attrs.evolve(
        two_racks(), quotas=(AdmissionLimit(amounts=(5, 4, 3, 3, 3, 2), most=17),)
    )
    answer = admit_batch(window, EFFORT)
    assert answer.outcome is SearchOutcome.OPTIMAL
    assert answer.weight == 17
    checked(window, answer)


def test_a_set_that_fits_its_pools_and_no_nodes_is_given_up_with_proof() -> None:
    """Two nodes of 5 hold sums of 3, 3 and 4 and not the pods; no budget is spent in guessing."""
    free, levels = racks((5, 5))
    sizes = ((1, 4), (2, 3))
    contenders = tuple(
        AdmissionCandidate(problem=gang(free, levels, pods, gpus, rack=True), must=True)
        for pods, gpus in sizes
    )
    answer = admit_batch(AdmissionBatch(free=free, contenders=contenders), EFFORT)
    assert answer.outcome is SearchOutcome.INFEASIBLE
    assert answer.admitted == ()


def test_the_job_and_its_answer_go_to_another_process() -> None:
    """Both pickle, and the copy answers the same."""
    window = two_racks()
    sent: list[int] = []

    def elsewhere(job: SearchJob) -> object:
        copied = pickle.dumps(job)
        sent.append(len(copied))
        return pickle.loads(pickle.dumps(pickle.loads(copied).run()))

    there, here = admit_batch(window, EFFORT, search=elsewhere), admit_batch(window, EFFORT)
    assert there.admitted == here.admitted
    assert [each.tolist() for each in there.places] == [each.tolist() for each in here.places]
    assert len(sent) == here.rounds


@pytest.mark.parametrize("answer", [SolverFault("it hung"), "nonsense", "lie"])
def test_a_solver_that_fails_or_lies_costs_its_answer_and_no_more(answer: object) -> None:
    """The best greedy order stands, with the fault told."""
    window = two_racks()

    def broken(job: SearchJob) -> object:
        if isinstance(answer, SolverFault):
            raise answer
        if answer == "nonsense":
            return answer
        assert isinstance(job, AdmissionJob)
        return PoolSearchResult(
            outcome=SearchOutcome.OPTIMAL,
            admitted=tuple(range(6)),
            counts=np.zeros_like(job.pools.caps),
            homes=dict.fromkeys(range(len(job.pools.lumps)), 0),
            bound=99,
        )

    found = admit_batch(window, EFFORT, search=broken)
    checked(window, found)
    assert found.outcome is SearchOutcome.FEASIBLE
    assert (found.weight, found.bound) == (18, 20)
    assert bool(found.faults) is (answer != "lie")


def test_budgets_are_counted_in_deterministic_work() -> None:
    """Sets that find no seats are given up until the work of three searches is done, no longer."""
    asked: list[SearchJob] = []

    def costly(job: SearchJob) -> object:
        asked.append(job)
        answer = search_in_process(job)
        assert isinstance(answer, PoolSearchResult)
        return attrs.evolve(answer, counts=np.zeros_like(answer.counts), work=4.0)

    found = admit_batch(two_racks(), EFFORT, search=costly)
    assert found.outcome is SearchOutcome.FEASIBLE
    assert (len(asked), found.rounds, found.bound) == (2, 1, 20)


@pytest.mark.parametrize("seed", [3, 4, 24, 48])
def test_nodes_and_contenders_in_any_order_are_worth_the_same(seed: int) -> None:
    """Renumbering nodes changes no weight."""
    rng = random.Random(seed)
    window = tiny_window(rng)
    order = list(range(len(window.free)))
    rng.shuffle(order)
    turned = AdmissionBatch(
        free=window.free[order],
        contenders=tuple(
            attrs.evolve(each, problem=_turned(each.problem, order))
            for each in reversed(window.contenders)
        ),
        quotas=tuple(
            attrs.evolve(each, amounts=tuple(reversed(each.amounts))) for each in window.quotas
        ),
    )
    one, other = admit_batch(window, EFFORT), admit_batch(turned, EFFORT)
    assert (one.outcome, one.weight) == (other.outcome, other.weight)


def _turned(problem: Problem, order: list[int]) -> Problem:
    return attrs.evolve(
        problem,
        free=problem.free[order],
        roles=tuple(attrs.evolve(role, fits=role.fits[order]) for role in problem.roles),
        levels=tuple(attrs.evolve(level, domain=level.domain[order]) for level in problem.levels),
    )


def test_the_verifier_of_windows_finds_each_kind_of_trouble() -> None:
    """Over-full nodes, broken quotas, missing musts, torn gangs."""
    window = two_racks()
    good = admit_batch(window, EFFORT)
    piled = [good.places[3], *good.places[1:3], good.places[3], *good.places[4:]]
    twice = (window.contenders[3], *window.contenders[1:])
    same = attrs.evolve(window, contenders=twice)
    assert "over full" in admission_errors(same, good.admitted, piled)
    must = attrs.evolve(
        window, contenders=tuple(attrs.evolve(each, must=True) for each in window.contenders)
    )
    assert admission_errors(must, (0, 1), good.places[:2]) == "contender 2 is missing"
    tight = attrs.evolve(window, quotas=(AdmissionLimit(amounts=(1,) * 6, most=5),))
    assert "quota" in admission_errors(tight, good.admitted, good.places)
    torn = np.zeros_like(good.places[0])
    torn[0, 7:12] = 1
    assert "contender 0: it uses 2 domains" in admission_errors(window, (0,), (torn,))
    assert admission_errors(window, (0, 0), good.places[:2]) != ""
