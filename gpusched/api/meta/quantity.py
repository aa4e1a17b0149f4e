"""Kubernetes quantities, exact and bounded: never a float, never beyond 2**53 base units.

The grammar is the API's: a decimal number with a binary (Ki..Ei) or decimal (n..E) suffix or a
decimal exponent. The API server itself accepts ``1e30`` and counts beyond 64 bits, so the
bound is ours to keep.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpusched.api.meta.units import unit_exponent
from gpusched.base.limits import QUANTITY_MAX

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]{0,40})(?:\.(?P<part>[0-9]{0,40}))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
BILLIONTHS_MAX = 10**9 * 2**63
"""The largest amount of a device that is believed: what 64 bits count, in billionths."""
_POWERS_OF_TEN = {
    "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(ValueError):
    """Text that is no quantity, or one that no machine can have; ``str()`` says which."""


@lru_cache(maxsize=8192)
def parse_quantity(text: str, *, power: int = 0) -> int:
    """Read a quantity in units of 10**-power, rounded up as the API server rounds.

    Args:
        text: as written in a manifest, such as ``500m``, ``1Gi`` or ``8``.
        power: 3 for cpu and GPUs (thousandths), 0 for everything else (bytes, pieces).

    Returns:
        An int between 0 and ``QUANTITY_MAX``.

    Raises:
        QuantityError: not a quantity, negative, or above ``QUANTITY_MAX``.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(f"{text[:40]!r} is not a quantity")
    digits = int((match["whole"] or "") + (match["part"] or ""))
    if match["sign"] == "-" and digits:
        raise QuantityError(f"{text[:40]!r} is negative")
    ten = power - len(match["part"] or "")
    two = 0
    if match["exponent"]:
        ten += int(match["exponent"])
    elif match["suffix"] in _POWERS_OF_TWO:
        two = _POWERS_OF_TWO[match["suffix"]]
    elif match["suffix"]:
        ten += _POWERS_OF_TEN[match["suffix"]]
    value = digits << two
    scale: int = 10 ** abs(ten)
    value = value * scale if ten >= 0 else -(-value // scale)
    if value > QUANTITY_MAX:
        raise QuantityError(f"{text[:40]!r} is more than any machine has (limit 2**53 base units)")
    return value


def parse_billionths(text: str) -> int:
    """Read a quantity exactly, in billionths, the smallest part that one can name.

    Args:
        text: as written in a manifest, such as ``80Gi`` or ``500m``.

    Returns:
        An int between 0 and ``BILLIONTHS_MAX``.

    Raises:
        QuantityError: not a quantity, negative, or above ``BILLIONTHS_MAX``.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(f"{text[:40]!r} is not a quantity")
    digits = int((match["whole"] or "") + (match["part"] or ""))
    if match["sign"] == "-" and digits:
        raise QuantityError(f"{text[:40]!r} is below zero")
    ten, two = 9 - len(match["part"] or ""), 0
    if match["exponent"]:
        ten += int(match["exponent"])
    elif match["suffix"] in _POWERS_OF_TWO:
        two = _POWERS_OF_TWO[match["suffix"]]
    elif match["suffix"]:
        ten += _POWERS_OF_TEN[match["suffix"]]
    scale: int = 10 ** abs(ten)
    value = digits << two
    value = value * scale if ten >= 0 else -(-value // scale)
    if value > BILLIONTHS_MAX:
        raise QuantityError(f"{text[:40]!r} is more than any device has")
    return value


def format_billionths(amount: int) -> str:
    """A quantity of so many billionths in the form that the API server writes."""
    if amount % 10**9:
        for power, suffix in ((6, "m"), (3, "u"), (0, "n")):
            if amount % 10**power == 0:
                return f"{amount // 10**power}{suffix}"
    whole = amount // 10**9
    for suffix, two in reversed(_POWERS_OF_TWO.items()):
        if whole and whole % (1 << two) == 0:
            return f"{whole >> two}{suffix}"
    return str(whole)


def format_quantity(amount: int, *, resource: str) -> str:
    """Write an amount in base units the way people write it: ``1.5``, ``32Gi``, ``8``; parts of one CPU as ``500m``.

    It is exact, and a quantity too. What follows the name of the resource behind a blank, as in a dimension, does not
    matter.
    """
    name = resource.partition(" ")[0]
    if unit_exponent(name) and amount % 1000 and (abs(amount) > 1000 or name != "cpu"):
        whole, part = divmod(abs(amount), 1000)
        return f"{'-' if amount < 0 else ''}{whole}.{part:03d}".rstrip("0")
    return canonical_quantity(amount, resource=resource)


def canonical_quantity(amount: int, *, resource: str) -> str:
    """Write an amount in base units as the API server writes it: ``1500m``, ``32Gi``, ``8``.

    What follows the name of the resource behind a blank, as in a dimension, does not matter.
    """
    resource = resource.partition(" ")[0]
    if unit_exponent(resource):
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for suffix, shift in reversed(_POWERS_OF_TWO.items()):
            if amount and amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
    return str(amount)
