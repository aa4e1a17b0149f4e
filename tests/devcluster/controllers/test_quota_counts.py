"""Quota status: which objects are counted under which names, and within which scopes."""

from __future__ import annotations

from typing import Any


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A quota of namespace n."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"hard": hard, **spec},
    }


async def used(cluster: Any) -> dict[str, str]:
    """What the quota says is in use, once its controller has looked."""
    await cluster.clock.advance(1)
    found: dict[str, str] = cluster.client.get("resourcequotas", "n", "q")["status"]["used"]
    return found


async def test_objects_of_any_kind_are_counted(start: Any) -> None:
    """Jobs, leases and config maps count; names that nothing counts are left out."""
    cluster = await start()
    hard = {"count/jobs.batch": "9", "count/leases.coordination.k8s.io": "9", "configmaps": "9"}
    odd = {"count/unknown.example.com": "9", "limits.nvidia.com/gpu": "9"}
    cluster.client.create("resourcequotas", quota({**hard, **odd}))
    await cluster.clock.advance(1)
    cluster.job("j", suspend=True)
    cluster.client.create(
        "configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}},
    )
    found = await used(cluster)
    assert found["count/jobs.batch"] == "1"
    assert found["count/leases.coordination.k8s.io"] == "0"
    assert found.keys() == hard.keys()


async def test_only_pods_in_scope_are_counted(start: Any) -> None:
    """A quota for pods that end by themselves leaves the others alone."""
    cluster = await start()
    cluster.client.create("resourcequotas", quota({"pods": "9"}, scopes=["Terminating"]))
    await cluster.clock.advance(1)
    cluster.pod("open")
    cluster.pod("short", spec={"activeDeadlineSeconds": 60})
    assert await used(cluster) == {"pods": "1"}
