"""Topology spread constraints that forbid: numbers of pods may differ so much and no more."""

from __future__ import annotations

import attrs
import numpy as np
from gpusched_plugins.nodes.predicates.node_rules import matches_node_affinity, selects, tolerates
from gpusched_plugins.nodes.predicates.pod_selection import Bools, PodSelection, sum_by_domain

from gpusched.plugin import Hooks, PairRule, Pod, SpreadTerm, View


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

    return PairRule(tuple((each.query, each.own) for each in asked), allows)


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
    term = asked.term
    domains = view.domain_numbers(term.topology_key)
    rows = labelled if asked.nodes is None else labelled & asked.nodes
    sums = sum_by_domain(view.pods_by_node(asked.query), domains, rows)
    present = np.unique(domains[rows])
    if len(present) < term.min_domains:
        least = 0
    elif len(present):
        least = int(sums[present].min())
    else:
        return np.ones(domains.shape, dtype=np.bool_)
    return sums[domains] + asked.own - least <= term.max_skew
