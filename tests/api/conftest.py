"""Objects as a real API server returns them, and ways to bend them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from gpusched.api.serializer.codecs import CODECS

Json = dict[str, Any]

_WHEN = "2026-01-01T00:00:00Z"
_MANAGED = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "apiVersion": "v1",
    "time": _WHEN,
    "fieldsType": "FieldsV1",
    "fieldsV1": {
        "f:metadata": {"f:labels": {".": {}, "f:batch.kubernetes.io/job-name": {}}},
        "f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}}}},
    },
}


def _pod() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_metadata(),
        "spec": _pod_spec(),
        "status": _pod_status(),
    }


def _pod_metadata() -> Json:
    return {
        "name": "train-0-abcde",
        "generateName": "train-0-",
        "namespace": "team-a",
        "uid": "9f3c7a10-0000-4000-8000-000000000001",
        "resourceVersion": "1201",
        "generation": 1,
        "creationTimestamp": _WHEN,
        "labels": {
            "batch.kubernetes.io/job-completion-index": "3",
            "batch.kubernetes.io/job-name": "train",
        },
        "annotations": {"batch.kubernetes.io/job-completion-index": "3", "other": "x"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u0"},
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": "u1",
                "controller": True,
                "blockOwnerDeletion": True,
            },
        ],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "managedFields": [_MANAGED],
    }


def _pod_spec() -> Json:
    return {
        "volumes": [{"name": "token", "projected": {"sources": [], "defaultMode": 420}}],
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/train:1",
                "env": [{"name": "RANK", "value": "3"}],
                "resources": {
                    "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
                    "requests": {"cpu": "7500m", "memory": "64Gi", "nvidia.com/gpu": "4"},
                },
                "terminationMessagePath": "/dev/termination-log",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "schedulerName": "gpusched",
        "securityContext": {},
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
        ],
        "priority": 100,
        "priorityClassName": "high",
    }


def _pod_status() -> Json:
    return {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": _WHEN,
                "reason": "Unschedulable",
                "message": "waits for quota",
            }
        ],
        "qosClass": "Burstable",
    }


def _node() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "uid": "u-n1",
            "resourceVersion": "7",
            "creationTimestamp": _WHEN,
            "labels": {"kubernetes.io/hostname": "n1", "gpusched.io/rack": "r1"},
            "annotations": {"gpusched.io/gpu-layout": "[[0,1],[2,3]]", "other": "x"},
        },
        "spec": {
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": "spot", "effect": "PreferNoSchedule"},
                {"key": "gone", "effect": "NoExecute", "timeAdded": _WHEN},
            ]
        },
        "status": {
            "allocatable": {"cpu": "64", "memory": "1Ti", "nvidia.com/gpu": "4", "pods": "110"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            ],
        },
    }


def _custom(kind: str, spec: Json, *, namespace: str = "") -> Json:
    metadata: Json = {
        "name": "g",
        "uid": "u-g",
        "resourceVersion": "11",
        "generation": 2,
        "creationTimestamp": _WHEN,
    }
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def dump(value: Any) -> bytes:
    """JSON as a server writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def page(kind: str, *objects: Json) -> bytes:
    """A list body; in real lists items carry no kind of their own."""
    items = [{k: v for k, v in each.items() if k not in {"kind", "apiVersion"}} for each in objects]
    return dump(
        {
            "kind": f"{kind}List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "1300", "continue": "next"},
            "items": items,
        }
    )


def event(kind: str, item: Json) -> bytes:
    """A watch line."""
    return dump({"type": kind, "object": item}) + b"\n"


_KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "podgroups": "PodGroup",
    "queues": "Queue",
    "topologies": "Topology",
    "reservations": "Reservation",
    "priorityclasses": "PriorityClass",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "resourcequotas": "ResourceQuota",
    "jobs": "Job",
}


class Wire:
    """Speaks as the API server does; what comes back is what our decoding made of it."""

    dump = staticmethod(dump)
    event = staticmethod(event)

    def page(self, plural: str, *objects: Json) -> bytes:
        """The body of a list of these objects."""
        return page(_KINDS[plural], *objects)

    def listed(self, plural: str, *objects: Json) -> tuple[Any, ...]:
        """The items of a list of these objects."""
        return CODECS[plural].decode_page(self.page(plural, *objects)).items

    def read(self, plural: str, item: Json) -> Any:
        """One object, which reads the same from a list and from a watch."""
        (listed,) = self.listed(plural, item)
        watched = CODECS[plural].decode_event(event("MODIFIED", item)).item
        assert watched == listed
        return listed


@pytest.fixture
def wire() -> Wire:
    """The API server's side of the conversation."""
    return Wire()


@pytest.fixture
def pod() -> Json:
    """A pending pod of an Indexed Job."""
    return _pod()


@pytest.fixture
def node() -> Json:
    """A ready node with four GPUs."""
    return _node()


@pytest.fixture
def custom() -> Callable[..., Json]:
    """An object of one of our kinds: ``custom(kind, spec, namespace=...)``."""
    return lambda *args, **kwargs: copy.deepcopy(_custom(*args, **kwargs))
