"""The shape of a PodGroup on the wire."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct

from gpusched.api.meta.wire import (
    ABSENT,
    Metadata,
    Quantities,
)
from gpusched.base.limits import GANG_PODS_MAX

Members = Annotated[int, Meta(ge=0, le=GANG_PODS_MAX)]
MembersFromOne = Annotated[int, Meta(ge=1, le=GANG_PODS_MAX)]
Name = Annotated[str, Meta(max_length=317)]


class WireTopologyRequest(Struct, gc=False, rename="camel"):
    """``topology`` of a PodGroup or one of its sub-groups."""

    required: Name | None = None
    preferred: Name | None = None
    max_wait: str | None = None


class WireSubGroup(Struct, gc=False, rename="camel"):
    """One element of ``spec.subGroups``."""

    name: str
    min_member: MembersFromOne | None = None
    topology: WireTopologyRequest | None = None
    parent: Name | None = None
    min_sub_groups: MembersFromOne | None = None


class WireDisruption(Struct, gc=False, rename="camel"):
    """``spec.disruption`` of a PodGroup."""

    mode: str | None = None
    checkpoint_interval: str | None = None


class PodGroupAnnotations(
    Struct,
    gc=False,
    rename={
        "hold": "gpusched.io/hold",
        "user": "gpusched.io/user",
        "groups": "gpusched.io/groups",
    },
):
    """Annotations of a PodGroup."""

    hold: str | None = None
    user: str | None = None
    groups: str | None = None


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
    gpu_types: Raw = ABSENT
    devices: Raw = ABSENT


class PodGroupMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a PodGroup; what else annotations say elsewhere, its spec says."""

    annotations: PodGroupAnnotations | None = None


class WirePodGroup(Struct, gc=False):
    """A PodGroup as the API sends it."""

    metadata: PodGroupMetadata
    spec: PodGroupSpec | None = None
    status: Raw = ABSENT
