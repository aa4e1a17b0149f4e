"""Single values of a strict file: each reader takes a node and says what it is, or refuses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from gpusched.api.meta.duration import NANOSECONDS, format_duration, parse_duration
from gpusched.config.model import Argument
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value

_LABEL: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)


_LABEL_PART: Final = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class BadValueError(Exception):
    """A value that cannot be used, raised by a reader and noted by its section."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


def object_name(node: YamlNode, name: str, _: ConfigProblems) -> str:
    """A name that an object can have."""
    if isinstance(node.value, str) and len(node.value) <= 253 and _SUBDOMAIN.fullmatch(node.value):
        return node.value
    raise BadValueError(
        node.line,
        f"{name} must be a name such as gpusched or team-a.example, not {describe_value(node)}",
    )


def namespace_name(node: YamlNode, name: str, _: ConfigProblems) -> str:
    """A name that a namespace can have."""
    if isinstance(node.value, str) and _LABEL.fullmatch(node.value):
        return node.value
    raise BadValueError(node.line, f"{name} must be a namespace's name, not {describe_value(node)}")


def is_label_key(text: str) -> bool:
    """Whether an object's label can have this key: a name of up to 63 characters, perhaps behind a DNS name and a slash."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or _SUBDOMAIN.fullmatch(prefix) is None):
        return False
    return _LABEL_PART.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether an object's label can have this value: up to 63 characters, or none."""
    return not text or _LABEL_PART.fullmatch(text) is not None


def whole_number(*, low: int, high: int) -> Callable[[YamlNode, str, ConfigProblems], int]:
    """A reader of whole numbers in a range."""

    def read(node: YamlNode, name: str, _: ConfigProblems) -> int:
        value = node.value
        # True is an int to Python, and to nobody else.
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadValueError(
                node.line,
                f"{name} must be a whole number from {low} to {high}, not {describe_value(node)}",
            )
        return value

    return read


def nanoseconds(node: YamlNode, name: str, *, low: int, high: int) -> int:
    """A duration in a range of nanoseconds."""
    expected = f"{name} must be a duration from {format_duration(low)} to {format_duration(high)}"
    if isinstance(node.value, bool) or not isinstance(node.value, str | int):
        raise BadValueError(node.line, f"{expected}, not {describe_value(node)}")
    try:
        value = parse_duration(str(node.value))
    except ValueError as error:
        raise BadValueError(node.line, f"{expected}: {error}") from error
    if not low <= value <= high:
        raise BadValueError(node.line, f"{expected}, not {describe_value(node)}")
    return value


def seconds(*, low: int, high: int) -> Callable[[YamlNode, str, ConfigProblems], float]:
    """A reader of durations in a range of nanoseconds, in seconds."""

    def read(node: YamlNode, name: str, _: ConfigProblems) -> float:
        return nanoseconds(node, name, low=low, high=high) / NANOSECONDS

    return read


def plain_value(node: YamlNode) -> Argument:
    """What a node holds without its lines; mappings and lists cannot be changed."""
    if isinstance(node.value, tuple):
        return tuple(plain_value(item) for item in node.value)
    if isinstance(node.value, dict):
        return MappingProxyType({key: plain_value(entry.node) for key, entry in node.value.items()})
    return node.value
