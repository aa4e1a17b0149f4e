"""All device objects of one moment, as a session and the cache's checks read them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from gpusched.api.devices.dynamic.claims import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from gpusched.api.devices.dynamic.slices import DeviceTaintRule, ResourceSlice
from gpusched.api.meta.identity import ObjectKey


@attrs.frozen(slots=True, kw_only=True, eq=False)
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
