"""Deterministic nodes and pods, as JSON objects and as the bytes an API server would send."""

from __future__ import annotations

import json
import random
from typing import Any, Final

NAMESPACE: Final = "bench"
GPUS_A_NODE: Final = 8
GPU: Final = "nvidia.com/gpu"
Obj = dict[str, Any]


def node(index: int) -> Obj:
    """A ready node with eight GPUs."""
    name = f"node-{index:05d}"
    capacity = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(GPUS_A_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "rack": f"rack-{index // 16:03d}"},
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, *, gpus: int = 1) -> Obj:
    """A small pod of ours that asks for GPUs."""
    amounts = {"cpu": "1", "memory": "4Gi", GPU: str(gpus)}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"requests": amounts, "limits": {GPU: str(gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulerName": "gpusched", "containers": [container]},
    }


def gang_pod(index: int, *, members: int = 8) -> Obj:
    """A pod as a training Job of a gang makes it."""
    gang = f"gang-{index // members:05d}"
    made = pod(f"{gang}-{index % members}")
    made["metadata"] |= {
        "labels": {
            "gpusched.io/pod-group": gang, "batch.kubernetes.io/job-name": gang,
            "app.kubernetes.io/name": "trainer",
        },
        "annotations": {"gpusched.io/run-for": "10h"},
    }  # fmt: skip
    env = [{"name": f"TRAIN_OPTION_{each}", "value": "x" * 24} for each in range(4)]
    made["spec"]["restartPolicy"] = "Never"
    made["spec"]["containers"][0] |= {"command": ["torchrun", "train.py"], "env": env}
    return made


# -- pods as a busy cluster has them ---------------------------------------------------------
_NAME: Final = "@@NAME@@"
_UID: Final = "@@UIDUIDU-IDUI-DUID-UIDU-IDUIDUIDUI@@"
_VERSION: Final = "@@VERSION@@"
_NODE: Final = "@@NODE@@"
_SLOTS: Final = "@@SLOTS@@"


def listed_pods(
    count: int, *, seed: int, templates: int = 100, nodes: int = 1000, waiting: bool = True
) -> list[bytes]:
    """Pods of some 5.5 KB each, as a list shows them: managedFields, volumes, status.

    Three of four run on one of so many nodes, or all when none is ``waiting``; then they fit their
    nodes, and no GPU is claimed twice. Each template is one Job of its own.
    """
    rng = random.Random(seed)
    gpus = [rng.choice((1, 2, 4, 8)) if waiting or number % 4 else 0 for number in range(templates)]
    shapes = [
        _split(_template(number, gpus[number], waiting=waiting)) for number in range(templates)
    ]
    taken = [0] * nodes
    bodies = []
    for index in range(count):
        number, node = rng.randrange(templates), rng.randrange(nodes)
        if not waiting and taken[node] + gpus[number] > GPUS_A_NODE:
            number -= number % 4
        slots = (
            range(taken[node], taken[node] + gpus[number]) if not waiting else range(gpus[number])
        )
        taken[node] += gpus[number]
        uid = f"{rng.getrandbits(32):08x}-4b1c-4d2e-9f00-{index:012x}"
        values = {
            _NAME: f"job-{number:04d}-{index:06d}-x7k2p",
            _UID: uid,
            _VERSION: str(1_000_000 + index),
            _NODE: f"node-{node:05d}",
            _SLOTS: ",".join(map(str, slots)),
        }
        bodies.append(
            b"".join(
                part.encode() if part not in values else values[part].encode()
                for part in shapes[number]
            )
        )
    return bodies


def page(bodies: list[bytes], *, token: str, kind: str = "Pod") -> bytes:
    """One page of a list, of pods unless told."""
    head = {"resourceVersion": "9000000", **({"continue": token} if token else {})}
    return (
        b'{"kind":"'
        + kind.encode()
        + b'List","apiVersion":"v1","metadata":'
        + json.dumps(head, separators=(",", ":")).encode()
        + b',"items":['
        + b",".join(bodies)
        + b"]}"
    )


def _split(text: str) -> list[str]:
    parts = [text]
    for mark in (_NAME, _UID, _VERSION, _NODE, _SLOTS):
        parts = [piece for part in parts for piece in _around(part, mark)]
    return parts


def _around(part: str, mark: str) -> list[str]:
    pieces = part.split(mark)
    out = [pieces[0]]
    for piece in pieces[1:]:
        out += [mark, piece]
    return out


def _template(number: int, gpus: int, *, waiting: bool) -> str:
    job = f"job-{number:04d}"
    running = number % 4 != 0 or not waiting
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True,
        "uid": f"{number:08x}-1111-4222-8333-444444444444", "blockOwnerDeletion": True,
    }  # fmt: skip
    metadata: Obj = {
        "name": _NAME, "generateName": f"{job}-", "namespace": f"team-{number % 20}",
        "uid": _UID, "resourceVersion": _VERSION, "creationTimestamp": "2026-01-01T10:00:00Z",
        "labels": {
            "app.kubernetes.io/name": "trainer", "batch.kubernetes.io/job-name": job,
            "batch.kubernetes.io/controller-uid": owner["uid"], "job-name": job,
        },
        "annotations": {"gpusched.io/role": "worker", "cluster.example/cost-centre": "4711"},
        "ownerReferences": [owner],
    }  # fmt: skip
    if running:
        metadata["annotations"]["gpusched.io/slots"] = _SLOTS
        metadata["annotations"]["gpusched.io/plan"] = f"{number:012x}"
        metadata["annotations"]["gpusched.io/fence"] = "gpusched_1/3"
    amounts = {"cpu": str(4 + number % 8), "memory": f"{16 + number % 5}Gi", GPU: str(gpus)}
    if not gpus:
        amounts = {"cpu": "500m", "memory": f"{1 + number % 5}Gi"}
    env = [{"name": f"TRAIN_OPTION_{each}", "value": "x" * 24} for each in range(12)]
    spec: Obj = {
        "schedulerName": "gpusched", "restartPolicy": "Never", "priority": 1000,
        "priorityClassName": "batch", "serviceAccountName": "default", "nodeSelector": {},
        "containers": [
            {
                "name": "main", "image": "registry.example/ml/trainer:2026.1",
                "command": ["torchrun", "--nnodes=8", "--nproc-per-node=8", "train.py"],
                "env": env, "resources": {"requests": amounts, "limits": amounts},
                "volumeMounts": [{"name": "shared", "mountPath": "/data"}],
                "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "Always",
            }
        ],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "datasets"}}],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
             "tolerationSeconds": 300},
        ],
    }  # fmt: skip
    status: Obj = {"phase": "Pending", "qosClass": "Burstable"}
    if running:
        spec["nodeName"] = _NODE
        status = _running()
    written = {"metadata": {"labels": metadata["labels"]}, "spec": spec}
    metadata["managedFields"] = [
        _managed("kube-controller-manager", written),
        _managed("kubelet", {"status": status}),
    ]
    return json.dumps({"metadata": metadata, "spec": spec, "status": status}, separators=(",", ":"))


