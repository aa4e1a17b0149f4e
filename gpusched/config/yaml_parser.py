"""Strict YAML: what a file says is what was meant, or it says nothing.

A duplicate key, an alias, a tag, a second document or a word that YAML 1.1 silently turns into
something else (``yes``, ``010``, ``1:30``) is an error with its line. This is the only module
of the scheduler that imports yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import CONFIG_BYTES_MAX, CONFIG_DEPTH_MAX
from gpusched.config.yaml_tree import ConfigProblems, Scalar, YamlEntry, YamlNode, quoted

_INT = re.compile("-?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile("-?(0|[1-9][0-9]{0,18})[.][0-9]{1,18}")
_LONG = re.compile("-?(0|[1-9][0-9]*)([.][0-9]+)?")
_OCTAL = re.compile("-?0o?[0-7]{1,18}")
_HEXADECIMAL = re.compile("-?0x[0-9a-fA-F]{1,15}")
_Resolve: TypeAlias = Callable[[type[yaml.Node], str, Any], str]
_TAG: Final = "tag:yaml.org,2002:"


def read_file(path: str, *, most: int = CONFIG_BYTES_MAX) -> bytes:
    """The content of a file of the configuration, or of another that is bounded.

    Args:
        path: of the file.
        most: bytes that it may have.

    Raises:
        ConfigError: it cannot be opened, or is too large for one.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(f"{path}: cannot be read: {why}") from error
    if len(raw) > most:
        raise file_too_large_message(path, most=most)
    return raw


def file_too_large_message(source: str, *, most: int = CONFIG_BYTES_MAX) -> ConfigError:
    """That a file is larger than one of its kind may be."""
    return ConfigError(f"{source}: is larger than {most // 2**20} MiB")


def parse_yaml(
    raw: bytes,
    problems: ConfigProblems,
    *,
    empty: str = "write {} to ask for the built-in configuration",
) -> YamlNode | None:
    """The one document of the file, or None when its structure cannot be trusted at all.

    Args:
        raw: of the file.
        problems: takes what is wrong.
        empty: what an empty file lacks.
    """
    found = _documents(raw, problems, _YamlLimits(most=1))
    if found == ():
        problems.add(1, f"is empty: {empty}")
    return found[0] if found else None


def parse_yaml_documents(
    raw: bytes, problems: ConfigProblems, *, depth: int
) -> tuple[YamlNode, ...] | None:
    """Every document of a file of manifests, or None when its structure cannot be trusted.

    Keys are text as they are written, ``on`` too; empty documents are left out.

    Args:
        raw: of the file.
        problems: takes what is wrong.
        depth: how deep values may be nested.
    """
    found = _documents(raw, problems, _YamlLimits(depth=depth, words_are_keys=True))
    return None if found is None else tuple(each for each in found if each.value is not None)


def parse_manifests(
    raw: bytes, problems: ConfigProblems, *, depth: int
) -> tuple[YamlNode, ...] | None:
    """Every document of a file that kubectl would apply, or None when its structure cannot be trusted.

    Anchors, aliases, ``yes`` and ``0644`` mean what they mean to kubectl. Nodes that are named by aliases
    stand in several places of the tree: it must be walked with a bound.

    Args:
        raw: of the file.
        problems: takes what is wrong.
        depth: how deep values may be nested.
    """
    rules = _YamlLimits(depth=depth, words_are_keys=True, as_kubectl=True)
    found = _documents(raw, problems, rules)
    return None if found is None else tuple(each for each in found if each.value is not None)


@frozen
class _YamlLimits:
    """What is allowed beside the bare minimum.

    Attributes:
        most: documents; None for any number.
        depth: of nesting.
        words_are_keys: whether a key such as ``on`` is text although YAML 1.1 has another idea.
        as_kubectl: whether anchors, aliases and all forms of YAML 1.1 are read, as kubectl does.
    """

    most: int | None = None
    depth: int = CONFIG_DEPTH_MAX
    words_are_keys: bool = False
    as_kubectl: bool = False


def _documents(
    raw: bytes, problems: ConfigProblems, rules: _YamlLimits
) -> tuple[YamlNode, ...] | None:
    # Lazily, and only so deep: libyaml's time grows with the square of the nesting.
    events = yaml.parse(raw, Loader=yaml.CSafeLoader)
    found: list[YamlNode] = []
    try:
        next(events)  # the stream begins
        while not isinstance(event := next(events), yaml.StreamEndEvent):
            if len(found) == rules.most:
                problems.add(
                    _line(event), "a second document begins: one file is one configuration"
                )
                return None
            found.append(_YamlBuilder(events, problems, rules).node(depth=0))
            next(events)  # the document ends
    except _TooDeepError as error:
        problems.add(error.line, f"nesting is deeper than {rules.depth} levels")
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join((error.problem or "cannot be parsed").split())
        problems.add(mark.line + 1 if mark else 1, f"is not YAML: {what}")
        return None
    except yaml.reader.ReaderError as error:
        line = raw[: error.position].count(b"\n") + 1
        problems.add(line, "holds a character that YAML does not allow")
        return None
    return tuple(found)


