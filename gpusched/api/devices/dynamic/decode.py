"""Kinds of ``resource.k8s.io`` from the wire to the entity, whatever version served them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from gpusched.api.affinity.decode import node_terms
from gpusched.api.affinity.selector import NodeTerm
from gpusched.api.affinity.wire import RequiredTerms
from gpusched.api.devices.dynamic import wire
from gpusched.api.devices.dynamic.claims import (
    AllocatedConfig,
    AllocatedDevice,
    AllocationMode,
    ClaimAllocation,
    ClaimConsumer,
    DeviceClaimSpec,
    DeviceClass,
    DeviceCondition,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
    OpaqueConfig,
    RequestAlternatives,
    ResourceClaim,
    ResourceClaimTemplate,
)
from gpusched.api.devices.dynamic.slices import (
    AttributeValue,
    CapacityPolicy,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceTaint,
    DeviceTaintRule,
    NodeReach,
    ResourceSlice,
    Version,
)
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    printable_text,
    quoted,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import UID, InvalidObject, parse_time
from gpusched.api.meta.quantity import QuantityError, parse_billionths
from gpusched.base.shared_texts import shared_text

_DEVICES_MAX: Final = 1024
"""Devices of one slice that are believed; the API takes 128."""
_PARTS_MAX: Final = 1024
"""Attributes, capacities, counters or requests of one object that are believed; the API takes 64."""

_SPEC_BYTES: Final = 4_096
"""Length of a claim's spec that is remembered; few are longer than a tenth of it."""
_CLAIM_SPEC: Final = msgspec.json.Decoder(wire.WireClaimSpec)
_SPECS: Final[WeakValueDictionary[Hashable, DeviceClaimSpec]] = WeakValueDictionary()
"""Specs of claims that something has: those that a template made are one object."""


# -- ResourceSlice ---------------------------------------------------------------------------
def decode_slice(parsed: wire.WireResourceSlice) -> ResourceSlice:
    """A ResourceSlice.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec
    check_identity(metadata, namespaced=False)
    if not spec.driver:
        raise InvalidObject("spec.driver", "is missing")
    if len(spec.devices or ()) > _DEVICES_MAX:
        raise InvalidObject("spec.devices", f"has {len(spec.devices or ())} devices")
    return ResourceSlice(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        driver=shared_text(spec.driver),
        pool=shared_text(spec.pool.name),
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        reach=None
        if spec.per_device_node_selection
        else _reach(spec.node_name, spec.node_selector, spec.all_nodes, "spec.nodeSelector"),
        counters=_counter_sets(spec.shared_counters, "spec.sharedCounters"),
        devices=tuple(_device(each, spec.driver) for each in spec.devices or ()),
    )


def _reach(
    node: str | None, selector: RequiredTerms | None, everywhere: bool | None, field: str
) -> NodeReach:
    terms = None if selector is None else node_terms(selector, field=field)
    return NodeReach(node=shared_text(node or ""), terms=terms, everywhere=bool(everywhere))


def _device(parsed: wire.WireDevice, driver: str) -> Device:
    content = parsed.basic or parsed
    own = content.node_name or content.node_selector or content.all_nodes
    _few(content.attributes, "spec.devices[].attributes")
    _few(content.capacity, "spec.devices[].capacity")
    return Device(
        name=parsed.name,
        attributes=tuple(
            sorted(
                (
                    _named(qualified(name, driver), _attribute(value))
                    for name, value in (content.attributes or {}).items()
                ),
                key=lambda each: each[0],
            )
        ),
        capacities=tuple(
            sorted(
                (
                    _capacity(qualified(name, driver), value)
                    for name, value in (content.capacity or {}).items()
                ),
                key=lambda each: each.name,
            )
        ),
        consumes=_counter_sets(content.consumes_counters, "spec.devices[].consumesCounters"),
        reach=_reach(
            content.node_name,
            content.node_selector,
            content.all_nodes,
            "spec.devices[].nodeSelector",
        )
        if own
        else None,
        taints=tuple(_taint(each) for each in content.taints or ()),
        shareable=bool(content.allow_multiple_allocations),
        binds_to_node=bool(content.binds_to_node),
        binding_conditions=tuple(content.binding_conditions or ()),
        failure_conditions=tuple(content.binding_failure_conditions or ()),
    )


def qualified(name: str, driver: str) -> str:
    """The name of an attribute or capacity with its domain, which is the driver's where it has none."""
    return shared_text(name if "/" in name else f"{driver}/{name}")


