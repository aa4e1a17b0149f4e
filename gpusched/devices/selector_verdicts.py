"""What selectors say of a device: asked once for all devices that are alike in what the selectors read.

Devices of one model have attributes of the same names and types, a frame that they share: where in a
device an expression finds what it reads is worked out once for each frame.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from gpusched.api.devices.dynamic.slices import AttributeSchema, AttributeValue, Device
from gpusched.base.classes import frozen
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

_FRAMES_MAX: Final = 4_096
_PLANS_MAX: Final = 256
"""Selectors for which a frame remembers what they read."""
_VERDICTS_MAX: Final = 4_096
"""Verdicts of some selectors that a frame remembers: one for each device where they read serial numbers."""
_SELECTORS_MAX: Final = 4_096
_PLAIN: Final = (bool, int, str)
LookedAt: TypeAlias = "tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]"
"""Selectors of all requests of some claims, and attributes that their constraints compare."""


@frozen(slots=True)
class Mismatch:
    """Why a selector has no value for a device; not the same as a device that does not match."""

    message: str


@frozen(slots=True, eq=False)
class _Plan:
    """Where some selectors find what they read of the devices of one frame.

    Attributes:
        places: of attributes that are read and there.
        capacities: names of those that are read, None for all.
        domains: of attributes that are read and there.
        verdicts: by what was read.
    """

    places: tuple[int, ...]
    capacities: frozenset[str] | None
    domains: frozenset[str]
    verdicts: dict[Hashable, bool | Mismatch] = attrs.field(factory=dict)


class AttributeFrame:
    """Names and types of the attributes that devices have in common.

    Args:
        names: of the attributes.
        types: of their values; of a list, a tuple of its elements' types.
    """

    def __init__(self, names: tuple[str, ...], types: tuple[object, ...]) -> None:
        self.places: dict[str, int] = {name: place for place, name in enumerate(names)}
        """Places of the attributes by name."""
        self._names = names
        self._doubtful = tuple(place for place, each in enumerate(types) if each not in _PLAIN)
        self._faults: dict[Hashable, str] = {}
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._read_places: dict[LookedAt, tuple[int, ...]] = {}
        self._ending: dict[str, tuple[int, ...]] = {}

    def places_ending_in(self, name: str) -> tuple[int, ...]:
        """Places of the attributes with a name in any domain; asked with names of this program alone."""
        known = self._ending.get(name)
        if known is None:
            known = self._ending[name] = tuple(
                place for each, place in self.places.items() if each.rpartition("/")[2] == name
            )
        return known

    def read_places(self, looked_at: LookedAt) -> tuple[int, ...]:
        """Places of all attributes that some selectors read or constraints compare, or that may be faulty."""
        known = self._read_places.get(looked_at)
        if known is None:
            if len(self._read_places) >= _PLANS_MAX:
                self._read_places.clear()
            selectors, compared = looked_at
            read = {self.places[name] for name in compared if name in self.places}
            read.update(self._doubtful, *(self._make_plan(each).places for each in selectors))
            known = self._read_places[looked_at] = tuple(sorted(read))
        return known

    def selector_verdict(
        self, selectors: tuple[str, ...], device: Device, driver: str
    ) -> bool | Mismatch:
        """Whether all of these CEL expressions hold for a device; the first without a value ends it."""
        plan = self._plans.get(selectors)
        if plan is None:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[selectors] = self._make_plan(selectors)
        attributes = device.attributes
        key = (
            driver,
            tuple([attributes[place][1] for place in plan.places]),
            device.capacities if plan.capacities is None else _amounts(plan.capacities, device),
            device.shareable,
            self._frame_error(attributes) if self._doubtful else "",
        )
        known = plan.verdicts.get(key)
        if known is None:
            if len(plan.verdicts) >= _VERDICTS_MAX:
                plan.verdicts.clear()
            known = plan.verdicts[key] = _evaluate(selectors, self._view(plan, device, driver))
        return known

    def _make_plan(self, selectors: tuple[str, ...]) -> _Plan:
        reads = _reads_of(selectors)
        if reads is None:
            return _Plan(tuple(range(len(self._names))), None, frozenset())
        found = tuple(place for name, place in self.places.items() if name in reads.attributes)
        return _Plan(found, reads.capacities, _domains(reads.attributes) & _domains(self._names))

    def _frame_error(self, attributes: Sequence[tuple[str, AttributeValue]]) -> str:
        """Why no expression can be evaluated with these attributes, empty where all can."""
        key = tuple([attributes[place][1] for place in self._doubtful])
        known = self._faults.get(key)
        if known is None:
            if len(self._faults) >= _VERDICTS_MAX:
                self._faults.clear()
            each = (attribute_fault(*attributes[place]) for place in self._doubtful)
            known = self._faults[key] = next(filter(None, each), "")
        return known

    def _view(self, plan: _Plan, device: Device, driver: str) -> DeviceView:
        """A device as CEL expressions see it, without what they do not read."""
        wanted = plan.capacities
        made = make_device_view(
            driver,
            dict([device.attributes[place] for place in plan.places]),
            {e.name: e.amount for e in device.capacities if wanted is None or e.name in wanted},
            shareable=device.shareable,
            domains=(plan.domains, _domains(each.name for each in device.capacities)),
        )
        return attrs.evolve(made, fault=self._frame_error(device.attributes))


def frame_of(device: Device) -> AttributeFrame:
    """The frame of a device's attributes."""
    return _frame(device.schema)


def selector_verdict(selectors: tuple[str, ...], device: Device, driver: str) -> bool | Mismatch:
    """Whether all of these CEL expressions hold for a device; the first without a value ends it."""
    return frame_of(device).selector_verdict(selectors, device, driver)


@lru_cache(maxsize=_FRAMES_MAX)
def _frame(schema: AttributeSchema) -> AttributeFrame:
    return AttributeFrame(schema.names, schema.types)


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


def _amounts(wanted: frozenset[str], device: Device) -> Hashable:
    """Capacities that are read, and domains of all where one of them is not there."""
    if not wanted:
        return ()
    found = [(each.name, each.amount) for each in device.capacities if each.name in wanted]
    if len(found) < len(wanted):
        return (*found, _domains(each.name for each in device.capacities))
    return tuple(found)


def _domains(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition("/")[0] for name in names)


def _evaluate(selectors: tuple[str, ...], view: DeviceView) -> bool | Mismatch:
    for text in selectors:
        try:
            if not compile_selector(text).matches(view):
                return False
        except (SelectorInvalid, SelectorFailed) as why:
            return Mismatch(str(why))
    return True
