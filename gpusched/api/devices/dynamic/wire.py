"""Kinds of ``resource.k8s.io`` on the wire: the fields of v1, v1beta2 and v1beta1 in one shape.

In v1beta1 a device has its content in ``basic``, and a request has its own fields beside
``firstAvailable`` instead of inside ``exactly``.
"""

from __future__ import annotations

from msgspec import Raw, Struct
from msgspec import field as msgspec_field

from gpusched.api.affinity.wire import RequiredTerms
from gpusched.api.meta.wire import ABSENT, Metadata, OwnerReference

Amount = str | int | float


class WireAttribute(
    Struct, gc=False, rename={"number": "int", "flag": "bool", "text": "string", "flags": "bools"}
):
    """An attribute of a device: one of these is set."""

    number: int | None = None
    flag: bool | None = None
    text: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    flags: list[bool] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None


class WireValidRange(Struct, gc=False):
    """Amounts of a capacity that a share may take, from least to most in steps."""

    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class WireRequestPolicy(Struct, gc=False, rename="camel"):
    """How much of a capacity one share takes."""

    default: Amount | None = None
    valid_values: list[Amount] | None = None
    valid_range: WireValidRange | None = None


class WireCapacity(Struct, gc=False, rename="camel"):
    """A capacity of a device."""

    value: Amount = 0
    request_policy: WireRequestPolicy | None = None


class WireCounter(Struct, gc=False):
    """An amount of a counter."""

    value: Amount = 0


class WireCounterSet(Struct, gc=False, rename="camel"):
    """Counters of a pool, or what a device consumes of them."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, WireCounter] | None = None


class WireDeviceTaint(Struct, gc=False, rename="camel"):
    """A taint of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class WireDevice(Struct, gc=False, rename="camel"):
    """A device; ``basic`` has the content in v1beta1."""

    name: str = ""
    basic: WireDevice | None = None
    attributes: dict[str, WireAttribute] | None = None
    capacity: dict[str, WireCapacity | Amount] | None = None
    consumes_counters: list[WireCounterSet] | None = None
    node_name: str | None = None
    node_selector: RequiredTerms | None = None
    all_nodes: bool | None = None
    taints: list[WireDeviceTaint] | None = None
    allow_multiple_allocations: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class WirePool(Struct, gc=False, rename="camel"):
    """The pool that a slice is a part of."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class WireSliceSpec(Struct, gc=False, rename="camel"):
    """What a driver publishes."""

    driver: str = ""
    pool: WirePool = msgspec_field(default_factory=WirePool)
    node_name: str | None = None
    node_selector: RequiredTerms | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[WireDevice] | None = None
    shared_counters: list[WireCounterSet] | None = None


class WireResourceSlice(Struct, gc=False):
    """A ResourceSlice as the API sends it."""

    metadata: Metadata
    spec: WireSliceSpec = msgspec_field(default_factory=WireSliceSpec)


class WireCelSelector(Struct, gc=False):
    """A CEL expression over a device."""

    expression: str = ""


class WireDeviceSelector(Struct, gc=False):
    """One selector; kinds of selectors that are not known have no ``cel``."""

    cel: WireCelSelector | None = None


class WireOpaque(Struct, gc=False):
    """Settings for a driver."""

    driver: str = ""
    parameters: Raw = ABSENT


class WireDeviceConfig(Struct, gc=False):
    """Settings of a class, a claim or an allocation."""

    requests: list[str] | None = None
    source: str = ""
    opaque: WireOpaque | None = None


class WireClassSpec(Struct, gc=False, rename="camel"):
    """Which devices are of a class."""

    selectors: list[WireDeviceSelector] | None = None
    config: list[WireDeviceConfig] | None = None
    extended_resource_name: str | None = None


class WireDeviceClass(Struct, gc=False):
    """A DeviceClass as the API sends it."""

    metadata: Metadata
    spec: WireClassSpec = msgspec_field(default_factory=WireClassSpec)


class WireDeviceToleration(Struct, gc=False, rename="camel"):
    """A consent to taints of devices."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WireCapacityRequests(Struct, gc=False):
    """Amounts of capacities that a share must have."""

    requests: dict[str, Amount] | None = None


