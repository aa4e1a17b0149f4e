"""NUMA nodes as an agent reports them, on the whole daemon."""

from __future__ import annotations

from typing import Any

GROUP = "topology.node.k8s.io"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"noderesourcetopologies.{GROUP}",
        "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"
        },
    },
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {
            "kind": "NodeResourceTopology",
            "listKind": "NodeResourceTopologyList",
            "plural": "noderesourcetopologies",
            "singular": "noderesourcetopology",
        },
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def report(name: str, cpu: tuple[str, str]) -> dict[str, Any]:
    """Two NUMA nodes of four GPUs, and so many free CPUs."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "nvidia.com/gpu", "capacity": "4", "allocatable": "4", "available": "4"},
                {"name": "cpu", "capacity": "48", "allocatable": "48", "available": free},
            ],
        }
        for number, free in enumerate(cpu)
    ]
    return {
        "apiVersion": f"{GROUP}/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": zones,
    }


def guaranteed(gpus: int) -> dict[str, Any]:
    """A pod whose CPUs are its own."""
    amounts = {"cpu": "16", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    both = {"limits": amounts, "requests": amounts}
    return {"containers": [{"name": "c", "image": "i", "resources": both}]}


def test_pods_go_where_the_kubelet_will_take_them(play):
    """The GPUs of the NUMA node with free CPUs are given; what no NUMA node holds waits."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        w.client.create("customresourcedefinitions.apiextensions.k8s.io", CRD)
        await w.until(lambda: w.client.kind_of(f"{GROUP}/v1alpha2", "NodeResourceTopology"))
        w.node("n")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        w.client.patch("nodes", None, "n", ready, subresource="status")
        w.client.create(f"noderesourcetopologies.{GROUP}", report("n", ("4", "40")))
        w.daemon()
        w.pod("a", spec=guaranteed(2))
        await w.until(lambda: w.client.get("pods", "default", "a")["spec"].get("nodeName"))
        notes = w.client.get("pods", "default", "a")["metadata"]["annotations"]
        assert notes["gpusched.io/slots"] == "4,5"
        w.pod("wide", spec=guaranteed(6))
        await w.until(lambda: "no NUMA node with room" in w.told("wide").get("message", ""))

    play(scenario)