def _attribute(value: wire.WireAttribute) -> AttributeValue:
    if value.flag is not None:
        return value.flag
    if value.number is not None:
        return value.number
    if value.text is not None:
        return shared_text(value.text)
    if value.version is not None:
        return _version(value.version)
    listed: Iterable[bool | int | str | Version] = (
        value.flags
        or value.ints
        or value.strings
        or [_version(each) for each in value.versions or ()]
    )
    return tuple(listed)


def _named(name: str, value: AttributeValue) -> tuple[str, AttributeValue]:
    """An attribute; one object for all devices that have it, but for lists."""
    return (name, value) if isinstance(value, tuple) else _shared_attribute(name, value)


@lru_cache(maxsize=16384, typed=True)
def _shared_attribute(name: str, value: AttributeValue) -> tuple[str, AttributeValue]:
    return name, value


@lru_cache(maxsize=4096)
def _shared_capacity(name: str, amount: int, policy: CapacityPolicy | None) -> DeviceCapacity:
    return DeviceCapacity(name=name, amount=amount, policy=policy)


@lru_cache(maxsize=4096)
def _version(text: str) -> Version:
    """A version; one object for all devices that have it."""
    return Version(text)


def _capacity(name: str, value: wire.WireCapacity | wire.Amount) -> DeviceCapacity:
    if not isinstance(value, wire.WireCapacity):  # v1beta1 of 1.31 had the bare amount
        return _shared_capacity(name, _amount(value, "spec.devices[].capacity"), None)
    field = "spec.devices[].capacity"
    return _shared_capacity(
        name,
        _amount(value.value, field),
        None if value.request_policy is None else _policy(value.request_policy, field),
    )


def _policy(parsed: wire.WireRequestPolicy, field: str) -> CapacityPolicy:
    span = parsed.valid_range or wire.WireValidRange()
    return CapacityPolicy(
        default=_optional_amount(parsed.default, field),
        values=tuple(sorted(_amount(each, field) for each in parsed.valid_values or ())),
        least=_optional_amount(span.min, field),
        most=_optional_amount(span.max, field),
        step=_optional_amount(span.step, field),
    )


def _counter_sets(
    parsed: Sequence[wire.WireCounterSet] | None, field: str
) -> tuple[CounterSet, ...]:
    _few(parsed, field)
    return tuple(
        sorted(
            (
                CounterSet(
                    shared_text(each.counter_set or each.name),
                    tuple(
                        sorted(
                            (shared_text(name), _amount(counter.value, field))
                            for name, counter in (each.counters or {}).items()
                        )
                    ),
                )
                for each in parsed or ()
            ),
            key=lambda each: each.name,
        )
    )


def _taint(parsed: wire.WireDeviceTaint, rule: str = "") -> DeviceTaint:
    return DeviceTaint(
        key=parsed.key,
        value=parsed.value,
        effect=parsed.effect,
        added=parse_time(parsed.time_added) if parsed.time_added else 0.0,
        rule=rule,
    )


def _amount(value: wire.Amount, field: str) -> int:
    try:
        return parse_billionths(str(value))
    except QuantityError as why:
        raise InvalidObject(field, printable_text(str(why))) from None


def _optional_amount(value: wire.Amount | None, field: str) -> int | None:
    return None if value is None else _amount(value, field)


def _few(parts: Sequence[object] | Mapping[str, object] | None, field: str) -> None:
    if parts is not None and len(parts) > _PARTS_MAX:
        raise InvalidObject(field, f"has {len(parts)} entries, more than {_PARTS_MAX}")


