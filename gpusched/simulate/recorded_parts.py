"""What is recorded of each kind: what the daemon reads of it, and what it needs to be applied again.

There is no list of secrets. Nothing is kept that is not named: by a wire struct of
``gpusched.objects``, or here. So environment, commands, tokens, volumes other than claims and
annotations of others are not left out but never taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpusched.objects import wire, wire_groups, wire_rules, wire_volumes
from gpusched.objects.adapters import wire_foreign
from gpusched.objects.adapters.devices import ResourceSlice
from gpusched.objects.decode_group import GroupStatus
from gpusched.simulate.trim import (
    DROP,
    Fields,
    Shape,
    Shapes,
    counted,
    listed,
    mapped,
    record,
    scalar,
    whole,
)

IMAGE: Final = "recorded"
"""Stands for every image: which one a container runs decides nothing."""
_OURS: Final = "gpusched.io/"
"""How annotations of ours begin."""
_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_SOURCE: Final = {"driver": "recorded", "volumeHandle": "recorded"}
"""Every volume must have a source; where its bytes are decides nothing."""


def _as(struct: type[Any]) -> Shape:
    """What the struct describes. Shapes are made when they are used: structs hold one another."""

    def keep(value: Any) -> Any:
        return _SHAPES.of(struct)(value)

    return keep


def _scalars(*names: str) -> Fields:
    return dict.fromkeys(names, scalar)


def _never(_value: Any) -> Any:
    return DROP


def _finalizers(value: Any) -> Any:
    """Only the one by which a Job counts its pods: others wait for who is not recorded."""
    return [each for each in value if each == _TRACKING] if isinstance(value, list) else DROP


def _conditions(value: Any) -> Any:
    """Messages only of the scheduler's own condition: others quote what happened in a pod."""
    kept = listed(_as(wire.Condition))(value)
    for each in kept if isinstance(kept, list) else ():
        if isinstance(each, dict) and each.get("type") != "PodScheduled":
            each.pop("message", None)
    return kept


def _container(value: Any) -> Any:
    kept = _SHAPES.of(wire.Container)(value)
    return {**kept, "image": IMAGE} if isinstance(kept, dict) else kept


def _volumes(value: Any) -> Any:
    """Those that are claims: what others hold, and what they are called, is nobody's affair."""
    claims = ("persistentVolumeClaim", "ephemeral")
    kept = listed(_as(wire.Volume))(value)
    return [
        each
        for each in (kept if isinstance(kept, list) else ())
        if not isinstance(each, dict) or any(each.get(claim) is not None for claim in claims)
    ]


def _ports(value: Any) -> Any:
    """Those on the host."""
    kept = listed(_as(wire_rules.Port))(value)
    if not isinstance(kept, list):
        return kept
    return [each for each in kept if not isinstance(each, dict) or each.get("hostPort")]


def _volume_spec(value: Any) -> Any:
    kept = _SHAPES.of(wire_volumes.VolumeSpec)(value)
    return {**kept, "csi": _SOURCE} if isinstance(kept, dict) else kept


def _notes(struct: type[Any]) -> Fields:
    """Annotations: those that the struct names, and ours."""

    def keep(value: Any) -> Any:
        kept = _SHAPES.of(struct)(value)
        if isinstance(kept, dict):
            ours = (name for name in value if name.startswith(_OURS))
            kept.update({name: scalar(value[name]) for name in ours})
        return kept

    return {"annotations": keep}


def _slice(value: Any) -> Any:
    """Attributes of types that are not read have lost their value: they go as well."""
    kept = _SHAPES.of(ResourceSlice)(value)
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


