"""Extended resources that classes of devices stand for: requests of containers as a claim."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import (
    DeviceClaimSpec,
    DeviceClass,
    DeviceRequest,
    ExtendedRequest,
    RequestAlternatives,
)
from gpusched.api.pod.extended_requests import BY_CLASS

_NAME_MAX: Final = 253


def serving_class(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """The class whose devices serve an extended resource; of several the youngest, as Kubernetes picks."""
    if resource.startswith(BY_CLASS):
        return classes.get(resource.removeprefix(BY_CLASS))
    found = [each for each in classes.values() if each.extended_resource == resource]
    if not found:
        return None
    return min(found, key=lambda each: (-each.created, each.name))


def served_resources(
    asked: Collection[str], classes: Mapping[str, DeviceClass]
) -> dict[str, DeviceClass]:
    """Resources that classes stand for, each with its class.

    Args:
        asked: resources named after classes that pods request; those that classes name count in any case.
        classes: by name.
    """
    names = {each.extended_resource for each in classes.values() if each.extended_resource}
    found = {name: serving_class(name, classes) for name in sorted({*names, *asked})}
    return {name: served for name, served in found.items() if served is not None}


def with_classes(
    requests: Sequence[ExtendedRequest], served: Mapping[str, DeviceClass]
) -> tuple[ExtendedRequest, ...]:
    """Those requests that devices may serve, each with the class that does."""
    return tuple(
        attrs.evolve(each, device_class=served[each.resource].name)
        for each in requests
        if each.resource in served
    )


def extended_claim_spec(requests: Sequence[ExtendedRequest]) -> DeviceClaimSpec:
    """The claim that these requests are; requests in the order of their names, as kube-scheduler has them."""
    return DeviceClaimSpec(
        requests=tuple(
            RequestAlternatives(
                each.name,
                (DeviceRequest(name=each.name, device_class=each.device_class, count=each.count),),
            )
            for each in sorted(requests, key=lambda each: each.name)
        )
    )


def extended_claim_title(requests: Sequence[ExtendedRequest]) -> str:
    """The claim for people: ``<nvidia.com/gpu>``, which no claim of a pod's spec can be called."""
    return f"<{', '.join(dict.fromkeys(each.resource for each in requests))}>"


def is_extended_title(claim: str) -> bool:
    """Whether that is what ``extended_claim_title`` calls a claim."""
    return claim.startswith("<")


def extended_claim_name(pod: str, uid: str) -> str:
    """Name of the claim of a pod's extended resources, the same in every process, so that it is made once.

    Args:
        pod: name of the pod.
        uid: of the pod.
    """
    digits = blake2b(uid.encode(), digest_size=4).hexdigest()
    stem = f"{pod}-extended-resources"[: _NAME_MAX - len(digits) - 1].rstrip("-.")
    return f"{stem}-{digits}"
