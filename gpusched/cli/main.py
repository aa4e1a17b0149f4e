"""The command ``gpusched``, also installed as ``kubectl-gpusched``.

Exit status: 0 done, 1 an expectation or check failed, 2 wrong usage, 69 the cluster cannot be
reached, 70 a bug (its story is in a file that is named), 77 the API server does not allow it,
78 bad configuration, or a command whose extra is not installed.
"""

from __future__ import annotations

import errno
import gc
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from gpusched import __version__
from gpusched.base import limits
from gpusched.base.errors import ConfigError, GpuschedError, NotInstalled, UsageError
from gpusched.cli.command import Parser, cut_long_words
from gpusched.cli.shell.interrupts import sigterm_as_ctrl_c
from gpusched.cli.shell.leading_options import with_leading_options_behind, with_words_first
from gpusched.cli.shell.start import INTERRUPTED

COMMANDS: Final = {
    "run": ("the daemon: in-cluster configuration, else kubeconfig", "run"),
    "devcluster": ("an embedded API server with fake nodes", "devcluster.command"),
    "nodes": (
        "print the nodes of node pools as YAML, for KWOK on a real API server", "devcluster.nodes",
    ),
    "demo": (
        "see gangs start and wait: an embedded cluster, the daemon and a sample workload",
        "demo.command",
    ),
    "scenario": (
        "play scenarios: a cluster, a timeline and what is expected of it", "lab.scenario.command",
    ),
    "chaos": ("faults of every kind on clusters drawn from seeds, in virtual time", "lab.chaos"),
    "simulate": (
        "a recorded cluster or a trace under one or several configurations",
        "lab.simulate.command",
    ),
    "tune": (
        "search the policy's arguments on a trace, and check what is found on another",
        "lab.tune.command",
    ),
    "what-if": (
        "the cluster as it is and changed, played side by side: what differs, and for whom",
        "lab.whatif.command",
    ),
    "advise": (
        "the smallest changes that would let a gang start; layouts of MIG partitions",
        "inspect.ask.advise",
    ),
    "when": ("when a manifest would start if it were submitted now, and where", "inspect.ask.when"),
    "check-config": ("check a configuration file without starting anything", "check_config"),
    "console": ("a page of what waits and runs, in the browser", "inspect.live.console"),
    "top": ("queues, what waits and runs, and every GPU, live in the terminal", "inspect.live.top"),
    "get": ("list jobs, nodes, queues, pod groups or devices", "inspect.get"),
    "explain": ("say why a gang waits and what it needs", "inspect.explain"),
    "hold": ("let gangs wait until they are released", "act.hold"),
    "release": ("let gangs start that were held", "act.release"),
    "requeue": ("evict gangs that run, so that they wait again", "act.requeue"),
    "suspend": ("end the pods of Jobs and the like until they are resumed", "act.suspend"),
    "resume": ("resume what was suspended", "act.resume"),
    "move": ("move gangs to another queue", "act.move"),
    "audit": (
        "check the invariants of a live or recorded cluster; 1 and a list when one is broken",
        "lab.audit.command",
    ),
    "bundle": ("write one file for a bug report, without secrets and environment", "bundle.command"),
    "snapshot": ("record a cluster into a file, without secrets and environment", "lab.snapshot"),
    "replay": ("repeat one recorded decision and say what differs", "lab.replay"),
    "completion": ("print what bash, zsh or fish read to complete commands", "shell.script"),
    "version": ("print version, API version, solver version", "version"),
}  # fmt: skip
"""Summary and module of each command; the module is imported only when the command is named."""
EXTRAS: Final = {"devcluster": "devcluster", "demo": "devcluster", "lab": "lab"}
"""The extra of the distribution that holds a package of commands; the others are always there."""
LIBRARIES: Final = {"top": "top"}
"""The extra that brings libraries of a command which is always there."""
_PACKAGES: Final = {"devcluster": ("devcluster",), "lab": ("devcluster", "lab")}
"""Packages of gpusched that are there when an extra is installed."""
_PLAYS: Final = "lab."
"""Where commands are that play for long, which SIGTERM ends as Ctrl-C does; who follows a cluster ends it so in the usual way."""
BUG: Final = 70
PIPE_CLOSED: Final = 141
"""What a shell reports of a program whose reader went away, as in ``gpusched get ... | head``."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Why a write may fail that is right: the disk is full, or nothing may be written to it."""


