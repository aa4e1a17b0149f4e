"""Completion of what is typed: asked by the script of a shell, or by kubectl."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable
from typing import Final, TextIO

import argcomplete
from argcomplete.completers import SuppressCompleter
from argcomplete.lexers import split_line

from gpusched.cli.command import Parser
from gpusched.cli.main import build_parser
from gpusched.cli.shell.completers import COMPLETERS
from gpusched.cli.shell.leading_options import split_options

NO_FILES: Final = 4
"""Directive by which kubectl's shell offers no names of files."""


def complete(
    prog: str,
    *,
    output: TextIO | None = None,
    exit_method: Callable[[int], None] = os._exit,
) -> None:
    """Print what may stand at the cursor of the line in ``COMP_LINE``.

    Args:
        prog: name of the program.
        output: where to, None for the file that the script of the shell has opened.
        exit_method: how it ends.
    """
    words, prefix = _typed_words()
    parser: Parser = build_parser(prog, named=next((w for w in words if w[:1] != "-"), None))
    for action in parser.every_action():
        if action.choices is None and action.dest in COMPLETERS:
            action.completer = COMPLETERS[action.dest]  # type: ignore[attr-defined]
    line = shlex.join([prog.rsplit(maxsplit=1)[-1], *words]) + " "
    os.environ.update(COMP_LINE=line + prefix, COMP_POINT=str(len((line + prefix).encode())))
    os.environ["_ARGCOMPLETE"] = "1"
    argcomplete.autocomplete(
        parser, always_complete_options=False, output_stream=output, exit_method=exit_method,
        default_completer=SuppressCompleter(),
    )  # fmt: skip


def _typed_words() -> tuple[list[str], str]:
    """Words before the cursor without the program, options of all commands first; and the word at it."""
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    _, prefix, _, words, _ = split_line(line, point)
    words = words[int(os.environ["_ARGCOMPLETE"]) :]
    options, rest = split_options(words)
    # Behind the command, so that a list of words goes on at the cursor; without one it may come next.
    return [*rest[:1], *options, *rest[1:]] if rest else [], prefix


def complete_for_kubectl() -> int:
    """``kubectl_complete-gpusched``: kubectl runs it with the words, the last of which is completed."""
    *words, prefix = sys.argv[1:] or [""]
    line = f"{shlex.join(['gpusched', *words])} {prefix}"
    os.environ.update(
        COMP_LINE=line, COMP_POINT=str(len(line.encode())), _ARGCOMPLETE="1", _ARGCOMPLETE_IFS="\n"
    )
    found = io.StringIO()
    complete("gpusched", output=found, exit_method=lambda _status: None)
    for each in found.getvalue().split("\n"):
        if each.strip():
            print(each.strip())
    print(f":{NO_FILES}")
    return 0