# -- DeviceClass, DeviceTaintRule ------------------------------------------------------------
def decode_device_class(parsed: wire.WireDeviceClass) -> DeviceClass:
    """A DeviceClass.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec
    check_identity(metadata, namespaced=False)
    created = metadata.creation_timestamp
    return DeviceClass(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        created=parse_time(created) if created else 0.0,
        selectors=_selectors(spec.selectors),
        configs=tuple(_config(each) for each in spec.config or ()),
        extended_resource=spec.extended_resource_name or "",
    )


def _selectors(parsed: Sequence[wire.WireDeviceSelector] | None) -> tuple[str, ...]:
    """CEL expressions; a selector of a kind that is not known is an empty one, which no device has."""
    _few(parsed, "spec.selectors")
    return tuple(each.cel.expression if each.cel else "" for each in parsed or ())


def _config(parsed: wire.WireDeviceConfig) -> OpaqueConfig:
    opaque = parsed.opaque or wire.WireOpaque()
    return OpaqueConfig(
        driver=opaque.driver,
        parameters=bytes(opaque.parameters).decode(),
        requests=tuple(parsed.requests or ()),
    )


def decode_taint_rule(parsed: wire.WireDeviceTaintRule) -> DeviceTaintRule:
    """A DeviceTaintRule.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec
    check_identity(metadata, namespaced=False)
    chosen = spec.device_selector or wire.WireTaintedDevices()
    return DeviceTaintRule(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        taint=_taint(spec.taint, rule=metadata.name),
        driver=chosen.driver or "",
        pool=chosen.pool or "",
        device=chosen.device or "",
        device_class=chosen.device_class_name or "",
        selectors=_selectors(chosen.selectors),
    )


# -- ResourceClaim, ResourceClaimTemplate ----------------------------------------------------
def decode_resource_claim(parsed: wire.WireResourceClaim) -> ResourceClaim:
    """A ResourceClaim.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=True)
    status = parsed.status or wire.WireResourceClaimStatus()
    owners = [each.uid for each in metadata.owner_references or () if each.controller]
    created = metadata.creation_timestamp
    return ResourceClaim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        spec=_read_claim_spec(bytes(parsed.spec)),
        allocation=None if status.allocation is None else parse_allocation(status.allocation),
        reserved_for=tuple(
            ClaimConsumer(
                group=each.api_group or "",
                resource=each.resource,
                name=each.name,
                uid=UID(each.uid),
            )
            for each in status.reserved_for or ()
        ),
        conditions=tuple(_conditions(status.devices)),
        owner=UID(owners[0]) if owners else UID(""),
        deleting=metadata.deletion_timestamp is not None,
        created=parse_time(created) if created else 0.0,
        finalizers=tuple(metadata.finalizers or ()),
        extended=metadata.annotations is not None and metadata.annotations.extended == "true",
    )


def _conditions(devices: Sequence[wire.WireDeviceStatus] | None) -> Iterable[DeviceCondition]:
    for device in devices or ():
        for each in device.conditions or ():
            yield DeviceCondition(
                driver=device.driver,
                pool=device.pool,
                device=device.device,
                share=device.share_id or "",
                type=each.type,
                status=each.status,
            )


def decode_claim_template(parsed: wire.WireResourceClaimTemplate) -> ResourceClaimTemplate:
    """A ResourceClaimTemplate.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=True)
    return ResourceClaimTemplate(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        spec=parse_claim_spec(parsed.spec.spec),
    )


def _read_claim_spec(raw: bytes) -> DeviceClaimSpec:
    """What a claim asks for, as the API has it: claims of one template say it in the same bytes."""
    return _known_claim_spec(raw) if len(raw) <= _SPEC_BYTES else _parse_raw_spec(raw)


def _parse_raw_spec(raw: bytes) -> DeviceClaimSpec:
    try:
        return parse_claim_spec(_CLAIM_SPEC.decode(raw))
    except msgspec.ValidationError as why:
        raise msgspec.ValidationError(str(why).replace("`$", "`$.spec", 1)) from None


_known_claim_spec = lru_cache(maxsize=1024)(_parse_raw_spec)


def parse_claim_spec(parsed: wire.WireClaimSpec) -> DeviceClaimSpec:
    """What a claim asks for.

    Raises:
        InvalidObject: a mode that is not known, or an amount that is none.
    """
    devices = parsed.devices
    _few(devices.requests, "spec.devices.requests")
    parts = (
        tuple(_request(each) for each in devices.requests or ()),
        tuple(
            DeviceConstraint(
                requests=tuple(each.requests or ()),
                match=each.match_attribute or "",
                distinct=each.distinct_attribute or "",
            )
            for each in devices.constraints or ()
        ),
        tuple(_config(each) for each in devices.config or ()),
    )
    known = _SPECS.get(parts)
    if known is None:
        requests, constraints, configs = parts
        known = _SPECS[parts] = DeviceClaimSpec(
            requests=requests, constraints=constraints, configs=configs
        )
    return known


