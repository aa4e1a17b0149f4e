"""The shape of a node on the wire: only the fields that are read."""

from __future__ import annotations

from msgspec import Struct

from gpusched.api.meta.wire import (
    Metadata,
    Quantities,
    WireCondition,
)


class NodeAnnotations(Struct, gc=False, rename={"gpu_layout": "gpusched.io/gpu-layout"}):
    """Annotations of a node that are read."""

    gpu_layout: str | None = None


class NodeMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a node."""

    annotations: NodeAnnotations | None = None


class WireTaint(Struct, gc=False):
    """One taint of a node."""

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
    """A node as the API server sends it."""

    metadata: NodeMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
