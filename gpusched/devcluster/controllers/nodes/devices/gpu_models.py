"""Models of GPUs, with the MIG partitions that fit them.

Figures of partitions: NVIDIA's Multi-Instance GPU User Guide, ``nvidia-smi mig -lgip`` and ``-lgipp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.base.classes import frozen

ENGINES: Final = ("multiprocessors", "copy-engines", "decoders", "jpeg-engines", "ofa-engines")
"""Counters of a GPU beside its memory, in the order of ``engines``."""


@frozen
class MigProfile:
    """A shape of partition.

    Attributes:
        name: as NVIDIA's tools write it, such as ``1g.10gb``.
        number: NVIDIA's id of the GPU instance profile.
        starts: memory slices at which it may begin.
        slices: of memory that it takes from there.
        memory: MiB.
        engines: amounts of ``ENGINES``.
    """

    name: str
    number: int
    starts: tuple[int, ...]
    slices: int
    memory: int
    engines: tuple[int, ...]


@frozen
class GpuModel:
    """A model of GPU.

    Attributes:
        product: as the driver names it.
        architecture: such as ``Hopper``.
        capability: CUDA compute capability, a semantic version.
        memory: MiB.
        engines: amounts of ``ENGINES``; empty for a model without MIG.
        slices: of memory, for MIG.
        profiles: partitions that it can be split into.
    """

    product: str
    architecture: str
    capability: str
    memory: int
    engines: tuple[int, ...] = ()
    slices: int = 0
    profiles: tuple[MigProfile, ...] = ()


_SEVENTHS: Final = (0, 1, 2, 3, 4, 5, 6)
_QUARTERS: Final = (0, 2, 4, 6)
_PAIRS: Final = (0, 2, 4)


def _ampere(gigabytes: int, memory: tuple[int, int, int, int]) -> tuple[MigProfile, ...]:
    """Partitions of an A100; ``memory`` are MiB of an eighth, a quarter, a half and the whole."""
    eighth, quarter, half, whole = memory
    return (
        MigProfile(f"1g.{gigabytes}gb", 19, _SEVENTHS, 1, eighth, (14, 1, 0, 0, 0)),
        MigProfile(f"2g.{2 * gigabytes}gb", 14, _PAIRS, 2, quarter, (28, 2, 1, 0, 0)),
        MigProfile(f"3g.{4 * gigabytes}gb", 9, (0, 4), 4, half, (42, 3, 2, 0, 0)),
        MigProfile(f"4g.{4 * gigabytes}gb", 5, (0,), 4, half, (56, 4, 2, 0, 0)),
        MigProfile(f"7g.{8 * gigabytes}gb", 0, (0,), 8, whole, (98, 7, 5, 1, 1)),
    )


_HOPPER: Final = (
    MigProfile("1g.10gb", 19, _SEVENTHS, 1, 9984, (16, 1, 1, 1, 0)),
    MigProfile("1g.20gb", 15, _QUARTERS, 2, 20096, (26, 1, 1, 1, 0)),
    MigProfile("2g.20gb", 14, _PAIRS, 2, 20096, (32, 2, 2, 2, 0)),
    MigProfile("3g.40gb", 9, (0, 4), 4, 40448, (60, 3, 3, 3, 0)),
    MigProfile("4g.40gb", 5, (0,), 4, 40448, (64, 4, 4, 4, 0)),
    MigProfile("7g.80gb", 0, (0,), 8, 81152, (132, 8, 7, 7, 1)),
)

DEFAULT_MODEL: Final = "H100"
MODELS: Final[Mapping[str, GpuModel]] = {
    "H100": GpuModel(
        "NVIDIA H100 80GB HBM3", "Hopper", "9.0.0", 81559, (132, 8, 7, 7, 1), 8, _HOPPER
    ),
    "A100": GpuModel(
        "NVIDIA A100-SXM4-80GB", "Ampere", "8.0.0", 81920, (108, 7, 5, 1, 1), 8,
        _ampere(10, (9728, 19968, 40192, 80640)),
    ),
    "A100-40": GpuModel(
        "NVIDIA A100-SXM4-40GB", "Ampere", "8.0.0", 40960, (108, 7, 5, 1, 1), 8,
        _ampere(5, (4864, 9984, 20096, 40192)),
    ),
    "H200": GpuModel("NVIDIA H200", "Hopper", "9.0.0", 143771),
    "B200": GpuModel("NVIDIA B200", "Blackwell", "10.0.0", 183359),
    "GB200": GpuModel("NVIDIA GB200", "Blackwell", "10.0.0", 189471),
    "L40S": GpuModel("NVIDIA L40S", "Ada Lovelace", "8.9.0", 46068),
    "T4": GpuModel("Tesla T4", "Turing", "7.5.0", 15360),
}  # fmt: skip
"""By the name under which an entry of devices asks for it."""
