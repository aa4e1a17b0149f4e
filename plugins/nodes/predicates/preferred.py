"""What is preferred: nearness, distance and even spread of pods, and nodes without soft taints."""

from __future__ import annotations

import numpy as np
from gpusched_plugins.nodes.predicates.pod_selection import (
    Ints,
    PodSelection,
    namespaced_selector,
    sum_by_domain,
)

from gpusched.plugin import Hooks, NodeRows, PairScore, Pod, PodClass, View

BEST = 1000
"""Points between the best and the worst node by one pod's preferences."""


def register_preferences(hooks: Hooks, view: View) -> None:
    """Soft taints, preferred affinity and anti-affinity, and constraints that only prefer."""
    if view.has_soft_taints():
        hooks.node_score(_score_soft_taints)
    hooks.pair_score(
        lambda pod: _preferred_affinity_score(pod, view),
        concerns=_has_preferred_affinity,
        reads=("preferred_pod_affinity", "preferred_pod_anti_affinity"),
    )
    hooks.pair_score(
        lambda pod: _preferred_spread_score(pod, view),
        concerns=lambda pod_class: bool(pod_class.soft_spread),
        reads=("soft_spread",),
    )


def _score_soft_taints(pod: PodClass, rows: NodeRows) -> Ints | None:
    """Nodes are worse by each taint that only asks to stay away, unless it is tolerated."""
    unwelcome = [
        sum(not any(each.tolerates(taint) for each in pod.tolerations) for taint in soft)
        for soft in (node.soft_taints for node in rows.nodes())
    ]
    return -BEST * np.array(unwelcome, dtype=np.int64) if any(unwelcome) else None


def _has_preferred_affinity(pod_class: PodClass) -> bool:
    return bool(pod_class.preferred_pod_affinity or pod_class.preferred_pod_anti_affinity)


def _preferred_affinity_score(pod: Pod, view: View) -> PairScore | None:
    spec = pod.pod_class
    signed = [
        *spec.preferred_pod_affinity,
        *((-weight, term) for weight, term in spec.preferred_pod_anti_affinity),
    ]
    if not signed:
        return None
    asked = tuple(
        (weight, term.topology_key, PodSelection((namespaced_selector(term, pod, view),)))
        for weight, term in signed
    )

    def points() -> Ints:
        total = np.zeros(len(view.nodes()), dtype=np.int64)
        for weight, key, query in asked:
            domains = view.domain_numbers(key)
            total += weight * sum_by_domain(view.pods_by_node(query), domains)[domains]
        return _scaled(total)

    return PairScore(asked, points)


def _preferred_spread_score(pod: Pod, view: View) -> PairScore | None:
    terms = pod.pod_class.soft_spread
    if not terms:
        return None
    spaces = frozenset((pod.namespace,))
    asked = tuple(
        (term.topology_key, PodSelection(((spaces, term.selector_for(pod.labels)),), staying=True))
        for term in terms
    )

    def points() -> Ints:
        total = np.zeros(len(view.nodes()), dtype=np.int64)
        for key, query in asked:
            domains = view.domain_numbers(key)
            sums = sum_by_domain(view.pods_by_node(query), domains)
            # A node outside of every domain is as bad as the fullest one.
            total -= np.where(domains >= 0, sums[domains], sums.max(initial=0))
        return _scaled(total)

    return PairScore(asked, points)


def _scaled(points: Ints) -> Ints:
    if not points.size:
        return points
    low, high = points.min(), points.max()
    scaled: Ints = (points - low) * BEST // max(1, int(high - low))
    return scaled
