"""The shape of the kinds of policy on the wire: only the fields that are read."""

from __future__ import annotations

from msgspec import Raw, Struct

from gpusched.api.affinity.wire import LabelSelector
from gpusched.api.meta.wire import (
    ABSENT,
    Int32,
    Metadata,
    Quantities,
    WorkloadMetadata,
)


class WireTopologyLevel(Struct, gc=False, rename="camel"):
    """One of ``spec.levels`` of a Topology."""

    name: str
    node_label: str


class TopologySpec(Struct, gc=False):
    """The spec of a Topology."""

    levels: list[WireTopologyLevel]


class WireTopology(Struct, gc=False):
    """A Topology as the API server sends it."""

    metadata: Metadata
    spec: TopologySpec
    status: Raw = ABSENT


class WireNamespace(Struct, gc=False):
    """A namespace as the API server sends it."""

    metadata: WorkloadMetadata


class WirePriorityClass(Struct, gc=False, rename="camel"):
    """A PriorityClass as the API server sends it."""

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
    """A ResourceQuota as the API server sends it."""

    metadata: Metadata
    spec: ResourceQuotaSpec | None = None
    status: ResourceQuotaStatus | None = None


class BudgetSpec(Struct, gc=False):
    """Spec of a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(Struct, gc=False, rename="camel"):
    """Status of a PodDisruptionBudget."""

    disruptions_allowed: Int32 | None = None


class WireDisruptionBudget(Struct, gc=False):
    """A PodDisruptionBudget as the API server sends it."""

    metadata: Metadata
    spec: BudgetSpec | None = None
    status: DisruptionBudgetStatus | None = None
