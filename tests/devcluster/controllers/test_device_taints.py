"""Pods leave devices that get a NoExecute taint, unless their claims tolerate it."""

from __future__ import annotations

from typing import Any

CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
HEAD = {"apiVersion": "resource.k8s.io/v1"}
REQUEST = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
RESULT = {"request": "g", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
TAINT = {"key": "broken", "effect": "NoExecute"}


def publish(cluster: Any, *, generation: int, taints: list[dict[str, str]]) -> None:
    """Write the slice of node n1, with one device."""
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", **({"taints": taints} if taints else {})}],
    }
    if generation == 1:
        body = {**HEAD, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
        cluster.client.create(SLICES, body)
    else:
        cluster.client.update(SLICES, {**cluster.client.get(SLICES, None, "s"), "spec": spec})


def running(cluster: Any, *tolerations: dict[str, Any]) -> None:
    """A bound pod p that holds gpu-0 by the claim c."""
    cluster.node("n1")
    meta = {"name": "c", "namespace": "n"}
    spec = {"devices": {"requests": [REQUEST]}}
    cluster.client.create(CLAIMS, {**HEAD, "kind": "ResourceClaim", "metadata": meta, "spec": spec})
    pod = cluster.pod("p", spec={"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]})
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    result = {**RESULT, **({"tolerations": list(tolerations)} if tolerations else {})}
    state = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    cluster.client.patch(CLAIMS, "n", "c", {"status": state}, subresource="status")
    cluster.client.bind("n", "p", "n1")


def leaving(cluster: Any) -> bool:
    """Whether the pod is being deleted, or gone."""
    pod = cluster.client.get("pods", "n", "p")
    return pod is None or "deletionTimestamp" in pod["metadata"]


async def test_a_pod_leaves_a_device_that_breaks(start: Any) -> None:
    """The taint comes with a new generation of the pool; the pod is told why it goes."""
    cluster = await start()
    publish(cluster, generation=1, taints=[])
    running(cluster)
    await cluster.clock.advance(5)
    assert not leaving(cluster)
    publish(cluster, generation=2, taints=[TAINT])
    await cluster.clock.settle()
    assert leaving(cluster)
    conditions = cluster.client.get("pods", "n", "p")["status"]["conditions"]
    assert "DeletionByDeviceTaintManager" in {each.get("reason") for each in conditions}
    assert "DeviceTaintManagerEviction" in cluster.reasons


async def test_a_pod_bound_to_a_tainted_device_leaves(start: Any) -> None:
    """A taint that is there before the pod counts as well; others are NoSchedule and do not."""
    cluster = await start()
    publish(cluster, generation=1, taints=[{"key": "old", "effect": "NoSchedule"}])
    running(cluster)
    await cluster.clock.advance(5)
    assert not leaving(cluster)
    other = await start()
    publish(other, generation=1, taints=[TAINT])
    running(other)
    await other.clock.settle()
    assert leaving(other)


async def test_tolerations_delay_or_prevent_it(start: Any) -> None:
    """A toleration for thirty seconds lets the pod stay so long, one without a time for ever."""
    cluster = await start()
    publish(cluster, generation=1, taints=[TAINT])
    limit = {"key": "broken", "operator": "Exists", "tolerationSeconds": 30}
    running(cluster, limit)
    await cluster.clock.advance(29)
    assert not leaving(cluster)
    await cluster.clock.advance(2)
    assert leaving(cluster)
    other = await start()
    publish(other, generation=1, taints=[TAINT])
    running(other, {"key": "broken", "operator": "Exists"})
    await other.clock.advance(3600)
    assert not leaving(other)


async def test_a_taint_that_goes_in_time_moves_nobody(start: Any) -> None:
    """A device that is mended before the toleration ends keeps its pod."""
    cluster = await start()
    publish(cluster, generation=1, taints=[TAINT])
    running(cluster, {"key": "broken", "operator": "Exists", "tolerationSeconds": 30})
    await cluster.clock.advance(10)
    publish(cluster, generation=2, taints=[])
    await cluster.clock.advance(60)
    assert not leaving(cluster)
