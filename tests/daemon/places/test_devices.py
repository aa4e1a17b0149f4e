"""Gangs with claims for devices on a whole daemon: devices are given before pods are bound, and freed after."""

from __future__ import annotations

from collections import Counter

CLAIMS = "resourceclaims.resource.k8s.io"
API = "resource.k8s.io/v1"


def publish(w, node, gpus):
    """A driver's slice with so many GPUs."""
    devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}
    w.client.create("resourceslices.resource.k8s.io", body)


def classes(w):
    """One class, and a template that asks for one device of it."""
    text = 'device.driver == "gpu.example.com"'
    spec = {"selectors": [{"cel": {"expression": text}}]}
    body = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec}
    w.client.create("deviceclasses.resource.k8s.io", body)
    request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
    w.client.create(
        "resourceclaimtemplates.resource.k8s.io",
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
        "default",
    )


def claimant(w, name, **fields):
    """A pod with a claim of its own."""
    claims = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "one"}]}
    w.pod(name, gpus=0, spec=claims, **fields)


def given(w):
    """Devices of claims, by the pod that owns the claim."""
    found = {}
    for claim in w.client.list(CLAIMS, "default"):
        results = (
            (claim.get("status", {}).get("allocation") or {}).get("devices", {}).get("results")
        )
        if results:
            owner = claim["metadata"]["ownerReferences"][0]["name"]
            found[owner] = [(each["pool"], each["device"]) for each in results]
    return found


def bound(w):
    """Nodes of bound pods by name."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in w.pods()
        if pod["spec"].get("nodeName")
    }


def test_claims_are_given_devices_before_pods_are_bound(play):
    async def life(w):
        await w.start(nodes=2)
        for number in range(2):
            publish(w, f"node-{number}", 2)
        classes(w)
        w.daemon()
        w.group("g", minMember=4)
        for number in range(4):
            claimant(w, f"g-{number}", labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: len(bound(w)) == 4)
        devices = given(w)
        assert Counter(each for held in devices.values() for each in held).most_common(1)[0][1] == 1
        assert {pod: held[0][0] for pod, held in devices.items()} == bound(w)
        for claim in w.client.list(CLAIMS, "default"):
            (user,) = claim["status"]["reservedFor"]
            assert user["name"] == claim["metadata"]["ownerReferences"][0]["name"]
            assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]

    play(life)


def test_a_device_is_free_again_when_its_pod_has_ended(play):
    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", 1)
        classes(w)
        w.daemon()
        claimant(w, "first")
        await w.until(lambda: "first" in bound(w))
        claimant(w, "second")
        await w.clock.sleep(5)
        assert "second" not in bound(w)
        (waits,) = [pod for pod in w.pods() if pod["metadata"]["name"] == "second"]
        assert "1 device matches, 0 free" in str(waits["status"]["conditions"])
        w.client.delete("pods", "default", "first")
        await w.until(lambda: "second" in bound(w))

    play(life)
