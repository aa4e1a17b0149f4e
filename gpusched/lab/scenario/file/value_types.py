"""Shapes of values in a scenario's files: one description both reads them and is their schema.

A shape's ``read`` takes a parsed node and gives a value, or tells what is wrong with its line;
``schema`` says the same to an editor, in JSON Schema. ``fields`` holds the whole table of them.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, TypeAlias

from gpusched.api.meta.duration import NANOSECONDS
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.base.classes import frozen
from gpusched.base.limits import SCENARIO_COUNT_MAX, SCENARIO_LIMIT_MAX_S, TEXT_MAX
from gpusched.config.values import BadValueError, nanoseconds, whole_number
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)

Schema: TypeAlias = dict[str, Any]


class ValueType(Protocol):
    """What a value must be."""

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> Any:
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


@frozen
class TextType:
    """A text; ``what`` names a special kind of it."""

    what: str = "a text"
    pattern: str = ""
    most: int = TEXT_MAX

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> str:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        value = node.value
        if not isinstance(value, str) or not value or len(value) > self.most:
            raise BadValueError(node.line, f"{name} must be {self.what}, not {_brief(node)}")
        if self.pattern and "{{" not in value and not re.fullmatch(self.pattern, value):
            raise BadValueError(
                node.line, f"{name} must be {self.what}, not {describe_value(node)}"
            )
        return value

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        found: Schema = {"type": "string", "minLength": 1, "maxLength": self.most}
        if self.pattern:
            found["pattern"] = rf"^({self.pattern})$|\{{\{{"
        return found


@frozen
class NumberTextType(TextType):
    """A text of digits that may stand there as a number, without quotes."""

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> str:
        """Value of the node; see ``ValueType.read``."""
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return super().read(YamlNode(node.line, str(node.value)), name, problems)
        return super().read(node, name, problems)

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"anyOf": [super().schema(), {"type": "number"}]}


@frozen
class RegexType:
    """A regular expression, as text."""

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> str:
        """Value of the node; see ``ValueType.read``."""
        text = TextType("a regular expression").read(node, name, problems)
        try:
            re.compile(text)
        except re.error as error:
            raise BadValueError(
                node.line, f"{name} must be a regular expression: {quoted(text)}: {error}"
            ) from error
        return text

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {**TextType().schema(), "format": "regex"}


@frozen
class IntegerType:
    """A whole number within bounds."""

    low: int = 0
    high: int = SCENARIO_COUNT_MAX

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> int:
        """Value of the node; see ``ValueType.read``."""
        return whole_number(low=self.low, high=self.high)(node, name, problems)

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@frozen
class NumberType:
    """A number, whole or not."""

    low: float = 0.0
    high: float = 1e9

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> float:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        value = node.value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= float(value) <= self.high:  # type: ignore[arg-type]
            raise BadValueError(
                node.line,
                f"{name} must be a number from {self.low:g} to {self.high:g}, not {describe_value(node)}",
            )
        return float(value)  # type: ignore[arg-type]

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@frozen
class BooleanType:
    """The value ``true`` or ``false``."""

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> bool:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        if not isinstance(node.value, bool):
            raise BadValueError(
                node.line, f"{name} must be true or false, not {describe_value(node)}"
            )
        return node.value

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"type": "boolean"}


@frozen
class DurationType:
    """A duration as Go writes it; read in seconds."""

    low: float = 0.0
    high: float = SCENARIO_LIMIT_MAX_S

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> float:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        low, high = (round(bound * NANOSECONDS) for bound in (self.low, self.high))
        return nanoseconds(node, name, low=low, high=high) / NANOSECONDS

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {
            "anyOf": [
                {"type": "string", "pattern": r"^(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)"
                 "(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)$"},
                {"const": 0},
            ]
        }  # fmt: skip


@frozen
class QuantityType:
    """A Kubernetes quantity, kept as it was written."""

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> str:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadValueError(
                node.line,
                f"{name} must be an amount such as 8, 500m or 32Gi, not {describe_value(node)}",
            )
        text = str(value)
        try:
            parse_quantity(text, power=3)
        except QuantityError as error:
            raise BadValueError(node.line, f"{name} must be an amount: {error}") from error
        return text

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        number = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
        return {"anyOf": [{"type": "string", "pattern": number}, {"type": "number", "minimum": 0}]}


@frozen
class EnumType:
    """One of some words."""

    words: tuple[str, ...]

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> str:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        value = node.value
        if isinstance(value, str) and value in self.words:
            return value
        close = did_you_mean(value, self.words) if isinstance(value, str) else ""
        raise BadValueError(
            node.line,
            f"{name} must be one of {list_names(self.words)}, not {describe_value(node)}{close}",
        )

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"enum": list(self.words)}


@frozen
class AnyType:
    """Any value; read as the node itself, for a reader that knows its type."""

    what: str = "a value"
    types: tuple[type, ...] = ()

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> YamlNode:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        if self.types and not isinstance(node.value, self.types):
            raise BadValueError(
                node.line, f"{name} must be {self.what}, not {describe_value(node)}"
            )
        return node

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"type": [_JSON_NAMES[each] for each in self.types]} if self.types else {}


_JSON_NAMES: Final = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", tuple: "array"
}  # fmt: skip


def _brief(node: YamlNode) -> str:
    if isinstance(node.value, str) and len(node.value) > TEXT_MAX:
        return f"one of {len(node.value)} characters"
    return describe_value(node)
