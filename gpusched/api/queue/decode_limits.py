"""Limits of users and budgets of a Queue: from the wire to the entity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.fields import parse_resources, quoted
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.api.meta.status import WireBudgetRecord
from gpusched.api.queue.budget import (
    CALENDAR,
    GPU_HOUR,
    GPU_SECOND,
    MONTH,
    NO_BUDGET_RECORD,
    PERIOD_S_MAX,
    PERIOD_S_MIN,
    Budget,
    BudgetRecord,
)
from gpusched.api.queue.user_limits import NO_USER_LIMIT, NO_USER_LIMITS, UserLimit, UserLimits
from gpusched.api.queue.wire import WireBudget, WireUserLimit, WireUserLimits

_FIELD: Final = "spec.budget"
_PERCENT_MAX: Final = 100
_GPU_SECONDS: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?")


def decode_user_limits(limits: WireUserLimits | None) -> UserLimits:
    """Limits by user and group.

    Raises:
        InvalidObject: an amount cannot be read, or a name is empty or there twice.
    """
    if limits is None:
        return NO_USER_LIMITS
    return UserLimits(
        per_user=_user_limit(limits.per_user, field="perUser"),
        users=_named_limits(limits.users, field="users"),
        groups=_named_limits(limits.groups, field="groups"),
    )


def _named_limits(limits: Iterable[WireUserLimit] | None, *, field: str) -> Mapping[str, UserLimit]:
    found: dict[str, UserLimit] = {}
    for each in limits or ():
        if not each.name or each.name in found:
            where = f"spec.userLimits.{field}[].name"
            raise InvalidObject(where, f"{quoted(each.name)} is empty or there twice")
        found[each.name] = _user_limit(each, field=f"{field}[]")
    return MappingProxyType(dict(sorted(found.items())))


def _user_limit(limit: WireUserLimit | None, *, field: str) -> UserLimit:
    if limit is None:
        return NO_USER_LIMIT
    return UserLimit(
        resources=parse_resources(limit.resources, field=f"spec.userLimits.{field}.resources"),
        max_running=limit.max_running,
        max_pending=limit.max_pending,
    )


def decode_budget(budget: WireBudget | None) -> Budget | None:
    """A budget of GPU-hours.

    Raises:
        InvalidObject: an amount, a percentage or the period is none.
    """
    if budget is None:
        return None
    per_user = budget.gpu_hours_per_user
    warn = 80 if budget.warn_percent is None else budget.warn_percent
    return Budget(
        amount=_gpu_hours(budget.gpu_hours, field="gpuHours"),
        per_user=None if per_user is None else _gpu_hours(per_user, field="gpuHoursPerUser"),
        period=_period(budget.period),
        rollover=_percent(budget.rollover_percent or 0, field="rolloverPercent"),
        warn_at=_percent(warn, field="warnPercent"),
        on_exhausted=budget.on_exhausted or "Hold",
    )


def _gpu_hours(amount: str | float, *, field: str) -> int:
    try:
        return parse_quantity(str(amount), power=3) * (GPU_HOUR // 1000)
    except QuantityError as why:
        raise InvalidObject(f"{_FIELD}.{field}", str(why)) from None


def _percent(number: int, *, field: str) -> int:
    if number > _PERCENT_MAX:
        raise InvalidObject(f"{_FIELD}.{field}", f"{number} is more than 100 percent")
    return number


def _period(text: str | None) -> str | int:
    if text is None or text in CALENDAR:
        return text or MONTH
    try:
        seconds, rest = divmod(parse_duration(text), NANOSECONDS)
    except ValueError as why:
        told = f"{why}; it is {', '.join(CALENDAR)} or a duration"
        raise InvalidObject(f"{_FIELD}.period", told) from None
    if rest or not PERIOD_S_MIN <= seconds <= PERIOD_S_MAX:
        raise InvalidObject(
            f"{_FIELD}.period", f"{quoted(text)} is not whole seconds from 1h to 8784h"
        )
    return seconds


def decode_budget_record(record: WireBudgetRecord | None) -> BudgetRecord:
    """What was used of a budget, as the status remembers it.

    Raises:
        InvalidObject: a time or an amount of it cannot be read.
    """
    if record is None or not record.as_of:
        return NO_BUDGET_RECORD
    as_of = int(parse_time(record.as_of))
    return BudgetRecord(
        as_of=as_of,
        period_start=min(as_of, int(parse_time(record.period_start or ""))),
        used=_gpu_seconds(record.gpu_seconds),
        rolled_over=_gpu_seconds(record.rolled_over_gpu_seconds),
        users=tuple(
            sorted((each.name, _gpu_seconds(each.gpu_seconds)) for each in record.users or ())
        ),
    )


def _gpu_seconds(text: str) -> int:
    found = _GPU_SECONDS.fullmatch(text)
    if found is None:
        raise InvalidObject("status.budget", f"{quoted(text)} is no number of GPU-seconds")
    return int(found[1]) * GPU_SECOND + int((found[2] or "").ljust(6, "0"))


def format_gpu_seconds(amount: int) -> str:
    """An amount as the status remembers it; ``decode_budget_record`` reads back the same."""
    whole, part = divmod(amount, GPU_SECOND)
    return f"{whole}.{part:06}".rstrip("0").rstrip(".") if part else str(whole)
