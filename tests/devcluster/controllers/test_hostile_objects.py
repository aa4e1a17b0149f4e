"""Objects that the API server accepts although they make little sense do not stop a controller.

The fixture fails every test whose controllers ended.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.devcluster.apimachinery.status import StatusError


def status(cluster: Any, resource: str, name: str, value: dict[str, Any]) -> None:
    namespace = None if resource == "nodes" else "n"
    cluster.client.patch(resource, namespace, name, {"status": value}, subresource="status")


@pytest.mark.parametrize("condition", [{}, {"type": "Ready"}, {"status": "True"}])
async def test_conditions_without_type_or_status(start: Any, condition: dict[str, str]) -> None:
    """A condition that says half of what it should is as good as none."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.node("b", annotations={"kwok.x-k8s.io/node": "no"})
    cluster.pod("p", labels={"app": "x"})
    cluster.job("j")
    await cluster.clock.settle()
    status(cluster, "nodes", "b", {"conditions": [condition]})
    # The server refuses conditions of pods that have no type.
    status(cluster, "pods", "p", {"conditions": [{"type": "Ready", **condition}]})
    status(cluster, "jobs.batch", "j", {"conditions": [condition]})
    await cluster.clock.advance(2)
    assert cluster.client.get("nodes", None, "b")["spec"]["taints"]


@pytest.mark.parametrize(
    "references",
    [
        [{"uid": "x"}],
        [{"kind": "Job", "apiVersion": "a/b/c", "name": "x", "uid": "y", "controller": True}],
        [{"kind": "Job", "apiVersion": "other/v1", "name": "x", "uid": "z", "controller": True}],
    ],
)
async def test_owners_that_cannot_be(start: Any, references: list[dict[str, Any]]) -> None:
    """Owners of unknown kinds are left to those who know them."""
    cluster = await start()
    try:
        cluster.pod("p", ownerReferences=references)
    except StatusError as refusal:
        if refusal.code != 422:
            raise
        return  # a server that refuses it is right, too
    await cluster.clock.advance(2)
    assert len(cluster.pods()) == 1


@pytest.mark.parametrize(
    "annotations",
    [
        {"gpusched.io/run-for": "9" * 50 + "h"},
        {"gpusched.io/start-after": "9" * 400 + "h"},
        {"gpusched.io/fail-after": "0s", "gpusched.io/exit-code": "9" * 30},
        {"gpusched.io/fail-after": "0s", "gpusched.io/exit-code": "a: {"},
        {"gpusched.io/stop-after": "-1h"},
    ],
)
async def test_annotations_of_stages(start: Any, annotations: dict[str, str]) -> None:
    """Whatever a pod asks for, other pods run and it can be deleted."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.pod("odd", annotations=annotations)
    cluster.pod("good")
    cluster.bind_all("a")
    await cluster.clock.advance(3)
    assert cluster.client.get("pods", "n", "good")["status"]["phase"] == "Running"
    cluster.client.delete("pods", "n", "odd")
    await cluster.clock.advance(1)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["good"]


@pytest.mark.parametrize(
    "value",
    [
        {"completedIndexes": "1"},
        {"conditions": [{"type": "FailureTarget", "status": "True"}]},
        {"failed": 3},
    ],
)
async def test_job_status_that_somebody_wrote(start: Any, value: dict[str, Any]) -> None:
    """A Job whose status was overwritten goes on, or stays finished."""
    cluster = await start()
    cluster.job("j", completions=2, completionMode="Indexed", ttlSecondsAfterFinished=100)
    await cluster.clock.settle()
    status(cluster, "jobs.batch", "j", value)
    await cluster.clock.advance(2)
    assert cluster.client.get("jobs.batch", "n", "j") is not None


@pytest.mark.parametrize("index", ["²", "-1", "9" * 30, "x"])
async def test_completion_index_that_is_none(start: Any, index: str) -> None:
    """A pod with an unreadable index is given up and its index made again."""
    cluster = await start()
    cluster.job("j", completions=1, completionMode="Indexed")
    await cluster.clock.settle()
    (pod,) = cluster.pods()
    changed = {"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": index}}}
    cluster.client.patch("pods", "n", pod["metadata"]["name"], changed)
    await cluster.clock.advance(2)
    (fresh,) = cluster.pods()
    assert fresh["metadata"]["uid"] != pod["metadata"]["uid"]


@pytest.mark.parametrize(
    "spec", [{"minAvailable": "abc"}, {"minAvailable": "-5%"}, {"minAvailable": "150%"}]
)
async def test_budgets_that_make_no_sense(start: Any, spec: dict[str, Any]) -> None:
    """A budget that cannot be read allows nothing."""
    cluster = await start()
    cluster.pod("p", labels={"app": "x"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec},
    }
    try:
        cluster.client.create("poddisruptionbudgets.policy", budget)
    except StatusError as refusal:
        if refusal.code != 422:
            raise
        return  # a server that refuses it is right, too
    await cluster.clock.advance(2)
    found = cluster.client.get("poddisruptionbudgets.policy", "n", "b")["status"]
    assert found["disruptionsAllowed"] == 0


async def test_node_network_that_is_none(start: Any) -> None:
    """Pods of a node whose podCIDR is junk do not start; those of other nodes do."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.node("b")
    cluster.client.patch("nodes", None, "b", {"spec": {"podCIDR": "junk"}})
    for name in ("a", "b"):
        cluster.pod(f"on-{name}")
        cluster.client.bind("n", f"on-{name}", name)
    await cluster.clock.advance(3)
    phases = {p["metadata"]["name"]: p["status"]["phase"] for p in cluster.pods()}
    assert phases == {"on-a": "Running", "on-b": "Pending"}
