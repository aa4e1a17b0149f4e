"""The one source of time. Decisions never read it: they are given ``now``.

Everything that waits or stamps takes a ``Clock``, so that the whole program can run in
virtual time without a second code path.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

EPOCH: Final = 1_767_225_600.0
"""Wall time at which virtual time begins unless told, seconds since the Unix epoch: 2026-01-01T00:00:00Z."""


class Clock(Protocol):
    """Wall time for display, monotonic time for timeouts, and sleep. Seconds, floats."""

    def now(self) -> float:
        """Seconds since the Unix epoch; may jump, so never subtract two of them for a timeout."""

    def monotonic(self) -> float:
        """Seconds that never go back and stand still while the machine sleeps."""

    def boottime(self) -> float:
        """Like ``monotonic`` but counting suspended time: shows that the process was paused."""

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds of this clock."""


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> float:
        """Seconds since the epoch, by the system's wall clock."""
        return time.time()

    monotonic = staticmethod(time.monotonic)
    """Seconds of the system's monotonic clock; the function itself, as each call of a hook asks twice."""

    def boottime(self) -> float:
        """See ``Clock.boottime``; equals ``monotonic`` where the platform has no such clock."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep so many seconds of real time."""
        await asyncio.sleep(seconds)


class LoopClock:
    """Time as the event loop tells it that runs when the clock is made; virtual when the loop's own time is.

    Args:
        epoch: wall time, in seconds since the Unix epoch, at which the loop's time was 0.

    Attributes:
        monotonic: tells seconds of the event loop's clock; the loop's own method, as each call of a hook asks twice.
    """

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self.monotonic = asyncio.get_running_loop().time

    def now(self) -> float:
        """Wall time: the epoch plus the loop's time."""
        return self._epoch + self.monotonic()

    def boottime(self) -> float:
        """The loop's time: a virtual machine of ours never sleeps."""
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep so many seconds of the loop's time."""
        await asyncio.sleep(seconds)
