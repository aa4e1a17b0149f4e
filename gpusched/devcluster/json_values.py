"""JSON values as JSON compares them."""

from __future__ import annotations

from typing import Any


def equal(a: Any, b: Any) -> bool:
    """JSON equality: unlike in Python, true is not 1 (but 1 is 1.0)."""
    # Python's own comparison is quick and finds nearly every difference.
    return a is b or (bool(a == b) and _same_booleans(a, b))


def _same_booleans(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, dict):
        return all(_same_booleans(inner, b[key]) for key, inner in a.items())
    if isinstance(a, list):
        return all(_same_booleans(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, bool) == isinstance(b, bool)
