"""Answers recorded from a real API server are read without a single rejection.

``recorded/`` holds objects of kube-apiserver v1.36 as it returned them (pods, nodes, Jobs,
priority classes, budgets), with made-up values for UIDs, versions and times.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusched.api.meta.identity import Rejected
from gpusched.api.serializer.codecs import CODECS

RECORDED = Path(__file__).parent / "recorded"


def read(name):
    return (RECORDED / name).read_bytes()


@pytest.mark.parametrize(
    "plural", ["jobs", "nodes", "poddisruptionbudgets", "pods", "priorityclasses"]
)
def test_recorded_lists(plural):
    """Every item arrives with its name and version."""
    body = read(f"{plural}-list.json")
    page = CODECS[plural].decode_page(body)
    raw = json.loads(body)
    assert raw["items"]
    assert [item.resource_version for item in page.items] == [
        each["metadata"]["resourceVersion"] for each in raw["items"]
    ]
    assert not [item.message for item in page.items if isinstance(item, Rejected)]
    assert page.resource_version == raw["metadata"]["resourceVersion"]


def test_recorded_pods():
    """Defaults of the server, gates and bindings mean what they say."""
    pods = {pod.name: pod for pod in CODECS["pods"].decode_page(read("pods-list.json")).items}
    assert pods["p-lim"].pod_class.requests.items == (
        ("cpu", 1000),
        ("memory", 2**30),
        ("nvidia.com/gpu", 1000),
        ("pods", 1),
    )
    assert pods["p-gated"].gated
    assert pods["p-gated"].unschedulable_reason == "SchedulingGated"
    assert pods["b-1"].node == "bn-1"
    assert pods["b-1"].scheduled > 0
