"""Paths that are no resource, and answers in the media type that was asked for."""

from __future__ import annotations

import pytest
import yaml

MAPS = "/api/v1/namespaces/default/configmaps"


async def raw(http, path: str, accept: str) -> tuple[int, str, str]:
    headers = {"Accept": accept}
    async with http.session.get(http.cluster.url + path, headers=headers) as response:
        return response.status, response.content_type, await response.text()


async def test_yaml_for_those_who_ask(http):
    """The first type of an Accept header that can be given is given, and lists are no exception."""
    plain = await http.get(f"{MAPS}?limit=5")
    code, media, text = await raw(http, f"{MAPS}?limit=5", "text/html,application/yaml")
    assert (code, media) == (200, "application/yaml")
    assert yaml.safe_load(text) == plain.body
    for accept in (
        "*/*",
        "application/json, application/yaml",
        "application/vnd.kubernetes.protobuf",
    ):
        assert (await raw(http, MAPS, accept))[1] == "application/json"


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Nope;v=v1;g=meta.k8s.io"])
async def test_types_that_nobody_gives(http, accept):
    """A type or a shape that cannot be given is a 406 that names those that can."""
    reply = await http.get(MAPS, accept=accept)
    assert (reply.code, reply.body["reason"], reply.message) == (
        406,
        "NotAcceptable",
        (
            "only the following media types are accepted: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf"
        ),
    )


async def test_health_in_detail(http):
    """Verbose checks are listed one by one; one alone can be asked, an unknown one is nowhere."""
    _, _, text = await raw(http, "/readyz?verbose&exclude=etcd&exclude=x", "*/*")
    lines = text.splitlines()
    assert lines[0] == "[+]ping ok"
    assert "[+]etcd excluded: ok" in lines
    told = 'warn: some health checks cannot be excluded: no matches for "x"'
    assert lines[-2:] == [told, "readyz check passed"]
    assert (await raw(http, "/livez/ping", "*/*"))[::2] == (200, "ok")
    assert (await raw(http, "/healthz/nope", "*/*"))[0] == 404


@pytest.mark.parametrize(
    "path",
    ["/api/v2", "/apis/batch/v9", "/apis/batch/v9/jobs", "/apis/rbac.authorization.k8s.io/v1/x"],
)
async def test_lost_in_a_known_group(http, path):
    """Within the server's own groups a path that leads nowhere is told by a Status."""
    reply = await http.get(path)
    assert (reply.code, reply.body["reason"]) == (404, "NotFound")
    assert reply.message == "the server could not find the requested resource"


async def test_lists_of_paths_and_counts(http):
    """The root lists what is served, and metrics count what is stored."""
    paths = (await http.get("/")).body["paths"]
    assert paths == sorted(paths)
    assert {"/api/v1", "/apis/batch/v1", "/metrics", "/version"} <= set(paths)
    await http.post(MAPS, {"metadata": {"name": "c"}})
    _, media, text = await raw(http, "/metrics", "*/*")
    assert media == "text/plain"
    assert 'apiserver_storage_objects{resource="configmaps"} 1' in text.splitlines()


async def test_versions_are_only_read(http):
    """A method that a routed path does not have is a 405; every answer carries an audit id."""
    reply = await http.post("/version", {})
    assert (reply.code, reply.body["reason"]) == (405, "MethodNotAllowed")
    other = await http.get("/version")
    assert len({reply.headers["Audit-Id"], other.headers["Audit-Id"]}) == 2


async def test_reading_one_object_of_the_future(http):
    """A version that is not there yet is a timeout for one object as it is for a list."""
    reply = await http.get("/api/v1/namespaces/default?resourceVersion=99999999")
    assert (reply.code, reply.body["reason"]) == (504, "Timeout")
    assert reply.message.startswith("Timeout: Too large resource version: 99999999, current: ")
    assert (await http.get("/api/v1/namespaces/default?resourceVersion=0")).code == 200