def _request(parsed: wire.WireDeviceRequest) -> RequestAlternatives:
    if parsed.first_available:
        _few(parsed.first_available, "spec.devices.requests[].firstAvailable")
        found = tuple(_alternative(each, each.name) for each in parsed.first_available)
        return RequestAlternatives(parsed.name, found, prioritized=True)
    return RequestAlternatives(parsed.name, (_alternative(parsed.exactly or parsed, parsed.name),))


def _alternative(parsed: wire.WireDeviceRequest, name: str) -> DeviceRequest:
    mode = parsed.allocation_mode or AllocationMode.EXACT
    if mode not in tuple(AllocationMode):
        raise InvalidObject(
            "spec.devices.requests[].allocationMode", f"{quoted(mode)} is not known"
        )
    amounts = parsed.capacity.requests if parsed.capacity else None
    field = "spec.devices.requests[].capacity.requests"
    return DeviceRequest(
        name=name,
        device_class=parsed.device_class_name,
        selectors=_selectors(parsed.selectors),
        mode=AllocationMode(mode),
        count=1 if parsed.count is None else parsed.count,
        admin=bool(parsed.admin_access),
        tolerations=_tolerations(parsed.tolerations),
        capacity=tuple(
            sorted((key, _amount(value, field)) for key, value in (amounts or {}).items())
        ),
    )


def _tolerations(
    parsed: Sequence[wire.WireDeviceToleration] | None,
) -> tuple[DeviceToleration, ...]:
    return tuple(
        DeviceToleration(
            key=each.key,
            operator=each.operator or "Equal",
            value=each.value,
            effect=each.effect,
            seconds=each.toleration_seconds,
        )
        for each in parsed or ()
    )


def parse_allocation(parsed: wire.WireAllocation) -> ClaimAllocation:
    """What a claim was given.

    Raises:
        InvalidObject: an amount that is none, or a node selector that is not known.
    """
    terms: tuple[NodeTerm, ...] | None = None
    if parsed.node_selector is not None:
        terms = node_terms(parsed.node_selector, field="status.allocation.nodeSelector")
    stamp = parsed.allocation_timestamp
    return ClaimAllocation(
        devices=tuple(
            AllocatedDevice(
                request=each.request,
                driver=shared_text(each.driver),
                pool=shared_text(each.pool),
                device=each.device,
                admin=bool(each.admin_access),
                share=each.share_id or "",
                consumed=tuple(
                    sorted(
                        (
                            qualified(name, each.driver),
                            _amount(value, "status.allocation.devices.results[].consumedCapacity"),
                        )
                        for name, value in (each.consumed_capacity or {}).items()
                    )
                ),
                tolerations=_tolerations(each.tolerations),
                binding_conditions=tuple(each.binding_conditions or ()),
                failure_conditions=tuple(each.binding_failure_conditions or ()),
            )
            for each in parsed.devices.results or ()
        ),
        nodes=terms,
        configs=tuple(
            AllocatedConfig(source=each.source, config=_config(each))
            for each in parsed.devices.config or ()
        ),
        timestamp=parse_time(stamp) if stamp else 0.0,
    )


RESOURCE_CLAIMS: Final = KindCodec(
    "ResourceClaim", wire_type=wire.WireResourceClaim, entity=decode_resource_claim, ours=True
)
CODECS: Final[Mapping[str, KindCodec[Any, Any]]] = {
    "ResourceSlice": KindCodec(
        "ResourceSlice", wire_type=wire.WireResourceSlice, entity=decode_slice, ours=True
    ),
    "DeviceClass": KindCodec(
        "DeviceClass", wire_type=wire.WireDeviceClass, entity=decode_device_class, ours=True
    ),
    "DeviceTaintRule": KindCodec(
        "DeviceTaintRule", wire_type=wire.WireDeviceTaintRule, entity=decode_taint_rule, ours=True
    ),
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": KindCodec(
        "ResourceClaimTemplate",
        wire_type=wire.WireResourceClaimTemplate,
        entity=decode_claim_template,
        ours=True,
    ),
}
"""By kind."""
