"""The shape on the wire of our own kinds and of those of which only a few fields matter."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from gpusched.api.affinity.wire import LabelSelector
from gpusched.api.meta.wire import (
    ABSENT,
    Count,
    Generation,
    Int32,
    Metadata,
    OwnerReference,
    PodMetadata,
    Quantities,
    WireCondition,
    WorkloadAnnotations,
    WorkloadMetadata,
)
from gpusched.base.limits import GANG_PODS_MAX

Members = Annotated[int, Meta(ge=0, le=GANG_PODS_MAX)]
MembersFromOne = Annotated[int, Meta(ge=1, le=GANG_PODS_MAX)]
Name = Annotated[str, Meta(max_length=317)]


class Guarantee(Struct, gc=False):
    """``spec.guarantee`` of a Queue."""

    resource: Quantities | None = None


class WireNodePool(Struct, gc=False, rename="camel"):
    """One of ``spec.nodePools``."""

    name: str
    node_selector: dict[str, str] | None = None
    deserved: Quantities | None = None
    capability: Quantities | None = None


class QueueSpec(Struct, gc=False, rename="camel"):
    """Spec of a Queue."""

    parent: str | None = None
    weight: Count | None = None
    priority: Int32 | None = None
    guarantee: Guarantee | None = None
    deserved: Quantities | None = None
    capability: Quantities | None = None
    reclaimable: bool | None = None
    ordering: Literal["Priority", "Fifo", "StrictFifo", "FairShare"] | None = None
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] | None = None
    min_runtime: str | None = None
    max_runtime: str | None = None
    max_wait: str | None = None
    namespace_selector: LabelSelector | None = None
    node_pools: list[WireNodePool] | None = None


class WireQueue(Struct, gc=False):
    """A Queue."""

    metadata: Metadata
    spec: QueueSpec | None = None
    status: Raw = ABSENT


class WireTopologyRequest(Struct, gc=False, rename="camel"):
    """``topology`` of a PodGroup or one of its sub-groups."""

    required: Name | None = None
    preferred: Name | None = None
    max_wait: str | None = None


class WireSubGroup(Struct, gc=False, rename="camel"):
    """One of ``spec.subGroups``."""

    name: str
    min_member: MembersFromOne | None = None
    topology: WireTopologyRequest | None = None


class WireDisruption(Struct, gc=False, rename="camel"):
    """``spec.disruption`` of a PodGroup."""

    mode: str | None = None
    checkpoint_interval: str | None = None


class PodGroupSpec(Struct, gc=False, rename="camel"):
    """Spec of a PodGroup."""

    queue: str | None = None
    min_member: MembersFromOne | None = None
    min_task_member: dict[str, Members] | None = None
    min_resources: Quantities | None = None
    priority_class_name: str | None = None
    preemptible: bool | None = None
    sub_groups: list[WireSubGroup] | None = None
    min_sub_groups: MembersFromOne | None = None
    topology: WireTopologyRequest | None = None
    expected_duration: str | None = None
    min_runtime: str | None = None
    disruption: WireDisruption | None = None
    schedule_timeout: str | None = None


class WirePodGroup(Struct, gc=False):
    """A PodGroup."""

    metadata: Metadata
    spec: PodGroupSpec | None = None
    status: Raw = ABSENT


class WireTopologyLevel(Struct, gc=False, rename="camel"):
    """One of ``spec.levels`` of a Topology."""

    name: str
    node_label: str


class TopologySpec(Struct, gc=False):
    """Spec of a Topology."""

    levels: list[WireTopologyLevel]


class WireTopology(Struct, gc=False):
    """A Topology."""

    metadata: Metadata
    spec: TopologySpec
    status: Raw = ABSENT


class WireNamespace(Struct, gc=False):
    """A namespace."""

    metadata: WorkloadMetadata


class WirePriorityClass(Struct, gc=False, rename="camel"):
    """A PriorityClass."""

    metadata: WorkloadMetadata
    value: Int32
    preemption_policy: str | None = None


class QuotaScopeTerm(Struct, gc=False, rename="camel"):
    """One of ``spec.scopeSelector.matchExpressions`` of a ResourceQuota."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class QuotaScopeSelector(Struct, gc=False, rename="camel"):
    """``spec.scopeSelector`` of a ResourceQuota."""

    match_expressions: list[QuotaScopeTerm] | None = None


class ResourceQuotaSpec(Struct, gc=False, rename="camel"):
    """Spec of a ResourceQuota: what it limits."""

    scopes: list[str] | None = None
    scope_selector: QuotaScopeSelector | None = None


class ResourceQuotaStatus(Struct, gc=False):
    """Status of a ResourceQuota: what it enforces, and how much of that is taken."""

    hard: Quantities | None = None
    used: Quantities | None = None


class WireResourceQuota(Struct, gc=False):
    """A ResourceQuota."""

    metadata: Metadata
    spec: ResourceQuotaSpec | None = None
    status: ResourceQuotaStatus | None = None


class BudgetSpec(Struct, gc=False):
    """Spec of a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, gc=False, rename="camel"):
    """Status of a PodDisruptionBudget."""

    disruptions_allowed: Int32 | None = None


class WireDisruptionBudget(Struct, gc=False):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class PodTemplate(Struct, gc=False):
    """The pods that a Job makes; the spec is read only where we start the Job."""

    metadata: PodMetadata | None = None
    spec: Raw = ABSENT


class JobAnnotations(
    WorkloadAnnotations,
    gc=False,
    rename={
        "admitted": "gpusched.io/admitted",
        "parallelism": "gpusched.io/parallelism",
        "min_parallelism": "kueue.x-k8s.io/job-min-parallelism",
        "max_exec": "kueue.x-k8s.io/max-exec-time-seconds",
        "moved": "gpusched.io/moved",
        "seal": "gpusched.io/seal",
    },
):
    """Those of a Job, with what we wrote when we started it."""

    admitted: str | None = None
    max_exec: str | None = None
    parallelism: str | None = None
    min_parallelism: str | None = None
    moved: str | None = None
    seal: str | None = None


class JobMetadata(Metadata, gc=False, rename="camel"):
    """Of a Job."""

    annotations: JobAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class JobSpec(Struct, gc=False, rename="camel"):
    """Spec of a Job."""

    parallelism: Count | None = None
    completions: Count | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    active_deadline_seconds: Generation | None = None
    template: PodTemplate | None = None


class JobStatus(Struct, gc=False, rename="camel"):
    """Status of a Job."""

    succeeded: Count | None = None
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[WireCondition] | None = None


class WireJob(Struct, gc=False):
    """A Job."""

    metadata: JobMetadata
    spec: JobSpec | None = None
    status: JobStatus | None = None
