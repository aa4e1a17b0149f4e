"""Node pools on a whole cluster: their caps hold, what is deserved in them comes back, status tells."""

from __future__ import annotations

from typing import Any

from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

Obj = dict[str, Any]
GPU = "nvidia.com/gpu"


def node(world: ClusterRun, name: str, kind: str) -> None:
    """A fake node of 8 GPUs."""
    meta = {
        "name": name,
        "labels": {"gpu": kind},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    status = {"allocatable": room, "capacity": room}
    world.client.create(
        "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
    )


def queue(world: ClusterRun, name: str, **pools: Obj) -> None:
    """A queue with limits in pools, whose nodes have ``gpu=name``."""
    made = [
        {
            "name": pool,
            "nodeSelector": {"gpu": pool},
            **{kind: {GPU: str(amount)} for kind, amount in limits.items()},
        }
        for pool, limits in pools.items()
    ]
    body = {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"nodePools": made},
    }
    world.client.create("queues.scheduling.gpusched.io", body)


def pods(world: ClusterRun, name: str, count: int, *, of: str, kind: str = "") -> None:
    """Lone pods of a queue with one GPU each, of one kind of nodes or of any."""
    limits = {"resources": {"limits": {GPU: "1", "cpu": "1", "memory": "1Gi"}}}
    for number in range(count):
        meta = {
            "name": f"{name}-{number}",
            "namespace": "default",
            "labels": {"gpusched.io/queue": of},
            "annotations": {"gpusched.io/run-for": "10h"},
        }
        spec = {
            "schedulerName": "gpusched",
            "containers": [{"name": "c", "image": "i", **limits}],
            **({"nodeSelector": {"gpu": kind}} if kind else {}),
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        world.client.create("pods", body)


def bound(world: ClusterRun, name: str) -> dict[str, int]:
    """How many pods of that name sit on each node and are not on their way out."""
    counts: dict[str, int] = {}
    for pod in world.client.list("pods", "default"):
        on = pod["spec"].get("nodeName")
        stays = on and "deletionTimestamp" not in pod["metadata"]
        if stays and pod["metadata"]["name"].startswith(name):
            counts[on] = counts.get(on, 0) + 1
    return counts


def told(world: ClusterRun, name: str) -> list[Obj]:
    """What a queue's status says about its pools."""
    found: Obj = world.client.get("queues.scheduling.gpusched.io", "", name) or {}
    pools: list[Obj] = found.get("status", {}).get("nodePools", [])
    return pools


def played(scenario: Any) -> Any:
    """What a scenario returns."""
    return simulate_cluster(scenario, options=SimulationOptions(seed=5, limit_s=4000)).value


def test_a_cap_holds_on_the_nodes_of_its_pool():
    """Ten pods that may run anywhere: three where three are allowed, the others elsewhere."""

    async def story(world: ClusterRun) -> tuple[Obj, list[Obj]]:
        node(world, "h", "h100")
        node(world, "a", "a100")
        queue(world, "team", h100={"capability": 3}, a100={})
        pods(world, "p", 12, of="team")
        await world.until(lambda: sum(bound(world, "p").values()) == 11, within_s=60)
        await world.clock.sleep(120)
        return bound(world, "p"), told(world, "team")

    where, pools = played(story)
    assert where == {"a": 8, "h": 3}
    assert pools == [
        {"name": "h100", "allocated": {GPU: "3"}, "fairShare": {}},
        {"name": "a100", "allocated": {}, "fairShare": {}},
    ]


def test_what_is_deserved_in_a_pool_comes_back():
    """One queue runs in all of a pool in which another deserves half: it gives half of it, once."""

    async def story(world: ClusterRun) -> tuple[Obj, Obj, Obj, list[Obj]]:
        node(world, "h", "h100")
        node(world, "a", "a100")
        for name in ("first", "second"):
            queue(world, name, h100={"deserved": 4})
        pods(world, "first", 8, of="first", kind="h100")
        pods(world, "wide", 8, of="second", kind="a100")
        await world.until(lambda: bound(world, "first") == {"h": 8}, within_s=60)
        pods(world, "second", 8, of="second", kind="h100")
        await world.until(lambda: bound(world, "second") == {"h": 4}, within_s=300)
        await world.clock.sleep(300)
        return (
            bound(world, "first"),
            bound(world, "second"),
            bound(world, "wide"),
            told(world, "second"),
        )

    first, second, wide, pools = played(story)
    assert (first, second, wide) == ({"h": 4}, {"h": 4}, {"a": 8})
    assert pools == [{"name": "h100", "allocated": {GPU: "4"}, "fairShare": {GPU: "4"}}]
