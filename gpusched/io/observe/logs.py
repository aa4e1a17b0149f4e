"""Logs: sentences for a person at a terminal, JSON lines for a collector.

A record is one sentence and some facts: ``log.info("lease acquired", fence=fence)``. Facts
may come from users; they are quoted, kept on one line and cut, and never stand in format
position.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from gpusched.base import limits
from gpusched.io.observe.text import one_line


class LogQueueHandler(logging.Handler):
    """See the module.

    Args:
        stream: where lines go; what cannot be written there is dropped as well.
        most: lines that wait at most.
    """

    def __init__(self, stream: TextIO, *, most: int = limits.LOG_LINES_MAX) -> None:
        super().__init__()
        self._stream = stream
        self._file = _file_number(stream)
        self._most = most
        self._lines: deque[str] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._writing = False
        self._dropped = 0
        self.dropped = 0
        """Stream of log lines that are dropped."""
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
                lines.append(self.format(_lost_lines_message(lost)))
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        try:
            if self._file is None:
                self._stream.write(text)
                self._stream.flush()
                return
            unwritten = text.encode(errors="backslashreplace")
            while unwritten:
                unwritten = unwritten[os.write(self._file, unwritten) :]
        except (OSError, ValueError):
            with self._ready:  # nobody is there to read it
                self.dropped += len(lines)


def _file_number(stream: TextIO) -> int | None:
    """Descriptor of a stream's file, or None for a stream in memory.

    Lines go past the stream's own buffer: a thread that stands in a write would hold its lock,
    and the interpreter takes that lock when it flushes standard error at its end.
    """
    try:
        stream.flush()
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _lost_lines_message(count: int) -> logging.LogRecord:
    return logging.LogRecord(
        __name__, logging.WARNING, __file__, 0,
        "log lines were dropped, as nobody read them: %d", (count,), None,
    )  # fmt: skip


def drain_log_queue() -> None:
    """Before the process ends, or something else is written to its stream: let lines go first."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogQueueHandler):
            handler.drain(limits.LOG_DRAIN_S)


LogFormat = Literal["text", "json"]
_FACTS: Final = "gpusched_facts"
_DUMP: Final = "gpusched_dump"
_COLOURS: Final = {
    logging.DEBUG: "\x1b[2m",
    logging.INFO: "\x1b[36m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_SHORT: Final = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:+@%")
_NOISY: Final = ("aiohttp", "kubernetes_asyncio", "asyncio", "urllib3", "opentelemetry")


class Logger:
    """A named source of log records.

    Args:
        name: dotted name of the component, for example ``gpusched.io.watch.reflector``.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def writes_info(self) -> bool:
        """Whether anything that is told to an operator is written; lines that cost are not made else."""
        return self._logger.isEnabledFor(logging.INFO)

    def debug(self, message: str, /, **facts: object) -> None:
        """Of interest to a developer only."""
        self._write(logging.DEBUG, message, facts)

    def info(self, message: str, /, **facts: object) -> None:
        """Something an operator may want to know happened."""
        self._write(logging.INFO, message, facts)

    def warning(self, message: str, /, **facts: object) -> None:
        """Something an operator should look at; the daemon copes."""
        self._write(logging.WARNING, message, facts)

    def error(self, message: str, /, **facts: object) -> None:
        """Something that an operator has to act on."""
        self._write(logging.ERROR, message, facts)

    def exception(self, message: str, /, **facts: object) -> None:
        """An error with the traceback of the exception being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error("%s", message, exc_info=sys.exc_info(), extra={_FACTS: facts})

    def dump(self, message: str, text: str, /, **facts: object) -> None:
        """An error with several lines of our own making below it, such as a stack."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error("%s", message, extra={_FACTS: facts, _DUMP: text})

    def _write(self, level: int, message: str, facts: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, extra={_FACTS: facts})


class TextFormatter(logging.Formatter):
    """``12:00:01.123 INFO  sentence  key=value``, in colour if asked."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """One line, plus the traceback if there is one."""
        stamp = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        level = f"{_SHORT.get(record.levelno, record.levelname):5}"
        message = one_line(record.getMessage(), limits.TEXT_MAX)
        facts = " ".join(f"{key}={_quoted(value)}" for key, value in _facts(record).items())
        if self._colour:
            stamp = f"{_DIM}{stamp}{_RESET}"
            level = f"{_COLOURS.get(record.levelno, '')}{level}{_RESET}"
            facts = f"{_DIM}{facts}{_RESET}" if facts else ""
        line = f"{stamp} {level} {message}" + (f"  {facts}" if facts else "")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        dump = getattr(record, _DUMP, "")
        return f"{line}\n{dump}" if dump else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``source``, ``message``, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, the traceback inside it."""
        out: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "source": record.name,
            "message": one_line(record.getMessage(), limits.TEXT_MAX),
        }
        for key, value in _facts(record).items():
            out.setdefault(key, value if _is_scalar(value) else one_line(str(value)))
        if record.exc_info:
            out["traceback"] = self.formatException(record.exc_info)
        if dump := getattr(record, _DUMP, ""):
            out["dump"] = dump
        return json.dumps(out, ensure_ascii=False)


def set_up_logging(
    *,
    log_format: LogFormat = "text",
    level: int = logging.INFO,
    stream: TextIO | None = None,
    waits: bool = True,
) -> None:
    """Send every log record of the process to one stream, replacing earlier handlers.

    Libraries that would log response bodies or tokens at DEBUG never go below INFO.

    Args:
        log_format: ``text`` or ``json``.
        level: least severe level shown of our own records.
        stream: standard error unless given; colour only if it is a terminal.
        waits: whether a caller that logs waits for the stream; a daemon must not, see ``log_queue``.
    """
    target = stream or sys.stderr
    handler = logging.StreamHandler(target) if waits else LogQueueHandler(target)
    handler.setFormatter(
        JsonFormatter() if log_format == "json" else TextFormatter(colour=target.isatty())
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("gpusched").setLevel(level)
    pin_libraries()


def pin_libraries() -> None:
    """Keep HTTP libraries at INFO or above: at DEBUG they write bodies and headers."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger(name).level))
    # One line a scrape or probe is noise.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts = getattr(record, _FACTS, None)
    return facts if isinstance(facts, dict) else {}


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _quoted(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    if text and len(text) <= limits.FOREIGN_TEXT_MAX and _PLAIN.issuperset(text):
        return text
    # Escaped first, so that a newline is a backslash and an n, once.
    return '"' + one_line(text).replace('"', '\\"') + '"'
