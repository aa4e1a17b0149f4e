"""When a pod got its place, as its object tells."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpusched.api.meta.identity import parse_time
from gpusched.api.serializer.codecs import CODECS

BORN, STARTED, BOUND = (f"2026-01-01T0{hour}:00:00Z" for hour in (1, 2, 3))
CONDITION = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BOUND}


@pytest.mark.parametrize(
    ("node", "status", "expected"),
    [
        ("n", {"startTime": STARTED, "conditions": [CONDITION]}, BOUND),
        ("n", {"startTime": STARTED}, STARTED),
        ("n", {}, BORN),
        ("", {}, ""),
    ],
)
def test_a_bound_pod_always_has_a_time(node: str, status: dict[str, Any], expected: str) -> None:
    """Its condition tells; else its start, else its creation. An unbound one has none."""
    pod = {
        "metadata": {
            "name": "p", "namespace": "d", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": BORN,
        },
        "spec": {"containers": [{"name": "c"}], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running" if node else "Pending", **status},
    }  # fmt: skip
    line = msgspec.json.encode({"type": "ADDED", "object": pod})
    assert CODECS["pods"].decode_event(line).item.scheduled == parse_time(expected)
