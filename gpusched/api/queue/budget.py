"""Budgets of GPU-hours: what a queue may use in a period, and how much of it is used.

Use is counted in whole numbers: GPU-seconds times price, in millionths (thousandths of a GPU times
thousandths of a price, as prices are given by the GPU-hour, for each second).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from gpusched.base.classes import frozen

DAY: Final = "Day"
WEEK: Final = "Week"
MONTH: Final = "Month"
CALENDAR: Final = (DAY, WEEK, MONTH)
HOUR_S: Final = 3_600
GPU_SECOND: Final = 10**6
"""One whole GPU of price 1 for a second."""
GPU_HOUR: Final = HOUR_S * GPU_SECOND
PERIOD_S_MIN: Final = 3_600
PERIOD_S_MAX: Final = 366 * 86_400
PERIODS_MAX: Final = 1_000
"""Periods in a row that are counted one by one after nothing was recorded for so long; equal ones are counted together."""
_MONDAY: Final = 4 * 86_400
"""The first Monday after the epoch, seconds."""
_DAY_S: Final = 86_400
_LAST: Final = 253_402_300_799
"""The end of the year 9999, seconds since the epoch."""

WITHIN_BUDGET: Final = "WithinBudget"
"""The condition of a Queue that tells of its budget, and its reason while all is well."""
BUDGET_WARNING: Final = "BudgetWarning"

OnExhausted = Literal["Hold", "HoldAndDrain"]


@frozen(slots=True, kw_only=True)
class Budget:
    """What a queue and all below it may use in each period.

    Attributes:
        amount: of one period, see the module for the unit.
        per_user: of each user in it; None for no bound.
        period: ``Day``, ``Week`` (from Monday) or ``Month``, by UTC; or seconds, counted from the epoch.
        rollover: percent of the amount that may be carried into the next period where it is left.
        warn_at: percent of what there is in a period from which on a warning is given; 0 for never.
        on_exhausted: ``HoldAndDrain`` also stops what runs.
    """

    amount: int
    per_user: int | None = None
    period: str | int = MONTH
    rollover: int = 0
    warn_at: int = 80
    on_exhausted: OnExhausted = "Hold"


@frozen(slots=True, kw_only=True)
class BudgetRecord:
    """How much of its budget a queue had used at a moment, as its status remembers it.

    Attributes:
        as_of: seconds since the epoch; 0 when nothing was recorded yet.
        period_start: seconds since the epoch, not later than ``as_of``.
        used: in the period up to ``as_of``.
        rolled_over: from the period before.
        users: pairs of user and use, sorted, of those who used any.
    """

    as_of: int = 0
    period_start: int = 0
    used: int = 0
    rolled_over: int = 0
    users: tuple[tuple[str, int], ...] = ()


NO_BUDGET_RECORD: Final = BudgetRecord()


def period_start_at(period: str | int, moment: int) -> int:
    """When the period began in which a moment is; seconds since the epoch, of both."""
    if isinstance(period, int):
        return moment - moment % period
    if period == DAY:
        return moment - moment % _DAY_S
    if period == WEEK:
        return moment - (moment - _MONDAY) % (7 * _DAY_S)
    month = _utc(moment).replace(day=1, hour=0, minute=0, second=0)
    return int(month.timestamp())


def period_end_at(period: str | int, moment: int) -> int:
    """When the period ends in which a moment is, and the next one begins."""
    start = period_start_at(period, moment)
    if isinstance(period, int):
        return start + period
    if period in (DAY, WEEK):
        return start + _DAY_S * (7 if period == WEEK else 1)
    after = _utc(start) + timedelta(days=32)
    return int(after.replace(day=1).timestamp())


def format_gpu_hours(amount: int) -> str:
    """An amount in GPU-hours, for people: two digits behind the point at most, never rounded up."""
    hundredths = amount * 100 // GPU_HOUR
    whole, part = divmod(hundredths, 100)
    return f"{whole}.{part:02}".rstrip("0").rstrip(".") if part else str(whole)


def _utc(moment: int) -> datetime:
    # A month before the last one that can be told, so that the next one can be.
    return datetime.fromtimestamp(max(0, min(moment, _LAST - 40 * _DAY_S)), UTC)


@frozen(slots=True)
class GpuHold:
    """GPUs that a user's gang held in a queue, or holds.

    Attributes:
        queue: that is charged, with those above it.
        user: empty where that is not known.
        weight: thousandths of GPUs times thousandths of their price.
        start, end: seconds since the epoch; ``end`` is 0 while they are held.
    """

    queue: str
    user: str
    weight: int
    start: int
    end: int = 0

    def use_between(self, begin: int, until: int) -> int:
        """Use in a span of time, in millionths of GPU-seconds."""
        last = min(self.end, until) if self.end else until
        return self.weight * max(0, last - max(self.start, begin))


def advance_record(
    budget: Budget, record: BudgetRecord, holds: Sequence[GpuHold], now: int
) -> BudgetRecord:
    """What was used of a budget up to now: what is recorded, and what was held since then.

    Whatever the record, what was held up to its moment is in it and is not counted again. Periods and
    moments never go back, so that a clock which leaps ahead and back again charges no second twice.

    Args:
        budget: as it stands now.
        record: of an earlier moment; one that is empty begins to count now.
        holds: of the queue and all below it that have not ended before the record's moment.
        now: seconds since the epoch.
    """
    if not record.as_of:
        return BudgetRecord(as_of=now, period_start=period_start_at(budget.period, now))
    users, begin = dict(record.users), record.as_of
    start, rolled = record.period_start, record.rolled_over
    used = record.used
    most_kept = budget.amount * budget.rollover // 100
    for count in range(PERIODS_MAX + 1):
        end = period_end_at(budget.period, start)
        if not start < end <= now:
            break
        used += _charge(users, holds, begin, end)
        rolled = min(max(0, budget.amount + rolled - used), most_kept)
        begin, start, used, users = max(begin, end), end, 0, {}
        current = period_start_at(budget.period, now)
        alike, length = _alike_periods(budget.period, start, current, holds)
        if alike:
            left = budget.amount - _charge({}, holds, start, start + length)
            rolled = min(max(0, rolled + alike * left), most_kept)
            start += alike * length
            begin = max(begin, start)
        if start < current and (
            count == PERIODS_MAX or not any(each.use_between(begin, now) for each in holds)
        ):
            begin, start, rolled = max(begin, current), current, most_kept
    used += _charge(users, holds, begin, now)
    return BudgetRecord(
        as_of=max(record.as_of, now),
        period_start=start,
        used=used,
        rolled_over=rolled,
        users=tuple(sorted(users.items())),
    )


def _alike_periods(
    period: str | int, start: int, until: int, holds: Iterable[GpuHold]
) -> tuple[int, int]:
    """How many periods from a start on, up to a moment, have the same use, as no hold begins or ends in them; and the seconds of each.

    None of months, which have no one length: of those a thousand in a row are counted one by one.
    """
    if period == MONTH:
        return 0, 0
    length = period_end_at(period, start) - start
    moments = [moment for each in holds for moment in (each.start, each.end) if moment > start]
    return max(0, min([until, *moments]) - start) // length, length


def _charge(users: dict[str, int], holds: Iterable[GpuHold], begin: int, until: int) -> int:
    """Add what was held in a span to its users; the sum."""
    total = 0
    for each in holds:
        use = each.use_between(begin, until)
        if use:
            users[each.user] = users.get(each.user, 0) + use
            total += use
    return total
