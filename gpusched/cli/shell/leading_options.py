"""Options before the command, as ``kubectl gpusched -n team-a get jobs`` has them: they count as if they stood behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WITH_VALUE: Final = frozenset(
    {
        "-n", "--namespace", "--kubeconfig", "--context", "--cluster", "--user", "-s", "--server",
        "--token", "--certificate-authority", "--client-certificate", "--client-key",
        "--tls-server-name", "--as", "--as-group", "--as-uid", "--request-timeout",
        "-o", "--output", "-l", "--selector", "--sort-by", "--config",
    }
)  # fmt: skip
"""Options that several commands know, and that take the next word where they hold no value themselves."""
ALONE: Final = frozenset(
    {
        "-A", "--all-namespaces", "-w", "--watch", "--no-headers", "--insecure-skip-tls-verify",
    }
)  # fmt: skip
"""Options of the same kind that are complete."""


def with_leading_options_behind(words: Sequence[str]) -> list[str]:
    """The words with the options that stand before the command at their end, or before a ``--``.

    An option that is not known here stays where it is, and the parser says what is wrong with it.
    """
    at = 0
    while at < len(words) and _name(words[at]) in WITH_VALUE | ALONE:
        at += 2 if words[at] in WITH_VALUE else 1
    leading, rest = list(words[:at]), list(words[at:])
    if not leading or not rest or rest[0].startswith("-"):
        return list(words)
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *leading, *rest[end:]]


def with_words_first(words: Sequence[str]) -> list[str]:
    """The words with the options that are known here behind all others, or before a ``--``.

    So ``get priority -A job train`` is understood: argparse takes words that may be missing at once,
    or never.
    """
    options, rest = split_options(words)
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *options, *rest[end:]]


def split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options that are known here, with their values, and all other words; up to a ``--``."""
    options: list[str] = []
    rest: list[str] = []
    at = 0
    while at < len(words) and words[at] != "--":
        known = _name(words[at]) in WITH_VALUE | ALONE
        size = 2 if words[at] in WITH_VALUE and at + 1 < len(words) else 1
        if known and words[at] in WITH_VALUE and size == 1:
            break  # its value is what is typed now
        (options if known else rest).extend(words[at : at + size])
        at += size if known else 1
    return options, [*rest, *words[at:]]


def _name(word: str) -> str:
    """The option of a word, without a value that it holds: ``-n`` of ``-nteam-a``."""
    if word.startswith("--") or word in WITH_VALUE | ALONE:
        return word.partition("=")[0]
    return word[:2] if word[:2] in WITH_VALUE else word
