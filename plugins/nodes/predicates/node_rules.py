"""Which nodes may take a pod at all: ready, not cordoned, tolerated, selected.

Room for the pod (resources, GPU slots, pod count) is no policy: the session itself keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.plugin import Hooks, Node, PodClass, Taint, Toleration

CORDON = "node.kubernetes.io/unschedulable"
NAMED_MAX = 2
"""Taints, labels and values of each kind that a sentence names."""


def register_node_rules(hooks: Hooks) -> None:
    """The first filter that refuses a node is the one it is counted under."""
    hooks.node_filter("are not ready", _ready, reads=())
    hooks.node_filter("are cordoned", _not_cordoned, reads=("tolerations",))
    taints, selector = "have a taint that it does not tolerate", "do not match its node selector"
    hooks.node_filter(taints, _tolerated, detail=_taints_text, reads=("tolerations",))
    hooks.node_filter(selector, _selected, detail=_selector_text, reads=("node_selector",))
    affinity = "do not match its node affinity"
    hooks.node_filter(affinity, _node_affinity, detail=_affinity_text, reads=("affinity",))


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
    # Thousands of nodes have a handful of different taints.
    known: dict[tuple[tuple[Taint, ...], bool], bool] = {}
    found = []
    for node in nodes:
        kind = (node.taints, node.unschedulable)
        answer = known.get(kind)
        if answer is None:
            but = CORDON if node.unschedulable else ""
            answer = known[kind] = tolerates(pod, node, but=but)
        found.append(answer)
    return found


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


# -- what is in the way, for sentences ---------------------------------------------------------


def _taints_text(pod: PodClass, nodes: Sequence[Node]) -> str:
    """``dedicated=team-x:NoSchedule``: taints of these nodes that the pod does not tolerate."""
    taints = {
        str(taint)
        for node in nodes
        for taint in node.taints
        if not any(toleration.tolerates(taint) for toleration in pod.tolerations)
    }
    return _list_some(sorted(taints), "and")


def _selector_text(pod: PodClass, nodes: Sequence[Node]) -> str:
    """``zone=a; theirs is b or c``: labels that these nodes do not have."""
    wanted = [
        (f"{key}={value}", key)
        for key, value in pod.node_selector
        if any(node.labels.get(key) != value for node in nodes)
    ]
    return "; ".join(f"{text}, {_values_text(key, nodes)}" for text, key in wanted[:NAMED_MAX])


def _affinity_text(pod: PodClass, nodes: Sequence[Node]) -> str:
    """``zone In a, theirs is b or c``: of the first term, what these nodes do not have."""
    for term in pod.affinity or ():
        missed = [
            each for each in term.labels if not all(each.matches(node.labels) for node in nodes)
        ]
        told = [
            f"{' '.join((each.key, each.operator, *each.values))}, {_values_text(each.key, nodes)}"
            for each in missed[:NAMED_MAX]
        ]
        told = told or [
            f"{' '.join((each.key, each.operator, *each.values[:NAMED_MAX]))}"
            for each in term.fields[:NAMED_MAX]
        ]
        if told:
            return "; ".join(told)
    return ""


def _values_text(key: str, nodes: Sequence[Node]) -> str:
    """``theirs is b or c``: what nodes have under a label."""
    values = sorted({value for node in nodes if (value := node.labels.get(key)) is not None})
    if not values:
        return f"a label that {'it does' if len(nodes) == 1 else 'they do'} not have"
    return f"theirs is {_list_some(values, 'or')}"


def _list_some(texts: Sequence[str], word: str) -> str:
    """Two of some texts, and whether there are others."""
    if len(texts) > NAMED_MAX:
        return f"{', '.join(texts[:NAMED_MAX])} {word} others"
    return f" {word} ".join(texts)
