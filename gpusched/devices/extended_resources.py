"""Extended resources that classes of devices stand for: containers' requests as a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import (
    DeviceClaimSpec,
    DeviceClass,
    DeviceRequest,
    RequestAlternatives,
)

BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource that every class stands for without naming one."""


@attrs.frozen(slots=True)
class ExtendedRequest:
    """A container's request of a resource that devices serve.

    Attributes:
        name: of the request in the claim.
    """

    name: str
    container: str
    resource: str
    device_class: str
    count: int


def serving_class(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """The class whose devices serve an extended resource; of several the youngest, as Kubernetes picks."""
    if resource.startswith(BY_CLASS):
        return classes.get(resource.removeprefix(BY_CLASS))
    found = [each for each in classes.values() if each.extended_resource == resource]
    if not found:
        return None
    return min(found, key=lambda each: (-each.created, each.name))


def extended_requests(
    containers: Sequence[tuple[str, Mapping[str, int]]], classes: Mapping[str, DeviceClass]
) -> tuple[ExtendedRequest, ...]:
    """Requests of containers that devices serve.

    Args:
        containers: names with pieces by resource, in the order of the pod; init containers first.
        classes: by name.
    """
    found = []
    for number, (container, pieces) in enumerate(containers):
        for at, resource in enumerate(sorted(pieces)):
            served = serving_class(resource, classes)
            if served is not None and pieces[resource] > 0:
                name = f"container-{number}-request-{at}"
                found.append(
                    ExtendedRequest(name, container, resource, served.name, pieces[resource])
                )
    return tuple(found)


def extended_claim_spec(requests: Sequence[ExtendedRequest]) -> DeviceClaimSpec:
    """The claim that these requests are."""
    return DeviceClaimSpec(
        requests=tuple(
            RequestAlternatives(
                each.name,
                (DeviceRequest(name=each.name, device_class=each.device_class, count=each.count),),
            )
            for each in requests
        )
    )
