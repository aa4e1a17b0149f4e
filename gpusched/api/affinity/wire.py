"""The shape of the rules inside a pod: affinities, tolerations, spread, ports and resources.

These parts stay raw while a pod is read, and are parsed once for all pods with equal bytes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct
from msgspec import field as msgspec_field

from gpusched.api.meta.wire import Int32, Quantities


class ResourceRequirements(Struct, gc=False):
    """``resources`` of a container or a pod; ``claims`` only count."""

    requests: Quantities | None = None
    limits: Quantities | None = None
    claims: list[Raw] | None = None


class WireContainerPort(Struct, gc=False, rename="camel"):
    """A port; only one on the host keeps a pod off a node."""

    host_port: Int32 | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec_field(name="hostIP", default=None)


class WireLabelExpression(Struct, gc=False):
    """One expression of a selector."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Struct, gc=False, rename="camel"):
    """One term of node affinity."""

    match_expressions: list[WireLabelExpression] | None = None
    match_fields: list[WireLabelExpression] | None = None


class PreferredTerm(Struct, gc=False):
    """A weighted term of preferred node affinity."""

    weight: Annotated[int, Meta(ge=0, le=100)]
    preference: NodeSelectorTerm


class RequiredTerms(Struct, gc=False, rename="camel"):
    """The terms of required node affinity, ORed."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(
    Struct,
    gc=False,
    rename={
        "required": "requiredDuringSchedulingIgnoredDuringExecution",
        "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
    },
):
    """The field ``nodeAffinity`` of a pod's affinity."""

    required: RequiredTerms | None = None
    preferred: list[PreferredTerm] | None = None


class LabelSelector(Struct, gc=False, rename="camel"):
    """Selects objects by their labels."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[WireLabelExpression] | None = None


class PodAffinityTerm(Struct, gc=False, rename="camel"):
    """Pods near which, or away from which, a pod wants to be."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodTerm(Struct, gc=False, rename="camel"):
    """A weighted term of preferred affinity to pods."""

    weight: Annotated[int, Meta(ge=0, le=100)]
    pod_affinity_term: PodAffinityTerm


class PodAffinity(
    Struct,
    gc=False,
    rename={
        "required": "requiredDuringSchedulingIgnoredDuringExecution",
        "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
    },
):
    """Affinity to pods, or its opposite."""

    required: list[PodAffinityTerm] | None = None
    preferred: list[WeightedPodTerm] | None = None


class Affinity(Struct, gc=False, rename="camel"):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class WireToleration(Struct, gc=False):
    """A consent to a taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Struct, gc=False, rename="camel"):
    """A topology spread constraint."""

    topology_key: str = ""
    max_skew: Int32 = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None
