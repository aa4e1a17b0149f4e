"""Annotations of pods with claims: slots and NUMA nodes of the devices that they got."""

from __future__ import annotations

from tests.daemon.devices.device_objects import API, bound, claimant, classes

NUMA = "resource.kubernetes.io/numaNode"


def publish(w, node, *, pool_order):
    """Four GPUs of two NUMA nodes; the slice lists them in some order, the index says which is which."""
    devices = [
        {
            "name": f"dev-{number}",
            "attributes": {"index": {"int": number}, NUMA: {"int": number // 2}},
        }
        for number in pool_order
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}
    w.client.create("resourceslices.resource.k8s.io", body)


def notes(w, name):
    """Slots and NUMA nodes that the pod says."""
    (pod,) = [each for each in w.pods() if each["metadata"]["name"] == name]
    found = pod["metadata"]["annotations"]
    return found["gpusched.io/slots"], found.get("gpusched.io/numa")


def test_slots_and_numa_nodes_are_those_of_the_devices(play):
    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", pool_order=[3, 2, 1, 0])
        classes(w)
        w.daemon()
        for name in ("a", "b", "c", "d"):
            claimant(w, name)
            await w.until(lambda name=name: name in bound(w))
        assert sorted(notes(w, name) for name in "abcd") == [
            ("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")
        ]  # fmt: skip
        for claim in w.client.list("resourceclaims.resource.k8s.io", "default"):
            owner = claim["metadata"]["ownerReferences"][0]["name"]
            (device,) = claim["status"]["allocation"]["devices"]["results"]
            assert device["device"] == f"dev-{notes(w, owner)[0]}"

    play(life)


def test_such_slots_are_no_doubt_to_the_next_daemon(play):
    """They are not what the pod requests; nothing is charged for them, and nobody is warned."""

    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", pool_order=[0, 1, 2, 3])
        classes(w)
        first = w.daemon()
        claimant(w, "a")
        await w.until(lambda: "a" in bound(w))
        await first.stop()
        w.daemon()
        claimant(w, "b")
        await w.until(lambda: "b" in bound(w))
        events = [each["reason"] for each in w.client.list("events", "default")]
        assert "UntrustedSlots" not in events
        assert notes(w, "a") != notes(w, "b")

    play(life)


def test_pods_without_claims_say_no_numa_node(play):
    async def life(w):
        await w.start(nodes=1)
        w.daemon()
        w.pod("a", gpus=1)
        await w.until(lambda: "a" in bound(w))
        assert notes(w, "a") == ("0", None)

    play(life)
