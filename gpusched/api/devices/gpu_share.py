"""Shares: pods that ask for a part of one GPU, by a fraction or by memory.

The annotation (or label) ``gpusched.io/gpu-fraction`` or ``gpusched.io/gpu-memory`` says how
much; KAI's annotations ``gpu-fraction`` and ``gpu-memory`` (MiB) mean the same. Such a pod names
no GPU among its requests, because the kubelet would give it a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gpusched.api.meta import wire
from gpusched.api.meta.fields import quoted
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.api.meta.units import DEVICE
from gpusched.base.classes import frozen

FRACTION: Final = "gpusched.io/gpu-fraction"
MEMORY: Final = "gpusched.io/gpu-memory"
KAI_FRACTION: Final = "gpu-fraction"
KAI_MEMORY: Final = "gpu-memory"
KAI_DEVICES: Final = "gpu-fraction-num-devices"
KEYS: Final = (FRACTION, MEMORY, KAI_FRACTION, KAI_MEMORY)
"""Annotations by which a pod requests a share of a GPU."""
_NO_GPUS: Final = ("-MIG-", "-SHARED")
"""In the product of a node whose GPUs, as it offers them, are slices or replicas of GPUs."""
_MIB: Final = 2**20
_PARTS: Final = re.compile(r"0?\.(?P<digits>[0-9]{1,3})")
_KAI_PARTS: Final = re.compile(r"0?\.(?P<digits>[0-9]{1,18})")
_MIB_COUNT: Final = re.compile(r"[0-9]{1,9}")


@frozen(slots=True)
class GpuShare:
    """A part of one GPU: either is above zero, the other zero.

    Attributes:
        thousandths: of any GPU.
        memory: bytes of its memory.
    """

    thousandths: int = 0
    memory: int = 0

    def thousandths_of(self, gpu_memory: int) -> int:
        """In thousandths of a GPU with so many bytes, rounded up; 0: such a GPU cannot give it.

        Args:
            gpu_memory: bytes; 0 when it is unknown.
        """
        if self.thousandths:
            return self.thousandths
        if not gpu_memory or self.memory > gpu_memory:
            return 0
        return -(-self.memory * DEVICE // gpu_memory)


def read_gpu_share(
    labels: Mapping[str, str], annotations: wire.WorkloadAnnotations | None
) -> GpuShare | None:
    """What a pod or template asks for; None for no share. Annotations win over labels.

    Raises:
        InvalidObject: it cannot be read, or is no part of one GPU.
    """
    fraction, memory = labels.get(FRACTION), labels.get(MEMORY)
    kai: tuple[str | None, ...] = (None, None, None)
    if annotations is not None:
        fraction = fraction if annotations.gpu_fraction is None else annotations.gpu_fraction
        memory = memory if annotations.gpu_memory is None else annotations.gpu_memory
        if fraction is None and memory is None:
            # What loses is left out: nobody has checked its length, and the result is cached.
            kai = (annotations.kai_fraction, annotations.kai_memory, annotations.kai_devices)
    if fraction is None and memory is None and kai == (None, None, None):
        return None
    return _parse_share((fraction, memory, *kai))


@lru_cache(maxsize=4096)
def _parse_share(texts: tuple[str | None, ...]) -> GpuShare | None:
    fraction, memory, kai_fraction, kai_memory, kai_devices = texts
    if fraction is not None and memory is not None:
        raise InvalidObject(
            _annotation_field(MEMORY), f"a share is said in {FRACTION} or in {MEMORY}, not in both"
        )
    if fraction is not None:
        return GpuShare(thousandths=_thousandths(fraction, FRACTION, _PARTS))
    if memory is not None:
        return GpuShare(memory=_bytes(memory))
    if kai_devices is not None and kai_devices != "1":
        raise InvalidObject(
            _annotation_field(KAI_DEVICES), f"{quoted(kai_devices)}: shares are of one GPU"
        )
    if kai_fraction is not None and kai_memory is not None:
        raise InvalidObject(
            _annotation_field(KAI_MEMORY),
            f"a share is said in {KAI_FRACTION} or in {KAI_MEMORY}, not in both",
        )
    if kai_fraction is not None:
        return GpuShare(thousandths=_thousandths(kai_fraction, KAI_FRACTION, _KAI_PARTS))
    if kai_memory is not None:
        if not _MIB_COUNT.fullmatch(kai_memory) or not int(kai_memory):
            raise InvalidObject(
                _annotation_field(KAI_MEMORY), f"{quoted(kai_memory)} is no number of MiB"
            )
        return GpuShare(memory=int(kai_memory) * _MIB)
    return None


def _thousandths(text: str, key: str, grammar: re.Pattern[str]) -> int:
    """Rounded up to whole thousandths."""
    match = grammar.fullmatch(text)
    digits = match["digits"] if match else ""
    if not digits.strip("0"):
        raise InvalidObject(
            _annotation_field(key), f"{quoted(text)} is no part of a GPU, such as 0.5 or 0.125"
        )
    scale: int = 10 ** len(digits)
    return -(-int(digits) * DEVICE // scale)


def _bytes(text: str) -> int:
    try:
        amount = parse_quantity(text)
    except QuantityError as why:
        raise InvalidObject(_annotation_field(MEMORY), str(why)) from None
    if not amount:
        raise InvalidObject(_annotation_field(MEMORY), f"{quoted(text)} is no memory")
    return amount


def _annotation_field(key: str) -> str:
    return f"metadata.annotations[{key}]"


def shared_resource() -> str:
    """The GPU resource that pods with a share take a part of: the first of those configured."""
    return gpu_resources().main.name


def gpu_memory_of_labels(labels: Mapping[str, str]) -> int:
    """Bytes of each GPU of a node that can be shared, by its labels; 0 when they do not say."""
    text = labels.get(gpu_resources().main.memory_label, "")
    return int(text) * _MIB if _MIB_COUNT.fullmatch(text) else 0


def offers_gpu_slices(labels: Mapping[str, str]) -> bool:
    """Whether what a node offers as GPUs are slices or replicas of them, which cannot be shared."""
    main = gpu_resources().main
    several = labels.get(main.replicas_label, "1") not in {"0", "1"}
    products = [labels.get(label, "") for label in main.product_labels]
    return several or any(part in product for product in products for part in _NO_GPUS)
