"""Small clusters in which gangs wait, and what becomes of them when one change is carried out."""

from __future__ import annotations

import json
import random

from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey, ObjectKey, format_time
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import key_of, plural_of
from gpusched.engine.simulation import (
    Arrival,
    Simulation,
    SimulationCase,
    StoppedClock,
)
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


def trial_of(*objects, now=NOW):
    """The cluster of these objects, lists of them among them, with namespace ``team``."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    flat = [space]
    for each in objects:
        flat += each if isinstance(each, list) else [each]
    return TrialCluster(flat, DEFAULT, now=now, clock=StoppedClock())


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


def random_cluster(seed):
    """Objects of a cluster some hours after jobs began to come, and its time."""
    draw = random.Random(seed)
    nodes = draw.choice([8, 16])
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        *(priority(name, value) for name, value in (("low", 1), ("mid", 100), ("high", 1000))),
        *(_random_queue(draw, name, nodes) for name in "abcd"),
        *(
            node(f"n{each:02}", rack=f"r{each // 4}", product=A100 if each % 3 == 2 else H100)
            for each in range(nodes)
        ),
    ]
    arrivals, asked = [], 0
    while asked < 8 * nodes or len(arrivals) < 24:
        made, gpus = _random_gang(draw, len(arrivals))
        early = asked < 8 * nodes
        at = draw.random() * 600 if early else 1000 + draw.random() * 3600
        arrivals.append(Arrival(at, tuple(made)))
        asked += gpus
    until = 3 * 3600.0
    case = SimulationCase(
        name="before", config=DEFAULT, objects=objects, until=until, epoch=NOW,
        arrivals=sorted(arrivals, key=lambda each: each.at),
    )  # fmt: skip
    return _played(case), NOW + until


def _random_queue(draw, name, nodes):
    spec = {"deserved": {GPU: str(2 * nodes)}}
    if draw.random() < 0.5:
        spec["capability"] = {GPU: str(2 * nodes + draw.choice([0, nodes]))}
    return queue(name, **spec)


def _random_gang(draw, number):
    pods, gpus = draw.choice([1, 1, 2, 2, 4, 6]), draw.choice([1, 2, 4, 8])
    spec = {"queue": draw.choice("abcd"), "priorityClassName": draw.choice(["low", "low", "mid"])}
    if draw.random() < 0.3:
        spec["preemptible"] = False
    if draw.random() < 0.5:
        spec["expectedDuration"] = f"{draw.randint(4, 12)}h"
    if draw.random() < 0.3:
        spec["topology"] = {"required": "rack"}
    product = draw.choice([None, None, H100, A100])
    selector = {"nvidia.com/gpu.product": product} if product else None
    made = gang(
        f"g{number}", pods, gpus, selector=selector, run_for=f"{draw.randint(4, 12)}h", **spec
    )
    return made, pods * gpus


def _played(case):
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        simulation = Simulation(case)
        simulation.run()
    objects = simulation.world.objects
    ordered = [*(each for each in KINDS if each != "pods"), "pods"]
    return [obj for plural in ordered for obj in objects.all(plural)]


def starts_when_applied(objects, now, suggestion, key, *, within_s=400.0):
    """Whether a gang starts in a simulation of the cluster in which a suggestion is carried out."""
    by_key = {(plural_of(obj), key_of(obj)): obj for obj in objects}
    for edit in suggestion.proposal.edits:
        by_key.pop((edit.plural, edit.key), None)
        if edit.becomes is not None:
            by_key[edit.plural, edit.key] = edit.becomes
    ordered = [*(each for each in KINDS if each != "pods"), "pods"]
    changed = [obj for plural in ordered for (kind, _), obj in by_key.items() if kind == plural]
    after = _played(
        SimulationCase(name="after", config=DEFAULT, objects=changed, until=within_s, epoch=now)
    )
    (group,) = [
        obj for obj in after
        if obj["kind"] == "PodGroup" and key_of(obj) == ObjectKey(key.namespace, key.name)
    ]  # fmt: skip
    bound = sum(
        obj["kind"] == "Pod"
        and obj["metadata"]["labels"].get("gpusched.io/pod-group") == key.name
        and bool(obj["spec"].get("nodeName"))
        for obj in after
    )
    return bound >= group["spec"]["minMember"]
