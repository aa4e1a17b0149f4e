"""Room on nodes for pods that other schedulers have nominated there.

As in kube-scheduler, only pods of the same or a higher priority are waited for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gpusched_plugins.nodes.predicates.inter_pod_affinity import anti_affinity_rule_of
from gpusched_plugins.nodes.predicates.pod_selection import Bools

from gpusched.plugin import Hooks, PairRule, Pod, Resources, View


def register_nominated_pods(hooks: Hooks, view: View) -> None:
    """Register the filter, where any pod is nominated by another scheduler."""
    if view.nominated_foreign_pods():
        hooks.pair_filter(
            "keep room for pods of other schedulers nominated there",
            lambda pod: _nominated_pods_rule(pod, view),
            concerns=lambda _pod_class: True,
            reads=(),
        )


def _nominated_pods_rule(pod: Pod, view: View) -> PairRule | None:
    first = [each for each in view.nominated_foreign_pods() if each.priority >= pod.priority]
    rows = {node.name: row for row, node in enumerate(view.nodes())}
    held: dict[int, Resources] = {}
    shut: set[int] = set()
    for each in first:
        row = rows.get(each.nominated)
        if row is None:
            continue
        held[row] = held.get(row, Resources()).plus(each.pod_class.requests)
        if _conflict(pod, each, view.namespace_labels()):
            shut.add(row)
    if not held:
        return None
    asked = pod.pod_class.requests.items

    def allows() -> Bools:
        allowed = np.ones(len(rows), dtype=np.bool_)
        allowed[sorted(shut)] = False
        for row, amounts in held.items():
            there = view.rows([row])
            allowed[row] &= all(
                int(there.allocatable(name)[0] - there.used(name)[0]) >= amount + amounts.get(name)
                for name, amount in asked
                if amount
            )
        return allowed

    return PairRule((tuple(each.uid for each in first), frozenset(shut)), allows)


def _conflict(pod: Pod, other: Pod, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the two cannot share a node; ``labels`` of each namespace."""
    ports = pod.pod_class.ports
    if any(mine.conflicts(each) for mine in ports for each in other.pod_class.ports):
        return True
    return any(
        ward is not None and ward.repels(whom, labels.get(whom.namespace, {}))
        for owner, whom in ((pod, other), (other, pod))
        for ward in (
            anti_affinity_rule_of(term, owner) for term in owner.pod_class.pod_anti_affinity
        )
    )
