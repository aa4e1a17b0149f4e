"""DeviceClasses, ResourceClaims and their templates: requests for devices, and what they got."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from gpusched.api.affinity.selector import NodeTerm
from gpusched.api.devices.dynamic.slices import DeviceTaint
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.base.classes import frozen

NO_OWNER: Final = UID("")
PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of claims that are allocated."""
GROUPS: Final = "podgroups"
"""Resource of groups that claims are reserved for."""
EXTENDED_CLAIM: Final = "<extended-resources>"
"""Stands for the name of the claim of a pod's extended resources inside of the pod; no claim can be called so."""
EXTENDED_NOTE: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that were made for the extended resources of a pod."""
SHARE: Final = "share"
"""Stands for the id of a share until its claim is written."""


class AllocationMode(StrEnum):
    """How many devices a request takes."""

    EXACT = "ExactCount"
    ALL = "All"


@frozen(slots=True, kw_only=True)
class DeviceToleration:
    """Consent to taints of devices; an empty key with Exists consents to all.

    Attributes:
        seconds: for which a NoExecute taint is borne, None for ever.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Whether the taint does not keep this request away."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@frozen(slots=True, kw_only=True)
class OpaqueConfig:
    """Settings for a driver that allocation copies without reading them.

    Attributes:
        driver: that reads it; empty where there is nothing that it could read.
        parameters: JSON as the API has it.
        requests: that it is for, empty for all.
    """

    driver: str
    parameters: str
    requests: tuple[str, ...] = ()


@frozen(slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass: which devices are of it.

    Attributes:
        selectors: CEL expressions, ANDed.
        configs: for the drivers of its devices.
        extended_resource: resource whose requests devices of the class serve, empty for none.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    created: float = 0.0
    selectors: tuple[str, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    extended_resource: str = ""


@frozen(slots=True, kw_only=True)
class DeviceRequest:
    """One request, or one alternative of a request (a subrequest).

    Attributes:
        name: of the request or subrequest alone.
        device_class: name of a DeviceClass.
        selectors: CEL expressions, ANDed with those of the class.
        mode: whether it takes ``count`` devices or all that match.
        admin: whether it may use devices that are in use (``adminAccess``).
        capacity: amounts of capacities that a share must have, in billionths by fully qualified
            or short name, sorted.
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: AllocationMode = AllocationMode.EXACT
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()


@frozen(slots=True)
class RequestAlternatives:
    """A request of a claim: the first of its alternatives that can be had.

    Attributes:
        name: of the request.
        alternatives: of ``firstAvailable``, best first; a single one for ``exactly``.
        prioritized: whether it is a ``firstAvailable``, whose results name ``request/alternative``.
    """

    name: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool = False


@frozen(slots=True, kw_only=True)
class DeviceConstraint:
    """A rule over all devices that some requests of a claim get.

    Attributes:
        requests: names of requests, or ``request/alternative``; empty for all.
        match: attribute whose value all share, fully qualified; empty for none.
        distinct: attribute whose values all differ, fully qualified; empty for none.
    """

    requests: tuple[str, ...] = ()
    match: str = ""
    distinct: str = ""


@frozen(slots=True, kw_only=True)
class DeviceClaimSpec:
    """What a claim asks for; equal ones are interchangeable."""

    requests: tuple[RequestAlternatives, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()


@frozen(slots=True, kw_only=True)
class AllocatedDevice:
    """One device, or a share of it, that a request was given.

    Attributes:
        request: name of the request, or ``request/alternative``.
        share: id of the share, empty for a whole device.
        consumed: of a share, amounts in billionths by fully qualified capacity, sorted.
        tolerations: of the request, copied as the API does.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin: bool = False
    share: str = ""
    consumed: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    failure_conditions: tuple[str, ...] = ()


@frozen(slots=True, kw_only=True)
class AllocatedConfig:
    """Settings that an allocation hands to a driver.

    Attributes:
        source: ``FromClass`` or ``FromClaim``.
    """

    source: str
    config: OpaqueConfig


@frozen(slots=True, kw_only=True)
class ClaimAllocation:
    """Devices of a claim, and the nodes from which they can be used.

    Attributes:
        devices: in the order of the requests.
        nodes: ORed terms of the node selector; None for every node.
        timestamp: seconds since the epoch of ``allocationTimestamp``, 0.0 where not said.
    """

    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None
    configs: tuple[AllocatedConfig, ...] = ()
    timestamp: float = 0.0


@frozen(slots=True, kw_only=True)
class ClaimConsumer:
    """Who a claim is reserved for: a pod, or a PodGroup of ``scheduling.k8s.io``."""

    group: str
    resource: str
    name: str
    uid: UID


@frozen(slots=True, kw_only=True)
class DeviceCondition:
    """A condition that a driver reports on an allocated device."""

    driver: str
    pool: str
    device: str
    share: str
    type: str
    status: str


@frozen(slots=True, kw_only=True)
class ResourceClaim:
    """A ResourceClaim.

    Attributes:
        allocation: None while it has none.
        reserved_for: in the order of the API.
        conditions: of its devices, as drivers report them.
        owner: UID of the controlling pod or group, empty where a user made it.
        created: seconds since the epoch.
        extended: whether it was made for extended resources that its pod's containers request.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    spec: DeviceClaimSpec
    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    conditions: tuple[DeviceCondition, ...] = ()
    owner: UID = NO_OWNER
    deleting: bool = False
    created: float = 0.0
    finalizers: tuple[str, ...] = ()
    extended: bool = False

    @property
    def is_protected(self) -> bool:
        """Whether it has the finalizer that keeps it while its devices are in use."""
        return PROTECTION in self.finalizers

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the claim."""
        return ObjectKey(self.namespace, self.name)


@frozen(slots=True, kw_only=True)
class ResourceClaimTemplate:
    """A ResourceClaimTemplate: each pod that names it gets a claim of its own."""

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    spec: DeviceClaimSpec

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the template."""
        return ObjectKey(self.namespace, self.name)


@frozen(slots=True, kw_only=True)
class ClaimGroup:
    """A PodGroup of ``scheduling.k8s.io`` whose claim its pods use."""

    name: str
    uid: UID

    @property
    def consumer(self) -> ClaimConsumer:
        """What the claim is reserved for in place of the pods."""
        return ClaimConsumer(
            group="scheduling.k8s.io", resource=GROUPS, name=self.name, uid=self.uid
        )


@frozen(slots=True)
class ExtendedRequest:
    """A container's request of an extended resource that devices serve.

    Attributes:
        name: of the request in the claim.
    """

    name: str
    container: str
    resource: str
    device_class: str
    count: int


@frozen(slots=True, kw_only=True)
class PodClaim:
    """A claim as a pod's spec names it; one of ``claim`` and ``template`` is set, or ``extended`` is.

    Attributes:
        name: inside of the pod.
        claim: name of a ResourceClaim that pods may share.
        template: name of a ResourceClaimTemplate.
        group: whose claim it is, None for the pod's; its claim is ``claim`` as soon as it was made.
        made_of: where ``claim`` was made from a template, the name of that: it is the group's, or the pod waits for its devices.
        extended: what containers request of resources that classes of devices stand for: on a node that has such a resource as
            devices only, a claim for these is made with the binding.
    """

    name: str
    claim: str = ""
    template: str = ""
    group: ClaimGroup | None = None
    made_of: str = ""
    extended: tuple[ExtendedRequest, ...] = ()
