"""Durations as Go writes them (``90s``, ``1h30m``, ``20ms``), exact in integer nanoseconds.

The grammar and the bound are those of the CRDs' own rule: never negative, at most what 64 bits
of nanoseconds hold (292 years), and ``0`` alone needs no unit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

NANOSECONDS: Final = 10**9
"""In one second."""
DURATION_MAX_NS: Final = 2**63 - 1
_LENGTH_MAX: Final = 32
_UNITS_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile("(?P<whole>[0-9]*)(?:[.](?P<part>[0-9]*))?(?P<unit>[num\u00b5\u03bc]?s|m|h)")


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> int:
    """Read a duration as nanoseconds; what is finer than a nanosecond is cut off.

    Raises:
        ValueError: not a duration, negative, or longer than 64 bits hold; ``str()`` says which.
    """
    if text == "0":
        return 0
    shown = repr(text[:_LENGTH_MAX])
    if text.startswith("-"):
        raise ValueError(f"{shown} is negative")
    total = 0
    at = 0
    while at < len(text) <= _LENGTH_MAX:
        match = _PART.match(text, at)
        if match is None or not (match["whole"] or match["part"]):
            break
        total += _nanoseconds(match)
        at = match.end()
    if not text or at != len(text):
        raise ValueError(f"{shown} is not a duration such as 20ms, 90s or 1h30m")
    if total > DURATION_MAX_NS:
        raise ValueError(f"{shown} is longer than 292 years")
    return total


def _nanoseconds(match: re.Match[str]) -> int:
    part = match["part"] or ""
    digits = int((match["whole"] or "") + part)
    divisor: int = 10 ** len(part)
    return digits * _UNITS_NS[match["unit"]] // divisor


def format_duration(nanoseconds: int) -> str:
    """Write a duration the short way: ``0s``, ``20ms``, ``1h30m``, ``1m0.5s`` as ``1m500ms``.

    ``parse_duration`` reads back the same number.
    """
    assert 0 <= nanoseconds <= DURATION_MAX_NS
    parts = []
    rest = nanoseconds
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _UNITS_NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
