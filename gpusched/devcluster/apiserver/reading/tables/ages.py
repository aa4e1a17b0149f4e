"""Times as tables show them: ``5s``, ``3m20s``, ``2d``."""

from __future__ import annotations

import datetime as dt
from typing import Any

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 86400 * 365


def seconds_of(timestamp: Any) -> float | None:
    """Seconds since the Unix epoch of an RFC 3339 text; None when it is not one."""
    if not isinstance(timestamp, str):
        return None
    try:
        parsed = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)).timestamp()


_STEPS = (
    (2 * _MINUTE, 1, 0, "s"),
    (10 * _MINUTE, _MINUTE, 1, "ms"),
    (3 * _HOUR, _MINUTE, 0, "m"),
    (8 * _HOUR, _HOUR, _MINUTE, "hm"),
    (2 * _DAY, _HOUR, 0, "h"),
    (8 * _DAY, _DAY, _HOUR, "dh"),
    (2 * _YEAR, _DAY, 0, "d"),
    (8 * _YEAR, _YEAR, _DAY, "yd"),
)
"""Upper bound in seconds: the unit, the finer unit printed beside it (0: none), names."""


def duration_text(duration_s: float) -> str:
    """A duration in the coarser the longer it is; a future beyond a second is ``<invalid>``."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for limit, big, small, units in _STEPS:
        if seconds < limit:
            rest = seconds % big // small if small else 0
            return f"{seconds // big}{units[0]}" + (f"{rest}{units[1]}" if rest else "")
    return f"{seconds // _YEAR}y"


def age_text(timestamp: Any, now: float) -> str:
    """Time since an RFC 3339 text; ``<unknown>`` when there is none.

    Args:
        timestamp: the text.
        now: seconds since the Unix epoch.
    """
    then = seconds_of(timestamp)
    return "<unknown>" if then is None else duration_text(now - then)
