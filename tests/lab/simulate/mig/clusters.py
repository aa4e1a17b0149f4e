"""Objects of clusters with GPUs that can be partitioned."""

from __future__ import annotations

import json

H100 = "NVIDIA-H100-80GB-HBM3"


def node(name, gpus=2, *, config="all-disabled", product=H100, offers=None, **labels):
    amounts = {"cpu": "64", "memory": "1Ti", "pods": "110"}
    amounts |= {"nvidia.com/gpu": str(gpus)} if offers is None else offers
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "nvidia.com/mig.capable": "true", "nvidia.com/mig.config": config,
                "nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.count": str(gpus),
                **{key.replace("__", "/").replace("_", "."): value for key, value in labels.items()},
            },
        },
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def pod(name, resource, count=1, *, on="", group=""):
    """A pod that waits, or runs on a node."""
    amounts = {resource: str(count)}
    found = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"gpusched.io/pod-group": group} if group else {},
        },
        "spec": {
            "schedulerName": "gpusched",
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
            ],
        },
        "status": {"phase": "Pending"},
    }  # fmt: skip
    if on:
        found["spec"]["nodeName"] = on
        found["status"]["phase"] = "Running"
    return found


def slices(profile, count=1):
    """Arguments of ``pod`` for partitions."""
    return f"nvidia.com/mig-{profile}", count


def write_file(path, objects):
    """A snapshot file of these objects."""
    of_kind = {"nodes": [], "pods": []}
    for each in objects:
        of_kind[f"{each['kind'].lower()}s"].append(each)
    header = {
        "gpuschedSnapshot": 1, "takenAt": "2026-01-01T01:00:00Z", "server": "v1.36.2",
        "recorder": "0.1.0", "anonymized": False, "missing": [],
        "counts": {name: len(items) for name, items in of_kind.items()},
    }  # fmt: skip
    lines = [header, *of_kind["nodes"], *of_kind["pods"]]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path
