"""Objects that a canned cluster answers with."""

from __future__ import annotations

API = "/apis/scheduling.gpusched.io/v1alpha1"
SENTENCE = "needs 4 nodes with 8 free GPUs; 2 have them"


def group(name, **status):
    return {
        "metadata": {
            "name": name, "namespace": "team-a", "creationTimestamp": "2001-01-01T00:00:00Z",
            "uid": f"uid-{name}", "resourceVersion": "1",
        },
        "spec": {"queue": "research", "minMember": 4},
        "status": status,
    }  # fmt: skip


def pod(name, *, labels=None, said=None, **spec):
    container = {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "500m"}}}
    conditions = []
    if said:
        conditions = [
            {"type": "PodScheduled", "status": "False", "reason": "NoRoom", "message": said}
        ]
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": labels or {},
            "creationTimestamp": "2001-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "gpusched", "containers": [container], **spec},
        "status": {"phase": "Pending", "conditions": conditions},
    }


def refused(reason, message):
    return {
        "type": "Scheduled", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": "2001-01-01T00:00:00Z",
    }  # fmt: skip


def event(kind, name, message):
    return {
        "involvedObject": {"kind": kind, "name": name},
        "type": "Warning",
        "reason": "NoRoom",
        "message": message,
        "lastTimestamp": "2001-01-01T00:00:00Z",
    }


NATIVE = "/apis/scheduling.k8s.io/v1alpha2"


def serve_native_groups(cluster, *groups, own=True):
    """The kind of Kubernetes' own PodGroups, with these in namespace team-a."""
    cluster.objects |= {
        "/apis": {"groups": [{"name": "scheduling.k8s.io", "versions": [{"version": "v1alpha2"}]}]},
        NATIVE: {"resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]},
        f"{NATIVE}/namespaces/team-a/podgroups": list(groups),
        "/api/v1/namespaces/team-a/events": [],
    }
    for each in groups:
        path = f"{NATIVE}/namespaces/team-a/podgroups/{each['metadata']['name']}"
        cluster.objects[path] = each
    if own:
        cluster.objects[f"{API}/namespaces/team-a/podgroups"] = []


def native_group(name, *, said=SENTENCE, **policy):
    waits = {**refused("InsufficientResources", said), "type": "gpusched.io/Scheduled"}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {
            "name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "1",
            "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"gpusched.io/queue": "research"},
        },
        "spec": {"schedulingPolicy": policy or {"gang": {"minCount": 4}}},
        "status": {"conditions": [waits]},
    }  # fmt: skip
