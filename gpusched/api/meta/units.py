"""In which units amounts of a resource are counted: thousandths of a core and of a GPU, else one.

A GPU can be shared, so a whole one is ``DEVICE`` base units everywhere: in requests, capacities,
quotas, fair shares and node columns. Parts that the hardware makes (MIG) are pieces of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources

DEVICE: Final = 1000
"""Base units of one whole GPU."""


def unit_exponent(resource: str) -> int:
    """Amounts of a resource are counted in units of 10 to the minus this."""
    return 3 if resource == "cpu" or resource in gpu_resources().whole else 0


def unit_of(resource: str) -> int:
    """Base units of one core, one GPU, one byte, one piece."""
    return 1000 if resource == "cpu" or resource in gpu_resources().whole else 1


def pieces_to_base_units(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts of which GPUs are counted in whole ones, in base units."""
    whole = gpu_resources().whole
    return {
        name: amount * DEVICE if name.partition(" ")[0] in whole else amount
        for name, amount in amounts.items()
    }
