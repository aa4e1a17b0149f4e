"""What happens when: moments of simulated time in order, equal ones in the order they were set."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Act = Callable[[], None]


class Agenda:
    """A heap of moments, seconds since the beginning."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Act, bool]] = []
        self._count = 0
        self.busy = 0
        """How many are to come that are worth waiting for."""

    def at(self, when: float, act: Act, *, aside: bool = False) -> None:
        """Do something at that moment; ``aside`` does not keep the run going."""
        self._count += 1
        self.busy += not aside
        heapq.heappush(self._heap, (when, self._count, act, aside))

    def next(self) -> float | None:
        """When the first one is due; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> tuple[Act, bool]:
        """Take the first one; whether it stands aside."""
        _, _, act, aside = heapq.heappop(self._heap)
        self.busy -= not aside
        return act, aside
