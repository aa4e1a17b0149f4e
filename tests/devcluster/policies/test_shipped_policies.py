"""The policies in manifests/policies: what they let through, what they refuse, and how fast."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest
import yaml

from gpusched.base import installed_files
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.lab.virtual_time.loop import run_virtual

from .exchanges import Conversation
from .playing import play
from .shipped import DAEMON, MERGE, shipped_conversations, workload

MANIFESTS = installed_files.path("manifests")
RECORDED = json.loads((Path(__file__).parent / "recorded_shipped.json").read_text())
APPLIED = [MANIFESTS / name for name in ("namespace.yaml", "lease.yaml", "rbac.yaml", "policies")]


UNSERVED = ("/cronjobs",)
"""Kinds of which the embedded server makes none."""


async def _at_once() -> None:
    """Here policies take effect with the write."""


@pytest.mark.parametrize("one", shipped_conversations(), ids=lambda one: one.name)
async def test_the_shipped_policies_decide_as_on_a_real_server(one: Conversation):
    """A cluster that applied the folder answers each request as Kubernetes 1.36.2 did."""
    cluster = await start(ClusterOptions(stages=False, controllers=False, apply=APPLIED))
    try:
        headers = {"Authorization": f"Bearer {cluster.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            said = await play(session, cluster.url, one, settle=_at_once)
    finally:
        await cluster.close()
    expected = list(RECORDED[one.name])
    for i, ask in enumerate(one.asks):
        if ask.path.endswith(UNSERVED):
            assert said[i]["code"] == 501
            expected[i] = said[i]
    assert said == expected


async def test_our_account_changes_of_a_pod_group_the_advice_alone():
    """Given a PodGroup: the scheduler's account writes what would help on it, and nothing else."""
    crds = MANIFESTS / "crds"
    cluster = await start(ClusterOptions(stages=False, controllers=False, apply=[crds, *APPLIED]))
    groups = "/apis/scheduling.gpusched.io/v1alpha1/namespaces/default/podgroups"
    group = {
        "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {"a": "b"}}, "spec": {"minMember": 2},
    }  # fmt: skip
    patches = [
        {"metadata": {"annotations": {"gpusched.io/advice": "now: ..."}}},
        {"metadata": {"annotations": {"gpusched.io/advice": None}}},
        {"metadata": {"annotations": {"a": None}}},
        {"metadata": {"annotations": {"gpusched.io/hold": "x"}}},
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"finalizers": ["x/y"]}},
        {"spec": {"minMember": 1}},
    ]
    said = []
    try:
        headers = {"Authorization": f"Bearer {cluster.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(cluster.url + groups, json=group) as answer:
                assert answer.status == 201
            as_daemon = {"Impersonate-User": DAEMON, "Content-Type": MERGE}
            for patch in patches:
                place = f"{cluster.url}{groups}/g"
                async with session.patch(
                    place, data=json.dumps(patch), headers=as_daemon
                ) as answer:
                    said.append((answer.status, (await answer.json()).get("message", "")))
    finally:
        await cluster.close()
    assert [status for status, _ in said] == [200, 200, 403, 403, 403, 403, 403]
    assert "gpusched changes of a PodGroup the annotation gpusched.io/advice alone" in said[-1][1]


def test_every_policy_is_in_the_kustomization_and_bound():
    """No file is forgotten, and none shares a name with another."""
    folder = MANIFESTS / "policies"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    files = sorted(p.name for p in folder.glob("*.yaml") if p.name != "kustomization.yaml")
    assert sorted(listed) == files
    for name in files:
        policy, binding = yaml.safe_load_all((folder / name).read_text())
        assert policy["metadata"]["name"] == f"gpusched-{name.removesuffix('.yaml')}"
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert policy["spec"]["failurePolicy"] == "Fail"


async def test_policies_are_listed_as_kubectl_shows_them():
    """Number of validations, kind of parameters, and which ones a binding takes."""
    cluster = await start(ClusterOptions(stages=False, controllers=False, apply=APPLIED))
    try:
        headers = {
            "Authorization": f"Bearer {cluster.token}",
            "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io",
        }
        rows = {}
        async with aiohttp.ClientSession(headers=headers) as session:
            for kind in ("policies", "policybindings"):
                path = f"/apis/admissionregistration.k8s.io/v1/validatingadmission{kind}"
                async with session.get(cluster.url + path) as answer:
                    table = await answer.json()
                    rows[kind] = [row["cells"][:-1] for row in table["rows"]]
    finally:
        await cluster.close()
    assert ["gpusched-fence", 1, "coordination.k8s.io/v1/Lease"] in rows["policies"]
    assert ["gpusched-queues", 3, "<unset>"] in rows["policies"]
    fence = ["gpusched-fence", "gpusched-fence", "gpusched-system/gpusched"]
    assert fence in rows["policybindings"]
    assert ["gpusched-queues", "gpusched-queues", "<unset>"] in rows["policybindings"]


def test_a_controller_whose_pods_are_refused_says_so():
    """A Deployment's template holds an annotation of ours: no pod, an event, and nothing breaks."""

    async def given(clock):
        cluster = await start(ClusterOptions(clock=clock, stages=False, apply=APPLIED))
        try:
            client = cluster.client
            made = workload("Deployment", {})
            made["metadata"]["namespace"] = "default"
            made["spec"]["replicas"] = 2
            made["spec"]["template"]["metadata"]["annotations"] = {"gpusched.io/slots": "0"}
            client.create("deployments.apps", made)
            await clock.sleep(30)
            return client.list("pods"), [
                event["message"]
                for event in client.list("events", "default")
                if event["reason"] == "FailedCreate"
            ]
        finally:
            await cluster.close()

    pods, told = run_virtual(given)
    assert pods == []
    assert told
    assert all("gpusched.io/slots is written by gpusched alone" in each for each in told)
