"""Predicates decide as kube-scheduler does, on every recorded cluster and node.

``recorded/kube-scheduler-filters.json.gz`` holds random small clusters with one pending pod and,
for each node, whether kube-scheduler v1.36.2 with its default profile let the pod go there while
every other node was cordoned.

The recorded clusters held one pod more than the file lists, on n0, of another namespace and
without the labels of the others. Each n0 that allows three pods and lists two was refused as full
(other nodes in the same position were not), and a pod that wanted to be near any pod of any
namespace was not the first where none is listed. That pod is put back here: without it, four of
the verdicts do not follow from the file.
"""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpusched.api.serializer.codecs import CODECS
from gpusched.testing.given import Given

pytestmark = pytest.mark.long

CASES = json.loads(
    gzip.decompress(
        (Path(__file__).parent / "recorded" / "kube-scheduler-filters.json.gz").read_bytes()
    )
)["cases"]


def read(kind: str, item: dict[str, Any], number: int) -> Any:
    """The entity of an object, with what a server adds."""
    made = copy.deepcopy(item)
    made["metadata"].update(uid=f"{kind}-{number}", resourceVersion="1")
    if kind == "pods":
        made["metadata"]["namespace"] = "default"
        made["status"] = {"phase": "Running" if made["spec"].get("nodeName") else "Pending"}
    page = CODECS[kind].decode_page(
        json.dumps({"metadata": {"resourceVersion": "1"}, "items": [made]}).encode()
    )
    (entity,) = page.items
    return entity


def given(case: dict[str, Any]) -> Given:
    """The recorded cluster; the pod is ours, the running ones are not."""
    c = Given()
    for number, node in enumerate(case["nodes"]):
        c.cache.put_node(read("nodes", node, number))
    for number, pod in enumerate(case["running"]):
        c.cache.put_pod(read("pods", pod, number))
    c.pod("unlisted", namespace="kube-system", scheduler="other", node="n0", cpu=0, memory=0)
    probe = copy.deepcopy(case["pod"])
    probe["spec"]["schedulerName"] = "gpusched"
    c.cache.put_pod(read("pods", probe, 999))
    return c


def cordoned(c: Given, *, but: str) -> None:
    """Every node but one takes no pods."""
    for name in c.cache.rows.node_names():
        node = c.cache.rows.get(name)
        assert node is not None
        c.cache.put_node(attrs.evolve(node, unschedulable=name != but))


@pytest.mark.parametrize("part", range(8))
def test_the_same_verdict_on_every_node(part):
    """A session binds the pod to the one open node exactly when kube-scheduler took it there."""
    wrong = []
    for case in CASES[part::8]:
        c = given(case)
        for node, fits in sorted(case["fits"].items()):
            cordoned(c, but=node)
            plan = c.when.one_session()
            bound = [bind.node for gang in plan.binds for bind in gang.binds]
            if bound != ([node] if fits else []):
                wrong.append((case["id"], node, fits, c.then.why("probe") if not bound else ""))
    assert wrong == []


def test_all_verdicts_are_there():
    """Half of them refuse, so that a filter that says always the same is seen."""
    verdicts = [fits for case in CASES for fits in case["fits"].values()]
    assert (len(CASES), len(verdicts), sum(verdicts)) == (253, 1134, 465)
