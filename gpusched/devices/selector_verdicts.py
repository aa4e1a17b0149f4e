"""What selectors say of a device: asked once for all devices that are alike in what the selectors read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import attrs

from gpusched.api.devices.dynamic.slices import AttributeValue, Device
from gpusched.cel.device_selectors import (
    DeviceView,
    SelectorFailed,
    SelectorInvalid,
    SelectorReads,
    attribute_fault,
    compile_selector,
    make_device_view,
    selector_reads,
)

_VERDICTS_MAX: Final = 16_384
"""Verdicts that are kept; a cluster has a few for each model of device and each class."""
_SELECTORS_MAX: Final = 4_096


@attrs.frozen(slots=True)
class Mismatch:
    """Why a selector has no value for a device; not the same as a device that does not match."""

    message: str


class ReadDevice(NamedTuple):
    """What selectors read of a device; verdicts are the same for equal ones.

    Attributes:
        driver: that publishes it.
        attributes: with their types, as ``True`` is 1 to Python.
        amounts: of capacities, billionths by name.
        domains: that are read of attributes and of capacities, and have something; where all is there
            that is read, none.
        fault: why no expression has a value for it, empty where all may.
    """

    driver: str
    attributes: tuple[tuple[str, object, AttributeValue], ...]
    amounts: tuple[tuple[str, int], ...]
    domains: tuple[frozenset[str], frozenset[str]]
    shareable: bool
    fault: str

    def make_view(self) -> DeviceView:
        """The device as CEL expressions see it, without what they do not read."""
        made = make_device_view(
            self.driver,
            {name: value for name, _, value in self.attributes},
            dict(self.amounts),
            shareable=self.shareable,
            domains=self.domains,
        )
        return attrs.evolve(made, fault=self.fault)


def selector_verdict(selectors: tuple[str, ...], device: Device, driver: str) -> bool | Mismatch:
    """Whether all of these CEL expressions hold for a device; the first without a value ends it."""
    return _verdict(selectors, _read_device(_reads_of(selectors), device, driver))


@lru_cache(maxsize=_SELECTORS_MAX)
def _reads_of(selectors: tuple[str, ...]) -> SelectorReads | None:
    """What all of the expressions read, None for everything."""
    attributes: set[str] = set()
    capacities: set[str] = set()
    for text in selectors:
        found = selector_reads(text)
        if found is None:
            return None
        attributes |= found.attributes
        capacities |= found.capacities
    return SelectorReads(frozenset(attributes), frozenset(capacities))


def _read_device(reads: SelectorReads | None, device: Device, driver: str) -> ReadDevice:
    fault = ""
    kept = []
    wanted = None if reads is None else reads.attributes
    for name, value in device.attributes:
        kind = type(value)
        if kind not in _PLAIN:
            fault = fault or attribute_fault(name, value)
        if wanted is None or name in wanted:
            kept.append((name, _types(value) if kind is tuple else kind, value))
    measured = None if reads is None else reads.capacities
    amounts = tuple(
        [(e.name, e.amount) for e in device.capacities if measured is None or e.name in measured]
    )
    domains = _NO_DOMAINS
    if reads is not None and (
        len(kept) < len(reads.attributes) or len(amounts) < len(reads.capacities)
    ):
        domains = (
            _domains(reads.attributes) & _domains(name for name, _ in device.attributes),
            _domains(reads.capacities) & _domains(each.name for each in device.capacities),
        )
    return ReadDevice(driver, tuple(kept), amounts, domains, device.shareable, fault)


_PLAIN: Final = frozenset({bool, int, str})
_NO_DOMAINS: Final[tuple[frozenset[str], frozenset[str]]] = (frozenset(), frozenset())


def _types(value: AttributeValue) -> object:
    """The types inside of a list."""
    return tuple(map(_types, value)) if isinstance(value, tuple) else type(value)


def _domains(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition("/")[0] for name in names)


@lru_cache(maxsize=_VERDICTS_MAX)
def _verdict(selectors: tuple[str, ...], device: ReadDevice) -> bool | Mismatch:
    view = device.make_view()
    for text in selectors:
        try:
            if not compile_selector(text).matches(view):
                return False
        except (SelectorInvalid, SelectorFailed) as why:
            return Mismatch(str(why))
    return True
