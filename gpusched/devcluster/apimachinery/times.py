"""Times as the API prints them: UTC, whole seconds or microseconds, whatever a client sent."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_SECONDS: Final = "%Y-%m-%dT%H:%M:%SZ"
_MICROS: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


@lru_cache(maxsize=4096)
def printed_time(text: str, *, micro: bool) -> str:
    """Return an RFC 3339 time in canonical form; what is none stays as it is.

    Bodies with unreadable times are refused before this; defaults and stored objects are not.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment.astimezone(UTC).strftime(_MICROS if micro else _SECONDS)


def rfc3339(second: float) -> str:
    """Return a Unix time as text in whole seconds."""
    return datetime.fromtimestamp(int(second), UTC).strftime(_SECONDS)


def rfc3339_micro(second: float) -> str:
    """Return a Unix time as text with microseconds, as Lease and Event times have them."""
    return datetime.fromtimestamp(second, UTC).strftime(_MICROS)


def parse_time(text: str) -> float:
    """Return the Unix time of an RFC 3339 text; ValueError when it is none."""
    return datetime.fromisoformat(text).timestamp()
