"""Log lines: one line each, readable, and safe against what users write."""

from __future__ import annotations

import io
import json
import logging

import pytest

from gpusched.base import limits
from gpusched.io.observe import logs
from gpusched.io.observe.text import one_line


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """Always."""
        return True


@pytest.fixture(autouse=True)
def loggers_put_back():
    """Handlers and levels of the test run survive."""
    names = ["", "gpusched", *logs._NOISY, "aiohttp.access"]
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def written(stream=None, **options):
    stream = stream or io.StringIO()
    logs.set_up_logging(stream=stream, **options)
    return logs.Logger("gpusched.test"), stream


def test_a_line_for_people():
    """Time, level, sentence, facts."""
    log, stream = written()
    log.info("gang started", gang="ns/a", pods=4, waited_s=1.25)
    stamp, rest = stream.getvalue().split(" ", 1)
    assert len(stamp) == len("12:00:00.123")
    assert rest == "INFO  gang started  gang=ns/a pods=4 waited_s=1.25\n"


def test_a_line_for_machines():
    """One JSON object with typed facts."""
    log, stream = written(log_format="json")
    log.warning("gang waits", gang="ns/a", pods=4, ready=False)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning", "source": "gpusched.test", "message": "gang waits",
        "gang": "ns/a", "pods": 4, "ready": False,
    }  # fmt: skip


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    "evil", ["a\nERROR fake", "%s %d {x}", "\x1b[31mred", "q\"uo'te", "\u202ex", "x" * 99_999]
)
def test_user_text_stays_on_its_line(log_format, evil):
    """Newlines, escapes, formats and length: one line, quoted, cut."""
    log, stream = written(log_format=log_format)
    log.info("pod seen", name=evil)
    log.info(evil)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in stream.getvalue()
    assert all(len(line) < limits.TEXT_MAX + limits.FOREIGN_TEXT_MAX for line in lines)
    if log_format == "json":
        assert json.loads(lines[0])["message"] == "pod seen"


def test_colour_only_on_a_terminal():
    """Escape codes go to terminals and nowhere else."""
    log, stream = written(Terminal())
    log.error("broken", why="x")
    assert "\x1b[31mERROR\x1b[0m" in stream.getvalue()
    log, stream = written()
    log.error("broken", why="x")
    assert "\x1b" not in stream.getvalue()


def test_a_fact_cannot_replace_the_message():
    """Names of our own fields are kept."""
    log, stream = written(log_format="json")
    log.info("sentence", message="other", level="x")
    line = json.loads(stream.getvalue())
    assert (line["message"], line["level"]) == ("sentence", "info")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_tracebacks_are_kept(log_format):
    """The story of an exception is in the log."""
    log, stream = written(log_format=log_format)
    try:
        {}["lost"]
    except KeyError:
        log.exception("cycle failed")
    assert "KeyError: 'lost'" in stream.getvalue()
    assert "test_logs.py" in stream.getvalue()


def test_libraries_never_log_bodies():
    """DEBUG of HTTP libraries would show tokens and bodies: pinned, whatever our level."""
    logging.getLogger("kubernetes_asyncio").setLevel(logging.DEBUG)
    _, stream = written(level=logging.DEBUG)
    logging.getLogger("kubernetes_asyncio.client.rest").debug("token")
    logging.getLogger("aiohttp.client").debug("body")
    assert stream.getvalue() == ""


def test_levels():
    """Debug is silent unless asked for."""
    log, stream = written()
    log.debug("detail")
    assert stream.getvalue() == ""
    log, stream = written(level=logging.DEBUG)
    log.debug("detail")
    assert "DEBUG detail" in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("plain", 10, "plain"),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "0123456..."),
        ("a\tb", 10, "a\\tb"),
        ("\n" * 50, 10, "\\n\\n\\n\\..."),
        ("ümläut", 10, "ümläut"),
    ],
)
def test_one_line(text, length, expected):
    """Printable text is untouched, the rest escaped, and never longer than asked."""
    assert one_line(text, length) == expected