class WireDeviceRequest(Struct, gc=False, rename="camel"):
    """A request, an alternative of one, or what is in ``exactly``."""

    name: str = ""
    exactly: WireDeviceRequest | None = None
    first_available: list[WireDeviceRequest] | None = None
    device_class_name: str = ""
    selectors: list[WireDeviceSelector] | None = None
    allocation_mode: str = ""
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[WireDeviceToleration] | None = None
    capacity: WireCapacityRequests | None = None


class WireDeviceConstraint(Struct, gc=False, rename="camel"):
    """A rule over devices of several requests."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class WireDeviceClaim(Struct, gc=False):
    """The field ``devices`` of a claim."""

    requests: list[WireDeviceRequest] | None = None
    constraints: list[WireDeviceConstraint] | None = None
    config: list[WireDeviceConfig] | None = None


class WireClaimSpec(Struct, gc=False):
    """What a claim asks for."""

    devices: WireDeviceClaim = msgspec_field(default_factory=WireDeviceClaim)


class WireAllocatedDevice(Struct, gc=False, rename="camel"):
    """One result of an allocation."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec_field(name="shareID", default=None)
    consumed_capacity: dict[str, Amount] | None = None
    tolerations: list[WireDeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class WireAllocatedDevices(Struct, gc=False):
    """Results of an allocation, and settings for their drivers."""

    results: list[WireAllocatedDevice] | None = None
    config: list[WireDeviceConfig] | None = None


class WireAllocation(Struct, gc=False, rename="camel"):
    """The field ``allocation`` of a claim's status."""

    devices: WireAllocatedDevices = msgspec_field(default_factory=WireAllocatedDevices)
    node_selector: RequiredTerms | None = None
    allocation_timestamp: str | None = None


class WireClaimConsumer(Struct, gc=False, rename="camel"):
    """A user of a claim."""

    api_group: str | None = None
    resource: str = ""
    name: str = ""
    uid: str = ""


class WireDeviceCondition(Struct, gc=False):
    """A condition of an allocated device."""

    type: str = ""
    status: str = ""


class WireDeviceStatus(Struct, gc=False, rename="camel"):
    """What a driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec_field(name="shareID", default=None)
    conditions: list[WireDeviceCondition] | None = None


class WireResourceClaimStatus(Struct, gc=False, rename="camel"):
    """What a claim got, and its users."""

    allocation: WireAllocation | None = None
    reserved_for: list[WireClaimConsumer] | None = None
    devices: list[WireDeviceStatus] | None = None


class DeviceClaimAnnotations(
    Struct, gc=False, rename={"extended": "resource.kubernetes.io/extended-resource-claim"}
):
    """Annotations of a claim."""

    extended: str | None = None


class WireResourceClaimMetadata(Metadata, gc=False, rename="camel"):
    """Metadata with annotations, owners and finalizers."""

    annotations: DeviceClaimAnnotations | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class WireResourceClaim(Struct, gc=False):
    """A ResourceClaim as the API sends it."""

    metadata: WireResourceClaimMetadata
    spec: Raw = Raw(b"{}")
    status: WireResourceClaimStatus | None = None


class WireClaimTemplateSpec(Struct, gc=False):
    """The claim that a template makes."""

    spec: WireClaimSpec = msgspec_field(default_factory=WireClaimSpec)


class WireResourceClaimTemplate(Struct, gc=False):
    """A ResourceClaimTemplate as the API sends it."""

    metadata: Metadata
    spec: WireClaimTemplateSpec = msgspec_field(default_factory=WireClaimTemplateSpec)


class WireTaintedDevices(Struct, gc=False, rename="camel"):
    """Which devices a rule taints."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: list[WireDeviceSelector] | None = None


class WireTaintRuleSpec(Struct, gc=False, rename="camel"):
    """A taint and the devices that get it."""

    device_selector: WireTaintedDevices | None = None
    taint: WireDeviceTaint = msgspec_field(default_factory=WireDeviceTaint)


class WireDeviceTaintRule(Struct, gc=False):
    """A DeviceTaintRule as the API sends it."""

    metadata: Metadata
    spec: WireTaintRuleSpec = msgspec_field(default_factory=WireTaintRuleSpec)
