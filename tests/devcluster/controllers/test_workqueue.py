"""The queue of due keys: order, coalescing, replacement."""

from __future__ import annotations

import asyncio
from typing import Any

from gpusched.devcluster.apimachinery.status import failure
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue

from .conftest import ManualClock


class Taken:
    """Takes keys out of a queue in the background and notes when."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock)
        self.seen: list[tuple[float, str]] = []
        self.refuse = 0
        self._task = asyncio.create_task(serve_queue(self.queue, self._take, name="test"))

    def _take(self, key: str) -> None:
        self.seen.append((self.clock.monotonic(), key))
        if self.refuse:
            self.refuse -= 1
            raise failure(409, "Conflict", "later")

    async def after(self, seconds: float) -> list[tuple[float, str]]:
        """What was taken once so many seconds have passed."""
        await self.clock.advance(seconds)
        self._task.cancel()
        outcome: list[Any] = await asyncio.gather(self._task, return_exceptions=True)
        assert isinstance(outcome[0], asyncio.CancelledError), outcome
        return self.seen


async def test_equal_moments_keep_their_order() -> None:
    """Keys due together come in the order in which they were put."""
    taken = Taken()
    for key in "cab":
        taken.queue.schedule(key, 1)
    taken.queue.add("z")
    assert await taken.after(2) == [(0, "z"), (1, "c"), (1, "a"), (1, "b")]


async def test_keys_coalesce() -> None:
    """A key put many times is taken once, at its earliest moment."""
    taken = Taken()
    for seconds in (5, 3, 4):
        taken.queue.add_after("a", seconds)
    assert len(taken.queue) == 1
    assert await taken.after(10) == [(3, "a")]


async def test_a_moment_can_be_moved_and_dropped() -> None:
    """``at`` replaces what was set before, ``drop`` forgets it."""
    taken = Taken()
    taken.queue.schedule("a", 1)
    taken.queue.schedule("a", 4)
    taken.queue.schedule("b", 1)
    taken.queue.remove("b")
    assert "b" not in taken.queue
    assert await taken.after(10) == [(4, "a")]


async def test_an_earlier_key_wakes_the_queue() -> None:
    """A key that comes while the queue waits for a later one is not late."""
    taken = Taken()
    taken.queue.schedule("late", 10)
    await taken.clock.advance(1)
    taken.queue.schedule("early", 1)
    assert await taken.after(20) == [(2, "early"), (10, "late")]


async def test_refused_writes_are_tried_again() -> None:
    """A key whose write was refused comes again, after longer and longer waits."""
    taken = Taken()
    taken.refuse = 2
    taken.queue.add("a")
    assert await taken.after(10) == [(0, "a"), (0.5, "a"), (1.5, "a")]
