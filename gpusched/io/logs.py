"""Logs: sentences for a person at a terminal, JSON lines for a collector.

A record is one sentence and some facts: ``log.info("lease acquired", fence=fence)``. Facts
may come from users; they are quoted, kept on one line and cut, and never stand in format
position.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from gpusched import limits
from gpusched.io.log_queue import LogQueue
from gpusched.io.text import one_line

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


class Log:
    """A named source of log records.

    Args:
        name: dotted name of the component, for example ``gpusched.io.reflector``.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, sentence: str, /, **facts: object) -> None:
        """Of interest to a developer only."""
        self._write(logging.DEBUG, sentence, facts)

    def info(self, sentence: str, /, **facts: object) -> None:
        """Something an operator may want to know happened."""
        self._write(logging.INFO, sentence, facts)

    def warning(self, sentence: str, /, **facts: object) -> None:
        """Something an operator should look at; the daemon copes."""
        self._write(logging.WARNING, sentence, facts)

    def error(self, sentence: str, /, **facts: object) -> None:
        """Something that an operator has to act on."""
        self._write(logging.ERROR, sentence, facts)

    def exception(self, sentence: str, /, **facts: object) -> None:
        """An error with the traceback of the exception being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error("%s", sentence, exc_info=sys.exc_info(), extra={_FACTS: facts})

    def dump(self, sentence: str, text: str, /, **facts: object) -> None:
        """An error with several lines of our own making below it, such as a stack."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error("%s", sentence, extra={_FACTS: facts, _DUMP: text})

    def _write(self, level: int, sentence: str, facts: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", sentence, extra={_FACTS: facts})


class TextFormatter(logging.Formatter):
    """``12:00:01.123 INFO  sentence  key=value``, in colour if asked."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """One line, plus the traceback if there is one."""
        stamp = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        level = f"{_SHORT.get(record.levelno, record.levelname):5}"
        sentence = one_line(record.getMessage(), limits.TEXT_MAX)
        facts = " ".join(f"{key}={_quoted(value)}" for key, value in _facts(record).items())
        if self._colour:
            stamp = f"{_DIM}{stamp}{_RESET}"
            level = f"{_COLOURS.get(record.levelno, '')}{level}{_RESET}"
            facts = f"{_DIM}{facts}{_RESET}" if facts else ""
        line = f"{stamp} {level} {sentence}" + (f"  {facts}" if facts else "")
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


def set_up(
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
        waits: whether who logs waits for the stream; a daemon must not, see ``log_queue``.
    """
    target = stream or sys.stderr
    handler = logging.StreamHandler(target) if waits else LogQueue(target)
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
