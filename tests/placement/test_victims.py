"""Victims as ints: the greedy's choice is valid and spare, and the model's is the cheapest there is."""

from __future__ import annotations

import itertools
import pickle
import random

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.placement.model.problem import Effort, SearchOutcome
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.loss_limits import BundleLoss, LossLimits, LossRight
from gpusched.placement.victims.lower_bound import claimants_that_fit_at_most, victim_lower_bound
from gpusched.placement.victims.model import EvictablePod, VictimBundle, VictimChoice
from gpusched.placement.victims.search import find_cheaper_victims
from tests.populations import examples

pytestmark = pytest.mark.long


def cluster(rng: random.Random) -> tuple[VictimSearchState, int]:
    """A small field: gangs over rows, some elastic, with budgets; and how many must fit."""
    rows = rng.randint(1, 4)
    ask = (rng.choice((1, 2, 4)), rng.randint(1, 3))
    free = {row: [rng.randint(0, 3), rng.randint(0, 4)] for row in range(rows)}
    members: list[EvictablePod] = []
    bundles: list[VictimBundle] = []
    limits = [rng.randint(0, 3)]
    for group in range(rng.randint(1, 5)):
        size = rng.randint(1, 3)
        first = len(members)
        for _ in range(size):
            draws = (0,) if rng.random() < 0.2 else ()
            frees = (rng.randint(0, 4), rng.randint(0, 3))
            members.append(EvictablePod(rng.randrange(-1, rows), frees, rng.randint(1, 9), draws))
        spare = rng.randint(0, size - 1)
        if spare:
            limits.append(spare)
            for number in range(first, first + size):
                draws = (len(limits) - 1,)
                bundles.append(VictimBundle((number,), len(bundles), group, draws=draws))
        if size > 2 and rng.random() < 0.5:  # a part of two that leaves as a whole
            limits += [1, spare + 1] if not spare else [1]
            own = len(limits) - (1 if spare else 2)
            total = own - 1 if spare else own + 1
            part = (first, first + 1)
            bundles.append(VictimBundle(part, len(bundles), group, draws=(own, total, total)))
        every = tuple(range(first, first + size))
        bundles.append(VictimBundle(every, len(bundles), group, extra=rng.randint(0, 3)))
    return VictimSearchState(ask, free, members, bundles, limits=limits), rng.randint(1, 5)


def brute(field: VictimSearchState, need: int) -> int | None:
    """The least cost of any valid set of bundles; None when none makes room."""
    best: int | None = None
    numbers = range(len(field.bundles))
    for count in range(len(field.bundles) + 1):
        for chosen in itertools.combinations(numbers, count):
            cost = cost_if_valid(field, chosen, need)
            if cost is not None and (best is None or cost < best):
                best = cost
    return best


