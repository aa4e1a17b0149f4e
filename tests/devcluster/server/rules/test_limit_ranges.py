"""Limit ranges: defaults of containers, refusals of what is outside, bounds that cross."""

from __future__ import annotations

import pytest

PATH = "/api/v1/namespaces/default/limitranges"
PODS = "/api/v1/namespaces/default/pods"


def limits(*rows):
    return {"metadata": {"name": "l"}, "spec": {"limits": list(rows)}}


def pod(**resources):
    container = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container]}}


async def test_defaults_follow_from_bounds(http):
    """A maximum is the default limit, which is the default request; a minimum stands below."""
    row = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}
    made = await http.post(PATH, limits(row))
    assert made.body["spec"]["limits"] == [
        {**row, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Gi"}}
    ]


async def test_a_pod_gets_what_it_lacks(http):
    """Missing requests and limits are filled in and noted; what the pod says stays."""
    row = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"memory": "1Gi"}}
    await http.post(PATH, limits(row))
    made = (await http.post(PODS, pod(limits={"memory": "2Gi"}))).body
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "2Gi"},
        "requests": {"cpu": "2", "memory": "2Gi"},
    }
    assert made["status"]["qosClass"] == "Guaranteed"
    note = made["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
    assert note == "LimitRanger plugin set: cpu request for container c; cpu limit for container c"


@pytest.mark.parametrize(
    ("row", "resources", "why"),
    [
        (
            {"type": "Container", "min": {"memory": "1Gi"}},
            {"requests": {"memory": "1Mi"}},
            "minimum memory usage per Container is 1Gi, but request is 1Mi",
        ),
        (
            {"type": "Container", "max": {"memory": "1Gi"}},
            {"limits": {"memory": "2Gi"}},
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {"requests": {"cpu": "1"}},
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}},
            {"limits": {"cpu": "2", "memory": "2Gi"}},
            (
                "[maximum cpu usage per Container is 1, but limit is 2, "
                "maximum memory usage per Container is 1Gi, but limit is 2Gi]"
            ),
        ),
    ],
)
async def test_pods_outside_the_limits(http, row, resources, why):
    """The refusal is a 403 with every bound that does not hold."""
    await http.post(PATH, limits(row))
    refused = await http.post(PODS, pod(**resources))
    assert refused.code == 403
    assert refused.message == f'pods "p" is forbidden: {why}'
    assert (await http.get(f"{PODS}/p")).code == 404


async def test_claims_of_volumes_have_limits_too(http):
    """A claim outside the limits of its type is refused."""
    await http.post(PATH, limits({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}))
    resources = {"requests": {"storage": "2Gi"}}
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    claim["spec"]["resources"] = resources
    refused = await http.post("/api/v1/namespaces/default/persistentvolumeclaims", claim)
    assert refused.message.endswith(
        "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    )


@pytest.mark.parametrize(
    ("row", "field", "text"),
    [
        (
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "1"},
             "defaultRequest": {"cpu": "2"}},
            "spec.limits[0].min[cpu]",
            'Invalid value: "2": min value 2 is greater than max value 1',
        ),
        (
            {"type": "Pod", "default": {"cpu": "1"}},
            "spec.limits[0].default",
            "Forbidden: may not be specified when `type` is 'Pod'",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
            "spec.limits[0].maxLimitRequestRatio[cpu]",
            'Invalid value: "500m": ratio 500m is less than 1',
        ),
    ],
)  # fmt: skip
async def test_bounds_that_cross(http, row, field, text):
    """A limit range that contradicts itself is refused."""
    refused = await http.post(PATH, limits(row))
    causes = {c["field"]: c["message"] for c in refused.body["details"]["causes"]}
    assert (refused.code, causes[field]) == (422, text)
