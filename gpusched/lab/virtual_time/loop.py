"""An event loop whose time jumps: ten minutes of a quiet cluster pass in a moment.

While bytes are under way or a job runs in an executor, time stands still. When everything
waits, it jumps to the next timer. When everything waits and there is no timer, nothing can
ever happen again: that is a deadlock, raised with the list of waiting tasks.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final, TypeVar

from gpusched.base.clock import EPOCH, LoopClock
from gpusched.base.errors import GpuschedError
from gpusched.lab.virtual_time.connections import MemoryNetwork

T = TypeVar("T")

SETTLE_S: Final = 200e-6
"""Real seconds given to bytes on the loopback interface before time may jump."""
EXECUTOR_POLL_S: Final = 0.05
"""Real seconds of one wait while an executor job runs."""
_POLL_TURNS: Final = 64
"""Turns of the loop without a wait after which its pipe is polled, so that signals are heard."""
VIRTUAL_MAX_S: Final = 86_400.0
"""Virtual seconds after which a run counts as one that never ends."""


class Deadlock(GpuschedError):
    """Every task waits and no timer will wake any of them."""


class TimeLimitExceeded(GpuschedError):
    """The run went beyond the virtual time that it was given."""


class _Timer(asyncio.TimerHandle):
    """A timer that keeps its place among equals: the heap alone is not first-in-first-out."""

    __slots__ = ("_number",)

    def __init__(
        self, when: float, callback: Callable[..., object], *, args: Any, number: int, loop: Any,
        context: Context | None,
    ) -> None:  # fmt: skip
        super().__init__(when, callback, args, loop, context)
        self._number = number

    def __lt__(self, other: _Timer) -> bool:  # type: ignore[override]
        # The heap compares each timer a dozen times, and holds no others: nothing is checked.
        when: float = self._when  # type: ignore[attr-defined]
        others: float = other._when  # type: ignore[attr-defined]
        return self._number < other._number if when == others else when < others


class _Selector(selectors.DefaultSelector):
    """Polls; when nothing is ready it asks the loop to move time instead of waiting."""

    idle: Callable[[float | None], None] | None = None
    _unpolled = 0
    """Turns of the loop since files were polled."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Ready files; may return none after moving virtual time forward."""
        own_pipe_only = len(self._fd_to_key) == 1  # type: ignore[attr-defined]
        if timeout == 0 and own_pipe_only:
            # Callbacks are ready, whoever called; the pipe only wakes a loop that waits.
            self._unpolled += 1
            if self._unpolled < _POLL_TURNS:
                return []
        self._unpolled = 0
        events = super().select(0)
        if events or timeout == 0 or self.idle is None:
            return events
        if not own_pipe_only:
            # A plain sleep: epoll rounds its own timeouts up to a millisecond.
            time.sleep(SETTLE_S)
            events = super().select(0)
        if not events:
            self.idle(timeout)
        return events

    def wait(self, seconds: float) -> None:
        """Wait in real time until a file is ready or so many seconds have passed."""
        super().select(seconds)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next deadline. Equal deadlines fire in the order in which they were scheduled.

    Args:
        limit_s: virtual seconds after which ``Endless`` is raised.
        network: where servers listen and clients connect; None for the real one.
    """

    def __init__(
        self, *, limit_s: float = VIRTUAL_MAX_S, network: MemoryNetwork | None = None
    ) -> None:
        self._network = network
        self._virtual_s = 0.0
        self._limit_s = limit_s
        self._timers = 0
        self._jobs = 0
        self._pulse = _Selector()
        super().__init__(self._pulse)
        self._pulse.idle = self._idle

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        """As the base class does, with a tie-breaking number."""
        self._check_closed()  # type: ignore[attr-defined]
        self._timers += 1
        timer = self._timer(when, callback, args=args, number=self._timers, context=context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001
        return timer

    def _timer(
        self, when: float, callback: Callable[..., object], *, args: Any, number: int,
        context: Context | None,
    ) -> _Timer:  # fmt: skip
        return _Timer(when, callback, args=args, number=number, loop=self, context=context)

    async def create_server(self, protocol_factory: Any, *args: Any, **how: Any) -> asyncio.Server:
        """As the base class does; on a network of its own the port is held but not listened on."""
        network = self._network
        if network is None or how.get("ssl") is not None:
            return await super().create_server(protocol_factory, *args, **how)
        server = await super().create_server(protocol_factory, *args, start_serving=False, **how)
        network.serve(server, protocol_factory)
        return server

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """As the base class does, or on the network of its own."""
        if self._network is None:
            await super().sock_connect(sock, address)
        else:
            self._network.call(sock, address)

    async def create_connection(self, protocol_factory: Any, *args: Any, **how: Any) -> Any:
        """As the base class does, or on the network of its own, where there is no TLS."""
        if self._network is None:
            return await super().create_connection(protocol_factory, *args, **how)
        if how.get("ssl") is not None or how.get("sock") is None:
            raise OSError("a network inside the loop carries neither TLS nor host names")
        return self._network.connect(self, how["sock"], protocol_factory)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """As the base class does; time stands still until the job is done."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """As the base class does; joining the threads counts as a job."""
        self._jobs += 1
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._jobs -= 1

    def _job_done(self, _future: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _idle(self, timeout: float | None) -> None:
        """Nothing is ready: wait for a job, or jump to the next timer, or give up."""
        if self._jobs:
            self._pulse.wait(EXECUTOR_POLL_S)
            return
        if timeout is None:
            raise Deadlock(f"every task waits and no timer is set: {_waiting(self)}")
        target = self._virtual_s + timeout
        first: float = self._scheduled[0].when()  # type: ignore[attr-defined]
        # asyncio clamps one wait to a day: then the first timer lies beyond the target.
        self._virtual_s = first if abs(first - target) < 1e-6 else max(target, self._virtual_s)
        if self._virtual_s > self._limit_s:
            self._limit_s = float("inf")
            raise TimeLimitExceeded(
                f"not done after {self._virtual_s:.0f} virtual seconds: {_waiting(self)}"
            )


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    names = [f"{task.get_name()} at {_innermost(task)}" for task in asyncio.all_tasks(loop)]
    return "; ".join(sorted(names)) or "no tasks"


def _innermost(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the deepest of the coroutines that await one another."""
    where = "not started"
    waits: Any = task.get_coro()
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None)
        if frame is not None:
            where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None)
    return where


