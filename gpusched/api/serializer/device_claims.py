"""Patches of ResourceClaims: the finalizer, devices with the pods they are reserved for, and nothing again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpusched.api.affinity.selector import NodeTerm, Requirement
from gpusched.api.devices.dynamic.claims import (
    EXTENDED_NOTE,
    PROTECTION,
    SHARE,
    AllocatedDevice,
    ClaimAllocation,
    ClaimConsumer,
    DeviceClaimSpec,
    DeviceToleration,
    ExtendedRequest,
)
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion, format_time
from gpusched.api.meta.quantity import format_billionths

SETTLED: Final = "gpusched.io/settled"
"""Annotation of claims: the version at which a write of ours got no answer."""
CONSUMERS_MAX: Final = 256
"""Pods and groups that one claim may be reserved for."""
_json: Final = msgspec.json.Encoder()


def claim_finalizer_patch(uid: UID, version: ResourceVersion, finalizers: Sequence[str]) -> bytes:
    """A merge patch of a claim: it stays while its devices are in use."""
    metadata = {
        "uid": uid, "resourceVersion": version, "finalizers": [*finalizers, PROTECTION]
    }  # fmt: skip
    return _json.encode({"metadata": metadata})


def extended_claim_body(
    key: ObjectKey, *, pod: str, uid: UID, spec: DeviceClaimSpec, version: str
) -> bytes:
    """A claim for the extended resources of a pod, which owns it, as kube-scheduler makes it.

    Args:
        key: of the claim.
        pod: name of the pod.
        uid: of the pod.
        spec: of numbers of devices of classes.
        version: group and version in which claims are served.
    """
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": True
    }  # fmt: skip
    exact = [each.alternatives[0] for each in spec.requests]
    requests: list[dict[str, Any]] = []
    for each in exact:
        asked = {
            "deviceClassName": each.device_class,
            "allocationMode": each.mode,
            "count": each.count,
        }
        in_place = version.endswith("/v1beta1")
        requests.append({"name": each.name, **(asked if in_place else {"exactly": asked})})
    return _json.encode(
        {
            "apiVersion": version,
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": key.namespace,
                "name": key.name,
                "annotations": {EXTENDED_NOTE: "true"},
                "ownerReferences": [owner],
                "finalizers": [PROTECTION],
            },
            "spec": {"devices": {"requests": requests}},
        }
    )


def extended_claim_status(claim: str, requests: Sequence[ExtendedRequest]) -> dict[str, Any]:
    """What a pod's status says: which request of its claim is for which resource of which container."""
    return {
        "resourceClaimName": claim,
        "requestMappings": [
            {
                "containerName": each.container,
                "resourceName": each.resource,
                "requestName": each.name,
            }
            for each in requests
        ],
    }


def extended_status_patch(uid: UID, told: Mapping[str, Any]) -> bytes:
    """A merge patch of a pod's status: what it says of its claim for extended resources."""
    return _json.encode({"metadata": {"uid": uid}, "status": {"extendedResourceClaimStatus": told}})


