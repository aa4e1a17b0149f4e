"""Which kinds are recorded, and in which order their objects can be applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpusched.api.affinity import wire as wire_rules
from gpusched.api.devices.dynamic import wire as wire_devices
from gpusched.api.devices.dynamic.wire import (
    WireClaimSpec,
    WireResourceClaim,
    WireResourceSlice,
)
from gpusched.api.foreign import kinds, native_wire
from gpusched.api.foreign import wire as wire_foreign
from gpusched.api.gang import wire as wire_groups
from gpusched.api.jobs import wire as job_wire
from gpusched.api.meta import wire
from gpusched.api.meta.status import GroupStatus
from gpusched.api.node import wire as node_wire
from gpusched.api.pod import wire as pod_wire
from gpusched.api.policy import wire as policy_wire
from gpusched.api.policy.reservation_wire import WireReservation
from gpusched.api.queue import wire as queue_wire
from gpusched.api.serializer.codecs import CODECS
from gpusched.api.volumes import wire as wire_volumes
from gpusched.base.classes import frozen
from gpusched.io.recordings.field_filter import (
    DROP,
    FieldFilters,
    Fields,
    ValueFilter,
    keep_all,
    keep_count,
    keep_list,
    keep_map,
    keep_members,
    keep_scalar,
)
from gpusched.io.watch.discovery import foreign_codec
from gpusched.io.watch.informers import KINDS

IMAGE: Final = "recorded"
"""Stands for every image: which one a container runs decides nothing."""
_OURS: Final = "gpusched.io/"
"""How annotations of ours begin."""
_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_SOURCE: Final = {"driver": "recorded", "volumeHandle": "recorded"}
"""Every volume must have a source; where its bytes are decides nothing."""


def _as(struct: type[Any]) -> ValueFilter:
    """What the struct describes. Shapes are made when they are used: structs hold one another."""

    def filtered(value: Any) -> Any:
        return _SHAPES.struct_shape(struct)(value)

    return filtered


def _scalars(*names: str) -> Fields:
    return dict.fromkeys(names, keep_scalar)


def _never(_value: Any) -> Any:
    return DROP


def _finalizers(value: Any) -> Any:
    """Only the one by which a Job counts its pods: others belong to controllers that are not recorded."""
    return [each for each in value if each == _TRACKING] if isinstance(value, list) else DROP


def _conditions(value: Any) -> Any:
    """Messages only of the scheduler's own condition: others quote what happened in a pod."""
    kept = keep_list(_as(wire.WireCondition))(value)
    for each in kept if isinstance(kept, list) else ():
        if isinstance(each, dict) and each.get("type") != "PodScheduled":
            each.pop("message", None)
    return kept


def _container(value: Any) -> Any:
    kept = _SHAPES.struct_shape(pod_wire.Container)(value)
    return {**kept, "image": IMAGE} if isinstance(kept, dict) else kept


def _volumes(value: Any) -> Any:
    """Those that are claims: volumes of other kinds are left out of recordings."""
    claims = ("persistentVolumeClaim", "ephemeral")
    kept = keep_list(_as(pod_wire.PodVolume))(value)
    return [
        each
        for each in (kept if isinstance(kept, list) else ())
        if not isinstance(each, dict) or any(each.get(claim) is not None for claim in claims)
    ]


def _ports(value: Any) -> Any:
    """Those on the host."""
    kept = keep_list(_as(wire_rules.WireContainerPort))(value)
    if not isinstance(kept, list):
        return kept
    return [each for each in kept if not isinstance(each, dict) or each.get("hostPort")]


def _volume_spec(value: Any) -> Any:
    kept = _SHAPES.struct_shape(wire_volumes.VolumeSpec)(value)
    return {**kept, "csi": _SOURCE} if isinstance(kept, dict) else kept


def _notes(struct: type[Any]) -> Fields:
    """Annotations: those that the struct names, and ours."""

    def filtered(value: Any) -> Any:
        kept = _SHAPES.struct_shape(struct)(value)
        if isinstance(kept, dict):
            ours = (name for name in value if name.startswith(_OURS))
            kept.update({name: keep_scalar(value[name]) for name in ours})
        return kept

    return {"annotations": filtered}


def _slice(value: Any) -> Any:
    """Attributes of types that are not read have lost their value: they go as well."""
    kept = _SHAPES.struct_shape(WireResourceSlice)(value)
    spec = kept.get("spec") if isinstance(kept, dict) else None
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            _drop_empty(device)
            _drop_empty(device.get("basic"))
    return kept


def _drop_empty(device: Any) -> None:
    found = device.get("attributes") if isinstance(device, dict) else None
    if isinstance(found, dict):
        device["attributes"] = {name: each for name, each in found.items() if each != {}}


