"""A clock that can be paused, stepped and made faster, for a cluster under observation.

Sleepers stand in one heap of moments, in order of time and then of arrival. A pause
therefore holds every sleep at once, and a step plays them one after the other: each sleeper acts,
and may sleep again, before the next moment comes. Clients outside live in real time meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

from gpusched.devcluster.apimachinery.limits import STEP_TURNS_MAX


class AdjustableClock:
    """Real time, times a rate; starts at the real now.

    Args:
        rate: seconds of this clock in one real second, above 0.
        paused: whether it stands still at first.
        real: tells real seconds that never go back.
        epoch: Unix time at which it starts; the real now when absent.
    """

    def __init__(
        self,
        rate: float = 1.0,
        *,
        paused: bool = False,
        real: Callable[[], float] = time.monotonic,
        epoch: float | None = None,
    ) -> None:
        self._rate = rate
        self._paused = paused
        self._real = real
        self._epoch = time.time() if epoch is None else epoch
        self._base = 0.0
        self._anchor = real()
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sequence = 0
        self._given_up = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()

    @property
    def rate(self) -> float:
        """Seconds of this clock in one real second while it runs."""
        return self._rate

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._paused

    @property
    def sleepers(self) -> int:
        """How many wait on it."""
        return sum(not waiting.done() for _, _, waiting in self._heap)

    def now(self) -> float:
        """Wall time: the real one at the start, plus what has passed here since."""
        return self._epoch + self.monotonic()

    def monotonic(self) -> float:
        """Seconds of this clock since it was made."""
        if self._paused:
            return self._base
        return self._base + (self._real() - self._anchor) * self._rate

    def boottime(self) -> float:
        """Same as ``monotonic``: this clock does not see suspended time."""
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` of this clock."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._heap, (self.monotonic() + seconds, self._sequence, waiting))
        self._arm()
        try:
            await waiting
        finally:
            if waiting.cancelled():
                self._sweep()

    def pause(self) -> None:
        """Stand still; every sleep goes on sleeping."""
        self._base = self.monotonic()
        self._paused = True
        self._arm()

    def resume(self) -> None:
        """Run again, from where it stood."""
        self._move_anchor()
        self._paused = False
        self._arm()

    def set_rate(self, rate: float) -> None:
        """Run at another rate from now on; a paused clock stays paused."""
        self._move_anchor()
        self._rate = rate
        self._arm()

    async def step(self, seconds: float) -> int:
        """Move a paused clock on; return how many sleeps came to their end.

        They end in order, and all that follows from one end is done before the next one.
        """
        async with self._turn:
            target = self._base + seconds
            ended = 0
            await _quiet()
            while self._paused and (due := self._next_due()) is not None and due <= target:
                self._base = max(self._base, due)
                _, _, waiting = heapq.heappop(self._heap)
                waiting.set_result(None)
                ended += 1
                await _quiet()
            if self._paused:
                self._base = max(self._base, target)
            return ended

    def _move_anchor(self) -> None:
        self._base = self.monotonic()
        self._anchor = self._real()

    def _next_due(self) -> float | None:
        while self._heap and self._heap[0][2].done():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _sweep(self) -> None:
        """Drop sleeps that were given up once they are the greater part of the heap."""
        self._given_up += 1
        if 2 * self._given_up > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].done()]
            heapq.heapify(self._heap)
            self._given_up = 0

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self._next_due()
        if due is not None and not self._paused:
            wait = max(0.0, (due - self.monotonic()) / self._rate)
            self._alarm = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self.monotonic()
        while (due := self._next_due()) is not None and due <= now:
            _, _, waiting = heapq.heappop(self._heap)
            waiting.set_result(None)
        self._arm()


async def _quiet() -> None:
    """Give way until no task of this loop has anything left to do at this moment."""
    ready = getattr(asyncio.get_running_loop(), "_ready", ())
    for _ in range(STEP_TURNS_MAX):
        await asyncio.sleep(0)
        if not ready:
            return
