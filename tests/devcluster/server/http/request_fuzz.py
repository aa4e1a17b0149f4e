"""Requests made at random from what discovery and the schemas offer, then mangled."""

from __future__ import annotations

import copy
import json
from typing import Any

from gpusched.base.clock import SystemClock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.endpoints.dispatch import ResourceEndpoints
from gpusched.devcluster.apiserver.endpoints.messages import ApiRequest
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.cluster import build_core

JUNK = [None, 0, -1, 1.5, 10**30, "", "x", "a/b", "1e30", "é\u0000", True, [], {}, [1], [None],
        [[]], [{}], {"a": None}, {"": ""}, "x" * 300, -(2**63), 2**63, "2020-01-01T00:00:00Z"]  # fmt: skip
NAMES = ["z", "a", "default", "kube-system", "node-1", "", "A_b", "x" * 260, "a.b", "..", "%2e"]
TEXTS = {"name": "c", "image": "i", "key": "a", "operator": "Exists", "effect": "NoSchedule"}
QUERIES = {
    "watch": ["1", "true", "x", "0"],
    "labelSelector": ["a=b", "a in (", "a notin (b,c)", "!", "a>1", "=", ",", "é", "a!=b,c"],
    "fieldSelector": ["metadata.name=z", "spec.nodeName=", "a=b", "metadata.name", "\\", "=,="],
    "resourceVersion": ["0", "1", "-1", "x", "99999999999999999999", "5"],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
    "limit": ["1", "0", "-1", "x", "99999999999999999999"],
    "continue": [
        "x",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
        "!!",
        "e30",
        "W10",
    ],
    "sendInitialEvents": ["true", "x"],
    "allowWatchBookmarks": ["true", "x"],
    "timeoutSeconds": ["1", "x", "-5"],
    "dryRun": ["All", "x", ""],
    "fieldManager": ["m", "x" * 200, "\n", ""],
    "fieldValidation": ["Strict", "Warn", "Ignore", "x"],
    "force": ["true", "x"],
    "pretty": ["true"],
    "includeObject": ["Object", "None", "x"],
    "gracePeriodSeconds": ["0", "-1", "x", "5"],
    "propagationPolicy": ["Foreground", "Orphan", "x"],
    "orphanDependents": ["true", "x"],
}
MEDIA = ["application/json", "application/yaml", "application/merge-patch+json", "text/plain",
         "application/json-patch+json", "application/strategic-merge-patch+json", "",
         "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"]  # fmt: skip
