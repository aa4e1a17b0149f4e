"""A tenant works on queues and objects that are not its own: what is refused, and what is not charged."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import format_time
from tests.daemon.tenants.tenants import MERGE, tenant

QUEUES = "queues.scheduling.gpusched.io"


def queue(w, name, **spec):
    """A queue of ours."""
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def only_default(w):
    """A queue of eight GPUs for namespace default alone."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    queue(w, "theirs", capability={"nvidia.com/gpu": "8"}, namespaceSelector=selector)


def test_pods_that_preset_their_node_are_not_charged_to_a_queue_they_may_not_use(play):
    """They hold their GPUs, and the queue keeps its quota for those whom it serves."""

    async def scenario(w):
        await w.start(nodes=2)
        mallory = await tenant(w, "mallory")
        only_default(w)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        for number in range(2):
            await mallory.pod(
                f"preset-{number}",
                gpus=4,
                spec={"nodeName": "node-0"},
                labels={"gpusched.io/queue": "theirs"},
            )
        await w.clock.sleep(2)
        w.group("honest", queue="theirs", minMember=1)
        w.job("honest", 1, group="honest")
        await w.until(lambda: len(w.running("honest")) == 1, within=10)
        await w.until(
            lambda: w.client.get(QUEUES, None, "theirs")["status"].get("allocated", {}).get(
                "nvidia.com/gpu") == "8"
        )  # fmt: skip
        await daemon.stop()

    play(scenario)


def test_a_gang_in_a_queue_that_does_not_serve_it_waits_and_takes_nothing(play):
    """Asked for honestly, it is told; the queue's own gang starts."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        only_default(w)
        daemon = w.daemon()
        await mallory.group("taker", queue="theirs", minMember=1)
        await mallory.pod("taker-0", gpus=8, labels={"gpusched.io/pod-group": "taker"})
        await w.clock.sleep(5)
        w.group("honest", queue="theirs", minMember=1)
        w.job("honest", 1, group="honest")
        await w.until(lambda: len(w.running("honest")) == 1, within=10)
        assert "nodeName" not in w.client.get("pods", "mallory", "taker-0")["spec"]
        await daemon.stop()

    play(scenario)


def test_a_group_without_pods_keeps_no_quota_for_ever(play):
    """It is admitted with the resources that it says, and gives them back after five minutes."""

    async def scenario(w):
        await w.start(nodes=2)
        mallory = await tenant(w, "mallory")
        queue(w, "shared", capability={"nvidia.com/gpu": "8"})
        daemon = w.daemon()
        await mallory.group(
            "empty", queue="shared", minMember=1, minResources={"nvidia.com/gpu": "8"},
            scheduleTimeout="10000h",
        )  # fmt: skip
        await w.clock.sleep(10)
        w.group("honest", queue="shared", minMember=1)
        w.job("honest", 1, group="honest")
        await w.until(lambda: len(w.running("honest")) == 1, within=400)
        await daemon.stop()

    play(scenario)


def test_what_others_decide_by_is_not_a_tenants_to_write(play):
    """Status, bindings, nodes, queues, classes, quotas, our Lease: refused with the role edit."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        group = await mallory.group("own", minMember=1)
        await mallory.pod("own", gpus=16)
        await mallory.job("own", 1, suspend=True)
        groups = "scheduling.gpusched.io/v1alpha1/podgroups"
        moved = {"status": {"moved": "{}", "phase": "Running"}}
        nominated = {"status": {"nominatedNodeName": "node-0"}}
        note = {"metadata": {"annotations": {"gpusched.io/seal-key": "0" * 64}}}
        lease = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched"
        cluster = "/apis/scheduling.gpusched.io/v1alpha1/queues"
        body = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
        target = {"target": {"kind": "Node", "name": "node-0"}}
        bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "own"}, **target}
        label = {"metadata": {"labels": {"gpusched.io/queue": "theirs"}}}
        for method, path, content in (
            ("PATCH", mallory.path(groups, "own", "status"), moved),
            ("PATCH", mallory.path("pods", "own", "status"), nominated),
            ("PATCH", mallory.path("batch/v1/jobs", "own", "status"), {"status": {"active": 1}}),
            ("POST", mallory.path("pods", "own", "binding"), bound),
            ("PATCH", lease, note),
            ("GET", lease, None),
            ("POST", cluster, {**body, "metadata": {"name": "q"}, "spec": {}}),
            ("PATCH", f"{cluster}/default/status", {"status": {}}),
            ("PATCH", "/api/v1/nodes/node-0", note),
            ("PATCH", "/api/v1/namespaces/mallory", label),
            ("DELETE", mallory.path("resourcequotas", "any"), None),
            ("PATCH", "/apis/scheduling.k8s.io/v1/priorityclasses/high", {"value": 5}),
        ):
            kind = MERGE if method == "PATCH" else ""
            status, _ = await mallory.try_to(method, path, content, content_type=kind)
            assert status == 403, (method, path)
        assert "status" not in group, "a status in a new object is dropped"
        made = await mallory.send(
            "POST",
            mallory.path(groups),
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "PodGroup",
                "metadata": {"name": "with", "namespace": "mallory"},
                "spec": {"queue": "default", "minMember": 1}, "status": {"phase": "Running"},
            },
        )  # fmt: skip
        assert "status" not in made
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize("ahead", [-10, 10**9])
def test_conditions_that_say_they_are_from_the_future_do_not_last(play, ahead):
    """Where another project's groups let users write status, its times are read with care."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "shared", capability={"nvidia.com/gpu": "8"})
        daemon = w.daemon()
        w.group("empty", queue="shared", minMember=1, minResources={"nvidia.com/gpu": "8"})
        await w.until(lambda: w.condition("empty", "Admitted").get("status") == "True")
        told = {**w.condition("empty", "Admitted")}
        told["lastTransitionTime"] = format_time(w.clock.now() + ahead)
        w.client.patch(
            "podgroups.scheduling.gpusched.io", "default", "empty",
            {"status": {"conditions": [told]}}, subresource="status",
        )  # fmt: skip
        w.group("honest", queue="shared", minMember=1)
        w.job("honest", 1, group="honest")
        await w.until(lambda: len(w.running("honest")) == 1, within=400)
        await daemon.stop()

    play(scenario)
