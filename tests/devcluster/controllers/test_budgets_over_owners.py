"""Disruption budgets whose numbers come from the scale of what owns the pods, and evictions."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.devcluster.apiserver.client.local_client import StatusError

PDBS = "poddisruptionbudgets.policy"


def budget(cluster: Any, name: str = "b", **spec: Any) -> None:
    cluster.client.create(
        PDBS,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec},
        },
    )


def status(cluster: Any) -> Any:
    return cluster.client.get(PDBS, "n", "b")["status"]


def owner(cluster: Any, kind: str, resource: str, *, replicas: int) -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    selector = {"matchLabels": {"app": "x"}}
    cluster.client.create(
        resource,
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "o", "namespace": "n"},
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        },
    )


def run_pod(cluster: Any, name: str, *, ready: bool = True) -> None:
    state = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    cluster.client.patch(
        "pods", "n", name, {"status": state}, patch_type="strategic", subresource="status"
    )


async def counted(cluster: Any) -> tuple[int, int, int]:
    """Let the controllers act; expected, desired healthy, allowed disruptions."""
    await cluster.clock.advance(1)
    found = status(cluster)
    return found["expectedPods"], found["desiredHealthy"], found["disruptionsAllowed"]


@pytest.mark.parametrize(
    ("kind", "resource"), [("ReplicaSet", "replicasets.apps"), ("Deployment", "deployments.apps")]
)
async def test_shares_are_of_the_scale(start: Any, kind: str, resource: str) -> None:
    """Percentages and maxUnavailable are taken of what the owner wants, rounded up."""
    cluster = await start()
    owner(cluster, kind, resource, replicas=5)
    await cluster.clock.advance(1)
    budget(cluster, maxUnavailable="30%")
    assert await counted(cluster) == (5, 3, 0)
    for pod in cluster.pods():
        run_pod(cluster, pod["metadata"]["name"])
    assert await counted(cluster) == (5, 3, 2)
    cluster.client.patch(PDBS, "n", "b", {"spec": {"maxUnavailable": None, "minAvailable": "50%"}})
    assert await counted(cluster) == (5, 3, 2)
    cluster.client.patch(PDBS, "n", "b", {"spec": {"maxUnavailable": 9, "minAvailable": None}})
    assert await counted(cluster) == (5, 0, 5)


async def test_owner_without_a_scale(start: Any) -> None:
    """A Job has no scale: the condition says so, and nothing may be lost."""
    cluster = await start()
    cluster.job("j", template={"labels": {"app": "x"}})
    await cluster.clock.settle()
    budget(cluster, maxUnavailable=1)
    await cluster.clock.advance(1)
    [condition] = status(cluster)["conditions"]
    assert condition["reason"] == "SyncFailed"
    assert condition["message"] == "jobs.batch does not implement the scale subresource"
    assert "CalculateExpectedPodCountFailed" in cluster.reasons


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (("apps/v1", "ReplicaSet"), 'found no controllers for pod "p"'),
        (("example.com/v1", "Widget"), 'no matches for kind "Widget" in version "example.com/v1"'),
    ],
)
async def test_missing_owners_are_told(start: Any, reference: tuple[str, str], why: str) -> None:
    """An owner that is gone or of an unknown kind makes the numbers unknowable."""
    cluster = await start()
    made = {"apiVersion": reference[0], "kind": reference[1], "name": "o", "uid": "u"}
    budget(cluster, minAvailable="50%")
    held = {"finalizers": ["example.com/held"]}  # the garbage collector would take it away
    owners = [{**made, "controller": True}]
    cluster.pod("p", labels={"app": "x"}, ownerReferences=owners, **held)
    await cluster.clock.settle()
    cluster.client.patch(PDBS, "n", "b", {"metadata": {"labels": {"look": "again"}}})
    await cluster.clock.settle()
    [condition] = status(cluster)["conditions"]
    assert (condition["reason"], condition["message"]) == ("SyncFailed", why)


async def test_pods_without_owner_do_not_count(start: Any) -> None:
    """Shares of unmanaged pods are shares of nothing, and an event says so."""
    cluster = await start()
    cluster.pod("p", labels={"app": "x"})
    budget(cluster, minAvailable="50%")
    assert await counted(cluster) == (0, 0, 0)
    assert "UnmanagedPods" in cluster.reasons


async def test_eviction_of_unready_pods(start: Any) -> None:
    """Unready pods go freely when enough others are healthy, or when the policy always allows."""
    cluster = await start()
    for name in ("a", "b", "c"):
        cluster.pod(name, labels={"app": "x"})
        run_pod(cluster, name, ready=name == "a")
    budget(cluster, minAvailable=1)
    await cluster.clock.advance(1)
    cluster.client.evict("n", "b")
    with pytest.raises(StatusError) as refused:
        cluster.client.evict("n", "a")
    assert refused.value.code == 429

    change = {"spec": {"minAvailable": 2, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}}
    cluster.client.patch(PDBS, "n", "b", change)
    await cluster.clock.advance(1)
    with pytest.raises(StatusError):
        cluster.client.evict("n", "c")
    cluster.client.patch(PDBS, "n", "b", {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
    await cluster.clock.advance(1)
    cluster.client.evict("n", "c")


async def test_budget_not_counted_yet(start: Any) -> None:
    """Before the controller has looked, an eviction is put off by ten seconds."""
    cluster = await start()
    cluster.pod("a", labels={"app": "x"})
    run_pod(cluster, "a")
    budget(cluster, minAvailable=0)
    with pytest.raises(StatusError) as refused:
        cluster.client.evict("n", "a")
    details = refused.value.body["details"]
    assert (refused.value.code, details["retryAfterSeconds"]) == (429, 10)
    assert details["causes"][0]["message"] == (
        "The disruption budget b is still being processed by the server."
    )


async def test_two_budgets_are_not_supported(start: Any) -> None:
    """A pod under two budgets is told so, and stays."""
    cluster = await start()
    cluster.pod("a", labels={"app": "x"})
    run_pod(cluster, "a")
    budget(cluster, minAvailable=0)
    budget(cluster, "other", minAvailable=0)
    await cluster.clock.advance(1)
    with pytest.raises(StatusError) as refused:
        cluster.client.evict("n", "a")
    assert refused.value.code == 500
    assert "more than one PodDisruptionBudget" in refused.value.message
    assert "deletionTimestamp" not in cluster.pods()[0]["metadata"]


async def test_granted_eviction_is_remembered(start: Any) -> None:
    """A grant uses the budget up at once, condition included, until the pod has gone."""
    cluster = await start()
    cluster.node("n1")
    for name in ("a", "b"):
        cluster.pod(name, labels={"app": "x"})
        cluster.client.bind("n", name, "n1")
        run_pod(cluster, name)
    budget(cluster, minAvailable=1)
    await cluster.clock.advance(1)
    cluster.client.evict("n", "a")
    found = status(cluster)
    assert found["disruptionsAllowed"] == 0
    assert list(found["disruptedPods"]) == ["a"]
    assert found["conditions"][0]["reason"] == "InsufficientPods"
    await cluster.clock.advance(1)
    assert "disruptedPods" not in status(cluster)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"minAvailable": 1, "maxUnavailable": "5%"},
            (
                'spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"app":"x"}},'
                '"MaxUnavailable":"5%","UnhealthyPodEvictionPolicy":null}: '
                "minAvailable and maxUnavailable cannot be both set"
            ),
        ),
        ({"minAvailable": "101%"}, 'Invalid value: "101%": must not be greater than 100%'),
        ({"maxUnavailable": "many"}, "a valid percent string must be"),
        ({"maxUnavailable": -1}, "spec.maxUnavailable: Invalid value: -1: must be greater than"),
        (
            {"unhealthyPodEvictionPolicy": "Never"},
            'Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"',
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            (
                "spec.selector.matchExpressions[0].values: Required value: must be specified when "
                "`operator` is 'In' or 'NotIn'"
            ),
        ),
    ],
)
async def test_unsound_budgets_are_refused(start: Any, spec: Any, why: str) -> None:
    """Bounds, policy and selector are checked with the server's own words."""
    cluster = await start()
    with pytest.raises(StatusError) as refused:
        budget(cluster, **spec)
    assert why in refused.value.message
