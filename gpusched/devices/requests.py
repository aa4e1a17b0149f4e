"""Claims made ready for allocation: selectors with those of the class, names of results, settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import (
    AllocatedConfig,
    AllocationMode,
    DeviceClaimSpec,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
)
from gpusched.cel.device_selectors import SelectorInvalid, compile_selector
from gpusched.devices.held_values import DeviceHold

RESULTS_MAX: Final = 32
"""Devices that one claim may get."""


@attrs.frozen(slots=True)
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


@attrs.frozen(slots=True)
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
