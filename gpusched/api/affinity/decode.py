"""Placement rules of a pod's spec: affinities, tolerations, spread, ports of the host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import msgspec

from gpusched.api.affinity import wire
from gpusched.api.affinity.pod_terms import ANY_ADDRESS, HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import (
    NUMERIC,
    NodeTerm,
    Requirement,
    Selector,
    Toleration,
    requirement,
)
from gpusched.api.meta.fields import decode_part, quoted
from gpusched.api.meta.identity import InvalidObject
from gpusched.base.classes import frozen

_AFFINITY: Final = msgspec.json.Decoder(wire.Affinity)
_TOLERATIONS: Final = msgspec.json.Decoder(list[wire.WireToleration])
_SPREAD: Final = msgspec.json.Decoder(list[wire.SpreadConstraint])
_PORTS: Final = msgspec.json.Decoder(list[wire.WireContainerPort])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])

_EFFECTS: Final = frozenset({"", "NoSchedule", "NoExecute", "PreferNoSchedule"})
_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def parse_node_selector(raw: bytes) -> tuple[tuple[str, str], ...]:
    """``spec.nodeSelector`` as sorted pairs."""
    labels = decode_part(_LABELS, raw, field="spec.nodeSelector")
    return tuple(sorted(labels.items())) if labels else ()


def parse_requirements(
    expressions: Iterable[wire.WireLabelExpression] | None, *, field: str
) -> tuple[Requirement, ...]:
    """ANDed expressions, sorted, each with its values sorted: order means nothing.

    Raises:
        InvalidObject: an operator that does not exist.
    """
    return tuple(
        sorted(
            {
                requirement(
                    each.key, each.operator, tuple(sorted(set(each.values or ()))), field=field
                )
                for each in expressions or ()
            },
            key=_requirement_order,
        )
    )


def _requirement_order(each: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return each.key, each.operator, each.values


def _term_order(term: NodeTerm) -> tuple[list[tuple[str, str, tuple[str, ...]]], ...]:
    return (
        [_requirement_order(each) for each in term.labels],
        [_requirement_order(each) for each in term.fields],
    )


def parse_selector(
    match_labels: dict[str, str] | None,
    expressions: Iterable[wire.WireLabelExpression] | None,
    *,
    field: str,
) -> Selector:
    """A LabelSelector; empty selects everything.

    Raises:
        InvalidObject: an operator that label selectors do not have.
    """
    exact = {Requirement(key, "In", (value,)) for key, value in (match_labels or {}).items()}
    others = parse_requirements(expressions, field=field)
    strange = [each.operator for each in others if each.operator not in _LABEL_OPERATORS]
    if strange:
        raise InvalidObject(field, f"operator {strange[0]!r} is not for labels")
    return Selector(tuple(sorted(exact.union(others), key=_requirement_order)))


def _node_term(term: wire.NodeSelectorTerm, *, field: str) -> NodeTerm:
    return NodeTerm(
        labels=parse_requirements(term.match_expressions, field=field),
        fields=parse_requirements(term.match_fields, field=field),
    )


@frozen(slots=True)
class Affinities:
    """``spec.affinity``, decoded.

    Attributes:
        required: of nodes, ORed; None when there is none.
        preferred: of nodes, weighted.
        pod_affinity, pod_anti_affinity: required of pods, ANDed.
        liked, disliked: preferred of pods, weighted.
    """

    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pod_affinity: tuple[tuple[int, PodTerm], ...] = ()
    preferred_pod_anti_affinity: tuple[tuple[int, PodTerm], ...] = ()


def parse_affinity(raw: bytes) -> Affinities:
    """``spec.affinity``.

    Raises:
        InvalidObject: not an affinity.
    """
    affinity = decode_part(_AFFINITY, raw, field="spec.affinity")
    if affinity is None:
        return Affinities()
    required, preferred = _node_affinity(affinity.node_affinity)
    pod_affinity, preferred_pod_affinity = _pod_affinity(
        affinity.pod_affinity, field="spec.affinity.podAffinity"
    )
    pod_anti_affinity, preferred_pod_anti_affinity = _pod_affinity(
        affinity.pod_anti_affinity, field="spec.affinity.podAntiAffinity"
    )
    return Affinities(
        required,
        preferred,
        pod_affinity,
        pod_anti_affinity,
        preferred_pod_affinity,
        preferred_pod_anti_affinity,
    )


def _node_affinity(
    node: wire.NodeAffinity | None,
) -> tuple[tuple[NodeTerm, ...] | None, tuple[tuple[int, NodeTerm], ...]]:
    if node is None:
        return None, ()
    field = "spec.affinity.nodeAffinity"
    required: tuple[NodeTerm, ...] | None = None
    if node.required is not None:
        required = node_terms(node.required, field=field)
    weighted = [
        (each.weight, _node_term(each.preference, field=field)) for each in node.preferred or ()
    ]
    return required, tuple(sorted(weighted, key=lambda each: (-each[0], _term_order(each[1]))))


def node_terms(required: wire.RequiredTerms, *, field: str) -> tuple[NodeTerm, ...]:
    """Terms that are ORed, sorted.

    Raises:
        InvalidObject: an operator that does not exist.
    """
    terms = {_node_term(each, field=field) for each in required.node_selector_terms or ()}
    return tuple(sorted(terms, key=_term_order))


def _pod_affinity(
    pods: wire.PodAffinity | None, *, field: str
) -> tuple[tuple[PodTerm, ...], tuple[tuple[int, PodTerm], ...]]:
    if pods is None:
        return (), ()
    required = {_pod_term(each, field=field) for each in pods.required or ()}
    weighted = [
        (each.weight, _pod_term(each.pod_affinity_term, field=field))
        for each in pods.preferred or ()
    ]
    return (
        tuple(sorted(required, key=_canonical)),
        tuple(sorted(weighted, key=lambda each: (-each[0], _canonical(each[1])))),
    )


def _pod_term(term: wire.PodAffinityTerm, *, field: str) -> PodTerm:
    if not term.topology_key:
        raise InvalidObject(f"{field}[].topologyKey", "is missing")
    return PodTerm(
        topology_key=term.topology_key,
        selector=_selector(term.label_selector, field=f"{field}[].labelSelector"),
        namespaces=tuple(sorted(set(term.namespaces or ()))),
        namespace_selector=_selector(term.namespace_selector, field=f"{field}[].namespaceSelector"),
        same_keys=tuple(sorted(set(term.match_label_keys or ()))),
        other_keys=tuple(sorted(set(term.mismatch_label_keys or ()))),
    )


def _selector(selector: wire.LabelSelector | None, *, field: str) -> Selector | None:
    if selector is None:
        return None
    return parse_selector(selector.match_labels, selector.match_expressions, field=field)


def _canonical(term: PodTerm | SpreadTerm) -> bytes:
    return msgspec.json.encode(attrs.astuple(term))


def parse_tolerations(raw: bytes) -> tuple[Toleration, ...]:
    """``spec.tolerations`` of taints that keep pods away or make a node worse, sorted.

    Raises:
        InvalidObject: not a list of tolerations, or an operator that does not exist.
    """
    tolerations: set[Toleration] = set()
    for each in decode_part(_TOLERATIONS, raw, field="spec.tolerations") or ():
        operator = each.operator or "Equal"
        if operator not in {"Equal", "Exists"} and operator not in NUMERIC:
            raise InvalidObject("spec.tolerations[].operator", f"{quoted(operator)} is not known")
        if each.effect in _EFFECTS:
            value = "" if operator == "Exists" else each.value
            tolerations.add(Toleration(each.key, operator, value, each.effect))
    return tuple(
        sorted(tolerations, key=lambda each: (each.key, each.operator, each.value, each.effect))
    )


def parse_spread(raw: bytes) -> tuple[tuple[SpreadTerm, ...], tuple[SpreadTerm, ...]]:
    """``spec.topologySpreadConstraints``: those that forbid, and those that only prefer.

    Raises:
        InvalidObject: a constraint that is none.
    """
    hard: set[SpreadTerm] = set()
    soft: set[SpreadTerm] = set()
    field = "spec.topologySpreadConstraints"
    for each in decode_part(_SPREAD, raw, field=field) or ():
        if not each.topology_key:
            raise InvalidObject(f"{field}[].topologyKey", "is missing")
        term = SpreadTerm(
            topology_key=each.topology_key,
            max_skew=each.max_skew,
            selector=_selector(each.label_selector, field=f"{field}[].labelSelector"),
            min_domains=1 if each.min_domains is None else each.min_domains,
            by_affinity=each.node_affinity_policy != "Ignore",
            by_taints=each.node_taints_policy == "Honor",
            same_keys=tuple(sorted(set(each.match_label_keys or ()))),
        )
        (soft if each.when_unsatisfiable == "ScheduleAnyway" else hard).add(term)
    return tuple(sorted(hard, key=_canonical)), tuple(sorted(soft, key=_canonical))


def parse_host_ports(raws: Iterable[bytes]) -> tuple[HostPort, ...]:
    """Ports on the host, sorted; one raw list a container.

    Raises:
        InvalidObject: not a list of ports.
    """
    found: set[HostPort] = set()
    for raw in raws:
        ports = decode_part(_PORTS, raw, field="spec.containers[].ports") or ()
        found.update(
            HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
            for port in ports
            if port.host_port and port.host_port > 0
        )
    return tuple(sorted(found))
