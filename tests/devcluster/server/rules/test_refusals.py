"""What is refused, and how: honest about features, clear about bad input, never a crash."""

import pytest

from gpusched.base.clock import SystemClock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.cluster import build_core

PODS = "/api/v1/namespaces/default/pods"


async def test_kinds_without_effect_are_read_and_never_written(http):
    """A kind without its effect is listed, empty and watchable; writing one is 501, by name."""
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert (await http.get(hooks)).body["items"] == []
    for body in ({}, {"metadata": {"name": "x"}}):
        reply = await http.post(hooks, body)
        assert (reply.code, reply.body["reason"]) == (501, "NotImplemented")
        assert "validatingwebhookconfigurations.admissionregistration.k8s.io" in reply.message
    assert (await http.put(f"{hooks}/x", {"metadata": {"name": "x"}})).code == 501
    assert (await http.patch(f"{hooks}/x?fieldManager=m", {}, "apply-patch+yaml")).code == 501
    assert (await http.delete(f"{hooks}/x")).code == 404
    entries = (await http.get("/apis/admissionregistration.k8s.io/v1")).body["resources"]
    assert "validatingwebhookconfigurations" in {e["name"] for e in entries}


async def test_old_versions_that_cannot_be_converted_are_absent(http):
    """A version whose objects could not be shown truthfully is 501 and not in discovery."""
    reply = await http.get("/apis/storage.k8s.io/v1beta1/volumeattributesclasses")
    assert (reply.code, reply.body["reason"]) == (501, "NotImplemented")
    group = (await http.get("/apis/storage.k8s.io")).body
    assert "v1beta1" not in {v["version"] for v in group["versions"]}


async def test_features_tell_every_kind_of_discovery(http):
    """Each listed resource either takes a create or stands among those that are only read."""
    features = (await http.get("/devcluster/features")).body
    only_read = set(features["onlyRead"])
    groups = (await http.get("/apis")).body["groups"]
    paths = {v["groupVersion"]: f"/apis/{v['groupVersion']}" for g in groups for v in g["versions"]}
    refused = set()
    for version, path in {"v1": "/api/v1", **paths}.items():
        group = version if "/" in version else ""
        for entry in (await http.get(path)).body["resources"]:
            plural = entry["name"]
            if "/" in plural or "create" not in entry["verbs"]:
                continue
            inside = "namespaces/default/" if entry["namespaced"] else ""
            if (await http.post(f"{path}/{inside}{plural}", {})).code == 501:
                refused.add(f"{plural}.{group}" if group else plural)
    reads = {"componentstatuses"}
    assert refused == only_read - reads


async def test_every_refused_field_is_refused(http):
    """Each field on the list of features answers 501 and names itself."""
    refused = (await http.get("/devcluster/features")).body["refusedFields"]
    pods = [f for f in refused if f["resource"] == "pods"]
    assert pods
    for entry in pods:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        spec[entry["field"].removeprefix("spec.")] = [{"name": "x", "image": "i"}]
        reply = await http.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
        assert reply.code == 501, reply.body
        assert reply.body["details"]["causes"][0]["field"] == entry["field"]


async def test_rights_come_before_existence(http):
    """A user without rights learns nothing about what is there; a bad token is 401."""
    missing = await http.get(f"{PODS}/none", token="usertoken")
    assert (missing.code, missing.body["reason"]) == (403, "Forbidden")
    assert 'User "alice" cannot get resource "pods"' in missing.message
    assert (await http.get(PODS, token="garbage")).code == 401
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for token, allowed in (("usertoken", False), ("", True)):
        review = await http.post(reviews, {"spec": {"resourceAttributes": {}}}, token=token)
        assert review.body["status"] == {"allowed": allowed}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("PUT", PODS, 405),
        ("POST", "/api/v1/pods", 405),
        ("PUT", f"{PODS}/p/binding", 405),
        ("GET", "/api/v1/nopes", 404),
        ("GET", "/nope", 404),
        ("GET", f"{PODS}/p/exec", 501),
        ("GET", "/api/v1/nodes/n/proxy/x", 501),
        ("GET", f"{PODS}/p/status/x", 404),
    ],
)
async def test_paths_and_methods_that_do_not_exist(http, method, path, code):
    """Unknown paths are 404, known ones without the method 405, unserved features 501."""
    assert (await http.send(method, path, {})).code == code


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        (b'{"apiVersion": "v1", ', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"a":' * 50_000, "application/json", 400),
        (b"[]", "application/json", 400),
        (b'"text"', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"metadata": []}', "application/json", 400),
        (b'{"metadata": {"labels": {"a": 1}}}', "application/json", 400),
        (b'{"spec": {"containers": 7}}', "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"x", "text/plain", 415),
        (b"k8s\x00\xff\xff", "application/vnd.kubernetes.protobuf", 400),
        (b'{"kind": "Node", "apiVersion": "v1"}', "application/json", 400),
        (b'{"metadata": {"name": "x"}}', "application/json", 422),
        (b" " * (3 * 2**20 + 1), "application/json", 413),
    ],
)
async def test_bodies_that_make_no_sense(http, body, media, code):
    """A bad body is the client's fault and gets a Status that says what is wrong."""
    reply = await http.post(PODS, body, media=media)
    assert (reply.code, reply.body["kind"]) == (code, "Status"), reply.body
    assert (await http.get("/readyz")).body == "ok"


async def test_a_patch_in_a_type_nobody_knows(http):
    """An unknown patch type is 415."""
    await http.create_pod("p")
    assert (await http.patch(f"{PODS}/p", {}, "json")).code == 415


async def test_health_needs_no_token(http):
    """Probes carry no credentials."""
    for path in ("livez", "readyz", "healthz"):
        async with http.session.get(f"{http.cluster.url}/{path}") as response:
            assert (response.status, await response.text()) == (200, "ok")


async def test_only_local_tools_are_let_in_without_a_token(http):
    """A client like kubectl sends no token over plain HTTP and may; a browser's page may not."""
    async with http.session.get(http.cluster.url + PODS) as response:
        assert response.status == 200
    page = {"Origin": "http://example.com"}
    async with http.session.get(http.cluster.url + PODS, headers=page) as response:
        assert response.status == 401
    with pytest.raises(StatusError):
        RequestAccess(build_core(SystemClock(), 1), "token", local=False).user("")
