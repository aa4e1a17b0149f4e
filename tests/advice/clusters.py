"""Small clusters in which gangs wait, as manifests."""

from __future__ import annotations

import json

from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import GangKey, format_time
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import plural_of
from gpusched.engine.schedulers.scheduler import StoppedClock
from gpusched.io.watch.informers import KINDS

API = "scheduling.gpusched.io/v1alpha1"
NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"


def node(name, *, rack="r0", product=H100, gpus=8):
    """A node that is ready."""
    amounts = {"cpu": "96", "memory": "1000Gi", "pods": "110", GPU: str(gpus)}
    labels = {
        "kubernetes.io/hostname": name, "gpusched.io/rack": rack, "nvidia.com/gpu.product": product,
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def queue(name, **spec):
    """A queue."""
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def priority(name, value):
    """A priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value,
    }  # fmt: skip


def budget(name, group, *, allowed=0):
    """A PodDisruptionBudget over the pods of a PodGroup."""
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"selector": {"matchLabels": {"gpusched.io/pod-group": group}}},
        "status": {"disruptionsAllowed": allowed},
    }  # fmt: skip


def gang(name, pods, gpus, *, on=None, selector=None, run_for="", **spec):
    """A PodGroup and its pods, in queue ``a`` unless told; ``on`` names the node of each that runs."""
    group = {
        "apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "namespace": "team"},
        "spec": {"queue": "a", "minMember": pods, **spec},
    }  # fmt: skip
    return [
        group,
        *(
            _pod(name, each, gpus, on=on, selector=selector, run_for=run_for)
            for each in range(pods)
        ),
    ]


def _pod(group, number, gpus, *, on, selector, run_for):
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"schedulerName": "gpusched", "containers": [container]}
    if selector:
        spec["nodeSelector"] = selector
    meta = {
        "name": f"{group}-{number}", "namespace": "team",
        "labels": {"gpusched.io/pod-group": group},
    }  # fmt: skip
    if run_for:
        meta["annotations"] = {"gpusched.io/run-for": run_for}
    status = {"phase": "Pending"}
    if on:
        spec["nodeName"] = on[number]
        status = {"phase": "Running", "startTime": "2027-01-15T08:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def trial_of(*objects, now=NOW, config=DEFAULT):
    """The cluster of these objects, lists of them among them, with namespace ``team``."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    flat = [space]
    for each in objects:
        flat += each if isinstance(each, list) else [each]
    return TrialCluster(flat, config, now=now, clock=StoppedClock())


def in_namespace(obj, namespace="team"):
    """The manifest, of a namespace."""
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def write_file(path, objects):
    """A snapshot file of these objects, taken at ``NOW``."""
    ordered = [
        (plural, [obj for obj in objects if plural_of(obj) == plural])
        for plural in (*(each for each in KINDS if each != "pods"), "pods")
    ]
    header = {
        "gpuschedSnapshot": 1, "takenAt": format_time(NOW), "server": "v1.36.2", "recorder": "0.2.0",
        "anonymized": False, "missing": [], "counts": {_resource(name, found[0]): len(found) for name, found in ordered if found},
    }  # fmt: skip
    lines = [header, *(obj for _, found in ordered for obj in found)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _resource(plural, obj):
    group, slash, _ = obj["apiVersion"].rpartition("/")
    return f"{plural}.{group}" if slash else plural


def waiting_gang(trial, name):
    """The gang of a PodGroup."""
    return trial.gang(GangKey("PodGroup", "team", name))
