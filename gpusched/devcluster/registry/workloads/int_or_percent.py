"""Values that are a count or a percentage: maxSurge, maxUnavailable, minAvailable."""

from __future__ import annotations

import re
from typing import Final

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid

_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def int_or_percent_errors(value: int | str, at: str) -> list[FieldError]:
    """Check that a value is a count or a percentage."""
    if isinstance(value, str):
        return [] if _PERCENT.fullmatch(value) else [invalid(at, value, _PERCENT_TEXT)]
    return [] if value >= 0 else [invalid(at, value, "must be greater than or equal to 0")]


def at_most_errors(value: int | str, at: str) -> list[FieldError]:
    """Check that a percentage is no more than all."""
    if isinstance(value, str) and value_as_number(value) > 100:
        return [invalid(at, value, "must not be greater than 100%")]
    return []


def value_as_number(value: int | str) -> int:
    """The number in a count or a percentage; 0 when there is none."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    return int(digits) if digits.isascii() and digits.isdigit() else 0
