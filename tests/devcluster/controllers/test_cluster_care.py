"""Nodes, budgets, quotas and namespaces as their controllers keep them."""

from __future__ import annotations

from typing import Any


def taints(cluster: Any, name: str = "a") -> list[tuple[str, str]]:
    found = cluster.client.get("nodes", None, name)["spec"].get("taints") or []
    return [(t["key"].removeprefix("node.kubernetes.io/"), t["effect"]) for t in found]


def set_ready(cluster: Any, status: str) -> None:
    cluster.client.patch(
        "nodes",
        None,
        "a",
        {"status": {"conditions": [{"type": "Ready", "status": status}]}},
        patch_type="strategic",
        subresource="status",
    )


async def test_new_node_keeps_its_taint_until_ready(start: Any) -> None:
    """The admission taint stands while the node says nothing and goes when it is Ready."""
    cluster = await start()
    cluster.node("a")
    await cluster.clock.settle()
    assert taints(cluster) == [("not-ready", "NoSchedule")]
    set_ready(cluster, "True")
    await cluster.clock.settle()
    node = cluster.client.get("nodes", None, "a")
    assert taints(cluster) == []
    assert node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0"


async def test_cordon_and_conditions_are_taints(start: Any) -> None:
    """Cordon, then Ready=False give the recorded taints in the recorded order (nodes#5, #7)."""
    cluster = await start()
    cluster.node("a")
    set_ready(cluster, "True")
    cluster.client.patch("nodes", None, "a", {"spec": {"unschedulable": True}})
    await cluster.clock.settle()
    set_ready(cluster, "False")
    await cluster.clock.settle()
    assert taints(cluster) == [("unschedulable", "NoSchedule"), ("not-ready", "NoSchedule")]
    found = cluster.client.get("nodes", None, "a")["spec"]["taints"]
    assert all("timeAdded" in taint for taint in found)

    set_ready(cluster, "Unknown")
    cluster.client.patch("nodes", None, "a", {"spec": {"unschedulable": None}})
    await cluster.clock.settle()
    assert taints(cluster) == [("unreachable", "NoSchedule")]


async def test_lasting_failure_drives_pods_out(start: Any) -> None:
    """A node that stays NotReady gets the NoExecute taint too, and loses both when it is back."""
    cluster = await start()
    cluster.node("a")
    set_ready(cluster, "True")
    await cluster.clock.settle()
    set_ready(cluster, "False")
    await cluster.clock.advance(4)
    assert taints(cluster) == [("not-ready", "NoSchedule")]
    await cluster.clock.advance(2)
    assert taints(cluster) == [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
    set_ready(cluster, "True")
    await cluster.clock.settle()
    assert taints(cluster) == []


async def test_pods_leave_a_lost_node(start: Any) -> None:
    """Pods without a toleration go when their node is lost, others after tolerationSeconds."""
    cluster = await start(stages=True)
    cluster.node("a")
    forever = [{"operator": "Exists"}]
    brief = [
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 20,
        }
    ]
    cluster.pod("default")
    cluster.pod("brief", spec={"tolerations": brief})
    cluster.pod("forever", spec={"tolerations": forever})
    cluster.bind_all("a")
    await cluster.clock.advance(2)
    asked = {"metadata": {"annotations": {"gpusched.io/node-failed": "true"}}}
    cluster.client.patch("nodes", None, "a", asked)

    await cluster.clock.advance(20)
    assert len(cluster.pods()) == 3
    await cluster.clock.advance(10)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["default", "forever"]
    await cluster.clock.advance(290)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["forever"]


async def test_foreign_taints_stay(start: Any) -> None:
    """Taints that others set are never touched."""
    cluster = await start()
    cluster.node("a")
    own = {"key": "team", "value": "x", "effect": "NoSchedule"}
    cluster.client.patch("nodes", None, "a", {"spec": {"taints": [own]}})
    set_ready(cluster, "True")
    await cluster.clock.settle()
    assert cluster.client.get("nodes", None, "a")["spec"]["taints"] == [own]


