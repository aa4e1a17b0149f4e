"""Kinds of policy: from the wire to the entity."""

from __future__ import annotations

from typing import Final

from gpusched.api.affinity.decode import parse_selector
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.api.meta.status import status_or_empty
from gpusched.api.meta.units import unit_exponent
from gpusched.api.pod import gang_annotations
from gpusched.api.policy import wire as policy_wire
from gpusched.api.policy.kinds import (
    DisruptionBudget,
    Namespace,
    PriorityClass,
    QuotaScope,
    ResourceQuota,
    Topology,
)
from gpusched.base.limits import DOMAIN_DEPTH_MAX, FOREIGN_TEXT_MAX


def decode_topology(parsed: policy_wire.WireTopology) -> Topology:
    """A parsed Topology as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    levels = tuple((level.name, level.node_label) for level in parsed.spec.levels)
    if not 1 <= len(levels) <= DOMAIN_DEPTH_MAX:
        raise InvalidObject("spec.levels", f"has {len(levels)} levels, not 1 to {DOMAIN_DEPTH_MAX}")
    for part, texts in (("name", {a for a, _ in levels}), ("nodeLabel", {b for _, b in levels})):
        if len(texts) != len(levels) or "" in texts:
            raise InvalidObject(f"spec.levels[].{part}", "is empty or there twice")
    return Topology(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        levels=levels,
        generation=metadata.generation,
        status=status_or_empty(parsed.status),
    )


TOPOLOGIES: Final = KindCodec(
    "Topology", wire_type=policy_wire.WireTopology, entity=decode_topology, ours=True
)


_CLASS_SCOPE: Final = "PriorityClass"


def decode_namespace(parsed: policy_wire.WireNamespace) -> Namespace:
    """A parsed namespace as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    labels = read_labels(metadata)
    return Namespace(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        labels=labels,
        queue=gang_annotations.read_queue_name(labels, metadata.annotations),
    )


def decode_priority_class(parsed: policy_wire.WirePriorityClass) -> PriorityClass:
    """A parsed PriorityClass as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    return PriorityClass(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        value=parsed.value,
        preemption_policy=parsed.preemption_policy or "PreemptLowerPriority",
        preemptible=gang_annotations.read_gang_annotations(metadata.annotations).preemptible,
    )


def decode_resource_quota(parsed: policy_wire.WireResourceQuota) -> ResourceQuota:
    """A parsed ResourceQuota as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=True)
    spec = parsed.spec or policy_wire.ResourceQuotaSpec()
    selector = spec.scope_selector or policy_wire.QuotaScopeSelector()
    terms = [QuotaScope("Exists") for scope in spec.scopes or () if scope == _CLASS_SCOPE]
    terms += [
        QuotaScope(term.operator, tuple(term.values or ()))
        for term in selector.match_expressions or ()
        if term.scope_name == _CLASS_SCOPE
    ]
    return ResourceQuota(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        classes=tuple(terms),
        left=_leaves_quota(parsed.status) if terms else (),
    )


def _leaves_quota(status: policy_wire.ResourceQuotaStatus | None) -> tuple[tuple[str, int], ...]:
    status = status or policy_wire.ResourceQuotaStatus()
    used = status.used or {}
    found = {}
    for name, text in (status.hard or {}).items():
        field = f"status.hard[{name[:FOREIGN_TEXT_MAX]}]"
        power = unit_exponent(name.removeprefix("requests.").removeprefix("limits."))
        try:
            hard = parse_quantity(str(text), power=power)
            found[name] = max(0, hard - parse_quantity(str(used.get(name, "0")), power=power))
        except QuantityError as why:
            raise InvalidObject(field, str(why)) from None
    return tuple(sorted(found.items()))


def decode_disruption_budget(parsed: policy_wire.WireDisruptionBudget) -> DisruptionBudget:
    """A parsed PodDisruptionBudget as an entity; without a selector it guards no pod.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=True)
    selector = parsed.spec.selector if parsed.spec else None
    return DisruptionBudget(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        selector=None
        if selector is None
        else parse_selector(
            selector.match_labels, selector.match_expressions, field="spec.selector"
        ),
        disruptions_allowed=max(0, (parsed.status and parsed.status.disruptions_allowed) or 0),
    )


NAMESPACES: Final = KindCodec(
    "Namespace", wire_type=policy_wire.WireNamespace, entity=decode_namespace
)


PRIORITY_CLASSES: Final = KindCodec(
    "PriorityClass", wire_type=policy_wire.WirePriorityClass, entity=decode_priority_class
)


DISRUPTION_BUDGETS: Final = KindCodec(
    "PodDisruptionBudget",
    wire_type=policy_wire.WireDisruptionBudget,
    entity=decode_disruption_budget,
)


RESOURCE_QUOTAS: Final = KindCodec(
    "ResourceQuota", wire_type=policy_wire.WireResourceQuota, entity=decode_resource_quota
)
