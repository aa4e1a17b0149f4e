"""One amount among siblings: exact, bounded, the same whatever the order of input."""

from __future__ import annotations

from fractions import Fraction

import attrs
import pytest
from gpusched_plugins.queues.fairshare.division import BEND_ONE, USAGE_ONE, Stake, divide_fairly
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st


def shares(total, stakes, **how):
    """Shares by name; stakes as name to fields, the first the oldest."""
    made = [
        Stake(uid=name, created=float(age), **fields)
        for age, (name, fields) in enumerate(stakes.items())
    ]
    return dict(zip(stakes, divide_fairly(total, made, **how), strict=True))


def queue(wants, deserved=0, weight=1, priority=0, **more):
    """One stake."""
    return {"wants": wants, "deserved": deserved, "weight": weight, "priority": priority, **more}


HALF = USAGE_ONE // 2


@pytest.mark.parametrize(
    ("total", "stakes", "how", "due"),
    [
        pytest.param(
            16,
            {"a": queue(16, 4), "b": queue(16, 4, 3), "c": queue(2, 4)},
            {},
            {"a": 6, "b": 8, "c": 2},
            id="what c leaves of its deserved is divided by weight, the odd unit to the older",
        ),
        pytest.param(
            12,
            {"a": queue(99), "b": queue(99, weight=2), "c": queue(2, weight=3)},
            {},
            {"a": 3, "b": 7, "c": 2},
            id="what a satisfied queue does not need goes round again",
        ),
        pytest.param(
            10,
            {"a": queue(99, usage=HALF), "b": queue(99)},
            {"bend": BEND_ONE},
            {"a": 3, "b": 7},
            id="who used half the cluster of late gets less",
        ),
        pytest.param(
            8,
            {"a": queue(8, 6), "b": queue(8, 6)},
            {},
            {"a": 6, "b": 6},
            id="deserved is not scaled down when it exceeds what there is",
        ),
        pytest.param(
            1,
            {"a": queue(9, priority=5), "b": queue(9, priority=5), "c": queue(9)},
            {},
            {"a": 0, "b": 0, "c": 1},
            id="a lower class takes what an upper class only lost by rounding",
        ),
        pytest.param(
            1,
            {"a": queue(9, priority=5), "b": queue(9, priority=5), "c": queue(9)},
            {"by_class": True},
            {"a": 1, "b": 0, "c": 0},
            id="unless leftovers are dealt class by class",
        ),
        pytest.param(
            10,
            {"a": queue(2, guarantee=4), "b": queue(99)},
            {},
            {"a": 4, "b": 6},
            id="a guarantee is due even when it is not asked for",
        ),
        pytest.param(
            10,
            {"a": queue(99, weight=0), "b": queue(99, weight=0)},
            {},
            {"a": 0, "b": 0},
            id="weights of zero everywhere leave the surplus to nobody",
        ),
        pytest.param(
            2_500_000,
            {"a": queue(9_000_000), "b": queue(9_000_000)},
            {"unit": 1_000_000},
            {"a": 1_500_000, "b": 1_000_000},
            id="memory is dealt in megabytes, and the last piece of one is a piece",
        ),
    ],
)
def test_division(total, stakes, how, due):
    """The numbers."""
    assert shares(total, stakes, **how) == due


TWO = {"1": queue(6, 2, 2), "2": queue(6, 2, 2)}
"""Two queues that deserve two, want six and have weight two."""


def two(**changes):
    """The two queues with some fields changed, each given as a pair."""
    return {
        name: {**fields, **{field: pair[at] for field, pair in changes.items()}}
        for at, (name, fields) in enumerate(TWO.items())
    }