async def test_fake_node_comes_up_fails_and_returns(start: Any) -> None:
    """Stages make a fake node Ready, fail it on request, and bring it back."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.node("real", annotations={"kwok.x-k8s.io/node": "no"})
    await cluster.clock.advance(1)
    assert taints(cluster) == []
    assert taints(cluster, "real") == [("not-ready", "NoSchedule")]
    asked = {"metadata": {"annotations": {"gpusched.io/node-failed": "true"}}}
    cluster.client.patch("nodes", None, "a", asked)
    await cluster.clock.advance(1)
    assert taints(cluster) == [("not-ready", "NoSchedule")]
    released = {"metadata": {"annotations": {"gpusched.io/node-failed": None}}}
    cluster.client.patch("nodes", None, "a", released)
    await cluster.clock.advance(1)
    assert taints(cluster) == []


async def test_pods_of_a_vanished_node_are_removed(start: Any) -> None:
    """After the quarantine pods of a deleted node, or of one that never was, are gone."""
    cluster = await start()
    cluster.node("a")
    for name, node in (("was", "a"), ("never", "b")):
        cluster.pod(name)
        cluster.client.bind("n", name, node)
    cluster.client.delete("nodes", None, "a")
    await cluster.clock.advance(39)
    assert len(cluster.pods()) == 2
    await cluster.clock.advance(2)
    assert cluster.pods() == []


async def test_pods_wait_for_a_node_that_returns(start: Any) -> None:
    """A node that comes back within the quarantine keeps its pods."""
    cluster = await start()
    cluster.node("a")
    cluster.pod("p")
    cluster.client.bind("n", "p", "a")
    cluster.client.delete("nodes", None, "a")
    await cluster.clock.advance(30)
    cluster.node("a")
    await cluster.clock.advance(60)
    assert len(cluster.pods()) == 1


def budget(cluster: Any, **spec: Any) -> None:
    cluster.client.create(
        "poddisruptionbudgets.policy",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "n"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec},
        },
    )


def set_running(cluster: Any, name: str) -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.client.patch(
        "pods", "n", name, {"status": status}, patch_type="strategic", subresource="status"
    )


async def test_budget_counts_healthy_pods(start: Any) -> None:
    """Status and condition follow the pods (V2)."""
    cluster = await start()
    cluster.pod("one", labels={"app": "x"})
    set_running(cluster, "one")
    budget(cluster, minAvailable=1)
    await cluster.clock.advance(1)

    status = cluster.client.get("poddisruptionbudgets.policy", "n", "b")["status"]
    (condition,) = status.pop("conditions")
    assert status == {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "False")
    assert (condition["reason"], condition["message"]) == ("InsufficientPods", "")

    cluster.pod("two", labels={"app": "x"})
    set_running(cluster, "two")
    await cluster.clock.advance(1)
    status = cluster.client.get("poddisruptionbudgets.policy", "n", "b")["status"]
    assert status["disruptionsAllowed"] == 1
    assert status["conditions"][0]["reason"] == "SufficientPods"


async def test_budget_over_jobs_cannot_use_shares(start: Any) -> None:
    """A Job cannot be scaled, so a percentage of its pods is refused in the condition."""
    cluster = await start()
    cluster.job("j", template={"labels": {"app": "x"}})
    await cluster.clock.settle()
    budget(cluster, maxUnavailable="50%")
    await cluster.clock.advance(1)
    status = cluster.client.get("poddisruptionbudgets.policy", "n", "b")["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["conditions"][0]["reason"] == "SyncFailed"


async def test_quota_follows_use(start: Any) -> None:
    """Used amounts rise with pods and fall when they end or go."""
    cluster = await start()
    cluster.client.create(
        "resourcequotas",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "n"},
            "spec": {"hard": {"pods": "5", "requests.nvidia.com/gpu": "16", "memory": "1Ti"}},
        },
    )
    await cluster.clock.settle()
    limits = {"nvidia.com/gpu": "4", "memory": "1536Mi"}
    for name in ("p", "r"):
        cluster.pod(
            name,
            spec={"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
        )
    await cluster.clock.advance(1)

    def used() -> dict[str, str]:
        status = cluster.client.get("resourcequotas", "n", "q")["status"]
        assert status["hard"] == {"pods": "5", "requests.nvidia.com/gpu": "16", "memory": "1Ti"}
        return status["used"]

    assert used() == {"pods": "2", "requests.nvidia.com/gpu": "8", "memory": "3Gi"}
    cluster.client.patch("pods", "n", "p", {"status": {"phase": "Failed"}}, subresource="status")
    cluster.client.delete("pods", "n", "r", grace_s=0)
    await cluster.clock.advance(1)
    assert used() == {"pods": "0", "requests.nvidia.com/gpu": "0", "memory": "0"}


async def test_deleted_namespace_is_emptied_first(start: Any) -> None:
    """Everything in a deleted namespace goes, then the namespace; running pods get their grace."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.job("j", completions=2, parallelism=2)
    cluster.client.create(
        "configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}},
    )
    await cluster.clock.settle()
    cluster.bind_all("a")
    await cluster.clock.advance(2)

    cluster.client.delete("namespaces", None, "n")
    await cluster.clock.settle()
    assert cluster.client.get("namespaces", None, "n")["status"]["phase"] == "Terminating"
    await cluster.clock.advance(2)
    assert cluster.client.get("namespaces", None, "n") is None
    assert cluster.pods() == []
    assert cluster.client.list("configmaps", "n") == []


async def test_unrelated_writes_do_not_restart_a_run(start: Any) -> None:
    """A pod ends at its time although others keep writing to it."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.pod("p", annotations={"gpusched.io/run-for": "10s"})
    cluster.client.bind("n", "p", "a")
    for at in range(11):
        note = {"metadata": {"annotations": {"note": str(at)}}}
        cluster.client.patch("pods", "n", "p", note)
        await cluster.clock.advance(1.1)
    assert cluster.client.get("pods", "n", "p")["status"]["phase"] == "Succeeded"


async def test_pods_of_other_nodes_are_left_alone(start: Any) -> None:
    """Only pods on fake nodes are driven; a node that becomes fake takes its pods up."""
    cluster = await start(stages=True)
    cluster.node("a", annotations={"kwok.x-k8s.io/node": "no"})
    cluster.pod("p")
    cluster.client.bind("n", "p", "a")
    await cluster.clock.advance(5)
    assert cluster.client.get("pods", "n", "p")["status"]["phase"] == "Pending"
    fake = {"metadata": {"annotations": {"kwok.x-k8s.io/node": "fake"}}}
    cluster.client.patch("nodes", None, "a", fake)
    await cluster.clock.advance(2)
    assert cluster.client.get("pods", "n", "p")["status"]["phase"] == "Running"
