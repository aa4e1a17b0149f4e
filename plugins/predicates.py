"""Which nodes may take a pod at all: ready, not cordoned, tolerated, selected.

Room for the pod (resources, GPU slots, pod count) is no policy: the session itself keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.plugin import Hooks, Node, PodClass, Toleration, View

CORDON = "node.kubernetes.io/unschedulable"


@attrs.frozen
class Predicates:
    """The filters of kube-scheduler that need nothing but the pod and the node."""

    name: ClassVar[str] = "predicates"
    api: ClassVar[int] = 1

    def open(self, hooks: Hooks, _view: View) -> None:
        """See the class. The first filter that refuses a node is the one it is counted under."""
        hooks.node_filter("are not ready", _ready)
        hooks.node_filter("are cordoned", _not_cordoned)
        hooks.node_filter("have a taint that it does not tolerate", _tolerated)
        hooks.node_filter("do not match its node selector", _selected)
        hooks.node_filter("do not match its node affinity", _affine)


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
    return [
        all(
            any(toleration.tolerates(taint) for toleration in pod.tolerations)
            for taint in node.taints
            if not (taint.key == CORDON and node.unschedulable)
        )
        for node in nodes
    ]


def _selected(pod: PodClass, nodes: Sequence[Node]) -> list[bool] | None:
    if not pod.node_selector:
        return None
    wanted = pod.node_selector
    return [all(node.labels.get(key) == value for key, value in wanted) for node in nodes]


def _affine(pod: PodClass, nodes: Sequence[Node]) -> list[bool] | None:
    terms = pod.affinity
    if terms is None:
        return None
    return [any(term.matches(node.labels, name=node.name) for term in terms) for node in nodes]