@pytest.mark.parametrize(
    ("total", "stakes", "due", "left"),
    [
        pytest.param(2, {"1": queue(2, 3, 0)}, (2,), 0, id="asks for less than it deserves"),
        pytest.param(3, {"1": queue(2, 3, 0)}, (2,), 1, id="the rest stays"),
        pytest.param(1, {"1": queue(2, 3, 0)}, (2,), 0, id="oversubscribed: still its deserved"),
        pytest.param(7, {"1": queue(5, 3, 0)}, (3,), 4, id="weight 0: never above deserved"),
        pytest.param(2, {"1": queue(2, 0, 0)}, (0,), 2, id="deserves nothing, weight 0"),
        pytest.param(5, {"1": queue(5, 3)}, (5,), 0, id="all the surplus to the only one"),
        pytest.param(6, {"1": queue(5, 3)}, (5,), 1, id="no more than it asks for"),
        pytest.param(6, {"1": queue(5)}, (5,), 1, id="surplus without any deserved"),
        pytest.param(15, TWO, (6, 6), 3, id="plenty for two"),
        pytest.param(12, TWO, (6, 6), 0, id="exactly what two ask for"),
        pytest.param(8, two(weight=(1, 3)), (3, 5), 0, id="by weight"),
        pytest.param(12, two(wants=(5, 6)), (5, 6), 1, id="one is at its limit"),
        pytest.param(
            11, two(weight=(1, 4), wants=(10, 10)), (3, 8), 0, id="the larger fraction rounds up"
        ),
        pytest.param(11, TWO, (6, 5), 0, id="equal fractions: the older rounds up"),
        pytest.param(4, two(priority=(1, 2)), (2, 2), 0, id="priority is not for deserved"),
        pytest.param(6, two(priority=(1, 2)), (2, 4), 0, id="priority is for surplus"),
        pytest.param(
            6, two(priority=(1, 2), weight=(100, 1)), (2, 4), 0, id="and goes before weight"
        ),
        pytest.param(
            5,
            {"1": queue(5, 2, 2, 2), "2": queue(5, 2, 2, 2), "3": queue(0, 1, 2, 1)},
            (3, 2, 0),
            0,
            id="one unit left in the upper of two classes",
        ),
        pytest.param(
            10_000,
            {"1": queue(10_000, 5_000, 5_000), "2": queue(5_000, 0, 0)},
            (10_000, 0),
            0,
            id="who deserves nothing and has no weight loses what it holds",
        ),
        pytest.param(
            10_000,
            {name: queue(wants, 5_000, 5_000) for name, wants in zip("123", (7_000, 2_000, 2_000), strict=True)},
            (6_000, 2_000, 2_000),
            0,
            id="unneeded deserved is lent",
        ),
        pytest.param(
            10_000,
            {name: queue(wants, 5_000, 5_000) for name, wants in zip("123", (7_000, 5_000, 2_000), strict=True)},
            (5_000, 5_000, 2_000),
            0,
            id="nothing is left to lend when deserved is oversubscribed",
        ),
        pytest.param(
            18_000,
            {name: queue(6_000, 5_000, 5_000) for name in "123"},
            (6_000, 6_000, 6_000),
            0,
            id="three get what they ask for",
        ),
    ],
)  # fmt: skip
def test_division_as_by_the_peer(total, stakes, due, left):
    """Cases of KAI's resource division; what is left is what nobody got."""
    found = shares(total, stakes)
    assert tuple(found.values()) == due
    assert max(0, total - sum(due)) == left


def slow(total, stakes, *, bend, by_class):
    """The same by the letter of the rule, in fractions, for units of one."""
    due = [max(each.guarantee, min(each.deserved, each.wants)) for each in stakes]
    left = max(0, total - sum(due))
    lost = {}
    for priority in sorted({each.priority for each in stakes}, reverse=True):
        while left:
            asking = [
                i for i, s in enumerate(stakes) if s.priority == priority and s.wants > due[i]
            ]
            weights = sum(stakes[i].weight for i in asking)
            if not weights:
                break
            k = Fraction(bend, BEND_ONE)
            part = {}
            for i in asking:
                n = Fraction(stakes[i].weight, weights)
                part[i] = max(Fraction(0), n + k * (n - Fraction(stakes[i].usage, USAGE_ONE)))
            whole = sum(part.values())
            if not whole:
                break
            amount, satisfied = left, False
            for i in asking:
                x, need = amount * part[i] / whole, stakes[i].wants - due[i]
                if need <= x:
                    given = need
                    satisfied = satisfied or need < x
                    lost.pop(i, None)
                else:
                    given = int(x)
                    if x != given:
                        lost[i] = x - given
                due[i] += given
                left -= given
            if not satisfied:
                break
        if by_class:
            left = spread(left, stakes, due, lost, [priority])
    spread(left, stakes, due, lost, sorted({each.priority for each in stakes}, reverse=True))
    return due


