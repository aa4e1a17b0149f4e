"""A layout out of what drivers publish about each GPU: its number, PCIe root and NUMA node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from gpusched.api.devices.gpu_layout import GpuLayout, Island
from gpusched.api.devices.published_devices import LINKS, DeviceSlice, PublishedDevice

_INDEX: Final = ("index", "minor", "deviceindex")
NUMBERING: Final = frozenset({"type", *_INDEX})
"""Attributes that tell which devices are whole GPUs, and the order of their slots."""
_DIGITS: Final = re.compile("[0-9]{1,9}")


def layout_from_devices(slices: Iterable[DeviceSlice]) -> GpuLayout | None:
    """The layout of one node's GPUs; None when nothing is published that tells them apart.

    A pool counts when all slices of its newest generation are there. Slots are numbered by the
    devices' own index, else by the numbers in their names, pool after pool. Islands are those
    of the attributes that all have, and that neither put all together nor each alone; attributes
    with few values divide the node first.
    """
    devices = _in_slot_order(slices)
    values = [[device.get(*names) for device in devices] for names in LINKS]
    levels = sorted(
        (each for each in values if all(each) and 1 < len(set(each)) < len(each)),
        key=lambda each: len(set(each)),
    )
    if not levels:
        return None
    return GpuLayout(_divide_slots(tuple(range(len(devices))), levels), _numa_slots(values[0]))


def number_devices(slices: Iterable[DeviceSlice]) -> dict[tuple[str, str, str], int]:
    """The slot of each whole GPU of one node, by driver, pool and name; numbered as for a layout."""
    return {key: slot for slot, (key, _) in enumerate(_ordered_keys(slices))}


def _divide_slots(slots: tuple[int, ...], levels: Sequence[Sequence[str]]) -> tuple[Island, ...]:
    parts: dict[str, list[int]] = {}
    for slot in slots:
        parts.setdefault(levels[0][slot], []).append(slot)
    if len(levels) == 1:
        return tuple(tuple(part) for part in parts.values())
    return tuple(_divide_slots(tuple(part), levels[1:]) for part in parts.values())


def _in_slot_order(slices: Iterable[DeviceSlice]) -> list[PublishedDevice]:
    return [device for _, device in _ordered_keys(slices)]


def _ordered_keys(
    slices: Iterable[DeviceSlice],
) -> list[tuple[tuple[str, str, str], PublishedDevice]]:
    """Whole GPUs in the order of their slots, each with driver, pool and name."""
    pools: dict[tuple[str, str, str], list[DeviceSlice]] = {}
    for each in slices:
        vendor = each.driver.partition(".")[2]
        pools.setdefault((vendor, each.driver, each.pool), []).append(each)
    devices: list[tuple[tuple[str, str, str], PublishedDevice]] = []
    for (_, driver, pool), parts in sorted(pools.items()):
        newest = max(part.generation for part in parts)
        current = [part for part in parts if part.generation == newest]
        if len(current) == current[0].parts:
            listed = sorted((each for part in current for each in part.devices), key=_device_number)
            devices += [((driver, pool, each.name), each) for each in listed]
    return devices


def _device_number(device: PublishedDevice) -> tuple[int, tuple[int, ...], str]:
    """Devices with an index in its order, before those that only have a name."""
    index = device.get(*_INDEX)
    if _DIGITS.fullmatch(index):
        return int(index), (), device.name
    return -1, tuple(int(each) for each in _DIGITS.findall(device.name)), device.name


def _numa_slots(values: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Slots by NUMA node; empty where one does not say its own."""
    if not all(_DIGITS.fullmatch(value) for value in values):
        return ()
    ids = sorted({int(value) for value in values})
    return tuple(
        tuple(slot for slot, value in enumerate(values) if int(value) == each) for each in ids
    )
