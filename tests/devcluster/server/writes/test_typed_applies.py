"""Server-side apply types an object by its schema before anything else, in words of its own."""

from __future__ import annotations

import json

import pytest

POD = "/api/v1/namespaces/default/pods/p?fieldManager=m"
MAP = "/api/v1/namespaces/default/configmaps/c?fieldManager=m"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=m"
HEAD = "failed to create typed patch object ("


def applied(kind: str, name: str, version: str = "v1", **rest: object) -> dict:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **rest}


CASES = [
    (
        MAP,
        applied("ConfigMap", "c", data={"a": 1}),
        "/c; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}",
    ),
    (
        MAP,
        applied("ConfigMap", "c", data={"a": ["x"]}),
        (
            "/c; /v1, Kind=ConfigMap): .data.a: expected string, got "
            '&value.valueUnstructured{Value:[]interface {}{"x"}}'
        ),
    ),
    (
        DEPLOYMENT,
        applied("Deployment", "d", "apps/v1", spec={"replicas": "x"}),
        (
            "/d; apps/v1, Kind=Deployment): .spec.replicas: "
            "expected numeric (int or float), got string"
        ),
    ),
    (
        DEPLOYMENT,
        applied("Deployment", "d", "apps/v1", spec={"paused": "yes", "foo": 1, "selector": []}),
        (
            "/d; apps/v1, Kind=Deployment): errors:\n"
            "  .spec.paused: expected boolean, got &{yes}\n"
            "  .spec.foo: field not declared in schema\n"
            "  .spec.selector: expected map, got &{[]}"
        ),
    ),
    (
        POD,
        applied("Pod", "p", spec={"containers": [{"image": "i"}]}),
        (
            "/p; /v1, Kind=Pod): .spec.containers: element 0: associative list with "
            'keys has an element that omits all key fields ["name"] (and doesn\'t have default values for any key fields)'
        ),
    ),
    (
        POD,
        applied("Pod", "p", spec={"containers": {"name": "c"}}),
        "/p; /v1, Kind=Pod): .spec.containers: expected list, got &{map[name:c]}",
    ),
]


@pytest.mark.parametrize(("path", "config", "told"), CASES)
async def test_an_apply_that_does_not_fit(http, path, config, told):
    """Every misfit is told at once in a 500 without reason; the place is what the body says."""
    reply = await http.send("PATCH", path, config, media="application/apply-patch+yaml")
    assert (reply.code, reply.message) == (500, HEAD + told)
    assert "reason" not in reply.body


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (applied("Node", "p"), "/v1, Kind=Node"),
        ({"kind": "Pod", "metadata": {"name": "p"}}, "/, Kind=Pod"),
        (applied("Pod", "p", "apps/v1"), "apps/v1, Kind=Pod"),
        (None, "/, Kind="),
    ],
)
async def test_an_apply_of_something_else(http, config, told):
    """An applied configuration says itself what it is."""
    raw = b"" if config is None else json.dumps(config).encode()
    reply = await http.send("PATCH", POD, raw, media="application/apply-patch+yaml")
    assert (reply.code, reply.message) == (400, f"invalid object type: {told}")


async def test_values_that_only_the_decoder_understands(http):
    """A quantity is any scalar when it is typed; that it is none is told when it is converted."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "lots"}}}
    config = applied("Pod", "p", spec={"containers": [container]})
    reply = await http.send("PATCH", POD, config, media="application/apply-patch+yaml")
    assert reply.code == 500
    assert reply.message.startswith(
        "failed to convert new typed object (/p; /v1, Kind=Pod) to object: quantities must match"
    )


async def test_system_priority_classes_stay(http):
    """The two classes of the system are there for good."""
    where = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"
    reply = await http.delete(where)
    assert (reply.code, reply.message) == (
        403,
        (
            'priorityclasses.scheduling.k8s.io "system-node-critical" is forbidden: '
            "this is a system priority class and cannot be deleted"
        ),
    )
