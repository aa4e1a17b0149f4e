"""Times as an admin writes them: ``22:00``, ``22:00+01:00``, ``+2h``, ``2026-11-28T22:00:00Z``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.identity import format_time
from gpusched.base.errors import UsageError
from gpusched.base.time_zones import find_time_zone

DAY_S: Final = 86_400.0
_LONG: Final = re.compile(r"([0-9]{1,5})(d|w)")
_LONG_S: Final = {"d": DAY_S, "w": 7 * DAY_S}
_CLOCK: Final = re.compile(
    r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?"
    r"(?:\s*(Z|[+-][0-9]{2}:[0-9]{2}|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+|UTC))?"
)
_OFFSET: Final = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")
_FORMS: Final = "22:00 (local time), 22:00Z, 22:00 Europe/Berlin, +2h, 2026-11-28T22:00:00Z"


def parse_span(text: str, option: str) -> float:
    """A duration in seconds: ``90m``, ``36h``, ``30d``, ``4w``.

    Raises:
        UsageError: it is none.
    """
    long = _LONG.fullmatch(text)
    if long is not None:
        return int(long[1]) * _LONG_S[long[2]]
    try:
        return parse_duration(text) / NANOSECONDS
    except ValueError as error:
        raise UsageError(f"{option}: {error}, 30d or 4w") from None


def parse_moment(text: str, option: str, *, now: float) -> float:
    """A moment, seconds since the Unix epoch; a time of day is the next one after ``now``.

    Args:
        text: as it was typed.
        option: for sentences.
        now: the moment of the cluster.

    Raises:
        UsageError: it is no moment, or one before ``now``.
    """
    text = text.strip()
    if text == "now":
        return now
    if text.startswith("+"):
        return now + parse_span(text[1:], option)
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        return _next_time_of_day(clock, option, now)
    try:
        found = datetime.fromisoformat(text).timestamp()  # without a zone it is local time
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} takes a time such as {_FORMS}, not {text[:40]!r}") from None
    if found < now:
        raise UsageError(
            f"{option} {format_time(found)} has passed: the cluster is of {format_time(now)}"
        )
    return found


def _next_time_of_day(clock: re.Match[str], option: str, now: float) -> float:
    zone = _zone(clock[4], option)
    today = datetime.fromtimestamp(now, zone)
    wanted = today.replace(
        hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0
    )
    if wanted.timestamp() < now:
        wanted += timedelta(days=1)
    return wanted.timestamp()


def _zone(text: str | None, option: str) -> tzinfo | None:
    """The zone that was named; None for the local one."""
    if text is None:
        return None
    if text in ("Z", "UTC"):
        return UTC
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        return datetime.strptime(text, "%z").tzinfo
    try:
        return find_time_zone(text)
    except ValueError as why:
        raise UsageError(f"{option}: {why}") from None