ACCEPT = ["application/json", "*/*", "", "application/json;as=Table;v=v1;g=meta.k8s.io,x",
          "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "text/html"]  # fmt: skip
METHODS = ["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"]


def junk(rng):
    """A value that fits nowhere, of its own."""
    return copy.deepcopy(rng.choice(JUNK))


def value_of(rng, node, depth=0):
    """A value that a schema node mostly allows."""
    if node is None or depth > 7:
        return junk(rng)
    if node.enum:
        return rng.choice(node.enum)
    if node.type == "array":
        return [value_of(rng, node.items, depth + 1) for _ in range(rng.choice([0, 1, 1, 2]))]
    if node.type == "object" or node.props:
        keys = [k for k in node.props if k in node.required or rng.random() < 0.9 / (depth + 1)]
        made = {
            k: TEXTS[k] if k in TEXTS and rng.random() < 0.8
            else value_of(rng, node.props[k], depth + 1)
            for k in keys
        }  # fmt: skip
        if node.additional is not None:
            made[rng.choice(["a", "cpu", "nvidia.com/gpu"])] = value_of(
                rng, node.additional, depth + 1
            )
        return made
    plain = {
        "integer": [0, 1, 2, 30],
        "number": [1.5],
        "boolean": [True, False],
        "quantity": ["1", "500m", "1Gi", 2],
        "int-or-string": [1, "50%", "x"],
        "time": ["2020-01-01T00:00:00Z"],
        "micro-time": ["2020-01-01T00:00:00.000000Z"],
    }
    return rng.choice(plain.get(node.type, ["a", "x", "", "True"]))


def places(value, path=()):
    """Every path inside a value."""
    if path:
        yield path
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else items:
        yield from places(inner, (*path, key))


def mangle(rng, obj):
    """Put junk at one place or none."""
    found = list(places(obj))
    if not found or rng.random() < 0.4:
        return obj
    *above, last = rng.choice(found)
    parent = obj
    for key in above:
        parent = parent[key]
    parent[last] = junk(rng)
    return obj


class Fuzz:
    """A fresh core, and requests to it."""

    def __init__(self, seed: int) -> None:
        core = build_core(SystemClock(), seed)
        self.api = ResourceApi(core)
        self.endpoints = ResourceEndpoints(self.api)
        self.access = RequestAccess(core, "token")
        self.resources = core.registry.resources()

    def body(self, rng: Any, resource: Any, method: str) -> bytes:
        """A body for a resource, sometimes no JSON at all."""
        if rng.random() < 0.03:
            return rng.choice([b"", b"null", b"[]", b"{", b"\xff", b"k8s\0\x0a\xff\xff", b"a: [*a"])
        try:
            schema = self.api.schema(resource)
            obj = {"kind": resource.kind, "apiVersion": resource.api_version}
            obj |= {
                key: value_of(rng, node)
                for key, node in schema.node.props.items()
                if key not in {"kind", "apiVersion", "metadata"} and rng.random() < 0.9
            }
        except (StatusError, KeyError):
            obj = {}
        meta: Any = {"name": rng.choice(NAMES[:6])}
        if rng.random() < 0.2:
            meta["labels"] = {"a": "b"}
        if rng.random() < 0.1:
            meta["finalizers"] = ["example.com/x"]
        obj = mangle(rng, {**obj, "metadata": meta})
        if method == "PATCH" and rng.random() < 0.3:
            operation = rng.choice(["add", "remove", "replace", "test", "move", "copy", "x"])
            paths = ["/" + "/".join(map(str, p)) for p in places(obj)] or ["/a"]
            steps = [{"op": operation, "path": rng.choice(paths), "value": junk(rng)}]
            return json.dumps(steps).encode()
        return json.dumps(obj).encode()

    def request(self, rng: Any) -> ApiRequest:
        """The next request."""
        resource = rng.choice(self.resources)
        method = rng.choice(METHODS)
        path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        if resource.namespaced and rng.random() < 0.9:
            path += "/namespaces/default"
        path += f"/{resource.plural}"
        if method != "POST" or rng.random() < 0.1:
            path += f"/{rng.choice(NAMES)}" if rng.random() < 0.85 else ""
            if rng.random() < 0.2:
                known = [s["subresource"] for s in resource.subresources] + ["status", "x"]
                path += f"/{rng.choice(known)}"
        elif resource.plural == "pods" and rng.random() < 0.2:
            path += f"/z/{rng.choice(['binding', 'eviction'])}"
        chosen = rng.sample(sorted(QUERIES), rng.choice([0, 0, 1, 2, 3]))
        fitting = MEDIA[2:] if method == "PATCH" else MEDIA[:2]
        return ApiRequest(
            method=method,
            path=path,
            query={key: rng.choice(QUERIES[key]) for key in chosen},
            accept=rng.choice(ACCEPT),
            content_type=rng.choice(fitting if rng.random() < 0.95 else MEDIA),
            agent=rng.choice(["test", "", "x" * 300, "é/1"]),
            body=self.body(rng, resource, method),
            user=self.access.user("Bearer token"),
            access=self.access,
        )

    def code(self, request: ApiRequest) -> int:
        """Serve it; the status, whatever it is. Other exceptions are faults of the server."""
        try:
            return self.endpoints.serve(request).code
        except StatusError as refusal:
            json.dumps(refusal.body)
            return refusal.code
