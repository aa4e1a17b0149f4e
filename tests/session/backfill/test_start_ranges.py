"""Ranges learned from earlier starts: they hold as often as they say, and say the same for the same counts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.queue.start_errors import (
    RATIO_EDGES,
    STARTS_KEPT_MAX,
    StartErrors,
    StartTally,
    merge_tallies,
    ratio_class,
    read_tally,
)
from gpusched.session.backfill.estimates.start_ranges import (
    KIND_STARTS_MIN,
    STARTS_MIN,
    range_factors,
    start_range,
    tally_quantiles,
)
from gpusched.view.queue_views import start_accuracy_views

RATIOS = st.floats(min_value=0.0, max_value=200.0, allow_nan=False)


def errors(ratios, known_by="Announced"):
    """Starts counted one after the other."""
    found = StartErrors()
    for ratio in ratios:
        found = found.with_start(known_by, ratio, in_range=None)
    return found


@given(st.lists(RATIOS, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_counts_do_not_depend_on_the_order(ratios, shuffle):
    mixed = list(ratios)
    shuffle.shuffle(mixed)
    assert errors(ratios) == errors(mixed)
    assert errors(ratios).tally("Announced").starts == len(ratios)


@given(st.lists(RATIOS, max_size=40), st.lists(RATIOS, max_size=40))
def test_sums_of_tallies_are_the_tally_of_all(some, others):
    both = errors([*some, *others]).tally("Announced")
    apart = (errors(some).tally("Announced"), errors(others).tally("Announced"))
    assert merge_tallies(apart, "Announced") == both
    assert merge_tallies(reversed(apart), "Announced") == both


@given(RATIOS)
def test_a_class_holds_what_is_at_most_its_end(ratio):
    edge = ratio_class(ratio)
    number = RATIO_EDGES.index(edge)
    assert ratio * 100 <= edge + 1e-6 or edge == RATIO_EDGES[-1]
    assert not number or ratio * 100 > RATIO_EDGES[number - 1] - 1e-6


@given(st.lists(RATIOS, min_size=10, max_size=80))
def test_factors_are_in_order_and_within_what_was_seen(ratios):
    low, high = tally_quantiles(errors(ratios).tally("Announced"))
    classes = [ratio_class(each) for each in ratios]
    assert 0 <= low <= high
    assert high * 100 <= max(classes)
    first = RATIO_EDGES.index(min(classes))
    assert low * 100 >= (RATIO_EDGES[first - 1] if first else 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["exact", "late", "wide"])
def test_four_of_five_starts_come_within_ranges_of_starts_like_them(seed, kind):
    """Split conformal prediction: of starts whose order says nothing, 80 % and hardly more are held."""
    draw = random.Random(seed)
    ratio = {
        "exact": lambda: draw.gauss(1.0, 0.05),
        "late": lambda: 1.0 + draw.expovariate(1.0),
        "wide": lambda: draw.lognormvariate(0.0, 1.0),
    }[kind]
    held = count = 0
    for _ in range(150):
        factors = tally_quantiles(errors([ratio() for _ in range(39)]).tally("Announced"))
        for _ in range(10):
            count += 1
            held += factors[0] <= ratio() <= factors[1]
    assert 0.75 <= held / count <= 0.86


def test_many_starts_fade_and_the_summary_stays_small():
    """Given starts without end, then what is long past counts less, and classes are all there is."""
    found = errors([1.0] * 1000)
    assert found.tally("Announced").starts <= STARTS_KEPT_MAX
    for _ in range(1000):
        found = found.with_start("Announced", 2.0, in_range=True)
    tally = found.tally("Announced")
    assert dict(tally.ratios).get(ratio_class(1.0), 0) < tally.starts / 10
    assert 0 < tally.held <= tally.ranged <= tally.starts


def test_small_groups_take_those_of_more():
    """Given too few starts of a kind, of a queue, of all, then wider groups count, and none in the end."""
    few, many = errors([1.0] * (STARTS_MIN - 1)), errors([2.0] * KIND_STARTS_MIN)
    assert range_factors({"a": few}, ("a",), "Announced") is None
    assert range_factors({}, (), "Announced") is None
    assert range_factors({"a": few, "b": many}, ("a",), "Announced")[1] > 1.5
    own = errors([3.0] * STARTS_MIN, "Waiting")
    mixed = StartErrors((*few.tallies, *own.tallies))
    assert range_factors({"a": mixed, "b": many}, ("a",), "Announced")[1] > 2.5
    kind = errors([1.0] * KIND_STARTS_MIN)
    mixed = StartErrors((*kind.tallies, *own.tallies))
    assert range_factors({"a": mixed, "b": many}, ("a",), "Announced")[1] < 1.1


@given(st.floats(0, 1e9), st.floats(1, 1e6), st.floats(0, 5), st.floats(0, 5))
def test_a_range_is_on_a_grid_and_holds_its_factors(now, ahead, low, more):
    factors = (low, low + more)
    earliest, latest = start_range(now, now + ahead, factors)
    assert earliest <= max(now, now + low * ahead)
    assert latest >= now + factors[1] * ahead
    assert earliest % 60 == 0
    assert latest % 60 == 0
    step = max(60.0, ahead / 16)
    assert latest - earliest <= more * ahead + 2 * step + 2


def test_a_liar_makes_ranges_of_those_who_wait_for_it_wide():
    """Given a queue in which half of the authors say a tenth of what they take, then ranges there say so."""
    honest, liars = errors([1.0] * 20), errors([1.0, 10.0] * 10)
    told = {"honest": honest, "liars": liars}
    assert range_factors(told, ("honest",), "Announced")[1] < 1.05
    assert range_factors(told, ("liars",), "Announced")[1] > 8


def test_readers_see_how_many_starts_came_as_told():
    """Given starts around what was told and far from it, then the view tells parts and the median."""
    told = errors([1.0, 0.95, 1.08, 3.0, 0.4]).with_start("Announced", 1.0, in_range=True)
    (seen,) = start_accuracy_views(told)
    assert (seen.known_by, seen.starts, seen.as_told) == ("Announced", 6, 4)
    assert (seen.median_percent, seen.ranged, seen.held) == (100, 1, 1)
    assert start_accuracy_views(StartErrors()) == ()


@pytest.mark.parametrize(
    ("ratios", "ranged", "held", "read"),
    [
        ({"100": 3}, 2, 1, StartTally(known_by="x", ratios=((100, 3),), ranged=2, held=1)),
        ({"100": 10**9}, -4, 7, StartTally(known_by="x", ratios=((100, STARTS_KEPT_MAX),))),
        ({"100": 3}, 2, 9, StartTally(known_by="x", ratios=((100, 3),), ranged=2, held=2)),
        ({"17": 3, "many": 4, "-5": 1, "100": -2}, 1, 1, None),
        ({}, 1, 1, None),
    ],
    ids=["as written", "absurd numbers", "more held than told", "no class of ours", "nothing"],
)
def test_what_a_status_says_is_believed_as_far_as_it_can_be_ours(ratios, ranged, held, read):
    assert read_tally("x", ratios, ranged=ranged, held=held) == read
