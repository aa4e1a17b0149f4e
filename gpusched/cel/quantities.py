"""Quantities as the API server reads and prints them: exact, of any size, never a float.

The scheduler has its own bounded arithmetic; the embedded cluster must not share it, and must
accept what a real server accepts, beyond 64 bits too. Amounts that validation and quotas compute
with are remembered by their text.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from gpusched.base.errors import GpuschedError

PATTERN_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
"""What the server says of a quantity it cannot read."""

_FORM = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d{1,9}))$")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT_MAX = 10_000


class QuantityFormatError(GpuschedError):
    """A text that is not a quantity; ``str()`` is the server's sentence."""


@functools.lru_cache(maxsize=16_384, typed=True)
def _split(text: str | float) -> tuple[Fraction, str]:
    """Exact value and the family of its suffix: ``binary``, ``decimal`` or ``exponent``."""
    match = _FORM.match(str(text))
    if match is None or isinstance(text, bool):
        raise QuantityFormatError(PATTERN_TEXT)
    sign, number, suffix, exponent = match.groups()
    value = Fraction(number if not number.startswith(".") else "0" + number)
    if exponent is not None:
        if abs(int(exponent)) > _EXPONENT_MAX:
            raise QuantityFormatError(PATTERN_TEXT)
        value *= Fraction(10) ** int(exponent)
        family = "exponent"
    elif suffix in _BINARY:
        value *= 1 << _BINARY[suffix]
        family = "binary"
    else:
        value *= Fraction(10) ** _DECIMAL[suffix]
        family = "decimal"
    # The finest unit is a billionth; finer values are rounded away from zero.
    scaled = -(-value * 10**9 // 1)
    value = Fraction(scaled, 10**9)
    return (-value if sign == "-" else value), family


def parse_quantity(text: str | float) -> Fraction:
    """Exact value of a quantity in base units, rounded away from zero to a billionth.

    Raises:
        QuantityFormatError: it cannot be read.
    """
    return _split(text)[0]


@functools.lru_cache(maxsize=16_384, typed=True)
def canonical_quantity(text: str | float) -> str:
    """The same value with the largest suffix of its family that leaves no fraction.

    Raises:
        QuantityFormatError: it cannot be read.
    """
    value, family = _split(text)
    if value == 0:
        return "0"
    if family == "binary":
        if value.denominator == 1 and abs(value) >= 1024:
            return _binary(value)
        family = "decimal"
    return _decimal(value, exponent=family == "exponent")


def _binary(value: Fraction) -> str:
    number = int(value)
    suffix = ""
    for name, power in _BINARY.items():
        if number % (1 << power):
            break
        suffix = name
    return f"{number >> _BINARY[suffix] if suffix else number}{suffix}"


def _decimal(value: Fraction, *, exponent: bool) -> str:
    powers = {name: p for name, p in _DECIMAL.items() if _is_multiple_of_power(value, p)}
    best = max(powers, key=lambda name: powers[name])
    power = powers[best]
    if not exponent:
        return f"{int(value / Fraction(10) ** power)}{best}"
    while _is_multiple_of_power(value, power + 3):
        power += 3
    number = int(value / Fraction(10) ** power)
    return f"{number}e{power}" if power else str(number)


def _is_multiple_of_power(value: Fraction, power: int) -> bool:
    return (value / Fraction(10) ** power).denominator == 1


Value = str | int | float


@lru_cache(maxsize=8192)
def parse_amount(value: Value) -> Fraction:
    """Return the exact amount of a readable quantity; raises QuantityFormatError."""
    return parse_quantity(value)


@lru_cache(maxsize=8192)
def is_negative(value: Value) -> bool:
    """Tell whether a quantity is below zero."""
    return parse_amount(value) < 0


@lru_cache(maxsize=8192)
def is_integer(value: Value) -> bool:
    """Tell whether a quantity has no fraction."""
    return parse_amount(value).denominator == 1


@lru_cache(maxsize=8192)
def print_amount(value: Fraction) -> str:
    """Print an amount in canonical form, decimal suffixes only."""
    if value.denominator == 1:
        return canonical_quantity(str(value.numerator))
    return canonical_quantity(f"{-(-value * 10**9 // 1)}n")
