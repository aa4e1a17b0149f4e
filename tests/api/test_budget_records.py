"""Budgets: what is charged, over periods, restarts and clocks that leap."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpusched.api.meta.status import WireBudgetRecord
from gpusched.api.queue.budget import (
    DAY,
    GPU_HOUR,
    MONTH,
    WEEK,
    Budget,
    BudgetRecord,
    GpuHold,
    advance_record,
    format_gpu_hours,
    period_end_at,
    period_start_at,
)
from gpusched.api.queue.decode_limits import decode_budget_record, format_gpu_seconds

NOW = 1_767_225_600  # 2026-01-01T00:00:00Z, a Thursday
HOUR = 3_600
GPU = 10**6

periods = st.sampled_from([DAY, WEEK, MONTH, HOUR, 6 * HOUR])
moments = st.integers(min_value=NOW, max_value=NOW + 90 * 24 * HOUR)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@st.composite
def holds(draw: st.DrawFn) -> list[GpuHold]:
    """Gangs of two users that began and ended within 40 days, or still run."""
    found = []
    for _ in range(draw(st.integers(min_value=0, max_value=6))):
        start = NOW + draw(st.integers(min_value=0, max_value=40 * 24 * HOUR))
        ran = draw(st.integers(min_value=1, max_value=20 * 24 * HOUR))
        end = draw(st.sampled_from([0, start + ran]))
        weight = draw(st.integers(min_value=1, max_value=64)) * GPU // 2
        found.append(GpuHold("q", draw(st.sampled_from(["ann", ""])), weight, start, end))
    return found


@pytest.mark.parametrize(
    ("period", "moment", "start", "end"),
    [
        (DAY, "2026-02-28T23:59:59", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        (WEEK, "2026-01-01T12:00:00", "2025-12-29T00:00:00", "2026-01-05T00:00:00"),
        (MONTH, "2026-12-31T23:59:59", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        (MONTH, "2028-02-29T00:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
        (7_200, "2026-01-01T03:30:00", "2026-01-01T02:00:00", "2026-01-01T04:00:00"),
    ],
)
def test_periods_begin_and_end_by_the_calendar(period, moment, start, end):
    assert period_start_at(period, at(moment)) == at(start)
    assert period_end_at(period, at(moment)) == at(end)


@given(periods, moments)
def test_a_period_ends_where_the_next_one_begins(period, moment):
    start, end = period_start_at(period, moment), period_end_at(period, moment)
    assert start <= moment < end
    assert period_start_at(period, end) == end
    assert period_start_at(period, end - 1) == start


WHOLE_AMOUNT = [GpuHold("q", "ann", 100 * GPU, NOW)]
"""As much as the budget of the test below has for each hour, from its first moment on."""


@example(WHOLE_AMOUNT, [NOW + HOUR], NOW + 1_002 * HOUR, HOUR, 1)
@given(holds(), st.lists(moments, max_size=8), moments, periods, st.integers(0, 100))
def test_however_often_it_is_recorded_the_same_is_charged(held, stops, last, period, rollover):
    """Each restart goes on from the record; none charges a second twice or leaves one out."""
    budget = Budget(amount=100 * GPU_HOUR, period=period, rollover=rollover)
    first = BudgetRecord(as_of=NOW, period_start=period_start_at(period, NOW))
    record = first
    for moment in sorted(each for each in stops if each < last):
        record = advance_record(budget, record, held, moment)
    assert advance_record(budget, record, held, last) == advance_record(budget, first, held, last)


@given(holds(), moments, periods)
def test_the_use_of_a_period_is_what_was_held_in_it(held, last, period):
    """By counting each hold by itself, and the sum of the users is that of the queue."""
    budget = Budget(amount=GPU_HOUR, period=period)
    record = BudgetRecord(as_of=NOW, period_start=period_start_at(period, NOW))
    told = advance_record(budget, record, held, last)
    begin = max(NOW, period_start_at(period, last))
    expected = sum(
        each.weight * max(0, min(each.end or last, last) - max(each.start, begin)) for each in held
    )
    assert told.used == expected == sum(used for _, used in told.users)
    assert told.period_start == period_start_at(period, last)


@given(holds(), moments, moments, periods)
def test_a_clock_that_leaps_and_comes_back_charges_nothing_twice(held, leap, now, period):
    """What was charged too early is not charged again when the time has come."""
    budget = Budget(amount=10**18, period=period)
    first = BudgetRecord(as_of=NOW, period_start=period_start_at(period, NOW))
    leapt = advance_record(budget, first, held, leap)
    back = advance_record(budget, leapt, held, now)
    assert back.period_start >= leapt.period_start
    if now <= leap:
        assert back == leapt
    else:
        assert back == advance_record(budget, first, held, now)


def test_what_is_left_is_carried_over_up_to_the_bound():
    budget = Budget(amount=100 * GPU_HOUR, period=DAY, rollover=30)
    half = BudgetRecord(as_of=NOW, period_start=NOW, used=80 * GPU_HOUR)
    assert advance_record(budget, half, [], NOW + 24 * HOUR).rolled_over == 20 * GPU_HOUR
    little = BudgetRecord(as_of=NOW, period_start=NOW, used=10 * GPU_HOUR)
    assert advance_record(budget, little, [], NOW + 24 * HOUR).rolled_over == 30 * GPU_HOUR
    over = BudgetRecord(as_of=NOW, period_start=NOW, used=130 * GPU_HOUR)
    assert advance_record(budget, over, [], NOW + 24 * HOUR).rolled_over == 0


def test_periods_without_use_carry_all_that_may_be():
    """After one day of use and three of none, the bound is carried, not what the first day left."""
    budget = Budget(amount=100 * GPU_HOUR, period=DAY, rollover=50)
    record = BudgetRecord(as_of=NOW, period_start=NOW, used=90 * GPU_HOUR)
    told = advance_record(budget, record, [], NOW + 4 * 24 * HOUR)
    assert (told.used, told.rolled_over) == (0, 50 * GPU_HOUR)
    assert told.period_start == NOW + 4 * 24 * HOUR


def test_a_period_that_was_changed_keeps_what_the_new_one_holds():
    """From a day to a month the day's use stays; from a month to a day that of other days goes."""
    record = BudgetRecord(as_of=NOW + 60, period_start=NOW, used=7, users=(("ann", 7),))
    month = advance_record(Budget(amount=1, period=MONTH), record, [], NOW + 25 * HOUR)
    assert (month.used, month.users) == (7, (("ann", 7),))
    day = advance_record(Budget(amount=1, period=DAY), record, [], NOW + 25 * HOUR)
    assert (day.used, day.period_start) == (0, NOW + 24 * HOUR)


