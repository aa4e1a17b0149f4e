"""What an entry of devices says: so many GPUs, NICs or channels of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, cast, get_args

import msgspec

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.devcluster.controllers.nodes.devices.gpu_models import DEFAULT_MODEL, MODELS

Kind = Literal["gpu", "mig", "nic", "channels"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
CHANNELS_MAX: Final = 2048
"""Channels that NVIDIA's driver of compute domains has on a node."""
_OTHERS_MAX: Final = 64
_KEYS: Final = ("kind", "count", "model", "roots", "without")


class DeviceEntriesError(ConfigError):
    """Entries of devices that mean nothing; the sentence says which and what to write."""


@frozen
class DeviceEntry:
    """Devices of one kind on a node.

    Attributes:
        kind: what they are.
        count: how many of them.
        model: of GPUs, a key of ``MODELS``.
        roots: PCIe roots that they hang under, in equal shares; 0 for as many as the node has.
        without: names of devices that are not published, as when they have failed.
    """

    kind: Kind
    count: int
    model: str = DEFAULT_MODEL
    roots: int = 0
    without: tuple[str, ...] = ()


def read_device_text(text: str) -> tuple[DeviceEntry, ...]:
    """Entries out of a node's annotation, a list in JSON.

    Raises:
        DeviceEntriesError: it is no such list.
    """
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as fault:
        raise DeviceEntriesError(f"devices are a list in JSON: {fault}") from None
    if not isinstance(found, list):
        raise DeviceEntriesError('devices are a list in JSON: [{"kind": "gpu", "count": 8}]')
    return read_device_entries(found)


def read_device_entries(found: Sequence[Any]) -> tuple[DeviceEntry, ...]:
    """Entries out of decoded mappings.

    Raises:
        DeviceEntriesError: one of them is wrong, or a node would have too many devices.
    """
    entries = tuple(_entry(each, f"devices[{i}]") for i, each in enumerate(found))
    for kinds, most in ((("gpu", "mig"), _OTHERS_MAX), (("nic",), _OTHERS_MAX),
                        (("channels",), CHANNELS_MAX)):  # fmt: skip
        total = sum(entry.count for entry in entries if entry.kind in kinds)
        if total > most:
            names = " and ".join(kinds)
            raise DeviceEntriesError(f"devices: {total} of kind {names}, at most {most} on a node")
    return entries


def _entry(found: Any, at: str) -> DeviceEntry:
    if not isinstance(found, dict):
        raise DeviceEntriesError(f"{at}: must be a mapping such as {{kind: gpu, count: 8}}")
    for key in found:
        if key not in _KEYS:
            raise DeviceEntriesError(f"{at}: {key} is unknown; known: {', '.join(_KEYS)}")
    kind = found.get("kind")
    if kind not in KINDS:
        raise DeviceEntriesError(f"{at}.kind: must be one of {', '.join(KINDS)}, not {kind!r}")
    model = found.get("model", DEFAULT_MODEL)
    if not isinstance(model, str) or model not in MODELS:
        raise DeviceEntriesError(f"{at}.model: must be one of {', '.join(MODELS)}, not {model!r}")
    if kind == "mig" and not MODELS[model].profiles:
        able = [name for name, each in MODELS.items() if each.profiles]
        raise DeviceEntriesError(f"{at}.model: {model} has no MIG; {', '.join(able)} have")
    without = found.get("without", [])
    if not isinstance(without, list) or not all(isinstance(each, str) for each in without):
        raise DeviceEntriesError(f"{at}.without: must be a list of names of devices")
    return DeviceEntry(
        cast(Kind, kind),
        _amount(found.get("count", 1), f"{at}.count", least=1),
        model,
        _amount(found.get("roots", 0), f"{at}.roots", least=0),
        tuple(without),
    )


def _amount(value: Any, at: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= CHANNELS_MAX:
        raise DeviceEntriesError(
            f"{at}: must be a whole number of {least} to {CHANNELS_MAX}, not {value!r}"
        )
    return value
