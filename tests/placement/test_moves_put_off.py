"""Moves of single pods are worked out when they may be the cheapest; the choice is as if all were at once."""

from __future__ import annotations

import random

import pytest

from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.loss_limits import BundleLoss, LossLimits, LossRight
from gpusched.placement.victims.model import EvictablePod, VictimBundle, VictimChoice

ROWS, QUEUES = 8, 3


class AtOnce(VictimSearchState):
    """A field in which no move is put off."""

    _plain_rows: dict[int, int] = {}  # noqa: RUF012 - stands in for what is cached


def limits(rng: random.Random) -> LossLimits:
    """What each queue may lose, as a sum and by a right."""
    most = tuple((queue, 0, rng.randrange(4, 30)) for queue in range(QUEUES))
    right = LossRight(above=tuple((queue, (rng.randrange(20), 0)) for queue in range(QUEUES)))
    return LossLimits(most=most, sides=((right,),))


def pods(rng: random.Random) -> tuple[list[EvictablePod], list[VictimBundle]]:
    """Pods of several sizes, costs and ranks on some rows, each a gang of its own."""
    members, bundles = [], []
    orders = rng.sample(range(1000), 40)
    for number, order in enumerate(orders):
        frees = (rng.randrange(1, 5), rng.randrange(1, 7))
        taken = (frees[0], frees[1])
        members.append(
            EvictablePod(rng.randrange(ROWS), frees, rng.choice((0, 3, 3, 7)), (), taken)
        )
        loss = BundleLoss(0, number, (rng.randrange(QUEUES),), (0,), taken, taken)
        rank = (rng.randrange(2), 1)
        bundles.append(VictimBundle((number,), order, number, 5, (), 0, rank, loss))
    return members, bundles


def _as_numbers(choice: VictimChoice | None) -> tuple[object, ...]:
    if choice is None:
        return ()
    return choice.cost, choice.rank, [(pick.bundle, pick.members) for pick in choice.picks]


@pytest.mark.parametrize("ask", [(2, 3), (5, 7)])
@pytest.mark.parametrize("seed", range(6))
def test_moves_that_are_put_off_choose_as_all_at_once(seed: int, ask: tuple[int, int]) -> None:
    """Given claims one after the other while limits change, where one pod makes room or several must leave, then the fields choose the same for each."""
    rng = random.Random(seed)
    found = none = 0
    for _ in range(25):
        members, bundles = pods(rng)
        free = {row: [rng.randrange(3), rng.randrange(3)] for row in range(ROWS)}
        fields = [kind(ask, free, members, bundles) for kind in (VictimSearchState, AtOnce)]
        assert fields[0]._plain_rows
        for _ in range(6):
            now, need = limits(rng), fields[0].room + 1
            if rng.random() < 0.3:  # without limits, so that moves do not change each other
                now, need = LossLimits(), rng.randrange(1, 80)
            for field in fields:
                field.set_loss_limits(now)
            lazy, eager = (field.choose_bundles(need) for field in fields)
            assert _as_numbers(lazy) == _as_numbers(eager)
            if lazy is None:
                none += 1
                continue
            found += bool(lazy.picks)
            left = [m for pick in lazy.picks for m in pick.members]
            for field in fields:
                field.remove_evicted(left)
            for row in sorted({members[m].row for m in left}):
                amounts = [rng.randrange(3), rng.randrange(3)]
                free[row] = amounts
                for field in fields:
                    field.set_free(row, amounts)
    assert found > 40
    assert none
