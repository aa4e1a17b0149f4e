"""resource.k8s.io over HTTP: defaults, texts of refusals, what is sealed."""

from __future__ import annotations

import pytest

BASE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{BASE}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
SLICE = {"driver": "d.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}


def claim(name, *requests, **devices):
    asked = [{"name": f"r{i}", "exactly": r} for i, r in enumerate(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": asked, **devices}}}


async def test_absent_values_of_a_claim(http):
    """A request without mode or count asks for exactly one device; the status is there, empty."""
    made = await http.post(CLAIMS, claim("c", {"deviceClassName": "gpu"}))
    assert made.code == 201
    exactly = made.body["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert made.body["status"] == {}
    assert "generation" not in made.body["metadata"]


@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        ({}, "deviceClassName", "Required value"),
        (
            {"deviceClassName": "gpu", "allocationMode": "Some"},
            "allocationMode",
            'Unsupported value: "Some": supported values: "All", "ExactCount"',
        ),
        (
            {"deviceClassName": "gpu", "allocationMode": "All", "count": 2},
            "count",
            "Invalid value: 2: must not be specified when allocationMode is 'All'",
        ),
        (
            {"deviceClassName": "gpu", "count": -1},
            "count",
            "Invalid value: -1: must be greater than zero",
        ),
        (
            {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "device.nope == 1"}}]},
            "selectors[0].cel.expression",
            (
                'Invalid value: "device.nope == 1": compilation failed: ERROR: <input>:1:7: undefined '
                "field 'nope'\n | device.nope == 1\n | ......^"
            ),
        ),
        (
            {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "dev.driver == ''"}}]},
            "selectors[0].cel.expression",
            (
                "Invalid value: \"dev.driver == ''\": compilation failed: ERROR: <input>:1:1: "
                "undeclared reference to 'dev' (in container '')\n | dev.driver == ''\n | ^"
            ),
        ),
        (
            {
                "deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": "device.driver == 1"}}],
            },
            "selectors[0].cel.expression",
            (
                'Invalid value: "device.driver == 1": compilation failed: ERROR: <input>:1:15: found '
                "no matching overload for '_==_' applied to '(string, int)'\n"
                " | device.driver == 1\n | ..............^"
            ),
        ),
    ],
)
async def test_requests_that_make_no_sense(http, request_, field, text):
    """Each wrong request is refused with the field and the sentence of the real server."""
    refused = await http.post(CLAIMS, claim("c", request_))
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    causes = {c["field"]: c["message"] for c in refused.body["details"]["causes"]}
    assert causes == {f"spec.devices.requests[0].exactly.{field}": text}


async def test_selectors_that_schedulers_can_run(http):
    """Attributes, capacities, versions and bound names are what selectors are made of."""
    for i, text in enumerate(
        (
            "device.attributes['gpu.example.com'].index < 2",
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
            "device.attributes['d'].v.isGreaterThan(semver('1.2.0'))",
            "cel.bind(d, device.attributes['x'], d.a == 1 && 'device.z' in d)",
            "'a' in device.attributes && device.allowMultipleAllocations",
            "device.attributes['d'].models.includes('a100')",
            "device.attributes['d'].?index.orValue(0) == 0",
            "optional.ofNonZeroValue(device.driver).hasValue()",
        )
    ):
        wanted = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": text}}]}
        assert (await http.post(CLAIMS, claim(f"c{i}", wanted))).code == 201, text


async def test_a_claim_is_sealed(http):
    """Neither the spec nor an allocation that was made can be changed; both texts say so."""
    await http.post(CLAIMS, claim("c", {"deviceClassName": "gpu"}))
    changed = {"spec": {"devices": {"requests": []}}}
    refused = await http.patch(f"{CLAIMS}/c", changed)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "spec")
    assert refused.message.endswith("field is immutable")


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}, "reservedFor"),
        (
            {"allocation": {"devices": {"results": [{"request": "no", "driver": "d", "pool": "p",
                                                     "device": "x"}]}}},
            "allocation.devices.results[0].request",
        ),
    ],
)  # fmt: skip
async def test_a_status_that_makes_no_sense(http, status, field):
    """A reservation needs an allocation, and an allocation only serves requests there are."""
    await http.post(CLAIMS, claim("c", {"deviceClassName": "gpu"}))
    refused = await http.patch(f"{CLAIMS}/c/status", {"status": status})
    assert refused.code == 422
    assert refused.body["details"]["causes"][0]["field"] == f"status.{field}"


