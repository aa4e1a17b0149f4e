"""The shape of a pod on the wire: only the fields that are read, nothing checked yet.

Parts that decide about placement stay ``Raw``: equal bytes mean equal rules, and most pods repeat
the bytes of another pod.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from gpusched.api.meta.wire import (
    ABSENT,
    Generation,
    Int32,
    Metadata,
    OwnerReference,
    WireCondition,
    WorkloadAnnotations,
)


class PodAnnotations(
    WorkloadAnnotations,
    gc=False,
    rename={
        "slots": "gpusched.io/slots",
        "plan": "gpusched.io/plan",
        "fence": "gpusched.io/fence",
        "proof": "gpusched.io/proof",
        "seal": "gpusched.io/seal",
        "charged": "gpusched.io/charged",
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
    """Annotations of a pod, with what our binding wrote."""

    slots: str | None = None
    plan: str | None = None
    fence: str | None = None
    proof: str | None = None
    seal: str | None = None
    charged: str | None = None
    job_index: str | None = None
    kai_group: str | None = None
    koordinator_gang: str | None = None
    koordinator_min: str | None = None
    kueue_count: str | None = None
    yunikorn_app: str | None = None
    yunikorn_task: str | None = None
    yunikorn_tasks: str | None = None
    lws_size: str | None = None


class PodMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a pod."""

    annotations: PodAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


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
    """A gate; that it is there keeps a pod back, its name is for sentences."""

    name: str = ""


class SchedulingGroup(Struct, gc=False, rename="camel"):
    """``spec.schedulingGroup``: the native PodGroup that a pod belongs to."""

    pod_group_name: str | None = None


class PodWorkloadRef(Struct, gc=False, rename="camel"):
    """``spec.workloadRef`` of 1.35: the group of a Workload that a pod belongs to."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class WirePodClaim(Struct, gc=False, rename="camel"):
    """A claim for devices: by its name, or by the template that it is made from."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


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
    workload_ref: PodWorkloadRef | None = None
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


class ContainerEnd(Struct, gc=False, rename="camel"):
    """When a container ended, by its node's clock."""

    finished_at: str | None = None


class ContainerState(Struct, gc=False):
    """What a container does; only its end is read."""

    terminated: ContainerEnd | None = None


class ContainerStatus(Struct, gc=False, rename="camel"):
    """What a container was granted, what it has now, and when it ended."""

    name: str = ""
    state: ContainerState | None = None
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class PodClaimStatus(Struct, gc=False, rename="camel"):
    """The claim that was made for a pod from a template; without a name none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Struct, gc=False, frozen=True, rename="camel"):
    """The part of a pod's status that scheduling reads."""

    phase: str = ""
    reason: str | None = None
    nominated_node_name: str | None = None
    extended_resource_claim_status: Raw = ABSENT
    start_time: str | None = None
    conditions: list[WireCondition] | None = None
    resource_claim_statuses: list[PodClaimStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class WirePod(Struct, gc=False):
    """A pod as the API server sends it."""

    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus = PodStatus()
