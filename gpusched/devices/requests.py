"""Claims made ready for allocation: selectors with those of the class, names of results, settings.

A gang may hold its members' devices to one value of an attribute or to one type. A hold is a selector
beside those of classes and requests, and all that is known of selectors holds for it, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import attrs

from gpusched.api.devices.device_match import DeviceMatchRequest
from gpusched.api.devices.dynamic.claims import (
    AllocatedConfig,
    AllocationMode,
    DeviceClaimSpec,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
)
from gpusched.api.devices.dynamic.slices import AttributeValue, Device, Version
from gpusched.base.classes import frozen
from gpusched.cel.device_selectors import SelectorInvalid, compile_selector
from gpusched.devices.inventory import PoolDevice

RESULTS_MAX: Final = 32
"""Devices that one claim may get."""
TYPE_ATTRIBUTES: Final = ("productName", "model", "type")
"""Attributes of a driver that tell the type of its device, the first that the device has."""


@frozen(slots=True)
class AttributePin:
    """One value of one attribute.

    Attributes:
        attribute: fully qualified.
        value: a single one, also where devices have lists of them.
    """

    attribute: str
    value: AttributeValue

    @property
    def selector(self) -> str:
        """CEL that holds for devices with the value."""
        domain, _, name = self.attribute.partition("/")
        there = f"{json.dumps(name)} in device.attributes[{json.dumps(domain)}]"
        read = f"device.attributes[{json.dumps(domain)}][{json.dumps(name)}]"
        return f"{there} && {read}.includes({_literal(self.value)})"

    @property
    def text(self) -> str:
        """The value for people."""
        value = self.value
        return value.text if isinstance(value, Version) else str(value)


@frozen(slots=True)
class DeviceHold:
    """What the devices of a gang are held to.

    Attributes:
        requests: names of the requests that it is about, empty for all.
        match: a value that all devices have; None for no attribute.
        types: by driver the type of its devices.
        nothing: whether no device at all will do.
    """

    requests: tuple[str, ...] = ()
    match: AttributePin | None = None
    types: tuple[tuple[str, AttributePin], ...] = ()
    nothing: bool = False

    def selectors(self, *names: str) -> tuple[str, ...]:
        """Selectors for a request that has these names; none where the hold is not about it."""
        if self.requests and not set(names) & set(self.requests):
            return ()
        if self.nothing:
            return ("false",)
        found = [] if self.match is None else [self.match.selector]
        for driver, pin in self.types:
            found.append(f"device.driver != {json.dumps(driver)} || ({pin.selector})")
        return tuple(found)

    @property
    def text(self) -> str:
        """What it is, for people: ``dra.net/rail 2``."""
        parts = [] if self.match is None else [f"{self.match.attribute} {self.match.text}"]
        parts += [f"{pin.attribute} {pin.text}" for _, pin in self.types]
        return " with ".join(parts)


def _literal(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Version):
        return f"semver({json.dumps(value.text)})"
    return json.dumps(str(value), ensure_ascii=False)


def pins_of(device: Device, attribute: str) -> tuple[AttributePin, ...]:
    """Values of an attribute that a device has, one for each element of a list."""
    value = next((each for name, each in device.attributes if name == attribute), None)
    if value is None:
        return ()
    values = value if isinstance(value, tuple) else (value,)
    return tuple(AttributePin(attribute, each) for each in values)


def type_pin(device: Device, driver: str) -> AttributePin | None:
    """The type of a device, None where it tells none."""
    for name in TYPE_ATTRIBUTES:
        found = pins_of(device, f"{driver}/{name}")
        if len(found) == 1:
            return found[0]
    return None


def choose_holds(
    request: DeviceMatchRequest,
    selected: Iterable[tuple[PoolDevice, bool]],
    kept: Iterable[tuple[str, Device]],
) -> tuple[tuple[DeviceHold, int], ...]:
    """What a gang's devices may be held to, with the devices of each that are free.

    Args:
        request: of the gang.
        selected: devices that its requests select, with whether anything of each is free.
        kept: drivers and devices that its members have already.

    Returns:
        Those with most devices first.
    """
    selected, kept = list(selected), list(kept)
    every = [each for each, _ in selected]
    matches: list[AttributePin | None] = [None]
    if request.match_attribute:
        name = request.match_attribute
        matches = [*{pin: None for each in every for pin in pins_of(each.device, name)}]
        if kept:
            common = [frozenset(pins_of(device, name)) for _, device in kept]
            matches = [*frozenset.intersection(*common)]
    found = []
    for match in matches:
        for types in _type_choices(request, every, kept, match):
            hold = DeviceHold(request.requests, match, tuple(sorted(types.items(), key=_driver)))
            free = sum(1 for each, is_free in selected if is_free and _may_take(hold, each))
            found.append((hold, free))
    found.sort(key=lambda each: (-each[1], repr(each[0])))
    return tuple(found)


def _driver(pair: tuple[str, AttributePin]) -> str:
    return pair[0]


def _type_choices(
    request: DeviceMatchRequest,
    devices: Iterable[PoolDevice],
    kept: Iterable[tuple[str, Device]],
    match: AttributePin | None,
) -> list[Mapping[str, AttributePin]]:
    """Types by driver, in all combinations; those of members that have devices are given."""
    if not request.same_type:
        return [{}]
    given = {
        driver: pin for driver, device in kept if (pin := type_pin(device, driver)) is not None
    }
    if any(type_pin(device, driver) not in (None, given.get(driver)) for driver, device in kept):
        return []
    offered: dict[str, dict[AttributePin, None]] = {}
    for each in devices:
        driver = each.id.driver
        pin = type_pin(each.device, driver)
        if pin is None or driver in given:
            continue
        if match is None or match in pins_of(each.device, match.attribute):
            offered.setdefault(driver, {})[pin] = None
    choices: list[Mapping[str, AttributePin]] = [given]
    for driver in sorted(offered):
        choices = [{**each, driver: pin} for each in choices for pin in offered[driver]]
    return choices


def _may_take(hold: DeviceHold, device: PoolDevice) -> bool:
    if hold.match is not None and hold.match not in pins_of(device.device, hold.match.attribute):
        return False
    return all(
        driver != device.id.driver or pin == type_pin(device.device, driver)
        for driver, pin in hold.types
    )


@frozen(slots=True)
class ReadyRequest:
    """A request or one of its alternatives.

    Attributes:
        request: as the claim has it.
        parent: name of the request.
        name: that results carry: the request's, or ``request/alternative``.
        selectors: of the class, then its own.
        constraints: numbers of the claim's constraints that are about it.
        must: selectors that each device has to meet that is taken for all that match.
    """

    request: DeviceRequest
    parent: str
    name: str
    selectors: tuple[str, ...]
    constraints: tuple[int, ...]
    must: tuple[str, ...] = ()


@frozen(slots=True)
class ReadyClaim:
    """A claim that can be allocated.

    Attributes:
        name: of the claim, for messages.
        requests: alternatives of each request, best first.
        fault: why no node can serve it, empty where one may.
        hold: what its devices are held to for its gang, None for nothing.
    """

    name: str
    spec: DeviceClaimSpec
    requests: tuple[tuple[ReadyRequest, ...], ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    fault: str = ""
    hold: DeviceHold | None = None

    @property
    def sort(self) -> tuple[DeviceClaimSpec, DeviceHold | None]:
        """What equal claims share."""
        return (self.spec, self.hold)

    def configs(
        self, chosen: Collection[ReadyRequest], classes: Mapping[str, DeviceClass]
    ) -> tuple[AllocatedConfig, ...]:
        """Settings for drivers: those of the classes, then those of the claim.

        Args:
            chosen: the alternatives that were taken, in the order of the requests.
            classes: by name.
        """
        return tuple(self._configs(chosen, classes))

    def _configs(
        self, chosen: Collection[ReadyRequest], classes: Mapping[str, DeviceClass]
    ) -> Iterator[AllocatedConfig]:
        of_class: dict[str, list[str]] = {}
        for each in chosen:
            of_class.setdefault(each.request.device_class, []).append(each.name)
        for name, requests in of_class.items():
            for config in classes[name].configs:
                found = attrs.evolve(config, requests=tuple(requests))
                yield AllocatedConfig(source="FromClass", config=found)
        names = {each.name for each in chosen}
        parents = {each.parent: each.name for each in chosen}
        for config in self.spec.configs:
            kept = tuple(
                name if name in names else parents[name]
                for name in config.requests
                if name in names or name in parents
            )
            if kept or not config.requests:
                yield AllocatedConfig(
                    source="FromClaim", config=attrs.evolve(config, requests=kept)
                )


def make_ready(
    name: str,
    spec: DeviceClaimSpec,
    classes: Mapping[str, DeviceClass],
    hold: DeviceHold | None = None,
) -> ReadyClaim:
    """A claim ready for allocation, or with the reason why it can never be.

    Args:
        name: of the claim, for messages.
        spec: of the claim.
        classes: by name.
        hold: what its devices are held to for its gang.
    """
    found = []
    for asked in spec.requests:
        alternatives = []
        for each in asked.alternatives:
            known = classes.get(each.device_class)
            if known is None:
                return ReadyClaim(
                    name,
                    spec,
                    fault=f"claim {name}, request {asked.name}: there is no DeviceClass "
                    f"{each.device_class}",
                )
            fault = _selector_fault(name, asked.name, each, known)
            if fault:
                return ReadyClaim(name, spec, fault=fault)
            full = f"{asked.name}/{each.name}" if asked.prioritized else asked.name
            held = () if hold is None else hold.selectors(asked.name, full)
            every = each.mode is AllocationMode.ALL
            alternatives.append(
                ReadyRequest(
                    each,
                    asked.name,
                    full,
                    (*known.selectors, *each.selectors, *(() if every else held)),
                    tuple(
                        number
                        for number, rule in enumerate(spec.constraints)
                        if not rule.requests or full in rule.requests or asked.name in rule.requests
                    ),
                    held if every else (),
                )
            )
        found.append(tuple(alternatives))
    least = sum(
        min(_least_devices(each.request) for each in alternatives) for alternatives in found
    )
    fault = ""
    if least > RESULTS_MAX:
        fault = f"claim {name} asks for {least} devices, and a claim may get {RESULTS_MAX}"
    return ReadyClaim(name, spec, tuple(found), spec.constraints, fault, hold)


def _least_devices(request: DeviceRequest) -> int:
    return request.count if request.mode is AllocationMode.EXACT else 1


def _selector_fault(claim: str, request: str, asked: DeviceRequest, of_class: DeviceClass) -> str:
    for whose, selectors in (
        (f"DeviceClass {of_class.name}", of_class.selectors),
        (f"claim {claim}, request {request}", asked.selectors),
    ):
        for number, text in enumerate(selectors):
            try:
                compile_selector(text)
            except SelectorInvalid as why:
                return f"{whose}: selector #{number}: {why}"
    return ""
