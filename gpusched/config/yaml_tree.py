"""A parsed file with the line of everything in it, and the sentences about what is wrong there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import attrs

from gpusched.base.classes import define, frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import CONFIG_PROBLEMS_MAX, FOREIGN_TEXT_MAX

Scalar: TypeAlias = str | int | float | bool | None
_UNREAD: Final = "\0"
"""What stands where nothing could be read; in no sentence otherwise, as foreign text is escaped."""


@frozen
class YamlNode:
    """One value.

    Attributes:
        line: counted from 1.
        value: a scalar, a tuple of nodes, or a dict of entries by key.
        is_unread: whether it could not be read, which is told already: it has no value.
    """

    line: int
    value: Scalar | tuple[YamlNode, ...] | dict[str, YamlEntry]
    is_unread: bool = False


@frozen
class YamlEntry:
    """One ``key: value`` of a mapping; ``line`` is the key's."""

    line: int
    node: YamlNode


@define
class ConfigProblems:
    """Collects what is wrong with one file, so that all of it is told at once."""

    source: str
    _found: list[tuple[int, str]] = attrs.field(factory=list)

    def add(self, line: int, what: str) -> None:
        """Note one problem; ``what`` is a sentence without its place.

        One that says what stands where nothing could be read is left out: why it could not is told already.
        """
        if _UNREAD not in what:
            self._found.append((line, what))

    def take(self, other: ConfigProblems) -> None:
        """Note what another reader of the same file found."""
        self._found += other._found

    def __bool__(self) -> bool:
        return bool(self._found)

    def error(self) -> ConfigError:
        """All problems in the order of lines, each with its place."""
        assert self._found
        ordered = sorted(self._found, key=lambda problem: problem[0])
        sentences = [f"{self.source}:{line}: {what}" for line, what in ordered]
        hidden = len(sentences) - CONFIG_PROBLEMS_MAX
        if hidden > 0:
            sentences[CONFIG_PROBLEMS_MAX:] = [f"{self.source}: and {hidden} more problems"]
        return ConfigError(*sentences)


def quoted(text: str) -> str:
    """Foreign text for a sentence: in double quotes, on one line, cut."""
    cut = text if len(text) <= FOREIGN_TEXT_MAX else text[:FOREIGN_TEXT_MAX] + "..."
    safe = (c if c.isprintable() and c not in '"\\' else _escaped(c) for c in cut)
    return '"' + "".join(safe) + '"'


def _escaped(character: str) -> str:
    return f"\\{character}" if character in '"\\' else ascii(character)[1:-1]


def list_names(names: Iterable[str]) -> str:
    """Known names for a sentence, in the order given; ``none`` if there are none."""
    return ", ".join(names) or "none"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """``; did you mean "x"?`` when a known name is close to the one given, else nothing."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name[:64].casefold(), by_folded, n=1)
    return f"; did you mean {quoted(by_folded[close[0]])}?" if close else ""


def describe_value(value: object) -> str:
    """What stands where something else was expected: ``true``, ``"two"``, ``a list``."""
    match value:
        case YamlNode():
            return _UNREAD if value.is_unread else describe_value(value.value)
        case bool():
            return "true" if value else "false"
        case None:
            return "nothing"
        case str():
            return quoted(value)
        case int() | float():
            return str(value) if len(str(value)) <= 32 else f"{str(value)[:32]}..."
        case dict():
            return "a mapping"
        case _:
            return "a list"
