"""The shape on the wire of ``scheduling.k8s.io``: every version at once, only what is read."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw, Struct

from gpusched.api.gang.wire import Members
from gpusched.api.meta.wire import ABSENT, Int32, Metadata, OwnerReference, WorkloadAnnotations


class NativeAnnotations(
    WorkloadAnnotations,
    gc=False,
    rename={
        "min_task_member": "gpusched.io/min-task-member",
        "min_resources": "gpusched.io/min-resources",
        "sub_groups": "gpusched.io/sub-groups",
        "min_sub_groups": "gpusched.io/min-sub-groups",
        "topology_max_wait": "gpusched.io/topology-max-wait",
        "schedule_timeout": "gpusched.io/schedule-timeout",
        "checkpoint_interval": "gpusched.io/checkpoint-interval",
    },
):
    """Annotations of a native group: fields of our own PodGroup that it does not have."""

    min_task_member: str | None = None
    min_resources: str | None = None
    sub_groups: str | None = None
    min_sub_groups: str | None = None
    topology_max_wait: str | None = None
    schedule_timeout: str | None = None
    checkpoint_interval: str | None = None


class NativeMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a native group or Workload."""

    annotations: NativeAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class GangPolicy(Struct, gc=False, rename="camel"):
    """``gang`` of a scheduling policy; the second count is of a CompositePodGroup."""

    min_count: Members | None = None
    min_group_count: Members | None = None


class SchedulingPolicy(Struct, gc=False):
    """``schedulingPolicy`` of a group or template, ``policy`` in 1.35."""

    gang: GangPolicy | None = None
    basic: dict[str, Any] | None = None


class NativeTopologyConstraint(Struct, gc=False):
    """One element of ``schedulingConstraints.topology``."""

    key: str = ""


class SchedulingConstraints(Struct, gc=False):
    """``schedulingConstraints`` of a group."""

    topology: list[NativeTopologyConstraint] | None = None


class WorkloadTemplateOf136(Struct, gc=False, rename="camel"):
    """The field ``podGroupTemplateRef.workload`` of v1alpha2."""

    workload_name: str = ""
    pod_group_template_name: str = ""


class TemplateRefOf136(Struct, gc=False):
    """The field ``podGroupTemplateRef`` of v1alpha2."""

    workload: WorkloadTemplateOf136 | None = None


class WorkloadRef(Struct, gc=False, rename="camel"):
    """The field ``workloadRef`` since v1alpha3."""

    workload_name: str = ""
    template_name: str = ""


class WireGroupClaim(Struct, gc=False, rename="camel"):
    """One element of ``resourceClaims``: one of the two sources is set."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WireGroupClaimStatus(Struct, gc=False, rename="camel"):
    """One element of ``resourceClaimStatuses``: the claim that was made from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class WireGroupClaimStatuses(Struct, gc=False, rename="camel"):
    """The part of a group's status that names its claims."""

    resource_claim_statuses: list[WireGroupClaimStatus] | None = None


class NativeGroupSpec(Struct, gc=False, rename="camel"):
    """Spec of a PodGroup or CompositePodGroup of any version."""

    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | dict[str, Any] | None = None
    priority_class_name: str | None = None
    priority: Int32 | None = None
    preemption_policy: str | None = None
    resource_claims: list[WireGroupClaim] | None = None
    pod_group_template_ref: TemplateRefOf136 | None = None
    workload_ref: WorkloadRef | None = None
    parent_composite_pod_group_name: str | None = None


class NativeGroup(Struct, gc=False):
    """A PodGroup or CompositePodGroup of scheduling.k8s.io, any version since v1alpha2."""

    metadata: NativeMetadata
    spec: Raw = ABSENT
    status: Raw = ABSENT


KNOWN_FIELDS: Final[dict[str, Any]] = {
    "schedulingPolicy": {"basic": {}, "gang": {"minCount": None, "minGroupCount": None}},
    "schedulingConstraints": {"topology": {"key": None}},
    "disruptionMode": None,
    "priorityClassName": None,
    "priority": None,
    "preemptionPolicy": None,
    "resourceClaims": None,
    "podGroupTemplateRef": {"workload": {"workloadName": None, "podGroupTemplateName": None}},
    "workloadRef": {"workloadName": None, "templateName": None},
    "parentCompositePodGroupName": None,
}
"""Fields of a spec that are read, as a tree; None where everything below is taken as it is."""