async def test_slices(http):
    """A slice is of one node, of several, or of all; it is found by driver and node."""
    path = f"{BASE}/resourceslices"
    none = await http.post(path, {"metadata": {"name": "s"}, "spec": SLICE})
    assert "exactly one of `nodeName`, `nodeSelector`" in none.message
    devices = [{"name": "a", "attributes": {"v": {"version": "1"}}}, {"name": "a"}]
    spec = {**SLICE, "nodeName": "n", "devices": devices}
    bad = await http.post(path, {"metadata": {"name": "s"}, "spec": spec})
    fields = [c["field"] for c in bad.body["details"]["causes"]]
    assert fields == ["spec.devices[0].attributes[v].version", "spec.devices[1].name"]
    good = await http.post(path, {"metadata": {"name": "s"}, "spec": {**SLICE, "nodeName": "n"}})
    assert (good.code, good.body["metadata"]["generation"]) == (201, 1)
    found = await http.get(f"{path}?fieldSelector=spec.nodeName%3Dn,spec.driver%3Dd.example.com")
    assert len(found.body["items"]) == 1
    moved = await http.patch(f"{path}/s", {"spec": {"nodeName": "m"}})
    assert moved.body["details"]["causes"][0]["field"] == "spec.nodeName"


async def test_claims_in_pods(http):
    """A pod names each claim once and from one source; containers use only named ones."""
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "x"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "g"}]}
    refused = await http.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    causes = {c["field"]: c["message"] for c in refused.body["details"]["causes"]}
    assert causes["spec.containers[0].resources.claims[0]"] == (
        'Not found: "x": must be one of the names in pod.spec.resourceClaims: g'
    )
    assert causes["spec.resourceClaims[0]"].endswith(
        "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
    )


async def test_older_versions_show_the_same_objects(http):
    """One object, written and read in every version, each in its own form."""
    old = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
    asked = [{"name": "a", "deviceClassName": "gpu", "count": 2}, {"name": "b", "firstAvailable": [
        {"name": "x", "deviceClassName": "gpu"}]}]  # fmt: skip
    made = await http.post(
        old, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": asked}}}
    )
    assert made.code == 201, made.body
    assert made.body["apiVersion"] == "resource.k8s.io/v1beta1"
    flat = made.body["spec"]["devices"]["requests"][0]
    assert flat == {**asked[0], "allocationMode": "ExactCount"}
    new = (await http.get(f"{CLAIMS}/c")).body
    first, second = new["spec"]["devices"]["requests"]
    assert first["exactly"] == {k: v for k, v in flat.items() if k != "name"}
    assert "exactly" not in second
    labelled = await http.patch(f"{old}/c", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.code == 200
    middle = (await http.get(f"{CLAIMS}/c".replace("/v1/", "/v1beta2/"))).body
    assert middle["apiVersion"] == "resource.k8s.io/v1beta2"
    assert middle["spec"] == new["spec"]
    sealed = await http.patch(f"{old}/c", {"spec": {"devices": {"requests": asked[:1]}}})
    assert sealed.code == 422


async def test_devices_in_the_oldest_version(http):
    """There a device keeps everything but its name under ``basic``."""
    old = "/apis/resource.k8s.io/v1beta1/resourceslices"
    device = {"name": "a", "basic": {"attributes": {"i": {"int": 1}}}}
    spec = {**SLICE, "nodeName": "n", "devices": [device]}
    made = await http.post(old, {"metadata": {"name": "s"}, "spec": spec})
    assert made.body["spec"]["devices"] == [device]
    new = (await http.get(f"{BASE}/resourceslices/s")).body
    assert new["spec"]["devices"] == [{"name": "a", "attributes": {"i": {"int": 1}}}]
    strict = await http.post(
        f"{old}?fieldValidation=Strict",
        {"metadata": {"name": "t"}, "spec": {**spec, "devices": new["spec"]["devices"]}},
    )
    assert 'unknown field "spec.devices[0].attributes"' in strict.message


async def test_admin_access_is_for_marked_namespaces(http):
    """Access beside other users needs the label on the namespace, for claims and templates."""
    asked = claim("c", {"deviceClassName": "gpu", "adminAccess": True})
    templates = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")
    template = {"metadata": {"name": "t"}, "spec": {"spec": asked["spec"]}}
    for path, body in ((CLAIMS, asked), (templates, template)):
        refused = await http.post(path, body)
        assert refused.body["details"]["causes"] == [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: admin access to devices requires the "
                "`resource.kubernetes.io/admin-access: true` label on the containing namespace",
                "field": "spec.devices.requests[0].adminAccess",
            }
        ]
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await http.patch("/api/v1/namespaces/default", label)
    assert (await http.post(CLAIMS, asked)).code == 201
    assert (await http.post(templates, template)).code == 201


async def test_amounts_that_are_no_amounts(http):
    """A policy whose amounts cannot be read is refused, and harms nothing."""
    policy = {"default": "much", "validRange": {"min": "little", "step": "0"}}
    memory = {"value": "1Gi", "requestPolicy": policy}
    device = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    spec = {**SLICE, "nodeName": "n", "devices": [device]}
    refused = await http.post(f"{BASE}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    assert refused.code in {400, 422}
    memory["value"] = None
    refused = await http.post(f"{BASE}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    assert refused.code in {400, 422}
