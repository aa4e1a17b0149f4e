"""Derives node taints from conditions and cordons, and removes the pods of deleted nodes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import parse_time, rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_BY_CONDITION: Final[dict[tuple[str | None, str | None], str]] = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_KEPT_BY_US: Final = frozenset(_BY_CONDITION.values()) | {UNSCHEDULABLE}
_TTL: Final = ("node.alpha.kubernetes.io/ttl", "0")
NO_EXECUTE_AFTER_S: Final = 5.0
"""Seconds after which a node that is not ready evicts its pods, as the real monitor's period."""
MISSING_NODE_S: Final = 40.0
"""Seconds for which a node must be missing before its pods are removed."""
UNBOUND_S: Final = 20.0
"""Seconds after which a deleted pod with finalizers that no node runs becomes Failed."""


def wanted_taints(node: Obj, *, now: float) -> list[Obj]:
    """The taints a node should have: those of this controller by its state, others as they are."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    have: list[Obj] = list(spec.get("taints") or ())
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    want = dict.fromkeys([UNSCHEDULABLE], "NoSchedule") if spec.get("unschedulable") else {}
    for kind, value in conditions.items():
        key = _BY_CONDITION.get((kind, value))
        if key is not None:
            want[key] = "NoSchedule"
    spoke = conditions.get("Ready") in {"True", "False", "Unknown"}
    if not spoke and any(t["key"] == NOT_READY for t in have):
        want[NOT_READY] = "NoSchedule"  # it has not said how it is
    kept = [t for t in have if not _ours(t) or want.get(t["key"]) == t["effect"]]
    known = {(t["key"], t["effect"]) for t in kept}
    kept += [
        {"key": key, "effect": effect, "timeAdded": rfc3339(now)}
        for key, effect in want.items()
        if (key, effect) not in known
    ]
    return kept


def _ours(taint: Obj) -> bool:
    return taint["key"] in _KEPT_BY_US and taint["effect"] == "NoSchedule"


def no_execute_since(found: list[Obj], *, now: float) -> tuple[list[Obj], float | None]:
    """``found`` with the NoExecute taint that goes with a lasting lack of readiness.

    Returns:
        The taints, and the seconds until they have to be looked at again (None: only on events).
    """
    kept = [
        t
        for t in found
        if t["effect"] != "NoExecute"
        or t["key"] not in {NOT_READY, UNREACHABLE}
        or any(u["key"] == t["key"] and u["effect"] == "NoSchedule" for u in found)
    ]
    for taint in found:
        key = taint["key"]
        if key not in {NOT_READY, UNREACHABLE} or taint["effect"] != "NoSchedule":
            continue
        since = taint.get("timeAdded")  # a new node's first taint has none: it never was ready
        if since is None or any(t["key"] == key and t["effect"] == "NoExecute" for t in kept):
            continue
        left = parse_time(since) + NO_EXECUTE_AFTER_S - now
        if left > 0:
            return kept, left
        kept.append({"key": key, "effect": "NoExecute", "timeAdded": rfc3339(now)})
    return kept, None


class NodeController:
    """Taints, the ttl annotation, and pods whose node does not exist.

    Args:
        client: the cluster.
        clock: time of taints and of the wait before pods are removed.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._nodes: WorkQueue[str] = WorkQueue(clock)
        self._lost: WorkQueue[str] = WorkQueue(clock)
        self._unbound: WorkQueue[tuple[str, str, str]] = WorkQueue(clock)

    async def run(self) -> None:
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_nodes())
            group.create_task(self._watch_pods())
            group.create_task(serve_queue(self._nodes, self.sync, name="node controller"))
            group.create_task(serve_queue(self._lost, self.collect, name="pod collector"))
            group.create_task(serve_queue(self._unbound, self.fail, name="pod collector"))

    async def _watch_nodes(self) -> None:
        async for item in self._client.watch("nodes"):
            name: str = item.object["metadata"]["name"]
            if item.type == "DELETED":
                self._lost.add_after(name, MISSING_NODE_S)
            else:
                self._nodes.add(name)

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        if item.type == "DELETED":
            return
        node = item.object["spec"].get("nodeName")
        if not node:
            metadata = item.object["metadata"]
            if "deletionTimestamp" in metadata:
                key = (metadata["namespace"], metadata["name"], metadata["uid"])
                self._unbound.add_after(key, UNBOUND_S)
        elif node not in self._lost and self._client.get("nodes", None, node) is None:
            self._lost.add_after(node, MISSING_NODE_S)

    def fail(self, key: tuple[str, str, str]) -> None:
        """Give a deleted pod that never got a node its last phase."""
        namespace, name, uid = key
        pod = self._client.get("pods", namespace, name)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
            return
        patch = {"status": {"phase": "Failed"}}
        self._client.patch("pods", namespace, name, patch, subresource="status")

    def sync(self, name: str) -> None:
        """Write one node's taints and annotation when they are not as they should be."""
        node = self._client.get("nodes", None, name)
        if node is None or "deletionTimestamp" in node["metadata"]:
            return
        now = self._clock.now()
        want, again = no_execute_since(wanted_taints(node, now=now), now=now)
        if again is not None:
            self._nodes.add_after(name, again)
        patch: dict[str, Any] = {}
        if want != ((node.get("spec") or {}).get("taints") or []):
            patch["spec"] = {"taints": want or None}
        key, value = _TTL
        if (node["metadata"].get("annotations") or {}).get(key) != value:
            patch["metadata"] = {"annotations": {key: value}}
        if patch:
            self._client.patch("nodes", None, name, patch)

    def collect(self, node: str) -> None:
        """Remove the pods of a node that is still missing."""
        if self._client.get("nodes", None, node) is not None:
            return
        for pod in self._client.list("pods", field_selector=f"spec.nodeName={node}"):
            self._remove(pod)

    def _remove(self, pod: Obj) -> None:
        metadata, status = pod["metadata"], pod.get("status") or {}
        namespace, name = metadata["namespace"], metadata["name"]
        try:
            if status.get("phase") not in {"Succeeded", "Failed"}:
                self._client.patch(
                    "pods",
                    namespace,
                    name,
                    {"status": {"phase": "Failed", "conditions": [self._vanished()]}},
                    patch_type="strategic",
                    subresource="status",
                )
            self._client.delete("pods", namespace, name, grace_s=0, uid=metadata["uid"])
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone meanwhile
                raise

    def _vanished(self) -> Obj:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
