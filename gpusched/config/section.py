"""Sections of a strict file: mappings whose every key must be known, lists, and choices of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs

from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.config.values import BadValueError
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlEntry,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)

T = TypeVar("T")
W = TypeVar("W", bound=str)


@define
class ConfigSection:
    """A mapping under inspection: remembers which keys are known."""

    name: str
    entries: dict[str, YamlEntry]
    problems: ConfigProblems
    line: int
    known: list[str] = attrs.field(factory=list)

    @classmethod
    def from_node(cls, node: YamlNode, name: str, problems: ConfigProblems) -> ConfigSection | None:
        """The section of a node; None, with a problem noted, when it is no mapping."""
        if isinstance(node.value, dict):
            return cls(name, node.value, problems, node.line)
        problems.add(node.line, f"{name} must be a mapping, not {describe_value(node)}")
        return None

    def read(
        self, key: str, reader: Callable[[YamlNode, str, ConfigProblems], T], *, default: T
    ) -> T:
        """The value of a key, or the default when it is absent or wrong (wrong is noted)."""
        self.known.append(key)
        entry = self.entries.get(key)
        if entry is None:
            return default
        try:
            return reader(entry.node, key, self.problems)
        except BadValueError as error:
            self.problems.add(error.line, error.what)
            return default

    def lines(self, key: str) -> tuple[int, ...]:
        """The lines of the items of a list that was read."""
        entry = self.entries.get(key)
        items = entry.node.value if entry else ()
        return tuple(item.line for item in items) if isinstance(items, tuple) else ()

    def key_line(self, key: str) -> int:
        """Where a key stands, or its section when it is left to its default."""
        return self.entries[key].line if key in self.entries else self.line

    def finish(self) -> None:
        """Note every key that was not read."""
        for key, entry in self.entries.items():
            if key not in self.known:
                self.problems.add(
                    entry.line,
                    f"unknown key {quoted(key)} in {self.name}: "
                    f"known keys are {list_names(self.known)}{did_you_mean(key, self.known)}",
                )


def list_items(node: YamlNode, name: str) -> tuple[YamlNode, ...]:
    """The items of a list that has at least one.

    Raises:
        BadValueError: it is no list, empty, or too long.
    """
    if not isinstance(node.value, tuple) or not node.value:
        what = "an empty list" if node.value == () else describe_value(node)
        raise BadValueError(node.line, f"{name} must be a list of at least one, not {what}")
    if len(node.value) > limits.CONFIG_NAMES_MAX:
        raise BadValueError(
            node.line, f"{name} has {len(node.value)} items, at most {limits.CONFIG_NAMES_MAX}"
        )
    return node.value


def one_of(node: YamlNode, name: str, words: tuple[W, ...]) -> W:
    """A word out of several.

    Raises:
        BadValueError: it is none of them.
    """
    for word in words:
        if node.value == word:
            return word
    close = did_you_mean(node.value, words) if isinstance(node.value, str) else ""
    raise BadValueError(
        node.line, f"{name} must be one of {list_names(words)}, not {describe_value(node)}{close}"
    )