def _managed(manager: str, owned: Obj) -> Obj:
    """The managedFields entry of a manager that wrote so much of an object."""
    return {
        "manager": manager, "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": _fields(owned),
    }  # fmt: skip


def _fields(value: Any) -> Obj:
    """Field names as the API server keeps them: lists of named or typed elements by their key."""
    if isinstance(value, dict):
        return {f"f:{name}": _fields(part) for name, part in value.items()}
    fields: Obj = {}
    for element in value if isinstance(value, list) else ():
        key = next((each for each in ("name", "type") if each in element), "") if element else ""
        if isinstance(element, dict) and key:
            name = json.dumps({key: element[key]}, separators=(",", ":"))
            fields[f"k:{name}"] = {".": {}, **_fields(element)}
    return fields


def _running() -> Obj:
    stamp = "2026-01-01T10:00:05Z"
    conditions = [
        {"type": each, "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp}
        for each in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    state = {
        "name": "main", "ready": True, "started": True, "restartCount": 0,
        "image": "registry.example/ml/trainer:2026.1", "imageID": "sha256:" + "0f" * 32,
        "containerID": "containerd://" + "ab" * 32, "state": {"running": {"startedAt": stamp}},
    }  # fmt: skip
    return {
        "phase": "Running", "conditions": conditions, "containerStatuses": [state],
        "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "startTime": stamp, "qosClass": "Burstable",
    }  # fmt: skip
