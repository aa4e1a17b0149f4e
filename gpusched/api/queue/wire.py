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


class WireUserLimit(Struct, gc=False, rename="camel"):
    """``spec.userLimits.perUser``, and an element of ``users`` and of ``groups`` beside it."""

    name: str = ""
    resources: Quantities | None = None
    max_running: Count | None = None
    max_pending: Count | None = None


class WireUserLimits(Struct, gc=False, rename="camel"):
    """``spec.userLimits`` of a Queue."""

    per_user: WireUserLimit | None = None
    users: list[WireUserLimit] | None = None
    groups: list[WireUserLimit] | None = None


class WireBudget(Struct, gc=False, rename="camel"):
    """``spec.budget`` of a Queue."""

    gpu_hours: str | int | float
    gpu_hours_per_user: str | int | float | None = None
    period: str | None = None
    rollover_percent: Count | None = None
    warn_percent: Count | None = None
    on_exhausted: Literal["Hold", "HoldAndDrain"] | None = None


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
    user_limits: WireUserLimits | None = None
    budget: WireBudget | None = None


class WireQueue(Struct, gc=False):
    """A Queue as the API server sends it."""

    metadata: Metadata
    spec: QueueSpec | None = None
    status: Raw = ABSENT