_QUANTITIES: Final = keep_map(keep_scalar)
_RAW: Final[Mapping[tuple[type[Any], str], type[Any] | ValueFilter]] = {
    (WireResourceClaim, "spec"): WireClaimSpec,
    (pod_wire.Container, "resources"): wire_rules.ResourceRequirements,
    (pod_wire.Container, "ports"): _ports,
    (pod_wire.PodSpec, "resources"): wire_rules.ResourceRequirements,
    (pod_wire.PodSpec, "overhead"): _QUANTITIES,
    (pod_wire.PodSpec, "nodeSelector"): keep_map(keep_scalar),
    (pod_wire.PodSpec, "affinity"): wire_rules.Affinity,
    (pod_wire.PodSpec, "tolerations"): keep_list(_as(wire_rules.WireToleration)),
    (pod_wire.PodSpec, "topologySpreadConstraints"): keep_list(_as(wire_rules.SpreadConstraint)),
    (pod_wire.PodSpec, "resourceClaims"): keep_list(
        keep_members(_scalars("name", "resourceClaimName", "resourceClaimTemplateName"))
    ),
    (pod_wire.ContainerStatus, "allocatedResources"): _QUANTITIES,
    (pod_wire.ContainerStatus, "resources"): wire_rules.ResourceRequirements,
    (pod_wire.PodStatus, "allocatedResources"): _QUANTITIES,
    (pod_wire.PodStatus, "resources"): wire_rules.ResourceRequirements,
    (pod_wire.PodStatus, "extendedResourceClaimStatus"): keep_members(
        {
            "resourceClaimName": keep_scalar,
            "requestMappings": keep_list(
                keep_members(_scalars("containerName", "resourceName", "requestName"))
            ),
        }
    ),
    (wire_rules.ResourceRequirements, "claims"): keep_list(keep_members(_scalars("name"))),
    (job_wire.PodTemplate, "spec"): pod_wire.PodSpec,
    (wire_groups.PodGroupSpec, "gpuTypes"): keep_members(
        {"sameType": keep_scalar, "speeds": keep_map(keep_scalar)}
    ),
    (wire_groups.PodGroupSpec, "devices"): keep_members(
        {
            "matchAttribute": keep_scalar,
            "requests": keep_list(keep_scalar),
            "sameType": keep_scalar,
        }
    ),
    (wire_groups.WirePodGroup, "status"): GroupStatus,
    (queue_wire.WireQueue, "status"): GroupStatus,
    (policy_wire.WireTopology, "status"): GroupStatus,
    (WireReservation, "status"): keep_members(
        {
            "nodes": keep_list(keep_scalar),
            **_scalars("phase", "from", "to", "nodeCount", "gangsInTheWay"),
        }
    ),
    (native_wire.NativeGroup, "spec"): native_wire.NativeGroupSpec,
    (native_wire.NativeGroup, "status"): GroupStatus,
    (wire_foreign.CoschedulingGroup, "status"): GroupStatus,
    (wire_foreign.VolcanoGroup, "status"): GroupStatus,
    (wire_foreign.VolcanoGroupSpec, "subGroupPolicy"): keep_count,
    (wire_foreign.VolcanoQueue, "status"): GroupStatus,
    (wire_foreign.VolcanoQueueSpec, "affinity"): _never,
    (wire_foreign.KaiGroup, "status"): GroupStatus,
    (wire_foreign.KaiQueue, "status"): GroupStatus,
    (wire_devices.WireOpaque, "parameters"): _never,
}
"""Of what stays raw on the wire."""
_MORE: Final[Mapping[type[Any], Fields]] = {
    wire.OwnerReference: _scalars("apiVersion", "blockOwnerDeletion"),
    wire.Metadata: {"deletionGracePeriodSeconds": keep_scalar, "finalizers": _finalizers},
    pod_wire.PodMetadata: _notes(pod_wire.PodAnnotations),
    node_wire.NodeMetadata: _notes(node_wire.NodeAnnotations),
    wire.WorkloadMetadata: _notes(wire.WorkloadAnnotations),
    job_wire.JobMetadata: _notes(job_wire.JobAnnotations),
    native_wire.NativeMetadata: _notes(native_wire.NativeAnnotations),
    native_wire.SchedulingPolicy: {"basic": keep_all},
    native_wire.NativeGroupSpec: {"disruptionMode": keep_all},
    pod_wire.PodSpec: {
        "containers": keep_list(_container),
        "initContainers": keep_list(_container),
        "volumes": _volumes,
        "schedulingGates": keep_list(keep_members(_scalars("name"))),
        **_scalars("restartPolicy", "terminationGracePeriodSeconds"),
    },
    pod_wire.EphemeralSource: {
        "volumeClaimTemplate": keep_members({"spec": _as(wire_volumes.ClaimSpec)})
    },
    pod_wire.PodStatus: {"conditions": _conditions},
    node_wire.NodeStatus: {"conditions": _conditions},
    wire_rules.WireContainerPort: _scalars("containerPort"),
    job_wire.JobSpec: {
        "selector": _as(wire_rules.LabelSelector),
        **_scalars("manualSelector", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"),
        **_scalars("podReplacementPolicy", "ttlSecondsAfterFinished"),
    },
    job_wire.ExitCodesPattern: {
        "values": keep_list(keep_scalar),
        **_scalars("containerName"),
    },
    job_wire.JobStatus: {
        "conditions": _conditions,
        **_scalars("active", "ready", "failed", "terminating", "completedIndexes", "failedIndexes"),
    },
    policy_wire.BudgetSpec: _scalars(
        "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"
    ),
    policy_wire.DisruptionBudgetStatus: _scalars(
        "currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration"
    ),
    policy_wire.WirePriorityClass: _scalars("globalDefault"),
    wire_volumes.WireStorageClass: _scalars("reclaimPolicy"),
    wire_volumes.WirePersistentVolume: {"spec": _volume_spec},
    wire_volumes.VolumeSpec: _scalars("persistentVolumeReclaimPolicy"),
    GroupStatus: {
        **_scalars("scheduled", "running", "succeeded", "failed", "pending", "inqueue"),
        **_scalars("queuePosition", "estimatedStartTime"),
        **dict.fromkeys(("placement", "allocated", "requested", "borrowed", "fairShare"), keep_all),
    },
}
"""What is kept although no struct names it, and what is kept otherwise than a struct says."""
_SHAPES: Final = FieldFilters(_RAW, _MORE)
_IDENTITY: Final = _scalars("apiVersion", "kind")
_BUDGET: Final[Fields] = {
    "hard": _QUANTITIES,
    "used": _QUANTITIES,
    "scopes": keep_list(keep_scalar),
    "scopeSelector": keep_all,
}
RESOURCE_QUOTA: Final = keep_members(
    {
        **_IDENTITY,
        "metadata": _as(wire.Metadata),
        "spec": keep_members(_BUDGET),
        "status": keep_members(_BUDGET),
    }
)
"""Whole, as it decides which pods there may be; the daemon reads its scopes and status."""


def recorded_fields(struct: type[Any]) -> ValueFilter:
    """What is recorded of objects that the daemon reads as ``struct``."""
    shape = _slice if struct is WireResourceSlice else _SHAPES.struct_shape(struct)
    identity = keep_members(_IDENTITY)

    def filtered(value: Any) -> Any:
        kept = shape(value)
        return {**identity(value), **kept} if isinstance(kept, dict) else kept

    return filtered


@frozen(kw_only=True)
class RecordedKind:
    """One kind.

    Attributes:
        resource: plural name with group, as kubectl takes it.
        kind: as in objects.
        places: API version and path of the collection, best first; the first one served counts.
        shape: what is recorded of an object.
    """

    resource: str
    kind: str
    places: tuple[tuple[str, str], ...]
    shape: ValueFilter


def _usual(plural: str) -> RecordedKind:
    path = KINDS[plural]
    codec: Any = CODECS[plural]
    api_version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
    group = api_version.rpartition("/")[0]
    return RecordedKind(
        resource=f"{plural}.{group}" if group else plural,
        kind=codec.kind,
        places=((api_version, path),),
        shape=recorded_fields(codec.wire_type),
    )


def _foreign(kind: kinds.ForeignKind) -> RecordedKind:
    return RecordedKind(
        resource=kind.name,
        kind=kind.kind,
        places=tuple(
            (f"{kind.group}/{version}", f"/apis/{kind.group}/{version}/{kind.plural}")
            for version in kind.versions
        ),
        shape=recorded_fields(foreign_codec(kind).wire_type),
    )


_FIRST: Final = (
    "namespaces", "priorityclasses", "storageclasses", "queues", "topologies", "reservations",
    "nodes",
    "persistentvolumes", "persistentvolumeclaims", "poddisruptionbudgets",
)  # fmt: skip
"""What others name."""
_LAST: Final = ("podgroups", "jobs", "pods")
_QUOTAS: Final = RecordedKind(
    resource="resourcequotas",
    kind="ResourceQuota",
    places=(("v1", "/api/v1/resourcequotas"),),
    shape=RESOURCE_QUOTA,
)
RECORDED: Final = (
    *map(_usual, _FIRST),
    *map(_foreign, kinds.DEVICE_KINDS.values()),
    *map(_foreign, kinds.QUEUES.values()),
    *map(_foreign, kinds.COMPOSITES.values()),
    *map(_foreign, kinds.POD_GROUPS.values()),
    *map(_foreign, kinds.WORKLOADS.values()),
    *map(_usual, _LAST),
    _QUOTAS,
)
"""In the order of the file: a pod comes after its Job and its node, quotas after what they count."""
assert {*_FIRST, *_LAST, _QUOTAS.resource} == {*KINDS}, "a kind that is read is not recorded"