def build_parser(prog: str, *, named: str | None) -> Parser:
    """The tree of commands.

    Args:
        prog: what the user typed.
        named: the command to be run; its module adds its own branch, the others are only
            listed, so that no command pays for the imports of another.
    """
    parser = Parser(
        prog=prog,
        description="A gang scheduler for AI jobs that runs beside kube-scheduler.",
        epilog="A first look: gpusched demo",
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, (summary, place) in COMMANDS.items():
        if name == named:
            _command_module(name, place).register(commands)
        else:
            commands.add_parser(name, help=summary)
    return parser


def _command_module(name: str, place: str) -> ModuleType:
    """The module of a command.

    Raises:
        NotInstalled: the command belongs to an extra that is not, or not wholly, installed.
    """
    try:
        return import_module(f"gpusched.cli.{place}")
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(place.split(".", maxsplit=1)[0]) or LIBRARIES.get(name)
        missing = error.name or ""
        if extra is None or (missing.startswith("gpusched") and _is_installed(extra)):
            raise
        needed = f"the extra {extra}" if missing.startswith("gpusched") else missing
        raise NotInstalled(
            f"the command {name} needs {needed}, which is not installed: "
            f'run pip install ".[{extra}]" in a checkout of gpusched {__version__}'
        ) from error


def _is_installed(extra: str) -> bool:
    return all(find_spec(f"gpusched.{package}") for package in _PACKAGES.get(extra, ()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: arguments without the program's name; ``sys.argv`` when left out.
    """
    # As a kubectl plugin the user typed "kubectl gpusched", and help should say the same.
    called = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 - a name, no path
    prog = "kubectl gpusched" if called.startswith("kubectl-") else "gpusched"
    is_process = argv is None
    plays, endings = False, ExitStack()
    _open_closed_streams()
    if is_process:
        gc.disable()  # what imports make stays: looking through it is a tenth of their time
    try:
        if "_ARGCOMPLETE" in os.environ and is_process:
            import_module("gpusched.cli.shell.completion").complete(prog)
        words = with_leading_options_behind(sys.argv[1:] if argv is None else argv)
        named = next((word for word in words if not word.startswith("-")), None)
        if named == "get":
            words = with_words_first(words)
        plays = COMMANDS.get(named or "", ("", ""))[1].startswith(_PLAYS)
        endings.enter_context(sigterm_as_ctrl_c() if plays else nullcontext())
        parser = build_parser(prog, named=named)
        if is_process:
            gc.freeze()
            gc.set_threshold(limits.COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])
            gc.enable()
        arguments = parser.parse_args(words)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        if plays:
            _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the last line: every exception becomes a status
        return report(_write_error(error) or error)
    finally:
        endings.close()
        if is_process:
            gc.freeze()  # Python would walk everything once more when it ends
    return status


def _open_closed_streams() -> None:
    """A process that was started with a closed stream, as by ``>&-``, writes to nowhere in its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as the process


def _discard_output() -> None:
    """Drop what is still to be printed: the interpreter would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_error(error: Exception) -> UsageError | None:
    """What stands for a write that failed, though nothing is wrong with it; None where something else did."""
    if not isinstance(error, OSError):
        return None
    try:
        sys.stdout.flush()  # where it is buffered, what could not be written is still to be
    except OSError as why:
        _discard_output()
        return UsageError(f"the output cannot be written: {why.strerror}")
    if error.errno in _NO_ROOM:
        return UsageError(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
    return None


def report(error: Exception) -> int:
    """Tell on stderr what went wrong, one sentence a problem, and return the exit status.

    What is a bug is written to a file, which the sentence names.
    """
    known = _known(error)
    if known is None or known.exit_status == BUG:
        what = str(known) if known else f"{type(error).__name__}: {_one_line(error)}"
        _complain(f"this is a bug: {what} (the story is in {_dump(error)})")
        return BUG
    for problem in known.problems if isinstance(known, ConfigError) else (str(known),):
        _complain(problem)
    return known.exit_status


def _known(error: BaseException) -> GpuschedError | None:
    """The fault behind an exception; of a group whose members are all known, the first."""
    if isinstance(error, GpuschedError):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG and error.filename:
        return ConfigError(f"{error.filename}: the name is too long for a file")
    if isinstance(error, BaseExceptionGroup):
        known = [_known(member) for member in error.exceptions]
        return known[0] if all(known) else None
    return None


def _complain(sentence: str) -> None:
    print(f"gpusched: {cut_long_words(sentence)}", file=sys.stderr)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _dump(error: Exception) -> str:
    """Write the traceback, without values of variables or environment, and return its place."""
    story = (
        f"gpusched {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: {sys.argv[1:2]}\n\n" + "".join(traceback.format_exception(error))
    )
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="gpusched-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(story)
    except OSError as why:
        # A read-only container has no place for files: the story must not be lost.
        sys.stderr.write(story)
        return f"the lines above, because no file could be written: {why.strerror}"
    return file.name


if __name__ == "__main__":
    sys.exit(main())
