"""What the modules of commands share: their contract, options that several have, and output.

A module ``gpusched/cli/NAME.py`` has ``register(subparsers)``, which adds its parser and sets
the default ``run`` to a function from the parsed arguments to an exit status. It is imported
only when its command is named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from gpusched.base.errors import UsageError
from gpusched.cli.shell.connection import (
    connection_choice as connection_choice,  # noqa: PLC0414 - commands find it here
)
from gpusched.config.yaml_tree import did_you_mean, quoted

_LONG_WORD: Final = re.compile(r"\S{301,}")
"""Longer than any name, and than most paths."""
_KEPT_OF_WORD: Final = 80
_CHOICE: Final = re.compile(
    r"argument .*?: invalid choice: '(?P<given>.*)' \(choose from .*\)", re.DOTALL
)


def cut_long_words(sentence: str) -> str:
    """A sentence in which what was given is told by its begin and its end, where it is a long text without a space."""
    return _LONG_WORD.sub(_cut_word, sentence)


def _cut_word(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:_KEPT_OF_WORD]}...{word[-_KEPT_OF_WORD:]} ({len(word):,} characters)"


def named_path(text: str) -> Path:
    """A file or folder that an option names; an empty text would be the current folder.

    Raises:
        ArgumentTypeError: it names none.
    """
    if not text:
        raise argparse.ArgumentTypeError("an empty text names no file or folder")
    return Path(text)


def check_output_file(option: str, file: Path | None) -> None:
    """Tell a mistake in the file that a command writes at its end before anything is done.

    Raises:
        UsageError: it is a folder, or in none.
    """
    if file is None:
        return
    if file.is_dir():
        raise UsageError(f"{option}: {file} is a folder; name a file in it")
    if not file.resolve().parent.is_dir():
        raise UsageError(f"{option}: there is no folder {file.resolve().parent}")


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence each; exit status 2.

    Attributes:
        interleaved: whether options may stand between words of a list.
    """

    interleaved = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, with options between the words of a list where that is wanted."""
        if not self.interleaved or "_ARGCOMPLETE" in os.environ:
            return super().parse_known_args(args, namespace)
        self.interleaved = False  # it is asked twice again: for options, then for the list
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.interleaved = True

    def every_action(self) -> Iterator[argparse.Action]:
        """Arguments of the parser, and those of the commands below it."""
        for action in self._actions:
            yield action
            for below in action.choices.values() if isinstance(action.choices, dict) else ():
                if isinstance(below, Parser):
                    yield from below.every_action()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, then exit with status 2."""
        told = cut_long_words(self._sentence(message))
        self.exit(2, f"gpusched: {told}; see {self.prog} --help\n")

    def _sentence(self, message: str) -> str:
        match = _CHOICE.fullmatch(message)
        if match is None:
            return message
        for action in self._actions:
            names = list(action.choices or ())
            if names and f"argument {_spoken(action)}:" in message:
                what = action.metavar if isinstance(action.metavar, str) else action.dest
                return (
                    f"unknown {what.lower()} {quoted(match['given'])}: "
                    f"known are {', '.join(map(str, names))}"
                    f"{did_you_mean(match['given'], [str(name) for name in names]).rstrip('?')}"
                )
        return message


def _spoken(action: argparse.Action) -> str:
    """How argparse names an argument in its messages."""
    if action.option_strings:
        return "/".join(action.option_strings)
    return str(action.metavar or action.dest)


Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no public name


def add_output(parser: argparse.ArgumentParser, *formats: str) -> None:
    """The option ``-o``; without formats it knows ``json`` only."""
    parser.add_argument(
        "-o", "--output", choices=formats or ("json",), metavar="FORMAT",
        help=f"print {' or '.join(formats or ('json',))} instead of text",
    )  # fmt: skip


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to reach the cluster and as whom, in kubectl's words."""
    group = parser.add_argument_group(
        "the cluster", "as for kubectl; what is left out is as the kubeconfig says"
    )
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the cluster (default: the pod's account, KUBECONFIG, ~/.kube/config)",
    )
    for option, (metavar, text) in _CONNECTION_OPTIONS.items():
        group.add_argument(*option.split(), metavar=metavar, default="", help=text)
    group.add_argument(
        "--as-group", action="append", default=[], metavar="GROUP", help="may be repeated"
    )
    group.add_argument(
        "--insecure-skip-tls-verify", action="store_true", help="refused: TLS is always verified"
    )


_CONNECTION_OPTIONS: Final = {
    "--context": ("NAME", "of the kubeconfig"),
    "--cluster": ("NAME", "of the kubeconfig"),
    "--user": ("NAME", "of the kubeconfig"),
    "-s --server": ("URL", "address of the API server"),
    "--token": ("TOKEN", "to log in with"),
    "--certificate-authority": ("FILE", "that the server's certificate is checked by"),
    "--client-certificate": ("FILE", "to log in with"),
    "--client-key": ("FILE", "of that certificate"),
    "--tls-server-name": ("NAME", "that the server's certificate is checked for"),
    "--as": ("USER", "to act as; you need the right to impersonate"),
    "--as-uid": ("UID", "of the user to act as"),
    "--request-timeout": ("DURATION", "of one request, such as 5s; 0 for our own bounds"),
}
"""Options that take one value, by their names."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option ``--config`` of commands that read what the daemon's configuration says."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration of the daemon, which names the GPU resources (default: the mounted "
        "one, else the built-in one)",
    )


def print_json(value: Any) -> None:
    """Indented JSON on stdout; ASCII, so that no foreign text reaches a terminal raw."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def clean_cell(value: Any) -> str:
    """A cell: foreign text on one line; nothing is shown as nothing."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else "?" for c in text)


def table(rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Lines of left-aligned columns with three spaces between, the last column unpadded."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        indent
        + "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def age(seconds: float) -> str:
    """An age the way kubectl writes it, never negative: ``45s``, ``12m``, ``3h``, ``5d``."""
    whole = max(0, int(seconds))
    for unit, size, least in (("d", 86_400, 2), ("h", 3_600, 2), ("m", 60, 2)):
        if whole >= least * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
