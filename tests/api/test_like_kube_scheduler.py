"""Requests, selectors, affinity and tolerations decide as kube-scheduler does.

``recorded/kube-scheduler.json.gz`` holds small clusters and, for each node, whether
kube-scheduler v1.36 with its default profile let the pod go there.
"""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

from gpusched.api.meta.resources import total

CASES = json.loads(
    gzip.decompress((Path(__file__).parent / "recorded" / "kube-scheduler.json.gz").read_bytes())
)["cases"]


def named(item, number):
    """The object with what a server adds."""
    made = copy.deepcopy(item)
    made["metadata"].update(uid=f"u{number}", resourceVersion="1", namespace="default")
    return made


def accepts(node, pod_class, held):
    """The rules that the decoded class carries, applied to one node."""
    need = total([*held, pod_class.requests])
    return (
        all(node.allocatable.get(name) >= need.get(name) for name, _ in pod_class.requests.items)
        and all(node.labels.get(key) == value for key, value in pod_class.node_selector)
        and (
            pod_class.affinity is None
            or any(term.matches(node.labels, name=node.name) for term in pod_class.affinity)
        )
        and all(
            any(each.tolerates(taint) for each in pod_class.tolerations) for taint in node.taints
        )
    )


def test_the_same_verdict_on_every_node(wire):
    """For each recorded pod and node."""
    seen = []
    for case in CASES:
        nodes = wire.listed("nodes", *[named(each, n) for n, each in enumerate(case["nodes"])])
        running = wire.listed("pods", *[named(each, n) for n, each in enumerate(case["running"])])
        pod_class = wire.read("pods", named(case["pod"], 99)).pod_class
        assert pod_class.unsupported == ""
        for node in nodes:
            held = [pod.pod_class.requests for pod in running if pod.node == node.name]
            verdict = accepts(node, pod_class, held)
            assert verdict == case["fits"][node.name], (case["id"], node.name)
            seen.append(verdict)
    assert (len(seen), sum(seen)) == (386, 183)
