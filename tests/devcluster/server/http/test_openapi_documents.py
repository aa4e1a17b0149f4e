"""OpenAPI: version 2 says what version 3 says, custom kinds included, and every pointer holds."""

import asyncio
import subprocess

import pytest

from tests.devcluster.server.conftest import KUBECTL, kubectl_minor


def _references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


async def test_every_reference_of_version_2_has_its_definition(http):
    """No schema points into the void, and none has words that version 2 does not know."""
    body = (await http.get("/openapi/v2")).body
    known = {f"#/definitions/{name}" for name in body["definitions"]}
    assert set(_references(body)) <= known
    assert not any("oneOf" in schema for schema in body["definitions"].values())
    assert "io.gpusched.scheduling.v1alpha1.Queue" in body["definitions"]


async def test_version_2_knows_validation_on_the_server(http):
    """Older kubectl looks for fieldValidation and dryRun in the patch of a kind."""
    body = (await http.get("/openapi/v2")).body
    for path in ("/api/v1/namespaces/{namespace}/pods/{name}", "/api/v1/nodes/{name}"):
        names = {p["name"] for p in body["paths"][path]["patch"]["parameters"]}
        assert {"body", "dryRun", "fieldValidation", "force"} <= names


async def test_references_of_custom_documents_hold(http):
    """A document of version 3 brings along what its kinds refer to."""
    body = (await http.get("/openapi/v3/apis/scheduling.gpusched.io/v1alpha1")).body
    known = {f"#/components/schemas/{name}" for name in body["components"]["schemas"]}
    assert set(_references(body)) <= known


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on this machine")
async def test_kubectl_reads_the_protobuf_form(cluster, tmp_path):
    """The parser of kubectl finds built-in and custom kinds in the encoded document."""
    config = tmp_path / "config"
    config.write_text(cluster.kubeconfig_text)
    flag = ["--output=plaintext-openapiv2"] if kubectl_minor() >= 27 else []  # before: the default
    for field, told in (("pod.spec.nodeName", "<string>"), ("queue.spec.weight", "<integer>")):
        done = await asyncio.to_thread(
            subprocess.run,
            [KUBECTL, "explain", field, *flag],
            capture_output=True,
            text=True,
            timeout=30,
            env={"KUBECONFIG": str(config), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            check=False,
        )
        assert told in done.stdout, done.stderr
