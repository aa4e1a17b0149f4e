"""What evaluating may cost: a budget that loops and long texts draw on.

Expressions are short and objects bounded, so only what repeats can become dear: each turn of a
loop costs as many units as its body has nodes, a function over a text or list a unit for each ten
characters or elements. A real server counts every step; the figures differ, the bound holds.
"""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.cel.syntax import Call, Expr, Index, ListOf, MapOf, Select
from gpusched.errors import GpuschedError

METER: Final = "\x00meter"
"""The variable under which an environment carries its meter; no expression can name it."""
_UNITS_PER_SIZE: Final = 10
_FUNCTION_UNITS: Final = {"check": 350_000}
"""A question about rights, as dear as a real server counts it: an expression may ask two."""


class CostExceededError(GpuschedError):
    """An expression cost more than one may; no ``||`` hides it, unlike other faults."""


class Meter:
    """Counts down; ``left`` is what may still be spent."""

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        """Draw on the budget; raises CostExceededError when it is used up."""
        self.left -= units
        if self.left < 0:
            raise CostExceededError("operation cancelled: actual cost limit exceeded")

    def spend_on(self, function: str, values: tuple[Any, ...]) -> None:
        """Draw for a function over these values, by its name and their sizes."""
        size = sum(len(v) for v in values if isinstance(v, (str, bytes, list, dict)))
        self.spend(_FUNCTION_UNITS.get(function, 1) + size // _UNITS_PER_SIZE)


def nodes(tree: Expr) -> int:
    """Number of nodes of an expression."""
    match tree:
        case Select():
            return 1 + nodes(tree.operand)
        case Index():
            return 1 + nodes(tree.operand) + nodes(tree.key)
        case Call():
            below = sum(nodes(arg) for arg in tree.args)
            return 1 + below + (nodes(tree.target) if tree.target is not None else 0)
        case ListOf():
            return 1 + sum(nodes(item) for item in tree.items)
        case MapOf():
            return 1 + sum(nodes(k) + nodes(v) for k, v in tree.entries)
    return 1
