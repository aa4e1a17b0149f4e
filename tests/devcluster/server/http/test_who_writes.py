"""Whose name the cluster's own writes carry, and what it gives back."""

from __future__ import annotations

import asyncio

from gpusched.base.clock import Clock
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.devcluster.controllers.bootstrap.kubernetes_service import AGAIN_S
from gpusched.lab.virtual_time.loop import run_virtual

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}},
}


def test_own_writes_name_their_component():
    """Controllers write as the controller manager and stages as KWOK, as on a real server."""

    async def story(clock: Clock) -> set[tuple[str, str]]:
        cluster = await start(ClusterOptions(clock=clock))
        try:
            cluster.client.create("nodes", NODE)
            await asyncio.sleep(5)
            node = cluster.client.get("nodes", None, "n")
            assert node is not None
            return {
                (entry["manager"], entry.get("subresource", ""))
                for entry in node["metadata"]["managedFields"]
            }
        finally:
            await cluster.close()

    writers = run_virtual(story)
    assert {("kube-controller-manager", ""), ("kwok", "status")} <= writers


def test_the_service_of_the_api_server_comes_back():
    """Deleting the service kubernetes is allowed, and it is there again soon."""

    async def story(clock: Clock) -> None:
        cluster = await start(ClusterOptions(stages=False, clock=clock))
        client = cluster.client
        try:
            before = client.delete("services", "default", "kubernetes")
            assert client.get("services", "default", "kubernetes") is None
            await asyncio.sleep(AGAIN_S + 1)
            after = client.get("services", "default", "kubernetes")
            assert after is not None
            assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
            assert after["metadata"]["uid"] != before["metadata"]["uid"]
        finally:
            await cluster.close()

    run_virtual(story)
