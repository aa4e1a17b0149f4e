"""Placement rules of a pod's spec: node affinity, tolerations, and what is not honoured yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.objects import wire
from gpusched.objects.fields import decode_part
from gpusched.objects.meta import Disbelief
from gpusched.objects.selector import NodeTerm, Requirement, Selector, Toleration, requirement

_AFFINITY: Final = msgspec.json.Decoder(wire.Affinity)
_TOLERATIONS: Final = msgspec.json.Decoder(list[wire.Toleration])
_SPREAD: Final = msgspec.json.Decoder(list[wire.SpreadConstraint])
_PORTS: Final = msgspec.json.Decoder(list[wire.Port])
_CLAIMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])

_HARD_EFFECTS: Final = frozenset({"", "NoSchedule", "NoExecute"})
_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def parse_node_selector(raw: bytes) -> tuple[tuple[str, str], ...]:
    """``spec.nodeSelector`` as sorted pairs."""
    labels = decode_part(_LABELS, raw, field="spec.nodeSelector")
    return tuple(sorted(labels.items())) if labels else ()


def parse_requirements(
    expressions: Iterable[wire.Expression] | None, *, field: str
) -> tuple[Requirement, ...]:
    """ANDed expressions, sorted, each with its values sorted: order means nothing.

    Raises:
        Disbelief: an operator that does not exist.
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
    expressions: Iterable[wire.Expression] | None,
    *,
    field: str,
) -> Selector:
    """A LabelSelector; empty selects everything.

    Raises:
        Disbelief: an operator that label selectors do not have.
    """
    exact = {Requirement(key, "In", (value,)) for key, value in (match_labels or {}).items()}
    others = parse_requirements(expressions, field=field)
    strange = [each.operator for each in others if each.operator not in _LABEL_OPERATORS]
    if strange:
        raise Disbelief(field, f"operator {strange[0]!r} is not for labels")
    return Selector(tuple(sorted(exact.union(others), key=_requirement_order)))


def _node_term(term: wire.NodeSelectorTerm, *, field: str) -> NodeTerm:
    return NodeTerm(
        labels=parse_requirements(term.match_expressions, field=field),
        fields=parse_requirements(term.match_fields, field=field),
    )


def parse_affinity(
    raw: bytes,
) -> tuple[tuple[NodeTerm, ...] | None, tuple[tuple[int, NodeTerm], ...], str]:
    """``spec.affinity``: required terms, weighted terms, and the rule we cannot honour.

    Raises:
        Disbelief: not an affinity.
    """
    affinity = decode_part(_AFFINITY, raw, field="spec.affinity")
    if affinity is None:
        return None, (), ""
    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    node = affinity.node_affinity
    if node is not None:
        field = "spec.affinity.nodeAffinity"
        if node.required is not None:
            terms = {
                _node_term(each, field=field) for each in node.required.node_selector_terms or ()
            }
            required = tuple(sorted(terms, key=_term_order))
        weighted = [
            (each.weight, _node_term(each.preference, field=field)) for each in node.preferred or ()
        ]
        preferred = tuple(sorted(weighted, key=lambda each: (-each[0], _term_order(each[1]))))
    unsupported = ""
    if affinity.pod_affinity is not None and affinity.pod_affinity.required:
        unsupported = "uses required pod affinity"
    elif affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
        unsupported = "uses required pod anti-affinity"
    return required, preferred, unsupported


def parse_tolerations(raw: bytes) -> tuple[tuple[Toleration, ...], str]:
    """``spec.tolerations`` of taints that keep pods away, sorted; and what we cannot honour.

    Raises:
        Disbelief: not a list of tolerations.
    """
    tolerations: set[Toleration] = set()
    unsupported = ""
    for each in decode_part(_TOLERATIONS, raw, field="spec.tolerations") or ():
        operator = each.operator or "Equal"
        if operator not in {"Equal", "Exists"}:
            unsupported = "uses a toleration that compares numbers"
        elif each.effect in _HARD_EFFECTS:
            value = "" if operator == "Exists" else each.value
            tolerations.add(Toleration(each.key, operator, value, each.effect))
    ordered = sorted(
        tolerations, key=lambda each: (each.key, each.operator, each.value, each.effect)
    )
    return tuple(ordered), unsupported


def forbids_by_spread(raw: bytes) -> str:
    """The phrase for a hard topology spread constraint, empty for none."""
    constraints = decode_part(_SPREAD, raw, field="spec.topologySpreadConstraints") or ()
    if any(each.when_unsatisfiable == "DoNotSchedule" for each in constraints):
        return "uses a topology spread constraint with DoNotSchedule"
    return ""


def uses_host_ports(raws: Iterable[bytes]) -> str:
    """The phrase for a port on the host, empty for none; one raw list a container."""
    for raw in raws:
        ports = decode_part(_PORTS, raw, field="spec.containers[].ports") or ()
        if any(port.host_port for port in ports):
            return "uses host ports"
    return ""


def uses_claims(raw: bytes) -> str:
    """The phrase for resource claims, empty for none."""
    if decode_part(_CLAIMS, raw, field="spec.resourceClaims"):
        return "uses resource claims"
    return ""
