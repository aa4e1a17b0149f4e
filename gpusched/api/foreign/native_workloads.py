"""Workloads of Kubernetes itself: what groups are made from, and in 1.35 the gangs themselves."""

from __future__ import annotations

from msgspec import Struct

from gpusched.api.foreign.native_wire import NativeMetadata, SchedulingPolicy
from gpusched.api.foreign.workload import ForeignWorkload, ForeignWorkloadRole
from gpusched.api.meta.fields import (
    check_identity,
    read_hold,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import parse_time
from gpusched.api.pod import gang_annotations

KIND = "Workload"


class ControllerRef(Struct, gc=False):
    """``controllerRef``: the object that the Workload describes; its API group is not read."""

    kind: str = ""
    name: str = ""


class GroupTemplate(Struct, gc=False, rename="camel"):
    """One of ``podGroupTemplates``, or of ``podGroups`` in 1.35, where the policy is called so."""

    name: str = ""
    scheduling_policy: SchedulingPolicy | None = None
    policy: SchedulingPolicy | None = None


class NativeWorkloadSpec(Struct, gc=False, rename="camel"):
    """Spec of a Workload of any version."""

    controller_ref: ControllerRef | None = None
    pod_group_templates: list[GroupTemplate] | None = None
    pod_groups: list[GroupTemplate] | None = None


class NativeWorkload(Struct, gc=False):
    """A Workload of scheduling.k8s.io, any version since v1alpha1."""

    metadata: NativeMetadata
    spec: NativeWorkloadSpec | None = None


def decode_native_workload(parsed: NativeWorkload) -> ForeignWorkload:
    """A Workload: sizes of its groups by name, its queue, and whose it is.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or NativeWorkloadSpec()
    check_identity(metadata, namespaced=True)
    parts = []
    for template in spec.pod_groups or spec.pod_group_templates or ():
        policy = template.policy or template.scheduling_policy or SchedulingPolicy()
        size = (policy.gang.min_count or 1) if policy.gang is not None else 1
        parts.append(ForeignWorkloadRole(template.name, max(1, size)))
    owner = spec.controller_ref
    return ForeignWorkload(
        kind=KIND,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        created=parse_time(metadata.creation_timestamp or ""),
        parts=tuple(parts),
        queue=gang_annotations.read_queue_name(read_labels(metadata), metadata.annotations),
        hints=gang_annotations.read_gang_annotations(metadata.annotations),
        hold=read_hold(metadata.annotations.hold if metadata.annotations else None),
        controller=(owner.kind, owner.name) if owner is not None else ("", ""),
    )
