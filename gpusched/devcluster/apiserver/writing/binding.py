"""Binding a pod to a node: the one write that schedules it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import quote_value
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]


def bind_pod(
    core: ServerState,
    namespace: str,
    name: str,
    *,
    body: Obj,
    dry_run: bool,
    admit: Callable[[], None],
) -> Stored | None:
    """Bind a pod; labels and annotations of the Binding land on the pod in the same write.

    ``admit`` refuses a Binding that makes sense, before the pod is looked at. Raises StatusError: 500 for a bad target, 404, and 409 for a pod that cannot be bound.
    """
    node = _target(body)
    admit()
    pods = core.store.collection("pods")
    stored = pods.get(f"{namespace}/{name}")
    if stored is None:
        raise status.not_found("pods", "", name)
    meta = body.get("metadata") or {}
    _check(stored.obj, namespace, name, meta=meta)
    if dry_run:
        return None
    new = _bound(stored.obj, node, meta=meta, now=core.time_text())
    return pods.write(f"{namespace}/{name}", new)


def _target(body: Obj) -> str:
    target = body.get("target") or {}
    kind = target.get("kind") or ""
    problems = []
    if kind not in {"", "Node"}:
        problems.append(
            f'target.kind: Unsupported value: {quote_value(kind)}: supported values: "Node", "<empty>"'
        )
    if not target.get("name"):
        problems.append("target.name: Required value")
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise status.failure(500, "", text)
    return str(target["name"])


def _check(pod: Obj, namespace: str, name: str, *, meta: Obj) -> None:
    have = pod["metadata"]
    wanted_uid, wanted_version = meta.get("uid"), meta.get("resourceVersion")
    mismatch = ""
    if wanted_uid and wanted_uid != have["uid"]:
        mismatch = f"UID in precondition: {wanted_uid}, UID in object meta: {have['uid']}"
    elif wanted_version and wanted_version != have["resourceVersion"]:
        mismatch = (
            f"ResourceVersion in precondition: {wanted_version}, "
            f"ResourceVersion in object meta: {have['resourceVersion']}"
        )
    if mismatch:
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, "
            f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {mismatch}"
        )
        raise status.conflict("pods", "", name, why=why)
    why = ""
    if have.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise status.conflict("pods/binding", "", name, why=why)


def _bound(pod: Obj, node: str, *, meta: Obj, now: str) -> Obj:
    metadata = dict(pod["metadata"])
    for key in ("annotations", "labels"):
        if added := meta.get(key):
            metadata[key] = {**metadata.get(key, {}), **added}
    scheduled: Obj = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    old_status = pod["status"]
    conditions = list(old_status.get("conditions") or ())
    types = [c["type"] for c in conditions]
    if "PodScheduled" in types:
        conditions[types.index("PodScheduled")] = scheduled
    else:
        conditions.append(scheduled)
    new_status = {
        "phase": old_status.get("phase", "Pending"),
        "conditions": conditions,
        **{
            k: v
            for k, v in old_status.items()
            if k not in {"phase", "conditions", "nominatedNodeName"}
        },
    }
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": new_status,
    }
