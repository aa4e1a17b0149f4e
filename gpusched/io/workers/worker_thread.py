"""A thread for work that may take long or never end: the end of the process does not wait for it.

Threads of ``concurrent.futures`` are joined when the interpreter ends, so that one plugin that
hangs would keep a daemon from ending at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class WorkerThread:
    """One worker thread; jobs are done one after another.

    Args:
        name: of the thread, for stacks.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._last: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int:
        """Of the thread, for ``sys._current_frames``."""
        assert self._thread.ident is not None
        return self._thread.ident

    async def run(self, job: Callable[[], T]) -> T:
        """Do it in the thread; what it raises is raised here.

        Cancelling the wait does not stop a job that has begun.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        context = copy_context()  # which GPU resources are in force, and spans
        self._jobs.put((lambda: context.run(job), done, loop))
        return await done

    def stop(self, last: Callable[[], object] | None = None) -> None:
        """The thread ends after the jobs it has and one last job, whose end is not awaited."""
        self._last = last
        self._jobs.put(None)

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done, loop = entry
            if done.cancelled():
                continue
            try:
                answer = job()
            except BaseException as error:  # noqa: BLE001 - it is raised where the job is awaited
                tell: tuple[Callable[..., None], Any] = (_fail, error)
            else:
                tell = (_succeed, answer)
            # A loop that was closed meanwhile has nobody who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell[0], done, tell[1])
        if self._last is not None:
            self._last()


def _succeed(done: asyncio.Future[Any], answer: Any) -> None:
    if not done.done():
        done.set_result(answer)


def _fail(done: asyncio.Future[Any], error: BaseException) -> None:
    if done.done():
        return
    if isinstance(error, StopIteration):
        # No future can carry it: it would end the coroutine that waits as if it had returned.
        error = RuntimeError(f"the job raised {error!r}")
    done.set_exception(error)
