"""kubectl as users type it; skipped where there is none."""

import asyncio
import json
import os
import subprocess

import pytest

from tests.devcluster.server.conftest import KUBECTL, kubectl_minor

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="no kubectl on this machine")

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec:
  containers: [{name: c, image: img, resources: {limits: {nvidia.com/gpu: "1"}}}]
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {pool: a}}
status:
  allocatable: {cpu: "8", pods: "110"}
  conditions: [{type: Ready, status: "True"}]
"""


@pytest.fixture
def kubectl(cluster, tmp_path):
    """Run kubectl without blocking the loop that serves it; returns what it printed."""
    config = tmp_path / "config"
    config.write_text(cluster.kubeconfig_text)

    def call(arguments, stdin):
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        done = subprocess.run(
            [KUBECTL, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            env=environment,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    async def run(*arguments, stdin=None, fails=False):
        code, text = await asyncio.to_thread(call, arguments, stdin)
        assert (code != 0) == fails, text
        return text

    return run


async def test_apply_get_describe_wait_delete(kubectl):
    """The five verbs of a first day work on pods and nodes, and on the project's kinds."""
    assert "pod/p created" in await kubectl("apply", "-f", "-", stdin=POD)
    assert "pod/p unchanged" in await kubectl("apply", "-f", "-", stdin=POD)
    assert "node/n1 created" in await kubectl("create", "-f", "-", stdin=NODE)
    assert "Pending" in await kubectl("get", "pods", "-o", "wide")
    assert "QoS Class" in await kubectl("describe", "pod", "p")
    assert "condition met" in await kubectl("wait", "--for=condition=Ready", "node/n1")
    listed = json.loads(await kubectl("get", "pods", "-l", "app=x", "-A", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
    assert "deleted" in await kubectl("delete", "pod", "p")
    assert "NotFound" in await kubectl("get", "pod", "p", fails=True)


async def test_generators_send_protobuf(kubectl):
    """The generators of kubectl create send protobuf bodies; each is understood."""
    await kubectl("create", "namespace", "team")
    await kubectl("create", "quota", "q", "--hard=pods=3", "-n", "team")
    await kubectl("create", "priorityclass", "high", "--value=100")
    if kubectl_minor() >= 22:  # older ones ask for policy/v1beta1, which no server has any more
        await kubectl("create", "pdb", "b", "--selector=app=x", "--min-available=1")
    await kubectl("create", "job", "j", "--image=img", "--", "sleep", "1")
    await kubectl("create", "configmap", "c", "--from-literal=a=b")
    assert await kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}") == "b"
    assert "j " in await kubectl("get", "jobs")


async def test_changes_in_place(kubectl):
    """label, annotate, taint, cordon and patch change what they say."""
    await kubectl("apply", "-f", "-", stdin=NODE)
    await kubectl("label", "node", "n1", "zone=a")
    await kubectl("annotate", "node", "n1", "note=b")
    await kubectl("taint", "node", "n1", "dedicated=gpu:NoSchedule")
    await kubectl("cordon", "n1")
    await kubectl("patch", "node", "n1", "--type=merge", "-p", '{"metadata":{"labels":{"x":"y"}}}')
    node = json.loads(await kubectl("get", "node", "n1", "-o", "json"))
    assert node["metadata"]["labels"] == {"pool": "a", "zone": "a", "x": "y"}
    assert node["spec"]["unschedulable"] is True
    assert "dedicated" in {t["key"] for t in node["spec"]["taints"]}


async def test_asking_about_the_api(kubectl):
    """api-resources, explain and auth can-i know the project's kinds and the user."""
    assert "podgroups" in await kubectl("api-resources")
    assert "queue" in await kubectl("explain", "queue.spec.parent")
    assert (await kubectl("auth", "can-i", "create", "pods")).strip() == "yes"


async def test_a_list_and_kinds_that_are_not_served(kubectl):
    """What ``get -o yaml`` prints of several objects applies again; an unknown kind is named."""
    await kubectl("apply", "-f", "-", stdin=f"{POD}---{NODE}")
    several = await kubectl("get", "pod/p", "node/n1", "-o", "yaml")
    assert "kind: List" in several
    assert "node/n1" in await kubectl("apply", "-f", "-", stdin=several)
    gadget = "apiVersion: x.example.com/v1\nkind: Gadget\nmetadata: {name: g}\n"
    refused = await kubectl("apply", "-f", "-", stdin=gadget, fails=True)
    assert 'no matches for kind "Gadget"' in refused
    hook = "admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration"
    hook = f"apiVersion: {hook}\nmetadata: {{name: h}}\nwebhooks: []\n"
    refused = await kubectl("apply", "-f", "-", stdin=hook, fails=True)
    assert "is not supported by the embedded API server" in refused
