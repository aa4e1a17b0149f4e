"""One walk over a usual body does what decoding, looking for unknown fields and pruning do."""

from __future__ import annotations

import copy
import random
from typing import Any

from gpusched.devcluster.schema.schema import load_builtin

ODD: list[Any] = [
    None, True, 7, -1, 2**31, 2**63, 1.5, "", "x", "64Gi", "1000m", "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00+02:00", [], {}, [None], [[]], ["x"], {"a": "b"}, {"a": None}, [{}],
]  # fmt: skip
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "labels": {"a": "b"},
        "creationTimestamp": None,
        "annotations": {},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "priority": 5,
        "nodeSelector": {"a": "b"},
        "tolerations": [],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["x", "y"],
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "gpu": 1}},
                "readinessProbe": {"httpGet": {"port": "http", "path": "/"}},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": []},
}


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *_places(value[key])]
    return found


def test_what_the_quick_walk_accepts_is_what_the_three_walks_make_of_it():
    """Over two thousand spoiled pods; some are accepted and some are left to the others."""
    schema = load_builtin("", "v1", "Pod")
    rng = random.Random(1)
    accepted = 0
    for _ in range(2500):
        pod = copy.deepcopy(POD)
        for _ in range(rng.randrange(3)):
            container, key = rng.choice(_places(pod))
            if isinstance(container, dict) and rng.random() < 0.2:
                container["unheardOf"] = 1
            else:
                container[key] = copy.deepcopy(rng.choice(ODD))
        plain = schema.plain(pod)
        if plain is not None:
            accepted += 1
            assert schema.decode_error(pod) is None
            assert schema.strict_errors(pod) == []
            assert plain == schema.prune(pod)
    assert 300 < accepted < 2200


def test_a_usual_pod_is_accepted():
    """Nulls, empty maps, quantities and times of a usual pod need no second look."""
    usual = copy.deepcopy(POD)
    del usual["metadata"]["managedFields"]
    plain = load_builtin("", "v1", "Pod").plain(usual)
    assert plain is not None
    limits = plain["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "1Gi", "gpu": "1"}
    assert "annotations" not in plain["metadata"]
