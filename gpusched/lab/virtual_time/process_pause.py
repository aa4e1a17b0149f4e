"""A virtual loop in which some of the programs stand still, as processes do that are stopped.

A program is known by a context variable that all its tasks carry. While it is frozen none of its
callbacks runs; what it has written is delivered, and what comes for it waits. When it goes on,
news that waited comes before timers that have passed meanwhile, as after SIGCONT.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Final

from gpusched.lab.virtual_time.connections import MemoryNetwork, MemoryTransport
from gpusched.lab.virtual_time.loop import VIRTUAL_MAX_S, VirtualLoop, _Timer

PROGRAM: Final[contextvars.ContextVar[object]] = contextvars.ContextVar("program", default=None)
"""Set in the first task of a program; tasks that it starts inherit it."""


_run_callback: Final[Callable[[asyncio.Handle], None]] = asyncio.Handle._run  # noqa: SLF001


class _PausableHandle(asyncio.Handle):
    """A callback of perhaps a program that stands still."""

    __slots__ = ()

    def _run(self) -> None:
        program = self._context.get(PROGRAM)  # type: ignore[attr-defined]
        if program is None or not self._loop.holds(self, program, timer=False):  # type: ignore[attr-defined]
            _run_callback(self)


class _PausableTimerHandle(_Timer):
    """The same at a time."""

    __slots__ = ()

    def _run(self) -> None:
        program = self._context.get(PROGRAM)  # type: ignore[attr-defined]
        if program is None or not self._loop.holds(self, program, timer=True):  # type: ignore[attr-defined]
            _run_callback(self)


class PausableLoop(VirtualLoop):
    """A virtual loop in which single processes stand still. Connections stay inside the loop, so that no kernel delivers anything.

    Args:
        limit_s: as of ``VirtualLoop``.
    """

    def __init__(self, *, limit_s: float = VIRTUAL_MAX_S) -> None:
        self._outside = contextvars.Context()
        self._frozen: dict[object, tuple[list[asyncio.Handle], list[asyncio.Handle]]] = {}
        self.on_step: Callable[[object], None] | None = None
        """Told of each program before one of its callbacks runs; may freeze it."""
        super().__init__(limit_s=limit_s, network=MemoryNetwork())

    def freeze(self, program: object) -> None:
        """None of its callbacks runs until ``thaw``."""
        self._frozen.setdefault(program, ([], []))

    def thaw(self, program: object) -> None:
        """It goes on: first what came for it, then the timers that passed."""
        came, passed = self._frozen.pop(program, ([], []))
        self._ready.extend([*came, *passed])  # type: ignore[attr-defined]

    def holds(self, handle: asyncio.Handle, program: object, *, timer: bool) -> bool:
        """Whether a callback of the program has to wait, as that is frozen."""
        if self.on_step is not None and program not in self._frozen:
            self.on_step(program)
        held = self._frozen.get(program)
        if held is None:
            return False
        held[timer].append(handle)
        return True

    def _call_soon(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.Handle:
        # What was written is on its way, whoever wrote it: it belongs to no program.
        if isinstance(getattr(callback, "__self__", None), MemoryTransport):
            context = self._outside
        handle = _PausableHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _timer(
        self, when: float, callback: Callable[..., object], *, args: Any, number: int,
        context: contextvars.Context | None,
    ) -> _Timer:  # fmt: skip
        return _PausableTimerHandle(
            when, callback, args=args, number=number, loop=self, context=context
        )

    async def create_connection(self, protocol_factory: Any, *_args: Any, **how: Any) -> Any:
        """As the base class does; what serves the other end belongs to no program."""
        if how.get("ssl") is not None or how.get("sock") is None or self._network is None:
            raise OSError("a network inside the loop carries neither TLS nor host names")
        outside = self._outside.copy()
        return outside.run(self._network.connect, self, how["sock"], protocol_factory)
