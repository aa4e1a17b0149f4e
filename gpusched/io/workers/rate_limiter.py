"""How fast requests go to the API server, and which go first when they must wait.

The lease has a client of its own and never waits here. Below it, in this order: bindings,
evictions, status, events, which wait for the end of a burst of bindings. The rate is halved when the server says 429 and grows back slowly.
"""

from __future__ import annotations

import asyncio
import heapq
from enum import IntEnum
from typing import Final

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.io.observe.logs import Logger

_log = Logger(__name__)
RATE_MIN: Final = 10.0
"""Requests a second that are left however often the server complains."""
RATE_BURST_S: Final = 0.05
"""Seconds of the full rate that may go out at once: a gang is not spread over time."""
RATE_GROWTH: Final = 0.02
"""Share of the highest rate regained each second: from 10 to 4,000 in 50 s."""
RATE_HALVE_PERIOD_S: Final = 1.0
"""Answers 429 within this time are one complaint, not sixty-four."""
RATE_PAUSE_MAX_S: Final = 60.0
"""A longer Retry-After is not believed."""
BURST_BINDS: Final = 25
"""Bindings within ``BURST_S`` that are a burst, for which events wait."""
BURST_S: Final = 0.25
"""Seconds without so many bindings after which a burst is over."""
EVENT_PATIENCE_S: Final = 30.0
"""Seconds after which an event waits no more for the end of a burst: bindings may come all day."""


class TrafficClass(IntEnum):
    """Kinds of requests, the most urgent first."""

    BIND = 0
    EVICT = 1
    STATUS = 2
    EVENTS = 3


class TokenBucket:
    """A token bucket whose rate falls by halves and grows linearly. Time is passed in.

    Args:
        rate_max: requests a second.
        now: monotonic seconds.
    """

    __slots__ = ("_burst", "_halved_at", "_last", "_paused_until", "_rate", "_rate_max", "_tokens")

    def __init__(self, rate_max: float, now: float) -> None:
        self._rate_max = rate_max
        self._rate = rate_max
        self._burst = max(1.0, rate_max * RATE_BURST_S)
        self._tokens = self._burst
        self._last = now
        self._paused_until = now
        self._halved_at = now - RATE_HALVE_PERIOD_S

    @property
    def rate(self) -> float:
        """Requests a second at the moment."""
        return self._rate

    def use_maximum(self, rate_max: float) -> None:
        """Another highest rate from now on; the rate at the moment is brought down to it."""
        at_most = self._rate == self._rate_max
        self._rate_max = rate_max
        self._rate = rate_max if at_most else min(self._rate, rate_max)

    def take(self, now: float) -> bool:
        """Whether one request may go now; if so it is counted."""
        self._refill(now)
        if self._tokens < 1.0 or now < self._paused_until:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may go; 0 for now."""
        self._refill(now)
        missing = max(0.0, 1.0 - self._tokens) / self._rate
        return max(missing, self._paused_until - now, 0.0)

    def throttled(self, now: float, retry_after_s: float) -> bool:
        """The server said 429: pause as it asks; whether the rate was halved for it."""
        self._refill(now)
        pause_s = min(retry_after_s, RATE_PAUSE_MAX_S)
        self._paused_until = max(self._paused_until, now + pause_s)
        if now - self._halved_at < RATE_HALVE_PERIOD_S:
            return False
        self._halved_at = now
        self._rate = max(min(RATE_MIN, self._rate_max), self._rate / 2)
        self._tokens = min(self._tokens, max(1.0, self._rate * RATE_BURST_S))
        return True

    def _refill(self, now: float) -> None:
        passed = now - self._last
        if passed <= 0.0:
            return
        self._last = now
        if self._rate < self._rate_max:
            self._rate = min(self._rate_max, self._rate + self._rate_max * RATE_GROWTH * passed)
        burst = max(1.0, self._rate * RATE_BURST_S)
        self._tokens = min(burst, self._tokens + passed * self._rate)


class RateLimiter:
    """Gives each request its turn.

    Args:
        clock: monotonic time, that of the event loop.
        rate_max: requests a second.
    """

    def __init__(self, clock: Clock, *, rate_max: float = limits.API_RATE_MAX) -> None:
        self._clock = clock
        self._limit = TokenBucket(rate_max, clock.monotonic())
        self._waiting: list[tuple[TrafficClass, int, float, asyncio.Future[None]]] = []
        self._number = 0
        self._binds_open = 0
        self._counting_since = self._last_burst = float("-inf")
        self._binds_counted = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rate(self) -> float:
        """Requests a second at the moment."""
        return self._limit.rate

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._waiting)

    def use_maximum(self, rate_max: float) -> None:
        """Requests a second at most, from now on."""
        self._limit.use_maximum(rate_max)

    async def turn(self, traffic: TrafficClass) -> None:
        """Wait until one request of this kind may be sent."""
        now = self._clock.monotonic()
        if traffic is TrafficClass.BIND:
            self._count_bind(now)
        goes_first = not self._waiting or traffic < self._waiting[0][0]
        if goes_first and self._held_s(traffic, now, now) <= 0.0 and self._limit.take(now):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        heapq.heappush(self._waiting, (traffic, self._number, now, future))
        self._release_waiting()
        await future

    def _count_bind(self, now: float) -> None:
        if now - self._counting_since > BURST_S:
            self._counting_since, self._binds_counted = now, 0
        self._binds_counted += 1
        if self._binds_counted >= BURST_BINDS:
            self._last_burst = now

    def _held_s(self, traffic: TrafficClass, asked_at: float, now: float) -> float:
        """For how long at most an event gives way to bindings that are open, or to those of a burst, seconds.

        The server takes so many writes a second: each event among the bindings delays one.
        """
        if traffic is not TrafficClass.EVENTS:
            return 0.0
        until = float("inf") if self._binds_open else self._last_burst + BURST_S
        return min(until, asked_at + EVENT_PATIENCE_S) - now

    def binds_open(self, n: int) -> None:
        """So many bindings are decided but not yet answered; events wait until there are none."""
        self._binds_open = n
        if not n and self._waiting:
            self._release_waiting()

    def throttled(self, retry_after_s: float) -> None:
        """The server answered 429, not because of a disruption budget."""
        if self._limit.throttled(self._clock.monotonic(), retry_after_s):
            _log.warning(
                "the API server is busy, sending more slowly",
                per_second=self._limit.rate,
                retry_after_s=retry_after_s,
            )

    def _release_waiting(self) -> None:
        """Let waiting requests go that may, the most urgent first; come back when the next may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        while self._waiting:
            traffic, _, asked_at, future = self._waiting[0]
            if future.done():  # its task was cancelled
                heapq.heappop(self._waiting)
                continue
            held_s = self._held_s(traffic, asked_at, now)
            if held_s > 0.0 or not self._limit.take(now):
                # A little later than computed: rounding must not make a busy loop.
                delay = max(held_s, self._limit.wait_s(now)) + 1e-6
                self._timer = asyncio.get_running_loop().call_later(delay, self._release_waiting)
                return
            heapq.heappop(self._waiting)
            future.set_result(None)
