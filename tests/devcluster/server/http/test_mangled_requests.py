"""Requests mangled at random, from a seed: each gets an answer that blames nobody but the client."""

import copy
import json
import random

import pytest

from gpusched.base.clock import SystemClock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.endpoints.dispatch import ApiRequest, ResourceEndpoints
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.cluster import build_core

JUNK = [None, 0, -1, 1.5, 10**30, "", "x", "1e30", True, [], {}, [1], [{}], [None], {"a": None}]
NAMESPACED = "/api/v1/namespaces/default"
POD = {
    "metadata": {"name": "z", "labels": {"a": "b"}, "finalizers": ["example.com/x"]},
    "spec": {
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "schedulingGates": [{"name": "example.com/a"}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
            }
        ],
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
NODE = {
    "metadata": {"name": "z"},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
}
JOB = {
    "metadata": {"name": "z"},
    "spec": {
        "completions": 2,
        "completionMode": "Indexed",
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        },
    },
}
BUDGET = {
    "metadata": {"name": "z"},
    "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
}
KINDS = [
    (f"{NAMESPACED}/pods", POD),
    ("/api/v1/nodes", NODE),
    ("/apis/batch/v1/namespaces/default/jobs", JOB),
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET),
]
MEDIA = {
    "PATCH": ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"],
    "POST": ["json"],
    "PUT": ["json"],
}


def places(value, path=()):
    if path:
        yield path
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else items:
        yield from places(inner, (*path, key))


def mangled(rng, obj):
    obj = copy.deepcopy(obj)
    for _ in range(rng.choice([1, 1, 2])):
        *above, last = rng.choice(list(places(obj)))
        parent = obj
        for key in above:
            parent = parent[key]
        parent[last] = copy.deepcopy(rng.choice(JUNK))
    return obj


def answered(endpoints, request):
    try:
        return endpoints.serve(request).code
    except StatusError as refusal:
        # What no schema knows is a 500 without a reason on real servers as well, and so is an
        # element of a strategic patch without its key.
        told = refusal.message.startswith(("failed to create typed patch object", "map: "))
        return 422 if told and refusal.code == 500 else refusal.code


@pytest.mark.parametrize("seed", range(6))
def test_nothing_a_client_sends_is_a_fault_of_the_server(seed):
    """Every answer is a success or a StatusError below 500 (501 names a missing feature)."""
    rng = random.Random(seed)
    core = build_core(SystemClock(), seed)
    endpoints = ResourceEndpoints(ResourceApi(core))
    access = RequestAccess(core, "token")
    codes = set()
    for _ in range(400):
        path, obj = rng.choice(KINDS)
        method = rng.choice(["POST", "PUT", "PATCH"])
        name = "" if method == "POST" else "/z" + rng.choice(["", "/status"])
        body = obj if rng.random() < 0.1 else mangled(rng, obj)
        media = rng.choice(MEDIA[method])
        force = {"force": "true"} if media == "apply-patch+yaml" else {}
        request = ApiRequest(
            method=method,
            path=path + name,
            query={"fieldManager": "m", **force},
            accept="application/json",
            content_type=f"application/{media}",
            agent="test",
            body=json.dumps(body).encode(),
            user=access.user("Bearer token"),
            access=access,
        )
        code = answered(endpoints, request)
        codes.add(code)
        assert code < 500 or code == 501, request
    assert {200, 201, 400, 422} <= codes