def test_a_budget_begins_to_count_when_it_is_set():
    """Gangs that run already are charged from then on."""
    budget, held = Budget(amount=1, period=DAY), [GpuHold("q", "ann", GPU, NOW - HOUR)]
    begun = advance_record(budget, BudgetRecord(), held, NOW + 600)
    assert (begun.as_of, begun.used, begun.period_start) == (NOW + 600, 0, NOW)
    assert advance_record(budget, begun, held, NOW + 660).used == 60 * GPU


def test_years_without_a_record_are_counted_in_bounded_time():
    """An hour for a period and a gang that runs for ten years: at most a thousand periods are walked."""
    budget = Budget(amount=GPU_HOUR, period=HOUR)
    record = BudgetRecord(as_of=NOW, period_start=NOW)
    last = NOW + 10 * 365 * 24 * HOUR + 60
    told = advance_record(budget, record, [GpuHold("q", "", GPU, NOW)], last)
    assert (told.period_start, told.used) == (last - 60, 60 * GPU)


@given(st.integers(min_value=0, max_value=10**23))
def test_an_amount_reads_back_as_it_was_written(amount):
    text = format_gpu_seconds(amount)
    record = decode_budget_record(WireBudgetRecord(as_of="2026-01-01T00:00:00Z", gpu_seconds=text))
    assert record.used == amount


def test_hours_for_people_are_never_rounded_up():
    """Ninety-nine hours and all but a second are not a hundred."""
    assert format_gpu_hours(100 * GPU_HOUR - 1) == "99.99"
    assert format_gpu_hours(GPU_HOUR * 3 // 2) == "1.5"
    assert format_gpu_hours(0) == "0"
