"""Jobs of several tenants in one line each, served in turn: who has much to do delays only itself."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Job = TypeVar("Job")


class Lines(Generic[Job]):
    """See the module. A line that is empty is forgotten."""

    def __init__(self) -> None:
        self._first: deque[Job] = deque()
        self._lines: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, job: Job, tenant: Hashable) -> None:
        """At the end of its tenant's line; a new line is served after all others."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = deque()
        line.append(job)
        self._count += 1

    def put_first(self, job: Job) -> None:
        """Before everything else."""
        self._first.appendleft(job)
        self._count += 1

    def pop(self) -> Job:
        """The next job of the tenant whose turn it is.

        Raises:
            IndexError: there is none.
        """
        if self._first:
            self._count -= 1
            return self._first.popleft()
        if not self._lines:
            raise IndexError("no job waits")
        tenant, line = next(iter(self._lines.items()))
        job = line.popleft()
        self._count -= 1
        if line:
            self._lines.move_to_end(tenant)
        else:
            del self._lines[tenant]
        return job

    def take_all(self) -> list[Job]:
        """All jobs, line by line; none is left."""
        jobs = [*self._first, *(job for line in self._lines.values() for job in line)]
        self.clear()
        return jobs

    def clear(self) -> None:
        """Forget them all."""
        self._first.clear()
        self._lines.clear()
        self._count = 0
