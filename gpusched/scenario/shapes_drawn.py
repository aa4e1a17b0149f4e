"""Values that may be drawn anew for each repeat: plain, even, chosen or log-normal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from gpusched.config.tree import Node, Problems, listed
from gpusched.config.values import BadValueError
from gpusched.scenario.mappings import Field, Found, Listing, Table
from gpusched.scenario.shapes import Decimal, Schema, Shape
from gpusched.scenario.work import Even, LogNormal, OneOf

_CHOICES_MAX: Final = 1000
_WEIGHTS: Final = Listing(Decimal(0, 1e9), 1, _CHOICES_MAX)


@attrs.frozen
class MayBeDrawn:
    """A value, or a mapping that says how it is drawn.

    Attributes:
        shape: of the value.
        number: as a number, for drawing even and log-normal ones; None where only choices are.
        back: of a drawn number.
    """

    shape: Shape
    number: Callable[[Any], float] | None = None

    def read(self, node: Node, name: str, problems: Problems) -> Any:
        """See ``Shape.read``."""
        if not isinstance(node.value, dict):
            return self.shape.read(node, name, problems)
        for table in self._tables(name):
            if table.fields[0].name in node.value:
                found = table.read(node, name, problems)
                return self._made(found, node, name, problems)
        words = [table.fields[0].name for table in self._tables(name)]
        raise BadValueError(
            node.line, f"{name} must be a value, or a mapping with one of {listed(words)}"
        )

    def _tables(self, name: str) -> list[Table]:
        choices = Table(
            f"the choice of {name}",
            (
                Field("choice", Listing(self.shape, 1, _CHOICES_MAX), "One of these.", True),
                Field("weights", _WEIGHTS, "How likely each is; all the same when left out."),
            ),
        )
        if self.number is None:
            return [choices]
        even = Table(
            f"the span of {name}",
            (
                Field("from", self.shape, "Lowest value.", True),
                Field("to", self.shape, "Highest value.", True),
            ),
        )
        bell = Table(
            f"the distribution of {name}",
            (
                Field("median", self.shape, "Half of the values are below.", True),
                Field("p95", self.shape, "95 % of the values are below.", True),
            ),
        )
        return [choices, even, bell]

    def _made(self, found: Found, node: Node, name: str, problems: Problems) -> Any:
        wrong = any(key not in found.values for key in found.entries)
        if wrong or ("choice" not in found and len(found.values) < 2):
            # What is wrong has been told; a value is still needed to go on with.
            return next(iter(found.values.values()), None)
        if "choice" in found:
            return _choice(found, name, problems)
        assert self.number is not None
        first, second = (self.number(value) for value in found.values.values())
        low, high = (first, second) if next(iter(found.values)) in _FIRST else (second, first)
        if low > high:
            raise BadValueError(node.line, f"{name} goes from {low:g} down to {high:g}")
        if "median" in found:
            if low <= 0:
                raise BadValueError(node.line, f"{name} must have a median above 0")
            return LogNormal(low, high)
        return Even(low, high)

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"anyOf": [self.shape.schema(), *(each.definition() for each in self._tables("it"))]}


_FIRST: Final = frozenset({"from", "median"})


def _choice(found: Found, name: str, problems: Problems) -> OneOf:
    values = found.get("choice")
    weights = found.get("weights", (1.0,) * len(values))
    written = found.entries["choice"].node.value
    if isinstance(written, tuple) and len(written) == len(values) and len(weights) != len(values):
        problems.add(
            found.line_of("weights"),
            f"{name} has {len(values)} choices and {len(weights)} weights",
        )
        weights = (1.0,) * len(values)
    if not sum(weights):
        problems.add(found.line_of("weights"), f"the weights of {name} are all 0")
        weights = (1.0,) * len(values)
    return OneOf(values, tuple(weights))
