"""Requests of containers for extended resources, one by one: a class of devices may stand for the resource."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from gpusched.api.affinity import wire as wire_rules
from gpusched.api.devices.dynamic.claims import ExtendedRequest
from gpusched.api.meta import wire
from gpusched.api.meta.fields import decode_part, parse_resources
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import unit_of
from gpusched.api.pod import wire as pod_wire

BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource that every class of devices stands for without naming one."""
_REQUIREMENTS: Final = msgspec.json.Decoder(wire_rules.ResourceRequirements)
_NATIVE: Final = "kubernetes.io/"
_QUOTAS: Final = "requests."
_Container = tuple[str, bytes]


def is_extended(resource: str) -> bool:
    """Whether a class of devices may stand for a resource: one of no part of Kubernetes itself."""
    return resource.startswith(BY_CLASS) or (
        "/" in resource and _NATIVE not in resource and not resource.startswith(_QUOTAS)
    )


@lru_cache(maxsize=4096)
def has_extended(requests: Resources) -> bool:
    """Whether any of the requested resources is an extended one."""
    return any("/" in name and is_extended(name) for name, _ in requests.items)


def read_extended_requests(spec: pod_wire.PodSpec) -> tuple[ExtendedRequest, ...]:
    """Requests for extended resources, named as kube-scheduler names them in the claim that it makes; without classes.

    A name has the number of the container, init containers first, and of the resource among all that the
    container requests, by name.

    Raises:
        InvalidObject: a part of the spec that cannot be believed.
    """
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    return _read(tuple([(each.name, bytes(each.resources)) for each in containers]))


@lru_cache(maxsize=4096)
def _read(containers: tuple[_Container, ...]) -> tuple[ExtendedRequest, ...]:
    return tuple(_requests(containers))


def _requests(containers: tuple[_Container, ...]) -> Iterable[ExtendedRequest]:
    for number, (container, raw) in enumerate(containers):
        needs = decode_part(_REQUIREMENTS, raw, field="spec.containers[].resources")
        if needs is None:
            continue
        # The API server fills in a request for each limit; the template of a Job has none.
        asked: wire.Quantities = {**(needs.limits or {}), **(needs.requests or {})}
        amounts = parse_resources(asked, field="spec.containers[].resources.requests")
        for at, resource in enumerate(sorted(asked)):
            count = amounts.get(resource) // unit_of(resource)
            if count > 0 and is_extended(resource):
                yield ExtendedRequest(
                    name=f"container-{number}-request-{at}",
                    container=container,
                    resource=resource,
                    device_class="",
                    count=count,
                )
