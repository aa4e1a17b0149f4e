"""All device objects of one moment, as a session and the cache's checks read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import attrs

from gpusched.api.devices.dynamic.claims import (
    AllocationMode,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from gpusched.api.devices.dynamic.slices import DeviceTaintRule, ResourceSlice
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.base.classes import frozen


@frozen(slots=True, kw_only=True, eq=False)
class DeviceCatalog:
    """Devices, classes of them, and claims.

    Attributes:
        slices: sorted by name.
        classes: by name.
        claims: by key; with allocations that are assumed and not yet seen in the API.
        templates: by key.
        taint_rules: sorted by name.
        served: whether the API server serves ``resource.k8s.io`` at all.
    """

    slices: tuple[ResourceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = attrs.field(factory=lambda: MappingProxyType({}))
    claims: Mapping[ObjectKey, ResourceClaim] = attrs.field(factory=lambda: MappingProxyType({}))
    templates: Mapping[ObjectKey, ResourceClaimTemplate] = attrs.field(
        factory=lambda: MappingProxyType({})
    )
    taint_rules: tuple[DeviceTaintRule, ...] = ()
    served: bool = False


NO_DEVICES = DeviceCatalog()


def claimed_devices(catalog: DeviceCatalog, pod: Pod) -> Iterator[tuple[str, int]]:
    """Classes of devices that a pod's claims ask for, each with how many; 0 for all of them.

    Of alternatives the first; devices for administration are left out.
    """
    for named in pod.pod_class.claims:
        name = named.claim or dict(pod.generated_claims).get(named.name, "")
        holder: ResourceClaim | ResourceClaimTemplate | None = catalog.claims.get(
            ObjectKey(pod.namespace, name)
        ) or catalog.templates.get(ObjectKey(pod.namespace, named.template))
        for asked in holder.spec.requests if holder is not None else ():
            first = asked.alternatives[0]
            if not first.admin:
                exact = first.mode is AllocationMode.EXACT
                yield first.device_class, first.count if exact else 0
