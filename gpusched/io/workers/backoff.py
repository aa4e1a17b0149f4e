"""Waiting longer after each failure in a row."""

from __future__ import annotations

import random

from gpusched.base import limits


class RetryBackoff:
    """0.8 s, doubled at each failure up to 30 s, each shortened at random by up to half.

    Args:
        rng: a stream of its own, so that one component's waits do not shift another's.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures since the last success."""
        return self._failures

    def failed(self) -> float:
        """Note a failure; seconds to wait before the next attempt."""
        # The exponent is capped before the power, or a long outage overflows.
        base = limits.BACKOFF_MIN_S * float(1 << min(self._failures, 10))
        self._failures += 1
        return min(base, limits.BACKOFF_MAX_S) * (1 - self._rng.random() / 2)

    def succeeded(self) -> None:
        """Begin anew with the shortest wait."""
        self._failures = 0
