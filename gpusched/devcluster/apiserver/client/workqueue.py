"""A work queue of keys with due times, as client-go has it: coalescing, no polling.

Controllers add the keys of objects to sync; the stage engine schedules the moment at which a stage
is played. Equal moments come out in the order of their arrival, so that virtual time gives the same
history in every run.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Final, Generic, TypeVar

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError

_log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)
_TURN: Final = 16
"""Keys that are served before other tasks get a turn: a watch is woken once for all of them."""
_RETRY_FIRST_S: Final = 0.5
_RETRY_MAX_S: Final = 60.0


class WorkQueue(Generic[K]):
    """Keys with the moment at which each is due.

    Args:
        clock: its ``monotonic`` measures, its ``sleep`` waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._changed = asyncio.Event()
        self._alarm: asyncio.Task[None] | None = None
        self._rings = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def add(self, key: K) -> None:
        """Make a key due now, unless it is already."""
        self.add_after(key, 0.0)

    def add_after(self, key: K, seconds: float) -> None:
        """Make a key due within ``seconds``; an earlier moment stands."""
        have = self._due.get(key)
        if have is None or have[0] > self._clock.monotonic() + seconds:
            self.schedule(key, seconds)

    def schedule(self, key: K, seconds: float) -> None:
        """Make a key due after ``seconds``, whatever was set for it before."""
        self._sequence += 1
        due = self._clock.monotonic() + max(seconds, 0.0)
        self._due[key] = (due, self._sequence)
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._changed.set()

    def remove(self, key: K) -> None:
        """Remove a key that waits."""
        self._due.pop(key, None)

    async def keys(self) -> AsyncIterator[K]:
        """Yield each key when it is due; never ends. Other tasks get a turn after a few keys."""
        served = 0
        try:
            while True:
                due = self._head()
                if due is None or due > self._clock.monotonic():
                    served = 0
                    await self._pause(due)
                    continue
                _, _, key = heapq.heappop(self._heap)
                del self._due[key]
                yield key
                served += 1
                if served == _TURN:
                    served = 0
                    await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
        finally:
            self._silence()

    def _head(self) -> float | None:
        """When the first key is due, None when there is none."""
        while self._heap:
            due, sequence, key = self._heap[0]
            if self._due.get(key) == (due, sequence):
                return due
            heapq.heappop(self._heap)
        return None

    async def _pause(self, until: float | None) -> None:
        """Wait for a change or a moment; an alarm set for sooner stands and does no harm."""
        self._changed.clear()
        if until is not None and (self._alarm is None or self._rings > until):
            self._silence()
            self._rings = until
            self._alarm = asyncio.ensure_future(self._ring(until - self._clock.monotonic()))
        await self._changed.wait()

    async def _ring(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._alarm = None
        self._changed.set()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


async def serve_queue(queue: WorkQueue[K], sync: Callable[[K], None], *, name: str) -> None:
    """Call ``sync`` for each key that comes due; a refused write is tried again later.

    Never ends. Other exceptions are faults of the controller and come through.
    """
    tries: dict[K, int] = {}
    async for key in queue.keys():
        try:
            sync(key)
        except StatusError as refusal:
            tries[key] = tries.get(key, 0) + 1
            wait = min(_RETRY_FIRST_S * 2 ** (tries[key] - 1), _RETRY_MAX_S)
            _log.warning("%s: %r is tried again in %.1f s: %s", name, key, wait, refusal.message)
            queue.add_after(key, wait)
        else:
            tries.pop(key, None)
