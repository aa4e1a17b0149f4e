"""Questions about quantities that validation and quota ask, remembered by text."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from gpusched.devcluster.quantities import canonical, parse

Value = str | int | float


@lru_cache(maxsize=8192)
def amount(value: Value) -> Fraction:
    """Return the exact amount of a readable quantity; raises QuantityError."""
    return parse(value)


@lru_cache(maxsize=8192)
def is_negative(value: Value) -> bool:
    """Tell whether a quantity is below zero."""
    return amount(value) < 0


@lru_cache(maxsize=8192)
def is_integer(value: Value) -> bool:
    """Tell whether a quantity has no fraction."""
    return amount(value).denominator == 1


@lru_cache(maxsize=8192)
def printed(value: Fraction) -> str:
    """Print an amount in canonical form, decimal suffixes only."""
    if value.denominator == 1:
        return canonical(str(value.numerator))
    return canonical(f"{-(-value * 10**9 // 1)}n")
