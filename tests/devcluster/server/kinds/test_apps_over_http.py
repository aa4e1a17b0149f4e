"""Deployments and replica sets as clients write them: defaults, refusals, scale, default deletion."""

from __future__ import annotations

from typing import Any

import pytest

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WEB = f"{DEPLOYMENTS}/web"
SETS = "/apis/apps/v1/namespaces/default/replicasets"


def deployment(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "creationTimestamp": None},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
            **spec,
        },
    }


async def test_defaults(http: Any) -> None:
    """What is left out is filled in; zeros that mean nothing are not printed."""
    reply = await http.post(DEPLOYMENTS, deployment(paused=False, minReadySeconds=0))
    assert reply.code == 201
    spec = reply.body["spec"]
    rest = {k: v for k, v in spec.items() if k not in {"template", "selector"}}
    assert rest == {
        "replicas": 1,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    assert spec["template"]["metadata"] == {"labels": {"app": "web"}}
    assert reply.body["status"] == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"selector": {"matchLabels": {"app": "x"}}},
            (
                'Deployment.apps "web" is invalid: spec.template.metadata.labels: Invalid value: '
                '{"app":"web"}: `selector` does not match template `labels`'
            ),
        ),
        (
            {"selector": None},
            (
                'Deployment.apps "web" is invalid: [spec.selector: Required value, '
                'spec.template.metadata.labels: Invalid value: {"app":"web"}: '
                "`selector` does not match template `labels`]"
            ),
        ),
        (
            {"selector": {}},
            (
                'Deployment.apps "web" is invalid: spec.selector: Invalid value: {}: '
                "empty selector is invalid for deployment"
            ),
        ),
        (
            {"replicas": -1},
            (
                'Deployment.apps "web" is invalid: spec.replicas: Invalid value: -1: '
                "must be greater than or equal to 0"
            ),
        ),
        (
            {"minReadySeconds": 600},
            (
                'Deployment.apps "web" is invalid: spec.progressDeadlineSeconds: Invalid value: 600: '
                "must be greater than minReadySeconds"
            ),
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}},
            (
                'Deployment.apps "web" is invalid: spec.strategy.rollingUpdate.maxUnavailable: '
                'Invalid value: "0%": may not be 0 when `maxSurge` is 0'
            ),
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            (
                'Deployment.apps "web" is invalid: spec.strategy.rollingUpdate: Forbidden: '
                "may not be specified when strategy `type` is 'Recreate'"
            ),
        ),
        (
            {"strategy": {"type": "Slow"}},
            (
                'Deployment.apps "web" is invalid: spec.strategy: Unsupported value: '
                '{"Type":"Slow","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate"'
            ),
        ),
    ],
)
async def test_unsound_deployments(http: Any, change: dict[str, Any], why: str) -> None:
    """Each fault is told in the server's words."""
    reply = await http.post(DEPLOYMENTS, deployment(**change))
    assert (reply.code, reply.message) == (422, why)


async def test_template_must_restart_always(http: Any) -> None:
    """Pods of a Deployment may neither end nor have a deadline."""
    body = deployment()
    body["spec"]["template"]["spec"] |= {"restartPolicy": "Never", "activeDeadlineSeconds": 5}
    reply = await http.post(DEPLOYMENTS, body)
    assert [cause["message"] for cause in reply.body["details"]["causes"]] == [
        'Unsupported value: "Never": supported values: "Always"',
        "Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
    ]


async def test_selector_is_sealed_and_annotations_count(http: Any) -> None:
    """The selector cannot change; labels change no generation, annotations and spec do."""
    await http.post(DEPLOYMENTS, deployment(paused=True))
    change = {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}}
    refused = await http.patch(WEB, change)
    assert refused.message == (
        'Deployment.apps "web" is invalid: spec.selector: Invalid value: {"matchLabels":'
        '{"app":"web"},"matchExpressions":[{"key":"app","operator":"Exists"}]}: field is immutable'
    )
    patches = (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"replicas": 2}},
    )
    written = [await http.patch(WEB, patch) for patch in patches]
    generations = [reply.body["metadata"]["generation"] for reply in written]
    assert generations == [1, 2, 3]


async def test_scale_is_read_replaced_and_patched(http: Any) -> None:
    """Scale shows size and selector as text; a PUT or any patch but apply sets the size."""
    await http.post(DEPLOYMENTS, deployment(replicas=2, paused=True))
    scale = (await http.get(f"{WEB}/scale")).body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    stale = dict(scale)

    for kind, body in (
        ("merge-patch+json", {"spec": {"replicas": 3}}),
        ("strategic-merge-patch+json", {"spec": {"replicas": 3}}),
        ("json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 3}]),
    ):
        reply = await http.patch(f"{WEB}/scale", body, kind=kind)
        assert (reply.code, reply.body["spec"]) == (200, {"replicas": 3})
    empty = await http.put(f"{WEB}/scale", {"metadata": {"name": "web"}, "spec": {}})
    assert empty.body["spec"] == {}
    assert (await http.get(WEB)).body["spec"]["replicas"] == 0

    assert (await http.put(f"{WEB}/scale", stale)).code == 409
    foreign = {"metadata": {"name": "web", "uid": "x"}, "spec": {"replicas": 1}}
    refused = await http.put(f"{WEB}/scale", foreign)
    assert refused.code == 409
    assert refused.body["details"] == {"name": "web", "group": "apps", "kind": "deployments/scale"}
    negative = await http.patch(f"{WEB}/scale", {"spec": {"replicas": -1}})
    assert negative.message == (
        'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: '
        "must be greater than or equal to 0"
    )
    applied = await http.patch(f"{WEB}/scale", {"spec": {"replicas": 1}}, kind="apply-patch+yaml")
    assert applied.code == 501
    jobs = "/apis/batch/v1/namespaces/default/jobs/j/scale"
    assert (await http.get(jobs)).code == 404


async def test_replica_set_status_is_checked(http: Any) -> None:
    """No part of a count may be larger than the whole, and the whole is always printed."""
    body = deployment(replicas=0)
    made = await http.post(SETS, body)
    assert made.body["status"] == {"replicas": 0}
    refused = await http.patch(f"{SETS}/web/status", {"status": {"readyReplicas": 4}})
    assert refused.message == (
        'ReplicaSet.apps "web" is invalid: status.readyReplicas: Invalid value: 4: '
        "cannot be greater than status.replicas"
    )


async def test_two_budgets_answer_a_failure_that_is_created(http: Any) -> None:
    """A pod under two budgets: HTTP 201, and in it a Status of code 500 without a reason."""
    await http.create_pod("p", nodeName="n")
    pod = "/api/v1/namespaces/default/pods/p"
    await http.patch(pod, {"metadata": {"labels": {"app": "x"}}})
    await http.patch(f"{pod}/status", {"status": {"phase": "Running"}})
    for name in ("a", "b"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "x"}}}
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await http.post(budgets, {"metadata": {"name": name}, "spec": spec})
    reply = await http.post(f"{pod}/eviction", {"metadata": {"name": "p"}})
    assert reply.code == 201
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "This pod has more than one PodDisruptionBudget, which the eviction "
        "subresource does not support.",
        "code": 500,
    }
