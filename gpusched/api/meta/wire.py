"""The shape of API objects on the wire: only the fields that are read, nothing checked yet.

Unknown fields are skipped by the parser and cost next to nothing, so a field that is not read
must not stand here. ``null`` and absent mean the same to the API, hence ``| None`` wherever the
server may write ``null``. Parts that decide about placement stay ``Raw``: equal bytes mean
equal rules, and most pods repeat the bytes of another pod.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Raw, Struct

ABSENT: Final = Raw(b"")
"""Stands for a raw part that the object does not have."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Generation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Quantities = dict[str, str | int | float]
"""A ResourceList: the server writes strings, and numbers in kinds whose schema lets it."""


class OwnerReference(Struct, gc=False):
    """One owner; ``controller`` marks the one that made the object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class WorkloadAnnotations(
    Struct,
    gc=False,
    rename={
        "min_member": "gpusched.io/min-member",
        "topology_required": "gpusched.io/topology-required",
        "topology_preferred": "gpusched.io/topology-preferred",
        "expected_duration": "gpusched.io/expected-duration",
        "preemptible": "gpusched.io/preemptible",
        "min_runtime": "gpusched.io/min-runtime",
        "gpu_types": "gpusched.io/gpu-types",
        "devices": "gpusched.io/devices",
        "hold": "gpusched.io/hold",
        "user": "gpusched.io/user",
        "groups": "gpusched.io/groups",
        "kueue_required": "kueue.x-k8s.io/podset-required-topology",
        "kueue_preferred": "kueue.x-k8s.io/podset-preferred-topology",
        "volcano_group_old": "scheduling.k8s.io/group-name",
        "volcano_group": "scheduling.volcano.sh/group-name",
        "volcano_min_member": "scheduling.volcano.sh/group-min-member",
        "volcano_queue": "scheduling.volcano.sh/queue-name",
        "volcano_task": "volcano.sh/task-spec",
        "volcano_preemptable": "volcano.sh/preemptable",
        "volcano_cooldown": "volcano.sh/cooldown-time",
        "yunikorn_queue": "yunikorn.apache.org/queue",
        "lws_exclusive": "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "jobset_exclusive": "alpha.jobset.sigs.k8s.io/exclusive-topology",
        "jobset_selector": "alpha.jobset.sigs.k8s.io/node-selector",
        "gpu_fraction": "gpusched.io/gpu-fraction",
        "gpu_memory": "gpusched.io/gpu-memory",
        "kai_fraction": "gpu-fraction",
        "kai_memory": "gpu-memory",
        "kai_devices": "gpu-fraction-num-devices",
    },
):
    """Annotations that a pod, a Job or a namespace may carry for us."""

    min_member: str | None = None
    topology_required: str | None = None
    topology_preferred: str | None = None
    expected_duration: str | None = None
    preemptible: str | None = None
    min_runtime: str | None = None
    gpu_types: str | None = None
    devices: str | None = None
    hold: str | None = None
    user: str | None = None
    groups: str | None = None
    kueue_required: str | None = None
    kueue_preferred: str | None = None
    volcano_group_old: str | None = None
    volcano_group: str | None = None
    volcano_min_member: str | None = None
    volcano_queue: str | None = None
    volcano_task: str | None = None
    volcano_preemptable: str | None = None
    volcano_cooldown: str | None = None
    yunikorn_queue: str | None = None
    lws_exclusive: str | None = None
    jobset_exclusive: str | None = None
    jobset_selector: str | None = None
    gpu_fraction: str | None = None
    gpu_memory: str | None = None
    kai_fraction: str | None = None
    kai_memory: str | None = None
    kai_devices: str | None = None


class ListMeta(
    Struct, gc=False, rename={"resource_version": "resourceVersion", "continue_token": "continue"}
):
    """Metadata of a list or a bookmark."""

    resource_version: str = ""
    continue_token: str | None = None


class Metadata(Struct, gc=False, rename="camel"):
    """What every object says about itself."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Generation = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None


class WorkloadMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a Job, a pod template or a namespace."""

    annotations: WorkloadAnnotations | None = None


class WireCondition(Struct, gc=False, rename="camel"):
    """One condition of a status."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    observed_generation: Generation = 0
