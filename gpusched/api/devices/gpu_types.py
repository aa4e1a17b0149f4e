"""GPU types: which one a node has, and what gangs say about them.

The type of a node is what a label tells of its product (``gpuResources[].productLabels`` of the
configuration). A gang names types as people do: ``h100`` means every product of whose words it is
one, such as ``NVIDIA-H100-80GB-HBM3``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

import msgspec

from gpusched.api.meta.fields import explain_decode_error, quoted
from gpusched.api.meta.gpu_resources import GpuResources
from gpusched.base.classes import frozen
from gpusched.base.limits import GPU_TYPES_MAX

FULL_SPEED: Final = 1_000
"""The speed 1.0; speeds are whole thousandths."""
SPEED_MAX: Final = 1_000 * FULL_SPEED
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NUMBER_LENGTH_MAX: Final = 32
_LENGTH_MAX: Final = 4_096
"""Bytes of a request, which is remembered; 32 names of 63 characters with their speeds fit."""
FIELD: Final = "spec.gpuTypes"
ANNOTATION: Final = "gpusched.io/gpu-types"
ANNOTATION_FIELD: Final = f"metadata.annotations[{ANNOTATION}]"


@frozen(slots=True, kw_only=True)
class GpuTypeRequest:
    """What a gang says about types of GPUs.

    Attributes:
        same_type: whether all its GPUs must be of one type (True), may be of several (False), or
            are of one where that is possible (None).
        speeds: types that it takes with their relative speeds in thousandths, sorted by name; empty
            where it takes any, all equally well.
        error: field and reason why it cannot be read; empty when it can.
    """

    same_type: bool | None = None
    speeds: tuple[tuple[str, int], ...] = ()
    error: str = ""


NO_GPU_TYPE_REQUEST: Final = GpuTypeRequest()


class _WireGpuTypes(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    same_type: bool | None = None
    speeds: dict[str, str | int | float] | None = None


_READ: Final = msgspec.json.Decoder(_WireGpuTypes)


def parse_gpu_types(raw: bytes, *, field: str) -> GpuTypeRequest:
    """A request as JSON; one that cannot be read holds the reason, so that its gang can be told.

    Args:
        raw: the object, or ``null``; empty for nothing said.
        field: where it stands, for the reason.
    """
    if not raw or raw == b"null":
        return NO_GPU_TYPE_REQUEST
    if len(raw) > _LENGTH_MAX:
        return GpuTypeRequest(error=f"{field}: has {len(raw):,} bytes, more than {_LENGTH_MAX:,}")
    return _parse(raw, field)


@lru_cache(maxsize=1024)
def _parse(raw: bytes, field: str) -> GpuTypeRequest:
    try:
        parsed = _READ.decode(raw)
        speeds = _speeds(parsed.speeds)
    except _BadSpeedError as why:
        return GpuTypeRequest(error=f"{field}.speeds: {why}")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        invalid = explain_decode_error(error, under=field)
        return GpuTypeRequest(error=f"{invalid.field}: {invalid.why}")
    if parsed.same_type is None and not speeds:
        return NO_GPU_TYPE_REQUEST
    return GpuTypeRequest(same_type=parsed.same_type, speeds=speeds)


class _BadSpeedError(Exception):
    """A speed, or the name of its type, that means nothing."""


def _speeds(given: dict[str, str | int | float] | None) -> tuple[tuple[str, int], ...]:
    if given is None:
        return ()
    if not given:
        raise _BadSpeedError("names no GPU type; name one, or leave speeds out")
    if len(given) > GPU_TYPES_MAX:
        raise _BadSpeedError(f"names {len(given)} GPU types, more than {GPU_TYPES_MAX}")
    found: dict[str, tuple[str, int]] = {}
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            raise _BadSpeedError(f"{quoted(name)} is no GPU type, such as h100")
        if name.lower() in found:
            raise _BadSpeedError(f"{name} is named twice")
        found[name.lower()] = (name, _speed(name, value))
    return tuple(found[key] for key in sorted(found))


def _speed(name: str, value: str | float) -> int:
    """A relative speed in thousandths."""
    text = str(value).strip()
    try:
        number = Decimal(text) if len(text) <= _NUMBER_LENGTH_MAX else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    expected = "a speed is a number from 0.001 to 1000"
    if not number.is_finite():
        raise _BadSpeedError(f"{name}: {quoted(text)} is no number; {expected}")
    if number <= 0:
        raise _BadSpeedError(
            f"{name}: {quoted(text)} is not above zero; leave out a type that the gang cannot use"
        )
    thousandths = int(number * FULL_SPEED) if number <= SPEED_MAX else SPEED_MAX + 1
    if not 1 <= thousandths <= SPEED_MAX:
        raise _BadSpeedError(f"{name}: {quoted(text)} is out of bounds; {expected}")
    return thousandths


def gpu_type_of(labels: Mapping[str, str], resources: GpuResources) -> str:
    """The GPU type that labels of a node tell; empty where they tell none."""
    for _, label in resources.product_labels:
        product = labels.get(label)
        if product:
            return product
    return ""


def names_gpu_type(name: str, product: str) -> bool:
    """Whether a name means a product: the whole of it, or some of its words, in any case."""
    return f"-{_dashed(name)}-" in f"-{_dashed(product)}-"


@lru_cache(maxsize=4096)
def _dashed(text: str) -> str:
    """Words in lower case, joined by hyphens."""
    return "-".join(re.findall(r"[a-z0-9.]+", text.lower()))


def named_value(values: tuple[tuple[str, int], ...], product: str) -> tuple[str, int] | None:
    """Of pairs of name and value the one whose name means a product, the most exact one; or None."""
    matching = [each for each in values if names_gpu_type(each[0], product)]
    return max(matching, key=lambda each: (len(_dashed(each[0])), each[0]), default=None)


PRICE_ONE: Final = 1_000
"""The price 1 of a GPU for an hour, in thousandths."""


def gpu_price_of(labels: Mapping[str, str], resources: GpuResources) -> int:
    """Price of a GPU of a node with these labels for an hour, in thousandths."""
    if not resources.prices:
        return resources.other_price
    return gpu_type_price(gpu_type_of(labels, resources), resources)


def gpu_type_price(product: str, resources: GpuResources) -> int:
    """Price of a GPU of a type for an hour, in thousandths; of an unknown one where the type is empty."""
    named = named_value(resources.prices, product)
    return resources.other_price if named is None else named[1]
