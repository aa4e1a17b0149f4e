"""Shapes of values in a scenario's files: one description both reads them and is their schema.

A shape's ``read`` takes a parsed node and gives a value, or tells what is wrong with its line;
``schema`` says the same to an editor, in JSON Schema. ``fields`` holds the whole table of them.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, TypeAlias

import attrs

from gpusched.config.tree import Node, Problems, listed, nearest, quoted, shown
from gpusched.config.values import BadValueError, nanoseconds, whole
from gpusched.limits import SCENARIO_COUNT_MAX, SCENARIO_LIMIT_MAX_S, TEXT_MAX
from gpusched.objects.duration import NANOSECONDS
from gpusched.objects.quantity import QuantityError, parse_quantity

Schema: TypeAlias = dict[str, Any]


class Shape(Protocol):
    """What a value must be."""

    def read(self, node: Node, name: str, problems: Problems) -> Any:
        """The value.

        Args:
            node: as parsed.
            name: of the field, for sentences.
            problems: takes what is wrong inside of it.

        Raises:
            BadValueError: it is none.
        """

    def schema(self) -> Schema:
        """The same in JSON Schema."""


@attrs.frozen
class Text:
    """A text; ``what`` names a special kind of it."""

    what: str = "a text"
    pattern: str = ""
    most: int = TEXT_MAX

    def read(self, node: Node, name: str, problems: Problems) -> str:  # noqa: ARG002
        """See ``Shape.read``."""
        value = node.value
        if not isinstance(value, str) or not value or len(value) > self.most:
            raise BadValueError(node.line, f"{name} must be {self.what}, not {_brief(node)}")
        if self.pattern and "{{" not in value and not re.fullmatch(self.pattern, value):
            raise BadValueError(node.line, f"{name} must be {self.what}, not {shown(node)}")
        return value

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        found: Schema = {"type": "string", "minLength": 1, "maxLength": self.most}
        if self.pattern:
            found["pattern"] = rf"^({self.pattern})$|\{{\{{"
        return found


@attrs.frozen
class NumberText(Text):
    """A text of digits that may stand there as a number, without quotes."""

    def read(self, node: Node, name: str, problems: Problems) -> str:
        """See ``Shape.read``."""
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return super().read(Node(node.line, str(node.value)), name, problems)
        return super().read(node, name, problems)

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"anyOf": [super().schema(), {"type": "number"}]}


@attrs.frozen
class Regex:
    """A regular expression."""

    def read(self, node: Node, name: str, problems: Problems) -> str:
        """See ``Shape.read``."""
        text = Text("a regular expression").read(node, name, problems)
        try:
            re.compile(text)
        except re.error as error:
            raise BadValueError(
                node.line, f"{name} must be a regular expression: {quoted(text)}: {error}"
            ) from error
        return text

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {**Text().schema(), "format": "regex"}


@attrs.frozen
class Whole:
    """A whole number."""

    low: int = 0
    high: int = SCENARIO_COUNT_MAX

    def read(self, node: Node, name: str, problems: Problems) -> int:
        """See ``Shape.read``."""
        return whole(low=self.low, high=self.high)(node, name, problems)

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@attrs.frozen
class Decimal:
    """A number, whole or not."""

    low: float = 0.0
    high: float = 1e9

    def read(self, node: Node, name: str, problems: Problems) -> float:  # noqa: ARG002
        """See ``Shape.read``."""
        value = node.value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= float(value) <= self.high:  # type: ignore[arg-type]
            raise BadValueError(
                node.line,
                f"{name} must be a number from {self.low:g} to {self.high:g}, not {shown(node)}",
            )
        return float(value)  # type: ignore[arg-type]

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@attrs.frozen
class Flag:
    """``true`` or ``false``."""

    def read(self, node: Node, name: str, problems: Problems) -> bool:  # noqa: ARG002
        """See ``Shape.read``."""
        if not isinstance(node.value, bool):
            raise BadValueError(node.line, f"{name} must be true or false, not {shown(node)}")
        return node.value

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"type": "boolean"}


@attrs.frozen
class Duration:
    """A duration as Go writes it; read in seconds."""

    low: float = 0.0
    high: float = SCENARIO_LIMIT_MAX_S

    def read(self, node: Node, name: str, problems: Problems) -> float:  # noqa: ARG002
        """See ``Shape.read``."""
        low, high = (round(bound * NANOSECONDS) for bound in (self.low, self.high))
        return nanoseconds(node, name, low=low, high=high) / NANOSECONDS

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {
            "anyOf": [
                {"type": "string", "pattern": r"^(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)"
                 "(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)$"},
                {"const": 0},
            ]
        }  # fmt: skip


@attrs.frozen
class Amount:
    """A Kubernetes quantity, kept as it was written."""

    def read(self, node: Node, name: str, problems: Problems) -> str:  # noqa: ARG002
        """See ``Shape.read``."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadValueError(
                node.line, f"{name} must be an amount such as 8, 500m or 32Gi, not {shown(node)}"
            )
        text = str(value)
        try:
            parse_quantity(text, power=3)
        except QuantityError as error:
            raise BadValueError(node.line, f"{name} must be an amount: {error}") from error
        return text

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        number = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
        return {"anyOf": [{"type": "string", "pattern": number}, {"type": "number", "minimum": 0}]}


@attrs.frozen
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def read(self, node: Node, name: str, problems: Problems) -> str:  # noqa: ARG002
        """See ``Shape.read``."""
        value = node.value
        if isinstance(value, str) and value in self.words:
            return value
        close = nearest(value, self.words) if isinstance(value, str) else ""
        raise BadValueError(
            node.line, f"{name} must be one of {listed(self.words)}, not {shown(node)}{close}"
        )

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"enum": list(self.words)}


@attrs.frozen
class Anything:
    """Any value; read as the node itself, for whoever knows more about it."""

    what: str = "a value"
    types: tuple[type, ...] = ()

    def read(self, node: Node, name: str, problems: Problems) -> Node:  # noqa: ARG002
        """See ``Shape.read``."""
        if self.types and not isinstance(node.value, self.types):
            raise BadValueError(node.line, f"{name} must be {self.what}, not {shown(node)}")
        return node

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"type": [_JSON_NAMES[each] for each in self.types]} if self.types else {}


_JSON_NAMES: Final = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", tuple: "array"
}  # fmt: skip


def _brief(node: Node) -> str:
    if isinstance(node.value, str) and len(node.value) > TEXT_MAX:
        return f"one of {len(node.value)} characters"
    return shown(node)
