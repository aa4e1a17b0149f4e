"""Topology spread constraints that forbid: numbers of pods may differ so much and no more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import numpy as np
from gpusched_plugins.nodes.predicates.node_rules import matches_node_affinity, selects, tolerates
from gpusched_plugins.nodes.predicates.pod_selection import (
    Bools,
    Ints,
    PodSelection,
    sum_by_domain,
)

from gpusched.plugin import DomainLimit, Hooks, PairRule, Pod, SpreadTerm, View


@attrs.frozen(eq=False)
class _SpreadConstraint:
    """One constraint of a pod: the pods it counts, and on which nodes (None: all labelled ones)."""

    term: SpreadTerm
    query: PodSelection
    own: int
    nodes: Bools | None


def register_topology_spread(hooks: Hooks, view: View) -> None:
    """Each constraint holds on its own; a node without one of the labels takes no such pod."""
    hooks.pair_filter(
        "break its topology spread constraints",
        lambda pod: _spread_rule(pod, view),
        concerns=lambda pod_class: bool(pod_class.spread),
        reads=("spread",),
    )


def _spread_rule(pod: Pod, view: View) -> PairRule | None:
    terms = pod.pod_class.spread
    if not terms:
        return None
    asked = tuple(_spread_constraint(term, pod, view) for term in terms)

    def allows() -> Bools:
        labelled = np.ones(len(view.nodes()), dtype=np.bool_)
        for each in asked:
            labelled &= view.domain_numbers(each.term.topology_key) >= 0
        allowed = labelled.copy()
        for each in asked:
            allowed &= _balanced(each, labelled, view)
        return allowed

    def limits() -> list[DomainLimit]:
        return [
            DomainLimit(
                each.term.topology_key,
                each.query.counts,
                partial(_room, each, asked, view),
                rises=True,
            )
            for each in asked
        ]

    return PairRule(
        tuple((each.query, each.own) for each in asked),
        allows,
        limits=limits,
        detail=lambda: _named_constraints(terms),
    )


def _named_constraints(terms: Sequence[SpreadTerm]) -> str:
    """``maxSkew 1 over topology.kubernetes.io/zone``: the first constraints."""
    return ", ".join(f"maxSkew {term.max_skew} over {term.topology_key}" for term in terms[:2])


def _room(each: _SpreadConstraint, asked: Sequence[_SpreadConstraint], view: View) -> Ints:
    """Pods that each domain takes while the emptiest one stays as it is."""
    labelled = np.ones(len(view.nodes()), dtype=np.bool_)
    for other in asked:
        labelled &= view.domain_numbers(other.term.topology_key) >= 0
    sums, least = _sums_and_least(each, labelled, view)
    room: Ints = np.maximum(each.term.max_skew + least - sums[:-1], 0)
    return room


def _spread_constraint(term: SpreadTerm, pod: Pod, view: View) -> _SpreadConstraint:
    selector = term.selector_for(pod.labels)
    # An empty selector counts nobody who is there, and yet the pod itself.
    counted = selector if selector is None or selector.requirements else None
    query = PodSelection(((frozenset((pod.namespace,)), counted),), staying=True)
    own = int(selector is not None and selector.matches(pod.labels))
    return _SpreadConstraint(term, query, own, _counted_nodes(term, pod, view))


def _counted_nodes(term: SpreadTerm, pod: Pod, view: View) -> Bools | None:
    spec = pod.pod_class
    by_affinity = term.by_affinity and bool(spec.node_selector or spec.affinity is not None)
    if not by_affinity and not term.by_taints:
        return None
    return np.array(
        [
            (not by_affinity or (selects(spec, node) and matches_node_affinity(spec, node)))
            and (not term.by_taints or tolerates(spec, node))
            for node in view.nodes()
        ],
        dtype=np.bool_,
    )


def _balanced(asked: _SpreadConstraint, labelled: Bools, view: View) -> Bools:
    sums, least = _sums_and_least(asked, labelled, view)
    domains = view.domain_numbers(asked.term.topology_key)
    return sums[domains] + asked.own - least <= asked.term.max_skew


def _sums_and_least(asked: _SpreadConstraint, labelled: Bools, view: View) -> tuple[Ints, int]:
    """Pods in each domain, shape (domains + 1,), and those of the emptiest one."""
    domains = view.domain_numbers(asked.term.topology_key)
    rows = labelled if asked.nodes is None else labelled & asked.nodes
    sums = sum_by_domain(view.pods_by_node(asked.query), domains, rows)
    present = np.unique(domains[rows])
    if len(present) < max(1, asked.term.min_domains):
        return sums, 0
    return sums, int(sums[present].min())
