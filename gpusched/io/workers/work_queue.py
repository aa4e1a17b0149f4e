"""A queue of jobs and at most so many tasks that work on it.

Tasks are made when there is work and end when there is none: a burst of 5,000 bindings costs
64 tasks, not 5,000, and an idle daemon has none waiting.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from gpusched.base.errors import Fenced
from gpusched.io.observe.logs import Logger

Job = TypeVar("Job")


class FairQueue(Generic[Job]):
    """See the module. A line that is empty is forgotten."""

    def __init__(self) -> None:
        self._first: deque[Job] = deque()
        self._lines: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: Job, tenant: Hashable) -> None:
        """At the end of its tenant's line; a new line is served after all others."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = deque()
        line.append(job)
        self._count += 1

    def add_first(self, job: Job) -> None:
        """Put a job before all others."""
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
        """Drop all jobs that wait."""
        self._first.clear()
        self._lines.clear()
        self._count = 0


_log = Logger(__name__)
OnFault = Callable[[BaseException], None]
OnContained = Callable[[str, BaseException, object], None]
"""Told what failed, how, and about which object."""


def log_contained_fault(stage: str, error: BaseException, about: object) -> None:
    """Log the fault, where no counter is given."""
    _log.dump(f"{stage} failed for {about}", "".join(traceback.format_exception(error)))


class WorkerPool(Generic[Job]):
    """Runs ``work(job)`` for every job put in.

    Args:
        name: of the tasks.
        limit: most tasks at once, asked for whenever there is work.
        work: must return, whatever the job's outcome; what it raises is a fault.
        on_fault: told of a fault; the other tasks go on.
        contained: told of a job's fault, which then stops nothing else.
        tenant: of a job: jobs of several tenants are served in turn; by default all have one tenant.
    """

    def __init__(
        self,
        name: str,
        *,
        limit: Callable[[], int],
        work: Callable[[Job], Awaitable[None]],
        on_fault: OnFault,
        contained: Callable[[Job, Exception], None] | None = None,
        tenant: Callable[[Job], Hashable] = lambda _job: None,
    ) -> None:
        self._tenant = tenant
        self._name = name
        self._limit = limit
        self._work = work
        self._on_fault = on_fault
        self._contained = contained
        self._jobs: FairQueue[Job] = FairQueue()
        self._rescued: deque[Job] = deque()
        """Jobs that waited when the fair queue failed: taken one after another, of any tenant."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a job waits or is being worked on."""
        return bool(self.queued or self._tasks)

    @property
    def queued(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs) + len(self._rescued)

    def add(self, job: Job) -> None:
        """Behind all others of its tenant."""
        if not self._closed:
            self._jobs.add(job, self._tenant(job))
            self._start_worker()

    def add_all(self, jobs: Iterable[Job]) -> None:
        """Behind all others of their tenants, in this order."""
        for job in jobs:
            self.add(job)

    def add_first(self, job: Job) -> None:
        """Put a job before all others."""
        if not self._closed:
            self._jobs.add_first(job)
            self._start_worker()

    async def wait_for_rest(self) -> None:
        """Wait until no job waits and none is being worked on."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self) -> None:
        """Cancel what is under way and forget what waits; later jobs are ignored."""
        self._closed = True
        self._jobs.clear()
        self._rescued.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_worker(self) -> None:
        if len(self._tasks) < self._limit():
            task = asyncio.get_running_loop().create_task(self._shift(), name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _shift(self) -> None:
        while self.queued:
            job = self._next()
            try:
                await self._work(job)
            except Fenced:
                raise
            except Exception as error:
                if self._contained is None:
                    raise
                self._contained(job, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_fault(error)
        if self.queued:
            self._start_worker()

    def _next(self) -> Job:
        """The job whose turn it is; where the lines cannot say, any of those that wait."""
        if not self._rescued:
            try:
                return self._jobs.pop()
            except Exception as error:  # noqa: BLE001 - asked again it would raise again, for ever
                log_contained_fault("queue", error, self._name)
                self._rescued.extend(self._jobs.take_all())
        return self._rescued.popleft()
