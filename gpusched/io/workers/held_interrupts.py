"""Begin processes that do not hear a terminal's Ctrl-C, undisturbed by one that comes meanwhile."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Final

_HELD: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held_interrupts() -> Iterator[None]:
    """Processes begun here have SIGINT blocked; SIGINT and SIGTERM to this process are heard at the end.

    Blocking alone does not hold them: the kernel hands a process's signal to any thread that takes
    it, a library's say, and Python then runs the handler in the main thread, in the middle of a start.
    """
    # Starting the tracker would unblock the signal, so that is done before.
    resource_tracker.ensure_running()
    heard: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for each in _HELD:
            before[each] = signal.signal(each, lambda number, _frame: heard.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in heard[:1]:
            signal.raise_signal(number)
