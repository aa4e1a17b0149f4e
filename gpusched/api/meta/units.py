"""In which units amounts of a resource are counted: thousandths of a core and of a GPU, else one.

A GPU can be shared, so a whole one is ``DEVICE`` base units everywhere: in requests, capacities,
quotas, fair shares and node columns. Parts that the hardware makes (MIG) are pieces of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GPU_RESOURCES = (
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "huawei.com/Ascend910",
    "nvidia.com/gpu",
)
"""Extended resources whose pieces are whole GPUs, sorted. A node that offers several numbers its
slots through all of them in this order."""
DEVICE: Final = 1000
"""Base units of one whole GPU."""
_THOUSANDTHS: Final = frozenset({"cpu", *GPU_RESOURCES})


def unit_exponent(resource: str) -> int:
    """Amounts of a resource are counted in units of 10 to the minus this."""
    return 3 if resource in _THOUSANDTHS else 0


def unit_of(resource: str) -> int:
    """Base units of one core, one GPU, one byte, one piece."""
    return 1000 if resource in _THOUSANDTHS else 1


def pieces_to_base_units(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts of which GPUs are counted in whole ones, in base units."""
    return {
        name: amount * DEVICE if name.partition(" ")[0] in GPU_RESOURCES else amount
        for name, amount in amounts.items()
    }