def spread(left, stakes, due, lost, classes):
    """Leftovers of some classes."""
    for priority in classes:
        those = [i for i in lost if stakes[i].priority == priority]
        for i in sorted(those, key=lambda i: (-lost[i], stakes[i].created, stakes[i].uid)):
            given = min(1, left, stakes[i].wants - due[i])
            due[i] += given
            left -= given
            del lost[i]
    return left


amounts = st.integers(0, 60)


@st.composite
def siblings(draw):
    """Up to eight stakes with contradictions that the tree would refuse, and without."""
    count = draw(st.integers(1, 8))
    return [
        Stake(
            uid=f"q{number}",
            created=float(draw(st.integers(0, 2))),
            guarantee=draw(st.sampled_from([0, 0, 3])),
            deserved=draw(amounts),
            wants=draw(amounts),
            weight=draw(st.integers(0, 5)),
            priority=draw(st.integers(0, 2)),
            usage=draw(st.integers(0, USAGE_ONE)),
        )
        for number in range(count)
    ]


@settings(max_examples=300, deadline=None)
@generated(
    st.integers(0, 200), siblings(), st.sampled_from([0, 1000, 2500]), st.booleans(), st.randoms()
)
def test_shares_are_exact_and_bounded(total, stakes, bend, by_class, chance):
    """Bounds hold, nothing is invented, order does not matter, and the slow way agrees."""
    due = divide_fairly(total, stakes, bend=bend, by_class=by_class)
    firm = [max(each.guarantee, min(each.deserved, each.wants)) for each in stakes]
    assert sum(due) <= max(total, sum(firm))
    for share, least, stake in zip(due, firm, stakes, strict=True):
        assert least <= share <= max(least, stake.wants)
        if not stake.weight:
            assert share == least
    assert due == slow(total, stakes, bend=bend, by_class=by_class)
    shuffled = list(range(len(stakes)))
    chance.shuffle(shuffled)
    again = divide_fairly(total, [stakes[i] for i in shuffled], bend=bend, by_class=by_class)
    assert again == [due[i] for i in shuffled]


@settings(max_examples=150, deadline=None)
@generated(st.integers(0, 200), siblings(), st.integers(1, 30))
def test_more_weight_never_costs_more_than_the_rounding(total, stakes, more):
    """A queue that is made heavier is due as much as before, up to one unit of rounding."""
    before = divide_fairly(total, stakes)[0]
    first, *others = stakes
    heavier = Stake(
        uid=first.uid,
        created=first.created,
        guarantee=first.guarantee,
        deserved=first.deserved,
        wants=first.wants,
        weight=first.weight + more,
        priority=first.priority,
    )
    assert divide_fairly(total, [heavier, *others])[0] >= before - 1


def test_two_hundred_queues_are_divided_in_few_rounds():
    """Every round satisfies somebody or is the last: 200 ever hungrier queues end too."""
    stakes = [Stake(uid=f"q{n:03}", wants=2 ** (n % 40), weight=1 + n % 7) for n in range(200)]
    due = divide_fairly(10**12, stakes, unit=1)
    assert sum(due) == 10**12


@settings(max_examples=150, deadline=None)
@generated(st.integers(0, 60), siblings(), st.integers(1, 9), st.booleans())
def test_where_there_is_enough_everybody_is_due_what_it_wants(spare, stakes, unit, by_class):
    """What ``Shares`` answers without a division, where all weigh something and nothing is bent."""
    weighing = [attrs.evolve(each, weight=each.weight + 1) for each in stakes]
    most = [max(each.guarantee, each.wants) for each in weighing]
    total = sum(most) + spare
    assert divide_fairly(total, weighing, unit=unit, by_class=by_class) == most
