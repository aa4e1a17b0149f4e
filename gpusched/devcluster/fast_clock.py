"""A clock that runs faster or slower than real time, for ``--speed``."""

from __future__ import annotations

import asyncio
import time


class FastClock:
    """Real time, times a speed; starts at the real now."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._epoch = time.time()
        self._start = time.monotonic()

    def now(self) -> float:
        """Wall time, ahead of the real one by what speed has gained."""
        return self._epoch + self.monotonic()

    def monotonic(self) -> float:
        """Seconds of this clock since it was made."""
        return (time.monotonic() - self._start) * self._speed

    def boottime(self) -> float:
        """Same as ``monotonic``: this clock does not see suspended time."""
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds of this clock."""
        await asyncio.sleep(seconds / self._speed)
