"""Work done in processes of its own, a few at a time, with what it cost."""

from __future__ import annotations

import multiprocessing
import queue
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, Final, TypeAlias

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

Tell: TypeAlias = Callable[[str], None]
_TELL_EVERY_S: Final = 0.2
_LOOK_S: Final = 0.25
_news: Any = None
"""Of a worker: where it tells what it is at."""


@attrs.frozen(kw_only=True)
class Task:
    """One piece of work; picklable.

    Attributes:
        work: called with a function that takes what it is at, and the arguments.
    """

    name: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...]


@attrs.frozen(kw_only=True)
class Done:
    """What came of it, its CPU seconds and the most memory its process had, MiB."""

    task: Task
    result: Any
    cpu_s: float
    memory: int


def do_all(tasks: Sequence[Task], *, jobs: int) -> Iterator[Done]:
    """Do tasks, the first ones first, and yield each when it is done; tells where they are.

    Every task has a process for itself, so that its memory is its own.
    """
    context: Any = multiprocessing.get_context("spawn")
    told = context.Queue()
    screen = _Screen(len(tasks))
    with (
        screen,
        ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_begin, initargs=(told,), max_tasks_per_child=1
        ) as pool,
    ):
        left: set[Future[Done]] = {pool.submit(_do, task) for task in tasks}
        try:
            while left:
                done, left = wait(left, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                _hear(told, screen)
                for each in done:
                    screen.done(each.result())
                    yield each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _hear(told: Any, screen: _Screen) -> None:
    while True:
        try:
            name, at = told.get_nowait()
        except queue.Empty:
            return
        screen.at(name, at)


def _begin(told: Any) -> None:
    global _news  # noqa: PLW0603  # a worker has one
    _news = told


def _do(task: Task) -> Done:
    last = 0.0

    def tell(at: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _TELL_EVERY_S:
            last = time.monotonic()
            _news.put((task.name, at))

    tell("begins")
    began = time.process_time()
    result = task.work(tell, *task.arguments)
    cpu_s = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = most // (1024 * 1024 if sys.platform == "darwin" else 1024)
    return Done(task=task, result=result, cpu_s=cpu_s, memory=memory)


class _Screen:
    """A bar of all, and a line for each that is being done; without a terminal a line when done."""

    def __init__(self, count: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24),
            TextColumn("{task.fields[at]}"), console=self._console, transient=True,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._all = self._bars.add_task("experiments", total=count, at=f"0 of {count}")
        self._count, self._over = count, 0
        self._lines: dict[str, TaskID] = {}

    def __enter__(self) -> None:
        self._bars.start()

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def at(self, name: str, at: str) -> None:
        """Where one is."""
        if name not in self._lines:
            self._lines[name] = self._bars.add_task(name, total=None, at=at)
        self._bars.update(self._lines[name], at=at)

    def done(self, done: Done) -> None:
        """One is over."""
        line = self._lines.pop(done.task.name, None)
        if line is not None:
            self._bars.remove_task(line)
        self._over += 1
        self._bars.update(self._all, completed=self._over, at=f"{self._over} of {self._count}")
        self._console.print(f"{done.task.name}: {done.cpu_s:.1f} s of CPU")
