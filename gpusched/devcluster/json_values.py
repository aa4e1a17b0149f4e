"""JSON values as JSON compares them."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode


def fingerprint(value: Any) -> bytes:
    """Return 16 bytes that are the same for values with the same text, keys in the same order."""
    return hashlib.blake2b(_encode(value), digest_size=16).digest()


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
