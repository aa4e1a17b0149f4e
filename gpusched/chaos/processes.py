"""Daemons in one loop, each of which can be killed or paused as a process can.

What would have run of a killed one waits until the run is over and the server gone, so that
nothing of it tidies up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import attrs

from gpusched.app import App
from gpusched.simulate.freezing import PROGRAM, FreezingLoop

_BURIAL_S: Final = 30.0
_BURIALS: Final = 5


def _nothing() -> None:
    """Nobody wants to know."""


@attrs.define(eq=False)
class Process:
    """One daemon.

    Attributes:
        number: counted over all that were started.
        app: None until ``start``.
        task: its life.
        frozen: nothing of it runs.
        dead: nothing of it will run again.
        stopped: it was asked to end.
        on_death: called when it dies at a write.
        tasks: those of its tasks that are not done.
    """

    number: int
    app: App | None = None
    task: asyncio.Task[None] | None = None
    frozen: bool = False
    dead: bool = False
    stopped: bool = False
    on_death: Callable[[], None] = _nothing
    tasks: dict[asyncio.Task[Any], None] = attrs.Factory(dict)

    def start(self, app: App) -> None:
        """Begin to live."""
        self.app = app
        token = PROGRAM.set(self)
        try:
            self.task = asyncio.create_task(app.run(), name=f"daemon {self.number}")
        finally:
            PROGRAM.reset(token)

    @property
    def alive(self) -> bool:
        """Whether it runs, or is paused."""
        return not self.dead and self.task is not None and not self.task.done()

    @property
    def leading(self) -> bool:
        """Whether it believes that it leads."""
        return self.alive and self.app is not None and self.app.leadership.leading

    def freeze(self) -> None:
        """Nothing of it runs until ``thaw``."""
        self.frozen = True
        _loop().freeze(self)

    def thaw(self) -> None:
        """It goes on where it was."""
        self.frozen = False
        _loop().thaw(self)

    def kill(self) -> None:
        """Nothing of it runs again."""
        self.dead = True
        self.freeze()

    async def bury(self) -> None:
        """Let its tasks end, so that the loop can; its way to the server is closed before."""
        self.thaw()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task], timeout=_BURIAL_S)
        for _ in range(_BURIALS):
            tasks = [task for task in self.tasks if not task.done()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_BURIAL_S)


def _loop() -> FreezingLoop:
    return cast("FreezingLoop", asyncio.get_running_loop())


def owned(loop: asyncio.AbstractEventLoop, coro: Any, **how: Any) -> asyncio.Task[Any]:
    """A task factory: whose code makes a task owns it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **how)
    context = how.get("context")
    process = PROGRAM.get() if context is None else context.get(PROGRAM)
    if isinstance(process, Process):
        tasks = process.tasks
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
    return task
