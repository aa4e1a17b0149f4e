"""Rules between pods, spelled out slowly: what kube-scheduler's filters say of one pod and node.

Nothing here is shared with the product but the decoded terms and ``Selector.matches``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from gpusched.api.affinity.pod_terms import PodTerm
from gpusched.api.affinity.selector import Selector
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod


@attrs.frozen
class Cluster:
    """Nodes by name, and who sits where."""

    nodes: dict[str, Node]
    seated: tuple[tuple[Pod, str], ...]
    namespaces: dict[str, dict[str, str]]

    def plus(self, pod: Pod, node: str) -> Cluster:
        """The same with one more pod."""
        return attrs.evolve(self, seated=(*self.seated, (pod, node)))


def meant(term: PodTerm, owner: Pod, other: Pod, cluster: Cluster) -> bool:
    """Whether a term of the owner selects the other pod."""
    selector = term.selector
    if selector is None:
        return False
    if term.namespaces or term.namespace_selector is not None:
        named = other.namespace in term.namespaces
        labels = cluster.namespaces.get(other.namespace, {})
        chosen = term.namespace_selector is not None and term.namespace_selector.matches(labels)
        if not named and not chosen:
            return False
    elif other.namespace != owner.namespace:
        return False
    if not selector.matches(other.labels):
        return False
    return all(
        other.labels.get(key) == owner.labels[key] for key in term.same_keys if key in owner.labels
    )


def near_enough(pod: Pod, node: Node, cluster: Cluster) -> bool:
    """Required pod affinity."""
    terms = pod.pod_class.pod_affinity
    if not terms:
        return True
    wanted = [
        where
        for other, where in cluster.seated
        if all(meant(term, pod, other, cluster) for term in terms)
    ]
    pairs = {
        (term.topology_key, cluster.nodes[where].labels[term.topology_key])
        for where in wanted
        for term in terms
        if term.topology_key in cluster.nodes[where].labels
    }
    if any(term.topology_key not in node.labels for term in terms):
        return False
    if all((term.topology_key, node.labels[term.topology_key]) in pairs for term in terms):
        return True
    return not pairs and all(meant(term, pod, pod, cluster) for term in terms)


def far_enough(pod: Pod, node: Node, cluster: Cluster) -> bool:
    """Required anti-affinity, of the pod and of those who are there."""
    for other, where in cluster.seated:
        there = cluster.nodes[where].labels
        for owner, whom in ((pod, other), (other, pod)):
            for term in owner.pod_class.pod_anti_affinity:
                key = term.topology_key
                same = key in there and there[key] == node.labels.get(key)
                if same and meant(term, owner, whom, cluster):
                    return False
    return True


def balanced(pod: Pod, node: Node, cluster: Cluster) -> bool:
    """Topology spread constraints with DoNotSchedule."""
    terms = pod.pod_class.spread
    keys = [term.topology_key for term in terms]
    for term in terms:
        if term.topology_key not in node.labels:
            return False
        counts: dict[str, int] = {}
        for name, each in cluster.nodes.items():
            if any(key not in each.labels for key in keys) or not counted(term, pod, each):
                continue
            value = each.labels[term.topology_key]
            here = [other for other, where in cluster.seated if where == name]
            counts[value] = counts.get(value, 0) + sum(
                1 for other in here if spreads_with(term, pod, other)
            )
        least = 0 if len(counts) < term.min_domains else min(counts.values(), default=2**31)
        own = term.selector is not None and alike(term, pod, pod)
        if counts.get(node.labels[term.topology_key], 0) + own - least > term.max_skew:
            return False
    return True


def counted(term: Any, pod: Pod, node: Node) -> bool:
    """Whether a constraint looks at the node at all."""
    spec = pod.pod_class
    if term.by_affinity:
        if any(node.labels.get(key) != value for key, value in spec.node_selector):
            return False
        if spec.affinity is not None and not any(
            each.matches(node.labels, name=node.name) for each in spec.affinity
        ):
            return False
    return not term.by_taints or all(
        any(each.tolerates(taint) for each in spec.tolerations) for taint in node.taints
    )


def alike(term: Any, pod: Pod, other: Pod) -> bool:
    """Whether a constraint of the pod selects the other."""
    return term.selector.matches(other.labels) and all(
        other.labels.get(key) == pod.labels[key] for key in term.same_keys if key in pod.labels
    )


def spreads_with(term: Any, pod: Pod, other: Pod) -> bool:
    """Whether the other is counted: never one that leaves, none at all by an empty selector."""
    if term.selector is None or other.deleting or other.namespace != pod.namespace:
        return False
    empty = term.selector == Selector() and not any(key in pod.labels for key in term.same_keys)
    return not empty and alike(term, pod, other)


def ports_free(pod: Pod, node: Node, cluster: Cluster) -> bool:
    """Host ports."""
    there = [other for other, where in cluster.seated if where == node.name]
    for mine in pod.pod_class.ports:
        for theirs in (each for other in there for each in other.pod_class.ports):
            same = (mine.protocol, mine.port) == (theirs.protocol, theirs.port)
            addresses = {mine.address, theirs.address}
            if same and (len(addresses) == 1 or "0.0.0.0" in addresses):
                return False
    return True


def fits(pod: Pod, node: Node, cluster: Cluster) -> bool:
    """All of it together; nodes have room enough."""
    spec = pod.pod_class
    if any(node.labels.get(key) != value for key, value in spec.node_selector):
        return False
    if not all(any(each.tolerates(t) for each in spec.tolerations) for t in node.taints):
        return False
    rules = (near_enough, far_enough, balanced, ports_free)
    return all(rule(pod, node, cluster) for rule in rules)


def placeable(pods: Sequence[Pod], cluster: Cluster, room: dict[str, int]) -> bool:
    """Whether there is any order and place for all of them; tries everything.

    Args:
        pods: to be placed.
        cluster: as it is.
        room: how many more pods each node takes.
    """
    if not pods:
        return True
    for index, pod in enumerate(pods):
        rest = [*pods[:index], *pods[index + 1 :]]
        for name, left in room.items():
            if left and fits(pod, cluster.nodes[name], cluster):
                after = {**room, name: left - 1}
                if placeable(rest, cluster.plus(pod, name), after):
                    return True
    return False
