"""Devices of nodes and templates of claims, as manifests."""

from __future__ import annotations

from tests.advice.submission.manifests import job, manifest, template

API = "resource.k8s.io/v1"
_CLASS = "gpu.example.com"


def device_class():
    """The class of all GPUs."""
    selectors = [{"cel": {"expression": f'device.driver == "{_CLASS}"'}}]
    return {
        "apiVersion": API, "kind": "DeviceClass", "metadata": {"name": _CLASS},
        "spec": {"selectors": selectors},
    }  # fmt: skip


def slice_of(node, devices):
    """A slice of a node with so many GPUs."""
    return {
        "apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": _CLASS, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{each}"} for each in range(devices)],
        },
    }  # fmt: skip


def claim_template(name="one", count=1):
    """A template of claims for so many GPUs."""
    exactly = {"deviceClassName": _CLASS, "allocationMode": "ExactCount", "count": count}
    devices = {"requests": [{"name": "gpus", "exactly": exactly}]}
    return manifest("ResourceClaimTemplate", API, {"spec": {"devices": devices}}, name=name)


def claiming_job(pods, *, name="new", claims="one", run_for="", **spec):
    """A Job each of whose pods gets a claim of a template."""
    about = {"annotations": {"gpusched.io/run-for": run_for}} if run_for else {}
    wanted = [{"name": "gpu", "resourceClaimTemplateName": claims}]
    made = template(0, resourceClaims=wanted, **about)
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return job(pods, name=name, template_=made, **spec)


def running_claimant(name, node, gpus, *, lasts, own):
    """A pod that runs with a claim for all GPUs of a node: its own one, or one that a user made."""
    uid, claim = f"uid-{name}", f"{name}-claim"
    results = [
        {"request": "gpus", "driver": _CLASS, "pool": node, "device": f"gpu-{each}"}
        for each in range(gpus)
    ]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    named = {"resourceClaimTemplateName": "all"} if own else {"resourceClaimName": claim}
    pod = manifest(
        "Pod", "v1",
        {
            **template(0, resourceClaims=[{"name": "gpu", **named}])["spec"], "nodeName": node,
        },
        name=name, namespace="team", uid=uid, annotations={"gpusched.io/expected-duration": lasts},
    )  # fmt: skip
    told = [{"name": "gpu", "resourceClaimName": claim}] if own else []
    status = {
        "phase": "Running",
        "startTime": "2027-01-15T08:00:00Z",
        "resourceClaimStatuses": told,
    }
    held = manifest(
        "ResourceClaim", API, claim_template(count=gpus)["spec"]["spec"], name=claim,
        namespace="team", ownerReferences=[owner] if own else [],
    )  # fmt: skip
    held["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
    return [held, {**pod, "status": status}]