def claim_unprotect_patch(uid: UID, version: ResourceVersion, finalizers: Sequence[str]) -> bytes:
    """A merge patch of a claim: it may be deleted though it has devices."""
    left = [each for each in finalizers if each != PROTECTION]
    return _json.encode({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": left}})


def claim_delete_body(uid: UID, version: ResourceVersion) -> bytes:
    """Options of a deletion: this claim as it was last seen, and no other."""
    return _json.encode({"preconditions": {"uid": uid, "resourceVersion": version}})


def claim_status_patch(
    uid: UID,
    version: ResourceVersion,
    *,
    allocation: ClaimAllocation | None,
    consumers: Sequence[ClaimConsumer],
) -> bytes:
    """A merge patch of a claim's status: its devices, and who may use them.

    Args:
        uid: of the claim.
        version: as last seen: devices that somebody else gave it meanwhile are not taken away.
        allocation: to be written; None where the claim keeps the one that it has.
        consumers: all that it is reserved for then.
    """
    status: dict[str, Any] = {"reservedFor": [_consumer(each) for each in consumers]}
    if allocation is not None:
        status["allocation"] = _allocation(allocation, f"{uid}/{version}")
    return _json.encode({"metadata": {"uid": uid, "resourceVersion": version}, "status": status})


def claim_release_patch(uid: UID, version: ResourceVersion) -> bytes:
    """A merge patch of a claim's status: it has no devices and nobody uses it."""
    metadata = {"uid": uid, "resourceVersion": version}
    status = {"allocation": None, "reservedFor": None, "devices": None}
    return _json.encode({"metadata": metadata, "status": status})


def claim_settle_patch(uid: UID, version: ResourceVersion) -> bytes:
    """A merge patch of a claim that makes it newer: earlier patches still on their way are refused.

    Args:
        uid: of the claim.
        version: as last known; the patch holds for any.
    """
    return _json.encode({"metadata": {"uid": uid, "annotations": {SETTLED: version}}})


def _consumer(each: ClaimConsumer) -> dict[str, str]:
    found = {"resource": each.resource, "name": each.name, "uid": str(each.uid)}
    return {"apiGroup": each.group, **found} if each.group else found


def _allocation(allocation: ClaimAllocation, seed: str) -> dict[str, Any]:
    devices: dict[str, Any] = {
        "results": [
            _result(each, _share_id(seed, number)) for number, each in enumerate(allocation.devices)
        ]
    }
    if allocation.configs:
        devices["config"] = [
            {
                "source": each.source,
                **({"requests": list(each.config.requests)} if each.config.requests else {}),
                "opaque": {
                    "driver": each.config.driver,
                    "parameters": msgspec.Raw(each.config.parameters.encode()),
                },
            }
            for each in allocation.configs
        ]
    found: dict[str, Any] = {"devices": devices}
    if allocation.timestamp:
        found["allocationTimestamp"] = format_time(allocation.timestamp)
    if allocation.nodes is not None:
        found["nodeSelector"] = {"nodeSelectorTerms": [_term(each) for each in allocation.nodes]}
    return found


def _share_id(seed: str, number: int) -> str:
    """The id of a claim's share, made of the claim and its version: a repeated write says the same, a later one not."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{seed}/{number}"))


def _result(each: AllocatedDevice, share: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "request": each.request, "driver": each.driver, "pool": each.pool, "device": each.device
    }  # fmt: skip
    if each.admin:
        found["adminAccess"] = True
    if each.share:
        found["shareID"] = share if each.share == SHARE else each.share
    if each.consumed:
        found["consumedCapacity"] = {
            name.removeprefix(f"{each.driver}/"): format_billionths(amount)
            for name, amount in each.consumed
        }
    if each.tolerations:
        found["tolerations"] = [_toleration(one) for one in each.tolerations]
    if each.binding_conditions:
        found["bindingConditions"] = list(each.binding_conditions)
    if each.failure_conditions:
        found["bindingFailureConditions"] = list(each.failure_conditions)
    return found


def _toleration(each: DeviceToleration) -> dict[str, Any]:
    found: dict[str, Any] = {"operator": each.operator}
    texts = {"key": each.key, "value": each.value, "effect": each.effect}
    found.update({name: value for name, value in texts.items() if value})
    if each.seconds is not None:
        found["tolerationSeconds"] = each.seconds
    return found


def _term(term: NodeTerm) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if term.labels:
        found["matchExpressions"] = [_requirement(each) for each in term.labels]
    if term.fields:
        found["matchFields"] = [_requirement(each) for each in term.fields]
    return found


def _requirement(each: Requirement) -> dict[str, Any]:
    found: dict[str, Any] = {"key": each.key, "operator": each.operator}
    return {**found, "values": list(each.values)} if each.values else found
