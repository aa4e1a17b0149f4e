"""A tenant names a priority class where Kubernetes would refuse it a pod: nobody leaves for it."""

from __future__ import annotations

import pytest

from tests.daemon.conftest import pod_spec
from tests.daemon.tenants.tenants import tenant

GROUP = {"gpusched.io/pod-group": "taker"}
IN = {"operator": "In", "values": ["high"]}
SELECTORS = {
    "In": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", **IN}]}},
    "Exists": {
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
        }
    },
    "NotIn": {
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["low"]}
            ]
        }
    },
}


def priority_class(w, name, value):
    """A PriorityClass."""
    w.client.create(
        "priorityclasses.scheduling.k8s.io",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        },
    )


def quota(w, namespace, scope, pods=0):
    """So many pods of the classes that a scope selects."""
    w.client.create(
        "resourcequotas",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "classes", "namespace": namespace},
            "spec": {"hard": {"pods": str(pods)}, **scope},
        },
    )


def said(w, name="taker"):
    """What the condition of the tenant's PodGroup says."""
    status = w.client.get("podgroups.scheduling.gpusched.io", "mallory", name).get("status") or {}
    return " ".join(each["message"] for each in status.get("conditions", ()))


async def full(w, **daemon):
    """A cluster of one node that an honest gang fills, a daemon, and a tenant."""
    await w.start(nodes=1)
    priority_class(w, "high", 1000)
    priority_class(w, "low", 0)
    mallory = await tenant(w, "mallory")
    running = w.daemon(**daemon)
    w.gang("honest", 1)
    await w.until(lambda: len(w.running("honest")) == 1)
    return mallory, running


async def stays(w):
    """The honest gang goes on for a minute."""
    uid = w.bound("honest")[0]["metadata"]["uid"]
    await w.clock.sleep(60)
    assert [pod["metadata"]["uid"] for pod in w.running("honest")] == [uid]


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_class_that_a_quota_limits_counts_only_on_pods(play, selector):
    """The tenant's own pod is refused by the quota; its PodGroup gets no further."""

    async def scenario(w):
        mallory, daemon = await full(w)
        quota(w, "mallory", SELECTORS[selector])
        await w.clock.sleep(1)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "refused", "namespace": "mallory"},
            "spec": {**pod_spec(8), "priorityClassName": "high"},
        }
        status, _ = await mallory.try_to("POST", mallory.path("pods"), body)
        assert status == 403
        await mallory.group("taker", minMember=1, priorityClassName="high")
        # A pod without any class would be refused where a scope says NotIn.
        own = {"priorityClassName": "low"} if selector == "NotIn" else {}
        await mallory.pod("taker-0", gpus=8, labels=GROUP, spec=own)
        await stays(w)
        text = said(w)
        assert "priorityClassName high does not count, as ResourceQuota classes limits it" in text
        assert "set priorityClassName high on the pods" in text
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize("system", ["system-node-critical", "system-cluster-critical"])
def test_a_class_of_the_system_counts_only_on_pods(play, system):
    """Without any quota."""

    async def scenario(w):
        mallory, daemon = await full(w)
        await mallory.group("taker", minMember=1, priorityClassName=system)
        await mallory.pod("taker-0", gpus=8, labels=GROUP)
        await stays(w)
        assert f"priorityClassName {system} does not count, as it is a class of the system" in said(
            w
        )
        await daemon.stop()

    play(scenario)


def test_one_pod_with_the_class_does_not_raise_all_others(play):
    """The quota admits one pod, which asks for nothing: the gang's GPUs are none of its."""

    async def scenario(w):
        mallory, daemon = await full(w)
        quota(w, "mallory", SELECTORS["In"], pods=1)
        await mallory.group("taker", minMember=2, priorityClassName="high")
        await mallory.pod("head", gpus=0, labels=GROUP, spec={"priorityClassName": "high"})
        await mallory.pod("taker-0", gpus=8, labels=GROUP)
        await stays(w)
        await mallory.group("mixed", minMember=2)
        await w.clock.sleep(1)
        await stays(w)
        await daemon.stop()

    play(scenario)


def test_the_template_of_a_suspended_job_counts_as_far_as_its_pods_would_be_admitted(play):
    """Its pods do not exist, so nobody has refused them yet."""

    async def scenario(w):
        mallory, daemon = await full(w)
        quota(w, "mallory", SELECTORS["In"])
        template = {"spec": {**pod_spec(8), "priorityClassName": "high"}}
        await mallory.job("taker", 1, suspend=True, template=template)
        await stays(w)
        told = [each["message"] for each in w.client.list("events", "mallory")]
        assert any("priorityClassName high of its pods does not count" in each for each in told), (
            told
        )
        w.client.patch("resourcequotas", "mallory", "classes", {"spec": {"hard": {"pods": "1"}}})
        await w.until(lambda: w.client.list("pods", "mallory"), within=120)
        taker = w.client.list("pods", "mallory")[0]
        assert taker["spec"]["priority"] == 1000
        await w.until(lambda: not w.running("honest"), within=120)
        await daemon.stop()

    play(scenario)


def test_a_class_that_the_pods_carry_counts(play):
    """They have passed the quota."""

    async def scenario(w):
        mallory, daemon = await full(w)
        quota(w, "mallory", SELECTORS["In"], pods=1)
        await mallory.group("taker", minMember=1, priorityClassName="high")
        await mallory.pod("taker-0", gpus=8, labels=GROUP, spec={"priorityClassName": "high"})
        await w.until(lambda: "nodeName" in w.client.get("pods", "mallory", "taker-0")["spec"])
        assert "does not count" not in said(w)
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize("rule", ["trusted", "ofPods"])
def test_without_a_quota_the_configuration_decides(play, tmp_path, rule):
    """``podGroupPriority``, also when it changes while the daemon runs."""
    file = tmp_path / "gpusched.yaml"

    async def scenario(w):
        file.write_text("podGroupPriority: ofPods\n")
        mallory, daemon = await full(w, config_file=str(file))
        await mallory.group("taker", minMember=1, priorityClassName="high")
        await mallory.pod("taker-0", gpus=8, labels=GROUP)
        await stays(w)
        assert "priorityClassName high counts as 0" in said(w)
        assert "podGroupPriority: ofPods" in said(w)
        if rule == "trusted":
            file.write_text("podGroupPriority: trusted\n")
            await w.until(
                lambda: "nodeName" in w.client.get("pods", "mallory", "taker-0")["spec"], 120
            )
        await daemon.stop()

    play(scenario)


def test_quotas_that_may_not_be_read_are_told_and_stop_nobody(play):
    """An installation without that right works, and says what is then not safe."""

    async def scenario(w):
        await w.start(nodes=1)
        denied = lambda method, path: "403" if path == "/api/v1/resourcequotas" else ""  # noqa: E731
        daemon = w.daemon(fault=denied)
        w.gang("honest", 1)
        await w.until(lambda: len(w.running("honest")) == 1)
        ready, why = daemon.app.readiness()
        assert ready
        assert "resourcequotas may not be read" in why
        told = [
            each["message"] for each in w.client.list("events") if each["reason"] == "NotAllowed"
        ]
        assert told
        assert "podGroupPriority: ofPods" in told[0]
        daemon.fault = lambda _method, _path: ""
        await w.until(lambda: daemon.app.readiness()[1] == "leader", within=120)
        await daemon.stop()

    play(scenario)
