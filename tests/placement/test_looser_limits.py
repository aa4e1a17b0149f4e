"""What is told of limits that became looser covers every bundle that may go now and could not before."""

from __future__ import annotations

import random

import pytest

from gpusched.placement.victims.loss_limits import (
    BundleLoss,
    LossLimits,
    LossRight,
    looser_parts,
    lost_amounts,
    may_go_next,
)

ACCOUNTS, COLUMNS = 4, 2


def limits(rng: random.Random, like: LossLimits | None = None) -> LossLimits:
    """Limits with small amounts; about the same accounts as others."""

    def amount() -> int:
        return rng.randrange(-2, 9)

    def over() -> tuple[int, ...]:
        return tuple(amount() for _ in range(COLUMNS))

    def some() -> list[int]:
        return sorted(rng.sample(range(ACCOUNTS), rng.randrange(ACCOUNTS)))

    if like is None:
        like = LossLimits(
            most=tuple((account, rng.randrange(COLUMNS), 0) for account in some()),
            sides=tuple(
                tuple(
                    LossRight(
                        frees=tuple((account, rng.randrange(COLUMNS), 0) for account in some()),
                        above=tuple((account, over()) for account in some()),
                    )
                    for _ in range(rng.randrange(1, 3))
                )
                for _ in range(2)
            ),
        )
    keep = rng.random()  # how much of it stays as it is

    def changed(old: int) -> int:
        return old if rng.random() < keep else amount()

    return LossLimits(
        most=tuple((account, column, changed(old)) for account, column, old in like.most),
        sides=tuple(
            tuple(
                LossRight(
                    frees=tuple((a, column, changed(old)) for a, column, old in right.frees),
                    above=tuple((a, tuple(map(changed, olds))) for a, olds in right.above),
                )
                for right in rights
            )
            for rights in like.sides
        ),
    )


def loss(rng: random.Random) -> BundleLoss:
    """What a bundle of some side takes from some accounts, its last step all or half of it."""
    taken = tuple(rng.randrange(3) for _ in range(COLUMNS))
    last = tuple(rng.choice((amount, amount // 2)) for amount in taken)
    accounts = tuple(rng.sample(range(ACCOUNTS), rng.randrange(1, ACCOUNTS)))
    judged = tuple(column for column in range(COLUMNS) if taken[column])
    return BundleLoss(rng.randrange(-1, 2), 0, accounts, judged, taken, last)


@pytest.mark.parametrize("seed", range(8))
def test_only_bundles_of_looser_parts_may_go_that_could_not(seed: int) -> None:
    """Given limits before and after, and what is lost on a node, then who may go now is in these parts."""
    rng = random.Random(seed)
    found = narrow = 0
    for _ in range(1500):
        before = limits(rng)
        after = limits(rng, like=before)
        on_node = [loss(rng) for _ in range(rng.randrange(1, 4))]
        reach = [sum(each.taken[column] for each in on_node) for column in range(COLUMNS)]
        parts = looser_parts(after, before, reach)
        assert parts is not None
        *gone, last = on_node
        lost = lost_amounts(gone)
        told = last.side in parts.sides or any(
            (-1, account) in parts.accounts or (last.side, account) in parts.accounts
            for account in last.accounts
        )
        narrow += not told
        if may_go_next(after, lost, last) and not may_go_next(before, lost, last):
            found += 1
            assert told
    assert found
    assert narrow


def test_limits_about_something_else_are_not_compared() -> None:
    """Given another right on a side, then every node is looked at again."""
    one = LossLimits(sides=((LossRight(),),))
    two = LossLimits(sides=((LossRight(), LossRight(above=((1, (3, 3)),))),))
    assert looser_parts(two, one, (9, 9)) is None
