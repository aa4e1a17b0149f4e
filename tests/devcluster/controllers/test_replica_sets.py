"""ReplicaSets: the pods they make, adopt, release and give up, and what they count."""

from __future__ import annotations

from typing import Any

SETS = "replicasets.apps"


def replica_set(cluster: Any, name: str = "web", *, replicas: int = 2, **spec: Any) -> Any:
    return cluster.client.create(
        SETS,
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": "n"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
                **spec,
            },
        },
    )


def names(cluster: Any) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.pods()]


def stored(cluster: Any) -> Any:
    return cluster.client.get(SETS, "n", "web")


def resize(cluster: Any, replicas: int) -> None:
    cluster.client.patch(SETS, "n", "web", {"spec": {"replicas": replicas}})


def set_ready(cluster: Any, name: str, since: str) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    status = {"status": {"phase": "Running", "conditions": [condition]}}
    cluster.client.patch("pods", "n", name, status, patch_type="strategic", subresource="status")


async def test_makes_pods_once(start: Any) -> None:
    """It makes as many pods as it wants, owned by it, named after it, and tells of each."""
    cluster = await start()
    owner = replica_set(cluster, replicas=3)
    await cluster.clock.advance(5)
    pods = cluster.pods()
    assert len(pods) == 3
    assert all(pod["metadata"]["generateName"] == "web-" for pod in pods)
    assert pods[0]["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert cluster.reasons == ["SuccessfulCreate"] * 3
    assert stored(cluster)["status"] == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }


async def test_gives_up_the_least_worth(start: Any) -> None:
    """Unbound pods go first, then unready ones, then cheaper ones by annotation."""
    cluster = await start()
    cluster.node("a")
    replica_set(cluster, replicas=4)
    await cluster.clock.advance(1)
    unbound, unready, cheap, dear = names(cluster)
    for name in (unready, cheap, dear):
        cluster.client.bind("n", name, "a")
    for name in (cheap, dear):
        set_ready(cluster, name, "2027-01-15T08:00:00Z")
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "10"}}}
    cluster.client.patch("pods", "n", dear, cost)
    for left in ([unready, cheap, dear], [cheap, dear], [dear]):
        resize(cluster, len(left))
        await cluster.clock.settle()
        alive = [
            p["metadata"]["name"]
            for p in cluster.pods()
            if "deletionTimestamp" not in p["metadata"]
        ]
        assert alive == left, f"{unbound} is the first to go"


async def test_adopts_and_releases_by_label(start: Any) -> None:
    """A pod that fits is adopted instead of made; one whose label changes is let go and replaced."""
    cluster = await start()
    cluster.pod("stray", labels={"app": "web"})
    owner = replica_set(cluster, replicas=2)
    await cluster.clock.advance(1)
    assert len(cluster.pods()) == 2
    adopted = cluster.client.get("pods", "n", "stray")["metadata"]["ownerReferences"]
    assert [r["uid"] for r in adopted] == [owner["metadata"]["uid"]]

    cluster.client.patch("pods", "n", "stray", {"metadata": {"labels": {"app": "debug"}}})
    await cluster.clock.advance(1)
    assert len(cluster.pods(app="web")) == 2
    assert "ownerReferences" not in cluster.client.get("pods", "n", "stray")["metadata"]


async def test_available_after_waiting(start: Any) -> None:
    """A ready pod counts as available once it was ready for minReadySeconds."""
    cluster = await start()
    cluster.node("a")
    replica_set(cluster, replicas=1, minReadySeconds=30)
    await cluster.clock.advance(1)
    cluster.bind_all("a")
    set_ready(cluster, names(cluster)[0], "2027-01-15T08:00:01Z")
    await cluster.clock.advance(10)
    assert stored(cluster)["status"].get("readyReplicas") == 1
    assert "availableReplicas" not in stored(cluster)["status"]
    await cluster.clock.advance(25)
    assert stored(cluster)["status"]["availableReplicas"] == 1


async def test_tells_why_pods_cannot_be_made(start: Any) -> None:
    """A quota that refuses pods shows as ReplicaFailure and an event, and heals."""
    cluster = await start()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"hard": {"pods": "1"}},
    }
    cluster.client.create("resourcequotas", quota)
    await cluster.clock.advance(1)
    replica_set(cluster, replicas=2)
    await cluster.clock.advance(2)
    [condition] = stored(cluster)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert "exceeded quota: q" in condition["message"]
    assert "FailedCreate" in cluster.reasons

    cluster.client.patch("resourcequotas", "n", "q", {"spec": {"hard": {"pods": "5"}}})
    await cluster.clock.advance(90)
    assert len(cluster.pods()) == 2
    assert "conditions" not in stored(cluster)["status"]


async def test_finished_pods_are_replaced(start: Any) -> None:
    """A failed pod does not count; another takes its place."""
    cluster = await start()
    cluster.node("a")
    replica_set(cluster, replicas=1)
    await cluster.clock.advance(1)
    cluster.bind_all("a")
    failed = {"status": {"phase": "Failed"}}
    cluster.client.patch("pods", "n", names(cluster)[0], failed, subresource="status")
    await cluster.clock.advance(1)
    assert len(cluster.pods()) == 2
    assert stored(cluster)["status"]["replicas"] == 1
