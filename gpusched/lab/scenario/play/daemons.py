"""The daemons of a run: started, watched, ended in order, killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import attrs

from gpusched.app import App, AppOptions
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.io.history.told_starts import ComparedStart

T = TypeVar("T")
_LEAVE_S: Final = 10.0
_LOOK_S: Final = 0.1
_OF: Final[ContextVar[_DaemonTask | None]] = ContextVar("process", default=None)


@define(eq=False)
class _DaemonTask:
    """One daemon with everything that it began.

    Attributes:
        begun: its tasks that are not done, in the order they were made.
    """

    app: App
    task: asyncio.Task[None] | None = None
    ending: bool = False
    dead: bool = False
    begun: dict[asyncio.Task[Any], None] = attrs.Factory(dict)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task of its own; a dead process begins nothing."""
        self.begun[task] = None
        task.add_done_callback(lambda done: self.begun.pop(done, None))
        if self.dead:
            task.cancel()

    def kill(self) -> None:
        """Nothing of it goes on."""
        self.ending = self.dead = True
        for task in tuple(self.begun):
            task.cancel()


class Daemons:
    """Daemons in this process, each as one that runs alone.

    While they live the running loop makes its tasks through this object, so that a kill ends
    everything that a daemon began, as the end of a process would.

    Args:
        options: of the so-many-th that is started; each has an identity of its own.

    Attributes:
        sessions: decisions of all of them so far.
        starts: how many were started.
        compared: starts of gangs that waited, beside what they were told, of all of them so far.
    """

    def __init__(self, options: Callable[[int], AppOptions]) -> None:
        self.sessions = 0
        self.starts = 0
        self.compared: list[ComparedStart] = []
        self._options = options
        self._alive: list[_DaemonTask] = []
        self._dead: list[_DaemonTask] = []

    def start(self) -> None:
        """Start one more daemon process."""
        if not self.starts:
            asyncio.get_running_loop().set_task_factory(_make_task)
        app = App(self._options(self.starts))
        app.on_plan.append(lambda _plan: self._count())
        app.on_start_compared.append(self.compared.append)
        process = _DaemonTask(app)
        token = _OF.set(process)
        try:
            process.task = asyncio.create_task(app.run(), name=f"daemon {self.starts}")
        finally:
            _OF.reset(token)
        self.starts += 1
        self._alive.append(process)

    def fault(self) -> str:
        """How one of them broke; empty when none did."""
        for each in self._alive:
            if each.ending or each.task is None or not each.task.done():
                continue
            error = None if each.task.cancelled() else each.task.exception()
            return "it ended by itself" if error is None else _sentence(error)
        return ""

    async def end_leader(self) -> None:
        """End the one that leads, else the first, in order; wait for its end."""
        process = self._leader()
        if process is None or process.task is None:
            return
        process.ending = True
        process.app.stop()
        await asyncio.wait([process.task])
        self._alive.remove(process)
        self._dead.append(process)
        process.task.result()

    def kill_leader(self) -> None:
        """Kill the one that leads, else the first: nothing of it goes on."""
        process = self._leader()
        if process is not None:
            process.kill()
            self._alive.remove(process)
            self._dead.append(process)

    async def leave(self, clock: Clock) -> None:
        """End all in order, so that none holds the Lease any more; for a while at most."""
        for process in self._alive:
            process.ending = True
            process.app.stop()
        until = clock.monotonic() + _LEAVE_S
        tasks = [each.task for each in self._alive if each.task is not None]
        while clock.monotonic() < until and not all(task.done() for task in tasks):
            await clock.sleep(_LOOK_S)

    async def close(self) -> None:
        """Kill all that are left, and wait for their ends."""
        for process in self._alive:
            process.kill()
        every = [task for process in (*self._dead, *self._alive) for task in process.begun]
        await asyncio.gather(*every, return_exceptions=True)
        self._alive.clear()
        if self.starts:
            asyncio.get_running_loop().set_task_factory(None)

    def _count(self) -> None:
        self.sessions += 1

    def _leader(self) -> _DaemonTask | None:
        for each in self._alive:
            if each.app.leadership.leading:
                return each
        return self._alive[0] if self._alive else None


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **how: Any,
) -> asyncio.Task[T]:
    """A task; it belongs to the daemon whose code makes it."""
    task: asyncio.Task[T] = asyncio.Task(coro, loop=loop, **how)
    context = how.get("context")
    process = _OF.get() if context is None else context.get(_OF)
    if process is not None:
        process.adopt(task)
    return task


def _sentence(error: BaseException) -> str:
    """What went wrong; of a group that of its first member."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, GpuschedError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
