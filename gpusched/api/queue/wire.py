"""The shape of a Queue on the wire."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from gpusched.api.affinity.wire import LabelSelector
from gpusched.api.meta.wire import (
    ABSENT,
    Count,
    Int32,
    Metadata,
    Quantities,
)


class Guarantee(Struct, gc=False):
    """``spec.guarantee`` of a Queue."""

    resource: Quantities | None = None


class WireNodePool(Struct, gc=False, rename="camel"):
    """One element of ``spec.nodePools``."""

    name: str
    node_selector: dict[str, str] | None = None
    deserved: Quantities | None = None
    capability: Quantities | None = None


class QueueSpec(Struct, gc=False, rename="camel"):
    """The spec of a Queue."""

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
    """A Queue as the API server sends it."""

    metadata: Metadata
    spec: QueueSpec | None = None
    status: Raw = ABSENT
