"""Which nodes may take a pod at all: ready, not cordoned, tolerated, selected.

Room for the pod (resources, GPU slots, pod count) is no policy: the session itself keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.plugin import Hooks, Node, PodClass, Toleration

CORDON = "node.kubernetes.io/unschedulable"


def register_node_rules(hooks: Hooks) -> None:
    """The first filter that refuses a node is the one it is counted under."""
    hooks.node_filter("are not ready", _ready)
    hooks.node_filter("are cordoned", _not_cordoned)
    hooks.node_filter("have a taint that it does not tolerate", _tolerated)
    hooks.node_filter("do not match its node selector", _selected)
    hooks.node_filter("do not match its node affinity", _node_affinity)


def _ready(_pod: PodClass, nodes: Sequence[Node]) -> list[bool]:
    return [not node.not_ready for node in nodes]


def _not_cordoned(pod: PodClass, nodes: Sequence[Node]) -> list[bool]:
    if any(_consents_to_cordon(toleration) for toleration in pod.tolerations):
        return [True] * len(nodes)
    return [not node.unschedulable for node in nodes]


def _consents_to_cordon(toleration: Toleration) -> bool:
    if toleration.key not in ("", CORDON) or toleration.effect not in ("", "NoSchedule"):
        return False
    return toleration.operator == "Exists" or (toleration.key == CORDON and not toleration.value)


def _tolerated(pod: PodClass, nodes: Sequence[Node]) -> list[bool]:
    return [tolerates(pod, node, but=CORDON if node.unschedulable else "") for node in nodes]


def _selected(pod: PodClass, nodes: Sequence[Node]) -> list[bool] | None:
    return [selects(pod, node) for node in nodes] if pod.node_selector else None


def _node_affinity(pod: PodClass, nodes: Sequence[Node]) -> list[bool] | None:
    return None if pod.affinity is None else [matches_node_affinity(pod, node) for node in nodes]


def tolerates(pod: PodClass, node: Node, *, but: str = "") -> bool:
    """Whether no taint of the node keeps the pod away, leaving out those of one key."""
    return all(
        any(toleration.tolerates(taint) for toleration in pod.tolerations)
        for taint in node.taints
        if not but or taint.key != but
    )


def selects(pod: PodClass, node: Node) -> bool:
    """Whether the pod's node selector admits the node."""
    return all(node.labels.get(key) == value for key, value in pod.node_selector)


def matches_node_affinity(pod: PodClass, node: Node) -> bool:
    """Whether the pod's required node affinity admits the node."""
    terms = pod.affinity
    return terms is None or any(term.matches(node.labels, name=node.name) for term in terms)