_QUANTITIES: Final = mapped(scalar)
_RAW: Final[Mapping[tuple[type[Any], str], type[Any] | Shape]] = {
    (wire.Container, "resources"): wire_rules.ResourceRequirements,
    (wire.Container, "ports"): _ports,
    (wire.PodSpec, "resources"): wire_rules.ResourceRequirements,
    (wire.PodSpec, "overhead"): _QUANTITIES,
    (wire.PodSpec, "nodeSelector"): mapped(scalar),
    (wire.PodSpec, "affinity"): wire_rules.Affinity,
    (wire.PodSpec, "tolerations"): listed(_as(wire_rules.Toleration)),
    (wire.PodSpec, "topologySpreadConstraints"): listed(_as(wire_rules.SpreadConstraint)),
    (wire.PodSpec, "resourceClaims"): listed(
        record(_scalars("name", "resourceClaimName", "resourceClaimTemplateName"))
    ),
    (wire.ContainerStatus, "allocatedResources"): _QUANTITIES,
    (wire.ContainerStatus, "resources"): wire_rules.ResourceRequirements,
    (wire.PodStatus, "allocatedResources"): _QUANTITIES,
    (wire.PodStatus, "resources"): wire_rules.ResourceRequirements,
    (wire_rules.ResourceRequirements, "claims"): listed(record(_scalars("name"))),
    (wire_groups.PodTemplate, "spec"): wire.PodSpec,
    (wire_groups.PodGroup, "status"): GroupStatus,
    (wire_groups.Queue, "status"): GroupStatus,
    (wire_groups.Topology, "status"): GroupStatus,
    (wire_foreign.NativeGroup, "status"): GroupStatus,
    (wire_foreign.CoschedulingGroup, "status"): GroupStatus,
    (wire_foreign.VolcanoGroup, "status"): GroupStatus,
    (wire_foreign.VolcanoGroupSpec, "subGroupPolicy"): counted,
    (wire_foreign.VolcanoQueue, "status"): GroupStatus,
    (wire_foreign.VolcanoQueueSpec, "affinity"): _never,
    (wire_foreign.KaiGroup, "status"): GroupStatus,
    (wire_foreign.KaiQueue, "status"): GroupStatus,
}
"""Of what stays raw on the wire."""
_MORE: Final[Mapping[type[Any], Fields]] = {
    wire.OwnerReference: _scalars("apiVersion", "blockOwnerDeletion"),
    wire.Metadata: {"deletionGracePeriodSeconds": scalar, "finalizers": _finalizers},
    wire.PodMetadata: _notes(wire.PodAnnotations),
    wire.NodeMetadata: _notes(wire.NodeAnnotations),
    wire.WorkloadMetadata: _notes(wire.WorkloadAnnotations),
    wire_groups.JobMetadata: _notes(wire_groups.JobAnnotations),
    wire.PodSpec: {
        "containers": listed(_container),
        "initContainers": listed(_container),
        "volumes": _volumes,
        "schedulingGates": listed(record(_scalars("name"))),
        **_scalars("restartPolicy", "terminationGracePeriodSeconds"),
    },
    wire.EphemeralSource: {"volumeClaimTemplate": record({"spec": _as(wire_volumes.ClaimSpec)})},
    wire.PodStatus: {"conditions": _conditions},
    wire.NodeStatus: {"conditions": _conditions},
    wire_rules.Port: _scalars("containerPort"),
    wire_groups.JobSpec: {
        "selector": _as(wire_rules.LabelSelector),
        **_scalars("manualSelector", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"),
        **_scalars("podReplacementPolicy", "ttlSecondsAfterFinished"),
    },
    wire_groups.JobStatus: {
        "conditions": _conditions,
        **_scalars("active", "ready", "failed", "terminating", "completedIndexes", "failedIndexes"),
    },
    wire_groups.BudgetSpec: _scalars(
        "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"
    ),
    wire_groups.BudgetStatus: _scalars(
        "currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration"
    ),
    wire_groups.PriorityClass: _scalars("globalDefault"),
    wire_volumes.StorageClass: _scalars("reclaimPolicy"),
    wire_volumes.Volume: {"spec": _volume_spec},
    wire_volumes.VolumeSpec: _scalars("persistentVolumeReclaimPolicy"),
    GroupStatus: {
        **_scalars("scheduled", "running", "succeeded", "failed", "pending", "inqueue"),
        **_scalars("queuePosition", "estimatedStartTime"),
        **dict.fromkeys(("placement", "allocated", "requested", "borrowed", "fairShare"), whole),
    },
}
"""What is kept although no struct names it, and what is kept otherwise than a struct says."""
_SHAPES: Final = Shapes(_RAW, _MORE)
_IDENTITY: Final = _scalars("apiVersion", "kind")
_BUDGET: Final[Fields] = {
    "hard": _QUANTITIES,
    "used": _QUANTITIES,
    "scopes": listed(scalar),
    "scopeSelector": whole,
}
RESOURCE_QUOTA: Final = record(
    {
        **_IDENTITY,
        "metadata": _as(wire.Metadata),
        "spec": record(_BUDGET),
        "status": record(_BUDGET),
    }
)
"""Whole, as it decides which pods there may be; the daemon reads its scopes and status."""


def recorded(struct: type[Any]) -> Shape:
    """What is recorded of objects that the daemon reads as ``struct``."""
    shape = _slice if struct is ResourceSlice else _SHAPES.of(struct)
    identity = record(_IDENTITY)

    def keep(value: Any) -> Any:
        kept = shape(value)
        return {**identity(value), **kept} if isinstance(kept, dict) else kept

    return keep
