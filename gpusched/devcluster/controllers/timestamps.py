"""Times as the API writes them: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(seconds: float) -> str:
    """The text of a moment given in seconds since the Unix epoch."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> float:
    """Seconds since the Unix epoch of such a text. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