def _line(event: yaml.Event) -> int:
    """Counted from 1; a parser that reads text marks every event."""
    assert event.start_mark is not None
    return event.start_mark.line + 1


class _TooDeepError(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _UnreadScalarError(Exception):
    """A word or number that is not read; its text is why not."""


class _YamlBuilder:
    """Turns parser events into nodes; takes exactly the events of what it builds."""

    def __init__(
        self, events: Iterator[yaml.Event], problems: ConfigProblems, rules: _YamlLimits
    ) -> None:
        self._events = events
        self._problems = problems
        self._rules = rules
        self._resolve = cast("_Resolve", yaml.SafeLoader("").resolve)
        self._anchors: dict[str, YamlNode] = {}

    def node(self, *, depth: int) -> YamlNode:
        """The next value, whole."""
        return self._node(next(self._events), depth)

    def _node(self, event: yaml.Event, depth: int) -> YamlNode:
        line = _line(event)
        if depth > self._rules.depth:
            raise _TooDeepError(line)
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(str(event.anchor), line)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.anchor is not None and not self._rules.as_kubectl:
            self._problems.add(line, f"anchor &{event.anchor}: aliases are not understood here")
        if event.tag is not None:
            self._problems.add(line, f"tag {quoted(event.tag)}: tags are not understood here")
        node = self._value(event, depth, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _aliased(self, anchor: str, line: int) -> YamlNode:
        if not self._rules.as_kubectl:
            self._problems.add(line, f"alias *{anchor}: write the value out again instead")
            return YamlNode(line, None, is_unread=True)
        node = self._anchors.get(anchor)
        if node is None:
            self._problems.add(line, f"alias *{anchor}: nothing before it has this anchor")
            return YamlNode(line, None, is_unread=True)
        return node

    def _value(self, event: yaml.Event, depth: int, line: int) -> YamlNode:
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlNode(line, self._items(depth))
        if isinstance(event, yaml.MappingStartEvent):
            return YamlNode(line, self._entries(depth))
        assert isinstance(event, yaml.ScalarEvent)
        try:
            return YamlNode(line, self._scalar(event))
        except _UnreadScalarError as why:
            self._problems.add(line, str(why))
            return YamlNode(line, None, is_unread=True)

    def _items(self, depth: int) -> tuple[YamlNode, ...]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return tuple(items)

    def _entries(self, depth: int) -> dict[str, YamlEntry]:
        entries: dict[str, YamlEntry] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, depth + 1)
            value = self.node(depth=depth + 1)
            if not isinstance(key.value, str):
                if not key.is_unread:
                    self._problems.add(key.line, "a key must be text")
            elif key.value in entries:
                first = entries[key.value].line
                self._problems.add(
                    key.line, f"duplicate key {quoted(key.value)}: it is already in line {first}"
                )
            else:
                entries[key.value] = YamlEntry(key.line, value)
        return entries

    def _key(self, event: yaml.Event, depth: int) -> YamlNode:
        if not self._rules.words_are_keys or not isinstance(event, yaml.ScalarEvent):
            return self._node(event, depth)
        if event.anchor is not None or event.tag is not None:
            return self._node(event, depth)
        return YamlNode(_line(event), event.value)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text: str = event.value
        kind = self._resolve(yaml.ScalarNode, text, event.implicit).removeprefix(_TAG)
        if self._rules.as_kubectl and _is_old_form(kind, text):
            return _old_value(kind, text)
        return _plain_scalar(kind, text)


def _plain_scalar(kind: str, text: str) -> Scalar:
    match kind:
        case "null":
            return None
        case "bool":
            if text not in {"true", "false"}:
                raise _UnreadScalarError(f"{quoted(text)}: write true or false, or quote it")
            return text == "true"
        case "int" | "float":
            if not (_INT if kind == "int" else _FLOAT).fullmatch(text):
                raise _UnreadScalarError(f"{quoted(text)}: {_not_plain(text)}")
            return int(text) if kind == "int" else float(text)
        case _:
            return text


def _is_old_form(kind: str, text: str) -> bool:
    """Whether a word or number is in a form of YAML 1.1 that kubectl alone takes."""
    if kind == "bool":
        return text not in {"true", "false"}
    return kind in {"int", "float"} and not _LONG.fullmatch(text)


def _old_value(kind: str, text: str) -> Scalar:
    """What kubectl takes it for; numbers that are neither octal nor hexadecimal are text."""
    if kind == "bool":
        return text.lower() in {"true", "yes", "on"}
    if kind == "int" and _OCTAL.fullmatch(text):
        return int(text.replace("o", ""), 8)
    return int(text, 16) if kind == "int" and _HEXADECIMAL.fullmatch(text) else text


def _not_plain(text: str) -> str:
    """Why a number is none of those that are read."""
    if _LONG.fullmatch(text):
        return "has more digits than any number here may have (19, and 18 after the point)"
    return "write a plain decimal, or quote it"
