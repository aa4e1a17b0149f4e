"""Deployments: rollouts, revisions, pauses, deadlines, and scaling amid all that."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.devcluster.controllers.deployments import rollout_sizes

DEPLOYMENTS, SETS = "deployments.apps", "replicasets.apps"


def deployment(cluster: Any, *, replicas: int = 4, **spec: Any) -> Any:
    return cluster.client.create(
        DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n", "annotations": {"team": "a"}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "v1"}]},
                },
                **spec,
            },
        },
    )


def stored(cluster: Any) -> Any:
    return cluster.client.get(DEPLOYMENTS, "n", "web")


def patch(cluster: Any, **spec: Any) -> None:
    cluster.client.patch(DEPLOYMENTS, "n", "web", {"spec": spec}, patch_type="strategic")


def roll_to(cluster: Any, image: str) -> None:
    patch(cluster, template={"spec": {"containers": [{"name": "c", "image": image}]}})


def by_image(cluster: Any) -> dict[str, int]:
    """Wanted replicas by image of the replica sets."""
    return {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"]
        for one in cluster.client.list(SETS, "n")
    }


def condition(cluster: Any, kind: str) -> tuple[str, str]:
    found = next(c for c in stored(cluster)["status"]["conditions"] if c["type"] == kind)
    return found["status"], found["reason"]


async def run(cluster: Any, seconds: int) -> None:
    """Let time pass while whatever appears is bound and becomes Ready."""
    for _ in range(seconds):
        cluster.bind_all("a")
        await cluster.clock.advance(1)


async def rolled_out(start: Any, **spec: Any) -> Any:
    cluster = await start(stages=True)
    cluster.node("a")
    deployment(cluster, **spec)
    await run(cluster, 6)
    return cluster


async def test_first_rollout(start: Any) -> None:
    """A new Deployment has one replica set, named by its template's hash, and ends complete."""
    cluster = await rolled_out(start)
    [made] = cluster.client.list(SETS, "n")
    hashed = made["metadata"]["labels"]["pod-template-hash"]
    assert made["metadata"]["name"] == f"web-{hashed}"
    assert made["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hashed}
    assert made["metadata"]["annotations"] == {
        "team": "a",
        "deployment.kubernetes.io/revision": "1",
        "deployment.kubernetes.io/desired-replicas": "4",
        "deployment.kubernetes.io/max-replicas": "5",
    }
    found = stored(cluster)
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert found["metadata"]["generation"] == 1
    counts = {k: v for k, v in found["status"].items() if k != "conditions"}
    assert counts == {
        "observedGeneration": 1,
        "replicas": 4,
        "updatedReplicas": 4,
        "readyReplicas": 4,
        "availableReplicas": 4,
        "terminatingReplicas": 0,
    }
    assert [c["type"] for c in found["status"]["conditions"]] == ["Available", "Progressing"]
    assert condition(cluster, "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_rolling_update_keeps_its_bounds(start: Any) -> None:
    """At every moment at most 125 % of the pods exist and at least 75 % are available."""
    cluster = await rolled_out(start)
    roll_to(cluster, "v2")
    for _ in range(20):
        await run(cluster, 1)
        alive = [p for p in cluster.pods() if "deletionTimestamp" not in p["metadata"]]
        assert len(alive) <= 5
        assert stored(cluster)["status"].get("availableReplicas", 0) >= 3
    assert by_image(cluster) == {"v1": 0, "v2": 4}
    assert condition(cluster, "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_recreate_waits_for_old_pods(start: Any) -> None:
    """Recreate makes no new pod before the last old one has gone."""
    cluster = await rolled_out(start, strategy={"type": "Recreate"})
    roll_to(cluster, "v2")
    for _ in range(15):
        await run(cluster, 1)
        images = {p["spec"]["containers"][0]["image"] for p in cluster.pods()}
        assert len(images) <= 1
    assert by_image(cluster) == {"v1": 0, "v2": 4}


async def test_going_back_renumbers(start: Any) -> None:
    """An old template is revision 3 when it returns, and remembers that it was 1."""
    cluster = await rolled_out(start)
    for image in ("v2", "v1"):
        roll_to(cluster, image)
        await run(cluster, 15)
    notes = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["metadata"]["annotations"]
        for one in cluster.client.list(SETS, "n")
    }
    assert len(notes) == 2
    assert notes["v1"]["deployment.kubernetes.io/revision"] == "3"
    assert notes["v1"]["deployment.kubernetes.io/revision-history"] == "1"
    assert notes["v2"]["deployment.kubernetes.io/revision"] == "2"


async def test_history_has_a_limit(start: Any) -> None:
    """Beyond revisionHistoryLimit the oldest idle replica sets are deleted."""
    cluster = await rolled_out(start, revisionHistoryLimit=1)
    for image in ("v2", "v3", "v4"):
        roll_to(cluster, image)
        await run(cluster, 15)
    assert by_image(cluster) == {"v3": 0, "v4": 4}


async def test_paused_does_not_roll_but_scales(start: Any) -> None:
    """While paused a new template waits; a new size does not."""
    cluster = await rolled_out(start)
    patch(cluster, paused=True)
    roll_to(cluster, "v2")
    patch(cluster, replicas=6)
    await run(cluster, 5)
    assert by_image(cluster) == {"v1": 6}
    assert condition(cluster, "Progressing") == ("Unknown", "DeploymentPaused")
    patch(cluster, paused=None)
    await run(cluster, 25)
    assert by_image(cluster) == {"v1": 0, "v2": 6}


async def test_stuck_rollout_is_told(start: Any) -> None:
    """Pods that never become Ready are told as ProgressDeadlineExceeded, and old ones stay."""
    cluster = await rolled_out(start, progressDeadlineSeconds=60)
    roll_to(cluster, "v2")
    await cluster.clock.advance(50)
    assert condition(cluster, "Progressing") == ("True", "ReplicaSetUpdated")
    await cluster.clock.advance(20)
    assert condition(cluster, "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert condition(cluster, "Available") == ("True", "MinimumReplicasAvailable")
    assert by_image(cluster) == {"v1": 3, "v2": 2}


async def test_deleting_takes_all_along(start: Any) -> None:
    """In the background its replica sets and pods follow; orphaned ones are adopted again."""
    cluster = await rolled_out(start)
    cluster.client.delete(DEPLOYMENTS, "n", "web", propagation="Orphan")
    await cluster.clock.advance(2)
    assert [one["metadata"].get("ownerReferences") for one in cluster.client.list(SETS, "n")] == [
        None
    ]
    deployment(cluster)
    await cluster.clock.advance(2)
    assert len(cluster.client.list(SETS, "n")) == 1
    cluster.client.delete(DEPLOYMENTS, "n", "web", propagation="Background")
    await cluster.clock.advance(40)
    assert not cluster.client.list(SETS, "n")
    assert not cluster.pods()


async def test_same_seed_same_history(start: Any) -> None:
    """Two clusters of one seed roll out in the same steps, names included."""
    histories = []
    for _ in range(2):
        cluster = await rolled_out(start)
        roll_to(cluster, "v2")
        await run(cluster, 15)
        events = cluster.client.list("events", "n")
        histories.append([(e["metadata"]["name"], e["message"], e["count"]) for e in events])
    assert histories[0] == histories[1]


def sized(name: str, replicas: int, most: int) -> Any:
    notes = {"deployment.kubernetes.io/max-replicas": str(most)}
    meta = {
        "name": name,
        "creationTimestamp": f"2027-01-0{name[-1]}T00:00:00Z",
        "annotations": notes,
    }
    return {"metadata": meta, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(
    ("replicas", "surge", "sizes", "expected"),
    [
        (15, 3, {"a1": 8, "b2": 5}, {"a1": 11, "b2": 7}),
        (5, 0, {"a1": 8, "b2": 2}, {"a1": 4, "b2": 1}),
        (0, 3, {"a1": 8, "b2": 5}, {"a1": 0, "b2": 0}),
    ],
)
def test_scaling_amid_a_rollout_is_proportional(
    replicas: int, surge: int, sizes: dict[str, int], expected: dict[str, int]
) -> None:
    """New size and surge are spread over the active sets by their size, the rest to the largest."""
    owner = {
        "spec": {
            "replicas": replicas,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 2},
            },
        }
    }
    before = sum(sizes.values())
    sets = [sized(name, count, before) for name, count in sizes.items()]
    assert rollout_sizes.proportional_sizes(owner, sets) == expected