def cost_if_valid(field: VictimSearchState, chosen: tuple[int, ...], need: int) -> int | None:
    """Counted from nothing but the definition."""
    gone: list[int] = [m for number in chosen for m in field.bundles[number].members]
    if len(gone) != len(set(gone)):
        return None
    drawn = [limit for number in chosen for limit in field.bundles[number].draws]
    drawn += [limit for m in gone for limit in field.members[m].draws]
    if any(drawn.count(limit) > left for limit, left in enumerate(field.left)):
        return None
    free = {row: list(amounts) for row, amounts in field.free.items()}
    for m in gone:
        member = field.members[m]
        if member.row in free:
            free[member.row] = [a + b for a, b in zip(free[member.row], member.frees, strict=True)]
    fits = sum(
        max(0, min(have // ask for have, ask in zip(each, field.request, strict=True)))
        for each in free.values()
    )
    if fits < need:
        return None
    cost = sum(field.members[m].cost for m in gone)
    return cost + sum(field.bundles[number].extra for number in chosen)


def valid(field: VictimSearchState, choice: VictimChoice, need: int) -> bool:
    """Whether what was chosen makes room, whatever the choice says of itself."""
    free = {row: list(amounts) for row, amounts in field.free.items()}
    for m in {m for pick in choice.picks for m in pick.members}:
        member = field.members[m]
        if member.row in free:
            free[member.row] = [a + b for a, b in zip(free[member.row], member.frees, strict=True)]
    fits = sum(
        max(0, min(have // ask for have, ask in zip(each, field.request, strict=True)))
        for each in free.values()
    )
    return fits >= need


@pytest.mark.parametrize("left", [False, True])
def test_who_has_left_already_frees_nothing_for_a_queue(left):
    """A pod of account 0 may go once account 1 has freed as much: not for a pod of that one which went before, for somebody else."""
    right = LossRight(frees=((1, 0, 1),))
    losses = [
        BundleLoss(side=side, accounts=(account,), judged=(0,), taken=(1,), last=(1,))
        for account, side in enumerate((0, -1))
    ]
    members = [EvictablePod(0, (1,), 9, taken=(1,)), EvictablePod(1, (1,), 1, taken=(1,))]
    bundles = [VictimBundle((m,), m, m, loss=loss) for m, loss in enumerate(losses)]
    field = VictimSearchState((1,), {0: [0], 1: [-1 if left else -9]}, members, bundles)
    field.set_loss_limits(LossLimits(sides=((right,),)))
    if left:
        field.remove_evicted([1])
    found = find_cheaper_victims(field, 1, None, Effort(budget_s=1.0))
    picked = [each.bundle for each in found.choice.picks] if found.choice is not None else None
    assert picked == (None if left else [0, 1])


@settings(max_examples=examples(50, whole=150), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_a_choice_holds_spares_and_is_undone(seed):
    """It makes room, nobody in it could stay, and the field is as it was before."""
    field, need = cluster(random.Random(seed))
    before = ({row: list(free) for row, free in field.free.items()}, list(field.left), field.room)
    choice = field.choose_bundles(need)
    assert (
        {row: list(free) for row, free in field.free.items()},
        list(field.left),
        field.room,
    ) == before
    if choice is None:
        return
    assert valid(field, choice, need)
    for spared in choice.picks:
        rest = tuple(pick for pick in choice.picks if pick is not spared)
        assert not valid(field, VictimChoice(rest, 0, ()), need)


@settings(max_examples=examples(20, whole=60), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_the_model_finds_the_least_cost(seed):
    """Against enumeration: the greedy's cost or a cheaper one that is exactly the least."""
    field, need = cluster(random.Random(seed))
    choice = field.choose_bundles(need)
    best = brute(field, need)
    if choice is None:
        return  # what limits and elastic gangs hide from the greedy is tried one by one elsewhere
    assert best is not None
    assert best <= choice.cost
    answer = find_cheaper_victims(field, need, choice, Effort(budget_s=1.0))
    if answer.outcome is SearchOutcome.INFEASIBLE:
        assert choice.cost == best
    else:
        assert answer.choice is not None
        assert answer.proven
        assert answer.choice.cost == best


@settings(max_examples=examples(20, whole=60), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_a_field_that_was_used_answers_as_a_new_one(seed):
    """After choices, exclusions and changed rows it chooses what a field made afresh would."""
    rng = random.Random(seed)
    used, need = cluster(random.Random(seed))
    other, _ = cluster(random.Random(seed))
    for _ in range(3):
        used.choose_bundles(rng.randint(1, 5))
    row = rng.choice(sorted(used.free))
    amounts = [rng.randint(0, 4), rng.randint(0, 4)]
    used.set_free(row, amounts)
    dropped = rng.randrange(len(used.bundles))
    used.drop_bundles([dropped])
    fresh = VictimSearchState(
        other.request, {**other.free, row: amounts}, other.members, other.bundles, limits=other.left
    )
    fresh.drop_bundles([dropped])
    mine, its = used.choose_bundles(need), fresh.choose_bundles(need)
    assert (mine is None) == (its is None)
    if mine is not None and its is not None:
        assert mine.cost == its.cost


@settings(max_examples=examples(50, whole=150), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_no_choice_costs_less_than_the_bound(seed):
    """Against enumeration; where the bound says that nobody's leaving helps, nothing does."""
    field, need = cluster(random.Random(seed))
    bound, best = victim_lower_bound(field, need), brute(field, need)
    if bound is None:
        assert best is None
        assert claimants_that_fit_at_most(field) < need
    elif best is not None:
        assert bound.cost <= best
        assert claimants_that_fit_at_most(field) >= need


@settings(max_examples=examples(15, whole=40), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_the_model_needs_no_choice_to_start_from(seed):
    """Without an incumbent it finds the least cost, or proves that no choice makes room."""
    field, need = cluster(random.Random(seed))
    answer, best = find_cheaper_victims(field, need, None, Effort(budget_s=1.0)), brute(field, need)
    if best is None:
        assert answer.outcome is SearchOutcome.INFEASIBLE
    else:
        assert answer.choice is not None
        assert answer.choice.cost == best


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_a_model_pickles_and_answers_the_same_elsewhere(seed):
    """What another process is sent is the whole question."""
    field, need = cluster(random.Random(seed))
    asked = []

    def elsewhere(job):
        asked.append(job)
        return pickle.loads(pickle.dumps(job)).run()

    here = find_cheaper_victims(field, need, None, Effort(budget_s=1.0))
    there = find_cheaper_victims(field, need, None, Effort(budget_s=1.0), search=elsewhere)
    assert (here.outcome, here.choice and here.choice.cost) == (
        there.outcome,
        there.choice and there.choice.cost,
    )


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_one_member_is_lost_once_whatever_it_leaves_as(parts):
    """Given the last member of a gang, spare and a sub-group and the gang: it frees its amount once."""
    loss = BundleLoss(side=-1, gang=0, accounts=(0,), taken=(1,), last=(1,))
    bundles = [
        *(VictimBundle((0,), number, 0, loss=loss, part=True) for number in range(parts)),
        VictimBundle((0,), parts, 0, extra=16, loss=loss),
    ]
    field = VictimSearchState((1,), {0: [1]}, [EvictablePod(0, (1,), 5, taken=(1,))], bundles)
    field.loss_limits = LossLimits(frees=((0, 0, 2),))
    answer = find_cheaper_victims(field, 2, None, Effort(budget_s=1.0))
    assert answer.outcome is SearchOutcome.INFEASIBLE


@pytest.mark.parametrize("seed", range(60))
def test_a_bound_looks_at_no_bundle_that_frees_nothing(seed, monkeypatch):
    """Racks share bundles, most of which are in other racks: the bound is what all of them give."""
    rng = random.Random(seed)
    field, need = cluster(rng)
    members, bundles = (
        field.members,
        [
            VictimBundle(
                each.members,
                each.order,
                each.group,
                each.extra,
                each.draws,
                part=len(each.members) < 2,
            )
            for each in field.bundles
        ],
    )
    free = {row: amounts for row, amounts in field.free.items() if rng.random() < 0.6}
    some = VictimSearchState(field.request, free, members, bundles, limits=field.left)
    some.part_cost = 5
    some.drop_bundles(number for number in range(len(bundles)) if rng.random() < 0.2)
    found = victim_lower_bound(some, need), claimants_that_fit_at_most(some)
    monkeypatch.setattr(VictimSearchState, "bundles_on_rows", VictimSearchState.possible_bundles)
    monkeypatch.setattr(
        VictimSearchState,
        "only_parts_up_to",
        lambda self, rank: all(self.bundles[n].part for n in self.bundles_up_to(rank)),
    )
    assert (victim_lower_bound(some, need), claimants_that_fit_at_most(some)) == found
