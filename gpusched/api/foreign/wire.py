"""The shape on the wire of other projects' groups and queues: only what is read."""

from __future__ import annotations

from msgspec import Raw, Struct

from gpusched.api.gang.wire import Members, MembersFromOne
from gpusched.api.meta.wire import ABSENT, Count, Int32, Quantities, WorkloadMetadata
from gpusched.api.queue.wire import Guarantee

Amount = int | float


class NetworkTopology(Struct, gc=False, rename="camel"):
    """``networkTopology`` of a Volcano PodGroup."""

    mode: str | None = None
    highest_tier_allowed: Count | None = None
    highest_tier_name: str | None = None


class VolcanoGroupSpec(Struct, gc=False, rename="camel"):
    """Spec of a Volcano PodGroup."""

    min_member: Members | None = None
    min_task_member: dict[str, Members] | None = None
    min_resources: Quantities | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[Raw] | None = None


class VolcanoGroup(Struct, gc=False):
    """A PodGroup of scheduling.volcano.sh/v1beta1."""

    metadata: WorkloadMetadata
    spec: VolcanoGroupSpec | None = None
    status: Raw = ABSENT


class VolcanoQueueSpec(Struct, gc=False, rename="camel"):
    """Spec of a Volcano Queue."""

    weight: Count | None = None
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    parent: str | None = None
    priority: Int32 | None = None
    dequeue_strategy: str | None = None
    affinity: Raw = ABSENT


class VolcanoQueue(Struct, gc=False):
    """A Queue of scheduling.volcano.sh/v1beta1."""

    metadata: WorkloadMetadata
    spec: VolcanoQueueSpec | None = None
    status: Raw = ABSENT


class CoschedulingGroupSpec(Struct, gc=False, rename="camel"):
    """Spec of a coscheduling PodGroup."""

    min_member: Members | None = None
    min_resources: Quantities | None = None
    schedule_timeout_seconds: Count | None = None


class CoschedulingGroup(Struct, gc=False):
    """A PodGroup of scheduling.x-k8s.io/v1alpha1."""

    metadata: WorkloadMetadata
    spec: CoschedulingGroupSpec | None = None
    status: Raw = ABSENT


class KaiTopology(Struct, gc=False, rename="camel"):
    """``topologyConstraint`` of a KAI PodGroup."""

    required_topology_level: str | None = None
    preferred_topology_level: str | None = None


class KaiSubGroup(Struct, gc=False, rename="camel"):
    """One of ``spec.subGroups`` of a KAI PodGroup."""

    name: str
    min_member: Members | None = None
    min_sub_group: MembersFromOne | None = None
    parent: str | None = None
    topology_constraint: KaiTopology | None = None


class KaiGroupSpec(Struct, gc=False, rename="camel"):
    """Spec of a KAI PodGroup."""

    min_member: Members | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    preemptibility: str | None = None
    min_sub_group: MembersFromOne | None = None
    min_non_preemptible: Count | None = None
    topology_constraint: KaiTopology | None = None
    sub_groups: list[KaiSubGroup] | None = None


class KaiGroup(Struct, gc=False):
    """A PodGroup of scheduling.run.ai/v2alpha2."""

    metadata: WorkloadMetadata
    spec: KaiGroupSpec | None = None
    status: Raw = ABSENT


class KaiResource(Struct, gc=False, rename="camel"):
    """One of ``spec.resources`` of a KAI Queue; -1 is unlimited."""

    quota: Amount | None = None
    limit: Amount | None = None
    over_quota_weight: Amount | None = None


class KaiResources(Struct, gc=False):
    """``spec.resources`` of a KAI Queue."""

    gpu: KaiResource | None = None
    cpu: KaiResource | None = None
    memory: KaiResource | None = None


class KaiQueueSpec(Struct, gc=False, rename="camel"):
    """Spec of a KAI Queue."""

    parent_queue: str | None = None
    resources: KaiResources | None = None
    priority: Int32 | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class KaiQueue(Struct, gc=False):
    """A Queue of scheduling.run.ai/v2."""

    metadata: WorkloadMetadata
    spec: KaiQueueSpec | None = None
    status: Raw = ABSENT
