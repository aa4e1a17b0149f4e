"""Log lines on their way to a stream that may stand still: nobody who logs ever waits for it.

A thread writes. Lines wait in a bounded queue; beyond it new ones are dropped and counted, and
the number is written as soon as lines go through again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TextIO

from gpusched import limits


class LogQueue(logging.Handler):
    """See the module.

    Args:
        stream: where lines go; what cannot be written there is dropped as well.
        most: lines that wait at most.
    """

    def __init__(self, stream: TextIO, *, most: int = limits.LOG_LINES_MAX) -> None:
        super().__init__()
        self._stream = stream
        self._most = most
        self._lines: deque[str] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._writing = False
        self._dropped = 0
        self.dropped = 0
        """Lines that nobody will ever read."""
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written, or dropped; returns at once."""
        line = self.format(record)
        with self._ready:
            if len(self._lines) >= self._most:
                self._dropped += 1
                self.dropped += 1
                return
            self._lines.append(line)
            self._ready.notify()

    def drain(self, timeout_s: float) -> bool:
        """Wait until all is written, but not for ever; whether it was."""
        with self._ready:
            return self._ready.wait_for(self._all_written, timeout_s)

    def _all_written(self) -> bool:
        return not self._lines and not self._writing

    def close(self) -> None:
        """At the end of the process: what waits is written if that is possible soon."""
        self.drain(limits.LOG_DRAIN_S)
        super().close()

    def _write_all(self) -> None:
        while True:
            with self._ready:
                self._writing = False
                self._ready.notify_all()
                while not self._lines:
                    self._ready.wait()
                self._writing = True
                lines = [*self._lines]
                self._lines.clear()
                lost, self._dropped = self._dropped, 0
            if lost:
                lines.append(self.format(_lost(lost)))
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):
            with self._ready:  # nobody is there to read it
                self.dropped += len(lines)


def _lost(count: int) -> logging.LogRecord:
    return logging.LogRecord(
        __name__, logging.WARNING, __file__, 0,
        "log lines were dropped, as nobody read them: %d", (count,), None,
    )  # fmt: skip


def drain() -> None:
    """Before the process ends, or something else is written to its stream: let lines go first."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogQueue):
            handler.drain(limits.LOG_DRAIN_S)
