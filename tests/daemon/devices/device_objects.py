"""Slices, classes and pods with claims for tests on whole daemons, and what became of them."""

from __future__ import annotations

CLAIMS = "resourceclaims.resource.k8s.io"
API = "resource.k8s.io/v1"


def publish(w, node, gpus, *, rails=(), told=None):
    """A driver's slice with so many GPUs, one on each of the rails where these are named."""
    devices = [{"name": f"gpu-{number}"} for number in range(len(rails) or gpus)]
    for device, rail in zip(devices, rails, strict=False):
        device["attributes"] = {"dra.net/rail": {"string": rail}}
    for device in devices if told else ():
        device["attributes"] = told
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


def named_claim(w, name):
    """A claim for one device that pods name."""
    request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
    w.client.create(
        CLAIMS,
        {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        },
        "default",
    )


def user_of(w, pod, claim):
    """A pod that uses a named claim."""
    w.pod(pod, gpus=0, spec={"resourceClaims": [{"name": "c", "resourceClaimName": claim}]})


def claim_status(w, name):
    """What the API shows of a named claim."""
    return w.client.get(CLAIMS, "default", name).get("status", {})
