"""What a cache believes, written as the API objects that would say so."""

from __future__ import annotations

from typing import Any

from gpusched.api.devices.gpu_share import FRACTION, MEMORY, shared_resource
from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.identity import format_time
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.cache.cache import Cache

Obj = dict[str, Any]


def api_objects(cache: Cache) -> dict[str, list[Obj]]:
    """Pods, nodes and PodGroups by plural name, with the fields that invariants read."""
    nodes = [cache.rows.get(name) for name in cache.rows.node_names()]
    return {
        "pods": [_pod(pod) for pod in cache.pods.values()],
        "nodes": [_node(node) for node in nodes if node is not None],
        "podgroups": [
            {
                "metadata": {"namespace": group.namespace, "name": group.name},
                "spec": {"minMember": group.min_member},
                "status": {"phase": group.phase},
            }
            for group in cache.groups.items.values()
        ],
    }


def _node(node: Node) -> Obj:
    return {
        "metadata": {"name": node.name, "uid": node.uid, "labels": dict(node.labels)},
        "status": {"allocatable": node.allocatable.quantities()},
    }


def _pod(pod: Pod) -> Obj:
    notes = {"gpusched.io/plan": pod.plan} if pod.plan else {}
    if pod.slots:
        notes["gpusched.io/slots"] = format_slots(pod.slots)
    if pod.fence:
        notes["gpusched.io/fence"] = pod.fence
    amounts = dict(pod.pod_class.requests.quantities())
    amounts.pop("pods", None)
    share = pod.pod_class.share
    if share is not None:
        amounts.pop(shared_resource(), None)
        if share.thousandths:
            notes[FRACTION] = f"0.{share.thousandths:03}"
        else:
            notes[MEMORY] = str(share.memory)
    metadata: Obj = {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "annotations": notes,
        "labels": {"gpusched.io/pod-group": pod.group} if pod.group else {},
    }
    if pod.deleting:
        metadata["deletionTimestamp"] = format_time(0)
    conditions = []
    if pod.scheduled:
        conditions.append(
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": format_time(pod.scheduled),
            }
        )
    return {
        "metadata": metadata,
        "spec": {
            "schedulerName": pod.scheduler,
            "nodeName": pod.node,
            "schedulingGates": [{"name": "gate"}] if pod.gated else [],
            "containers": [{"resources": {"requests": amounts}}],
        },
        "status": {"phase": str(pod.phase), "conditions": conditions},
    }
