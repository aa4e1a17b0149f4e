"""What an expression ends in when it has no value, and the value that may be absent."""

from __future__ import annotations

from typing import Any

from gpusched.base.classes import frozen
from gpusched.base.errors import GpuschedError


class CelError(GpuschedError):
    """An expression without a value; ``str()`` says why."""


@frozen(eq=False)
class OptionalValue:
    """CEL's optional: a value, or none."""

    value: Any = None
    present: bool = False


@frozen
class ExpressionIssue:
    """Something wrong with an expression: its place as an offset in the text, and the message."""

    at: int
    text: str
