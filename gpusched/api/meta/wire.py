"""The shape of API objects on the wire: only the fields that are read, nothing checked yet.

Unknown fields are skipped by the parser and cost next to nothing, so a field that nobody reads
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


class PodAnnotations(
    WorkloadAnnotations,
    gc=False,
    rename={
        "slots": "gpusched.io/slots",
        "plan": "gpusched.io/plan",
        "fence": "gpusched.io/fence",
        "proof": "gpusched.io/proof",
        "seal": "gpusched.io/seal",
        "job_index": "batch.kubernetes.io/job-completion-index",
        "kai_group": "pod-group-name",
        "koordinator_gang": "gang.scheduling.koordinator.sh/name",
        "koordinator_min": "gang.scheduling.koordinator.sh/min-available",
        "kueue_count": "kueue.x-k8s.io/pod-group-total-count",
        "yunikorn_app": "yunikorn.apache.org/app-id",
        "yunikorn_task": "yunikorn.apache.org/task-group-name",
        "yunikorn_tasks": "yunikorn.apache.org/task-groups",
        "lws_size": "leaderworkerset.sigs.k8s.io/size",
    },
):
    """Those of a pod, with what our binding wrote."""

    slots: str | None = None
    plan: str | None = None
    fence: str | None = None
    proof: str | None = None
    seal: str | None = None
    job_index: str | None = None
    kai_group: str | None = None
    koordinator_gang: str | None = None
    koordinator_min: str | None = None
    kueue_count: str | None = None
    yunikorn_app: str | None = None
    yunikorn_task: str | None = None
    yunikorn_tasks: str | None = None
    lws_size: str | None = None


class NodeAnnotations(Struct, gc=False, rename={"gpu_layout": "gpusched.io/gpu-layout"}):
    """Those of a node."""

    gpu_layout: str | None = None


class ListMeta(
    Struct, gc=False, rename={"resource_version": "resourceVersion", "continue_token": "continue"}
):
    """Of a list or a bookmark."""

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


class PodMetadata(Metadata, gc=False, rename="camel"):
    """Of a pod."""

    annotations: PodAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class WorkloadMetadata(Metadata, gc=False, rename="camel"):
    """Of a Job, a pod template or a namespace."""

    annotations: WorkloadAnnotations | None = None


class NodeMetadata(Metadata, gc=False, rename="camel"):
    """Of a node."""

    annotations: NodeAnnotations | None = None


class WireCondition(Struct, gc=False, rename="camel"):
    """One condition of a status."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    observed_generation: Generation = 0


# -- pods -----------------------------------------------------------------------------------


class Container(Struct, gc=False, rename="camel"):
    """What a container takes from its node."""

    name: str = ""
    resources: Raw = ABSENT
    ports: Raw = ABSENT
    restart_policy: str | None = None


class ClaimSource(Struct, gc=False, rename="camel"):
    """A claim that a volume is, by name."""

    claim_name: str = ""


class EphemeralSource(Struct, gc=False):
    """A claim made for the pod and named after it; that it is there is all that matters."""


class PodVolume(Struct, gc=False, rename="camel"):
    """A volume; only one that is a claim keeps a pod off a node."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class SchedulingGate(Struct, gc=False):
    """A gate; that it is there is all that matters."""


class SchedulingGroup(Struct, gc=False, rename="camel"):
    """``spec.schedulingGroup``: the native PodGroup that a pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(Struct, gc=False, rename="camel"):
    """The part of a pod's spec that scheduling reads."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    active_deadline_seconds: Generation | None = None
    priority_class_name: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[PodVolume] | None = None
    resources: Raw = ABSENT
    overhead: Raw = ABSENT
    node_selector: Raw = ABSENT
    affinity: Raw = ABSENT
    tolerations: Raw = ABSENT
    topology_spread_constraints: Raw = ABSENT
    resource_claims: Raw = ABSENT


class ContainerStatus(Struct, gc=False, rename="camel"):
    """What a container was granted, and what it has now."""

    name: str = ""
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class PodStatus(Struct, gc=False, frozen=True, rename="camel"):
    """The part of a pod's status that scheduling reads."""

    phase: str = ""
    reason: str | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class WirePod(Struct, gc=False):
    """A pod."""

    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus = PodStatus()


# -- nodes ----------------------------------------------------------------------------------


class WireTaint(Struct, gc=False):
    """A taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, gc=False, frozen=True):
    """The part of a node's spec that scheduling reads."""

    taints: list[WireTaint] | None = None
    unschedulable: bool | None = None


class NodeStatus(Struct, gc=False, frozen=True):
    """The part of a node's status that scheduling reads."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[WireCondition] | None = None


class WireNode(Struct, gc=False):
    """A node."""

    metadata: NodeMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
