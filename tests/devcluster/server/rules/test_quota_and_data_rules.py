"""Quotas, config maps, secrets and priority classes over HTTP: what is refused, in which words."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.devcluster.cluster import DevCluster

Obj = dict[str, Any]
CORE = "/api/v1/namespaces/default"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PATCH = "merge-patch+json"


def quota(hard: Obj, **spec: Any) -> Obj:
    """A quota named q."""
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}


async def counted(http: Any, hard: Obj, used: Obj, **spec: Any) -> None:
    """Create a quota whose controller has looked already."""
    assert (await http.post(f"{CORE}/resourcequotas", quota(hard, **spec))).code == 201
    status = {"status": {"hard": hard, "used": used}}
    reply = await http.patch(f"{CORE}/resourcequotas/q/status", status, PATCH)
    assert reply.code == 200


async def test_objects_are_counted_at_the_door(http: Any) -> None:
    """The third config map of two is refused, whatever name the quota uses for them."""
    await counted(http, {"count/configmaps": "2"}, {"count/configmaps": "1"})
    assert (await http.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}})).code == 201
    reply = await http.post(f"{CORE}/configmaps", {"metadata": {"name": "b"}})
    assert (reply.code, reply.message) == (
        403,
        (
            'configmaps "b" is forbidden: exceeded quota: q, requested: count/configmaps=1, '
            "used: count/configmaps=2, limited: count/configmaps=2"
        ),
    )


async def test_containers_must_say_what_a_quota_limits(http: Any) -> None:
    """Each limited amount is told with the containers that do not name it."""
    await counted(http, {"limits.cpu": "2", "limits.memory": "2Gi"}, {"limits.cpu": "0"})
    containers = [
        {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}},
        {"name": "b", "image": "i"},
    ]
    body = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    reply = await http.post(f"{CORE}/pods", body)
    assert reply.message == (
        'pods "p" is forbidden: failed quota: q: must specify limits.cpu for: b; '
        "limits.memory for: a,b"
    )


@pytest.mark.parametrize(
    ("scopes", "spec", "code"),
    [
        (["Terminating"], {"activeDeadlineSeconds": 5}, 403),
        (["Terminating"], {}, 201),
        (["NotTerminating"], {}, 403),
        (["BestEffort"], {}, 403),
        (["NotBestEffort"], {}, 201),
    ],
)
async def test_a_quota_counts_only_its_scope(
    http: Any, scopes: list[str], spec: Obj, code: int
) -> None:
    """Pods outside the scopes of a full quota are admitted."""
    await counted(http, {"pods": "0"}, {"pods": "0"}, scopes=scopes)
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }
    assert (await http.post(f"{CORE}/pods", body)).code == code


async def test_a_quota_for_a_priority_class(http: Any) -> None:
    """Only pods of the named class are counted."""
    await http.post(CLASSES, {"metadata": {"name": "high"}, "value": 5})
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    await counted(http, {"pods": "0"}, {"pods": "0"}, scopeSelector={"matchExpressions": [rule]})
    for name, spec, code in (("low", {}, 201), ("top", {"priorityClassName": "high"}, 403)):
        body = {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        }
        assert (await http.post(f"{CORE}/pods", body)).code == code


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            quota({"gpus": "1"}),
            (
                '[spec.hard[gpus]: Invalid value: "gpus": must be a standard resource type or fully qualified, '
                'spec.hard[gpus]: Invalid value: "gpus": must be a standard resource for quota]'
            ),
        ),
        (quota({"pods": "1500m"}), 'spec.hard[pods]: Invalid value: "1500m": must be an integer'),
        (
            quota({"pods": "1"}, scopes=["BestEffort", "NotBestEffort"]),
            'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes',
        ),
        (
            quota({"secrets": "1"}, scopes=["Terminating"]),
            'spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource',
        ),
    ],
)
async def test_a_wrong_quota(http: Any, body: Obj, text: str) -> None:
    """Names that nothing counts, fractions and impossible scopes are refused."""
    reply = await http.post(f"{CORE}/resourcequotas", body)
    assert (reply.code, reply.message) == (422, f'ResourceQuota "q" is invalid: {text}')


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"type": "kubernetes.io/tls"},
            "[data[tls.crt]: Required value, data[tls.key]: Required value]",
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "x"}},
            (
                'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": '
                "invalid character 'x' looking for beginning of value"
            ),
        ),
        (
            {"stringData": {"..": "x"}},
            "data[..]: Invalid value: \"..\": must not be '..'",
        ),
    ],
)
async def test_a_wrong_secret(http: Any, body: Obj, text: str) -> None:
    """Each type must hold what it is for."""
    reply = await http.post(f"{CORE}/secrets", {"metadata": {"name": "s"}, **body})
    assert (reply.code, reply.message) == (422, f'Secret "s" is invalid: {text}')


async def test_sealed_data_stays(http: Any) -> None:
    """A sealed config map changes neither its data nor its seal; a secret keeps its type."""
    await http.post(
        f"{CORE}/configmaps", {"metadata": {"name": "m"}, "data": {"a": "1"}, "immutable": True}
    )
    reply = await http.patch(
        f"{CORE}/configmaps/m", {"data": {"a": "2"}, "immutable": False}, PATCH
    )
    sealed = "Forbidden: field is immutable when `immutable` is set"
    assert reply.message == f'ConfigMap "m" is invalid: [immutable: {sealed}, data: {sealed}]'
    await http.post(f"{CORE}/secrets", {"metadata": {"name": "s"}})
    reply = await http.patch(f"{CORE}/secrets/s", {"type": "other"}, PATCH)
    assert (
        reply.message == 'Secret "s" is invalid: type: Invalid value: "other": field is immutable'
    )


async def test_one_priority_class_is_everybodys(http: Any) -> None:
    """A second default is refused, on create and on update, and so are the system's names."""
    await http.post(CLASSES, {"metadata": {"name": "a"}, "value": 1, "globalDefault": True})
    why = "is forbidden: PriorityClass a is already marked as default. Only one default can exist"
    body = {"metadata": {"name": "b"}, "value": 1}
    reply = await http.post(CLASSES, {**body, "globalDefault": True})
    assert (reply.code, reply.message) == (403, f'priorityclasses.scheduling.k8s.io "b" {why}')
    await http.post(CLASSES, body)
    reply = await http.patch(f"{CLASSES}/b", {"globalDefault": True}, PATCH)
    assert reply.code == 403
    reply = await http.post(CLASSES, {"metadata": {"name": "system-mine"}, "value": 1})
    assert "system-mine is not a known system priority class" in reply.message


async def test_a_version_in_a_new_object(http: Any, cluster: DevCluster) -> None:
    """The store refuses it without a reason; namespaces of cluster-wide objects are ignored."""
    reply = await http.post(
        f"{CORE}/configmaps", {"metadata": {"name": "m", "resourceVersion": "7"}}
    )
    text = "resourceVersion should not be set on objects to be created"
    assert (reply.code, reply.message, reply.body.get("reason")) == (500, text, None)
    reply = await http.post("/api/v1/nodes", {"metadata": {"name": "n", "namespace": "x"}})
    assert (reply.code, reply.body["metadata"].get("namespace")) == (201, None)
