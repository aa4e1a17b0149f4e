"""The daemons of a run: started, watched, ended in order, killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs

from gpusched.app import App, AppOptions
from gpusched.errors import GpuschedError


@attrs.define(eq=False)
class _Process:
    app: App
    task: asyncio.Task[None]
    ending: bool = False


class Daemons:
    """Daemons in this process, each as one that runs alone.

    Args:
        options: of the so-many-th that is started; each has an identity of its own.

    Attributes:
        sessions: decisions of all of them so far.
        starts: how many were started.
    """

    def __init__(self, options: Callable[[int], AppOptions]) -> None:
        self.sessions = 0
        self.starts = 0
        self._options = options
        self._alive: list[_Process] = []
        self._dead: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start one more."""
        app = App(self._options(self.starts))
        app.on_plan.append(lambda _plan: self._count())
        task = asyncio.create_task(app.run(), name=f"daemon {self.starts}")
        self.starts += 1
        self._alive.append(_Process(app, task))

    def _count(self) -> None:
        self.sessions += 1

    @property
    def leads(self) -> bool:
        """Whether one of them leads."""
        return any(each.app.leadership.leading for each in self._alive)

    def fault(self) -> str:
        """How one of them broke; empty when none did."""
        for each in self._alive:
            if each.task.done() and not each.ending:
                error = each.task.exception() if not each.task.cancelled() else None
                return _sentence(error) if error is not None else "it ended by itself"
        return ""

    async def end_leader(self) -> None:
        """End the one that leads, else the first, in order; wait for its end."""
        process = self._leader()
        if process is None:
            return
        process.ending = True
        process.app.stop()
        await asyncio.wait([process.task])
        self._alive.remove(process)
        if not process.task.cancelled() and (error := process.task.exception()) is not None:
            raise error

    def kill_leader(self) -> bool:
        """Kill the one that leads, else the first: nothing of it runs on; False when none does."""
        process = self._leader()
        if process is None:
            return False
        process.ending = True
        process.task.cancel()
        self._alive.remove(process)
        self._dead.append(process.task)
        return True

    async def close(self) -> None:
        """Kill all that are left."""
        tasks = [each.task for each in self._alive] + self._dead
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._alive.clear()

    def _leader(self) -> _Process | None:
        for each in self._alive:
            if each.app.leadership.leading:
                return each
        return self._alive[0] if self._alive else None


def _sentence(error: BaseException) -> str:
    """What went wrong; of a group that of its first member."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, GpuschedError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
