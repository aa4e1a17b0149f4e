"""GPU slots: one schedulable GPU or MIG slice each, an int bitmask a node."""

from __future__ import annotations

from functools import lru_cache

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.pool_resources import resource_of
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import unit_of
from gpusched.base.limits import SLOTS_PER_NODE_MAX

SLOTS = "gpusched.io/slots"
"""The annotation that our binding writes."""
_NAMES_KEPT = 4096
"""Names of resources of which it is remembered whether they are accelerators."""


def accelerator(resource: str) -> bool:
    """Whether a resource is what clusters like this are built for, so that it decides alone.

    A dimension is one where its resource is.
    """
    gpus = gpu_resources()
    known = gpus.known_accelerators
    found = known.get(resource)
    if found is None:
        if len(known) >= _NAMES_KEPT:
            known.clear()
        found = known[resource] = gpus.is_accelerator(resource_of(resource))
    return found


def gpu_request(requests: Resources) -> tuple[str, int]:
    """The one kind of GPU or slice that a pod asks for and how many; ``("", 0)`` for none.

    Raises:
        InvalidObject: two kinds at once, which no node layout can promise together, or no whole one.
    """
    found = [(name, amount) for name, amount in requests.items if amount and accelerator(name)]
    if len(found) > 1:
        raise InvalidObject(
            "spec.containers.resources", f"asks for both {found[0][0]} and {found[1][0]}"
        )
    if not found:
        return "", 0
    name, amount = found[0]
    unit = unit_of(name)
    if amount % unit:
        raise InvalidObject(
            "spec.containers.resources",
            f"asks for {format_quantity(amount, resource=name)} {name}, and whole ones are given",
        )
    return name, amount // unit


def slot_ranges(capacity: Resources) -> dict[str, range]:
    """Slot numbers of each kind on a node with this capacity: GPUs first, then slices by name."""
    ranges: dict[str, range] = {}
    start = 0
    gpus = gpu_resources()
    slices = [
        name for name, _ in capacity.items if name not in gpus.whole and gpus.is_accelerator(name)
    ]
    for name in (*gpus.names, *slices):
        count = capacity.get(name) // unit_of(name)
        if 0 < count <= SLOTS_PER_NODE_MAX - start:
            ranges[name] = range(start, start + count)
            start += count
    return ranges


def slot_mask(numbers: range | tuple[int, ...]) -> int:
    """The bitmask of some slot numbers."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def slot_numbers(mask: int) -> tuple[int, ...]:
    """The slot numbers of a bitmask, ascending."""
    numbers = []
    while mask:
        low = mask & -mask
        numbers.append(low.bit_length() - 1)
        mask ^= low
    return tuple(numbers)


def parse_slots(text: str) -> int:
    """The annotation ``gpusched.io/slots`` as a bitmask, 0 when empty.

    Raises:
        InvalidObject: anything but distinct numbers below ``SLOTS_PER_NODE_MAX``.
    """
    if not text:
        return 0
    parts = text.split(",") if len(text) <= 8 * SLOTS_PER_NODE_MAX else [""]
    if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        raise InvalidObject(f"metadata.annotations[{SLOTS}]", f"{text[:40]!r} is no list of slots")
    numbers = tuple(int(part) for part in parts)
    if max(numbers) >= SLOTS_PER_NODE_MAX or len(set(numbers)) != len(numbers):
        raise InvalidObject(f"metadata.annotations[{SLOTS}]", f"{text[:40]!r} is no list of slots")
    return slot_mask(numbers)


@lru_cache(maxsize=4096)
def format_slots(mask: int) -> str:
    """The annotation's text for a bitmask."""
    return ",".join(str(number) for number in slot_numbers(mask))