def run_virtual(
    coro_fn: Callable[[LoopClock], Awaitable[T]],
    *,
    epoch: float = EPOCH,
    limit_s: float = VIRTUAL_MAX_S,
    network: MemoryNetwork | None = None,
    loop_factory: Callable[[], VirtualLoop] | None = None,
) -> T:
    """Run ``coro_fn(clock)`` to its end in virtual time and return its result.

    Args:
        coro_fn: gets the clock of the run; tasks it leaves behind are cancelled.
        epoch: wall time, seconds since the Unix epoch, at virtual time 0.
        limit_s: virtual seconds after which the run counts as endless.
        network: see ``VirtualLoop``.
        loop_factory: makes another loop than ``VirtualLoop``, which knows the two before itself.

    Raises:
        Deadlock: every task waits and no timer is set.
        Endless: virtual time went beyond ``limit_s``.
    """
    returned: list[T] = []

    async def main() -> None:
        # Not as the result of its task, of which the runner has a repr made when it ends: that of a record takes long.
        returned.append(await coro_fn(LoopClock(epoch)))

    def loop() -> VirtualLoop:
        return VirtualLoop(limit_s=limit_s, network=network)

    with asyncio.Runner(loop_factory=loop_factory or loop) as runner:
        runner.run(main())
    return returned[0]
