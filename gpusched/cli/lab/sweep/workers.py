"""Who plays points: this process, processes of this machine, or (``ray_workers``) a Ray cluster.

A worker that is lost, killed say, is told apart from a point that fails: its point is played
again, up to a bound, and nothing waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, Protocol

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError, GpuschedError
from gpusched.cli.lab.scenario.worker_processes import worker_context
from gpusched.cli.lab.sweep.points import play_packed
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.workers.held_interrupts import held_interrupts

TRIES_MAX: Final = 3
"""Workers that one point may lose: the third time it is likely to be the point itself."""


@frozen(kw_only=True)
class PointEnd:
    """What became of one point.

    Attributes:
        number: of the point.
        result: the bytes of its result; None where there is none.
        error: why there is none, one sentence.
        lost: its worker ended before it did.
    """

    number: int
    result: bytes | None = None
    error: str = ""
    lost: bool = False


class PointWorkers(Protocol):
    """Several points at a time."""

    @property
    def size(self) -> int:
        """How many points are played at a time."""

    def start_point(self, number: int, work: bytes) -> None:
        """Begin one; there are fewer than ``size`` in work."""

    def wait_for_ends(self) -> list[PointEnd]:
        """Wait until at least one ended; those that did."""

    def close(self) -> None:
        """End what is still played, at once."""


def run_points(
    numbers: Sequence[int],
    work_of: Callable[[int], bytes],
    workers: PointWorkers,
    *,
    note: Callable[[str], None],
) -> Iterator[PointEnd]:
    """Play points and yield each as it ends; each ends once, with a result or an error.

    Args:
        numbers: of the points.
        work_of: the packed point of a number.
        workers: that play; the caller closes them.
        note: given a sentence for each worker that was lost.
    """
    waiting = deque(numbers)
    tries: dict[int, int] = {}
    running = 0
    while waiting or running:
        while waiting and running < workers.size:
            number = waiting.popleft()
            try:
                work = work_of(number)
            except ConfigError as error:
                yield PointEnd(number=number, error="; ".join(error.problems))
                continue
            tries[number] = tries.get(number, 0) + 1
            workers.start_point(number, work)
            running += 1
        if not running:
            return
        for end in workers.wait_for_ends():
            running -= 1
            if end.lost and tries[end.number] < TRIES_MAX:
                note(f"a worker was lost ({end.error}); its point is played again")
                waiting.append(end.number)
                continue
            times = f" {tries[end.number]} times" if end.lost else ""
            yield attrs.evolve(end, error=f"its worker was lost{times}: {end.error}") if end.lost else end  # fmt: skip


def try_point(number: int, work: bytes) -> PointEnd:
    """Play one here; what it raises becomes a sentence."""
    try:
        return PointEnd(number=number, result=play_packed(work))
    except ConfigError as error:
        return PointEnd(number=number, error="; ".join(error.problems))
    except GpuschedError as error:
        return PointEnd(number=number, error=f"{type(error).__name__}: {error}")
    except Exception as bug:  # noqa: BLE001 - one point's bug is told; the others go on
        place = traceback.extract_tb(bug.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"  # noqa: PTH119 - a name, no path
        sentence = " ".join(str(bug).split())[:200]
        return PointEnd(number=number, error=f"bug: {type(bug).__name__} at {where}: {sentence}")


class InThisProcess:
    """One point at a time, here."""

    size = 1

    def __init__(self) -> None:
        self._next: tuple[int, bytes] | None = None

    def start_point(self, number: int, work: bytes) -> None:
        """See ``PointWorkers``."""
        self._next = (number, work)

    def wait_for_ends(self) -> list[PointEnd]:
        """See ``PointWorkers``."""
        assert self._next is not None
        return [try_point(*self._next)]

    def close(self) -> None:
        """See ``PointWorkers``."""


class LocalProcesses:
    """Processes of this machine, each with one point at a time; a lost one is replaced."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._context = worker_context(__name__)
        self._idle: list[tuple[Connection, BaseProcess]] = []
        self._at: dict[Connection, tuple[int, BaseProcess]] = {}

    def start_point(self, number: int, work: bytes) -> None:
        """See ``PointWorkers``."""
        if not self._idle:
            # A Ctrl-C of the terminal is for this process, which ends the others.
            with held_interrupts():
                self._idle.append(self._begin())
        pipe, process = self._idle.pop()
        # One that was killed while it was idle breaks the pipe here; reading tells that below.
        with contextlib.suppress(BrokenPipeError):
            pipe.send_bytes(work)
        self._at[pipe] = (number, process)

    def _begin(self) -> tuple[Connection, BaseProcess]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return ours, process

    def wait_for_ends(self) -> list[PointEnd]:
        """See ``PointWorkers``."""
        ends = []
        for ready in wait(list(self._at)):
            assert isinstance(ready, Connection)
            number, process = self._at.pop(ready)
            try:
                result, error = ready.recv()
            except (EOFError, ConnectionResetError):
                ready.close()
                process.join()
                ends.append(PointEnd(number=number, error=_exit_text(process), lost=True))
                continue
            self._idle.append((ready, process))
            ends.append(PointEnd(number=number, result=result, error=error))
        return ends

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers that play a point."""
        return [process.pid for _, process in self._at.values() if process.pid is not None]

    def close(self) -> None:
        """See ``PointWorkers``."""
        busy = [(pipe, process) for pipe, (_, process) in self._at.items()]
        for pipe, process in (*self._idle, *busy):
            process.kill()
            process.join()
            process.close()
            pipe.close()
        self._idle.clear()
        self._at.clear()


def _exit_text(process: BaseProcess) -> str:
    code = process.exitcode or 0
    if code >= 0:
        return f"it ended with status {code}"
    names: Mapping[int, str] = {each.value: each.name for each in signal.Signals}
    hint = ", as the kernel does where memory is short" if -code == signal.SIGKILL else ""
    return f"ended by {names.get(-code, -code)}{hint}"


def _work(pipe: Connection) -> None:
    """A worker's life: packed points come, results or errors go."""
    collect_garbage_rarely(plays=True)  # what happened in a play stays until its end
    with contextlib.suppress(EOFError, ConnectionError):  # nobody is there any more who asks
        while True:
            end = try_point(0, pipe.recv_bytes())
            pipe.send((end.result, end.error))
