"""Deletes pods whose devices have a NoExecute taint that their claim does not tolerate, or not for ever.

Taints are those of the newest generation of a pool; tolerations are copied into the allocation by the
scheduler. As Kubernetes' device taint eviction does (gate DRADeviceTaints).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.nodes.taint_eviction import tolerates

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_SLICES: Final = "resourceslices.resource.k8s.io"
_COMPONENT: Final = "device-taint-eviction"
_Pool = tuple[str, str]
_PodKey = tuple[str, str, str]


class DeviceTaintEviction:
    """Follows slices and the claims that hold devices of them.

    A deadline once set stands as long as the taints do.

    Args:
        client: the cluster.
        clock: time of tolerations.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[_PodKey] = WorkQueue(clock)
        self._slices: dict[_Pool, dict[str, Obj]] = {}
        self._tainted: dict[_Pool, dict[str, list[Obj]]] = {}
        self._claims: dict[str, Obj] = {}

    async def run(self) -> None:
        """Watch and evict until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_slices())
            group.create_task(self._watch_claims())
            group.create_task(self._client.follow("pods", self._see_pod))
            group.create_task(serve_queue(self._queue, self.evict, name="device evictions"))

    async def _watch_slices(self) -> None:
        async for item in self._client.watch(_SLICES):
            spec, name = item.object["spec"], item.object["metadata"]["name"]
            pool = (spec["driver"], spec["pool"]["name"])
            slices = self._slices.setdefault(pool, {})
            if item.type == "DELETED":
                slices.pop(name, None)
            else:
                slices[name] = spec
            taints = _taints(slices)
            if taints == self._tainted.get(pool, {}):
                continue
            self._tainted[pool] = taints
            for claim in list(self._claims.values()):
                if any(_pool(result) == pool for result in _results(claim)):
                    self._consider(claim, anew=True)

    async def _watch_claims(self) -> None:
        async for item in self._client.watch(_CLAIMS):
            uid = item.object["metadata"]["uid"]
            if item.type == "DELETED" or not _results(item.object):
                self._claims.pop(uid, None)
                continue
            self._claims[uid] = item.object
            self._consider(item.object, anew=False)

    def _see_pod(self, item: WatchItem) -> None:
        """A pod that comes to its node after its claim was reserved."""
        pod = item.object
        bound = item.type != "DELETED" and pod["spec"].get("nodeName")
        if not bound or not pod["spec"].get("resourceClaims") or not any(self._tainted.values()):
            return
        uid = pod["metadata"]["uid"]
        for claim in list(self._claims.values()):
            if any(user["uid"] == uid for user in claim["status"].get("reservedFor") or ()):
                self._consider(claim, anew=False)

    def _consider(self, claim: Obj, *, anew: bool) -> None:
        """Set the deadlines of the pods that a claim is reserved for."""
        limit = self._limit(claim)
        namespace = claim["metadata"]["namespace"]
        for user in claim["status"].get("reservedFor") or ():
            if user.get("apiGroup") or user.get("resource") != "pods":
                continue
            key = (namespace, user["name"], user["uid"])
            if anew:
                self._queue.remove(key)
            if limit is not None and key not in self._queue:
                self._queue.add_after(key, limit)

    def _limit(self, claim: Obj) -> float | None:
        """Seconds that pods may keep a claim's devices; None for ever."""
        limits: list[float] = []
        for result in _results(claim):
            for taint in self._tainted.get(_pool(result), {}).get(result["device"], ()):
                covering = [t for t in result.get("tolerations") or () if tolerates(t, taint)]
                if not covering:
                    return 0.0
                limits += [
                    max(float(each["tolerationSeconds"]), 0.0)
                    for each in covering
                    if each.get("tolerationSeconds") is not None
                ]
        return min(limits, default=None)

    def evict(self, key: _PodKey) -> None:
        """Mark a pod as disrupted and delete it with its own grace, if its devices are still tainted."""
        namespace, name, uid = key
        pod = self._client.get("pods", namespace, name)
        if pod is None or pod["metadata"]["uid"] != uid or not pod["spec"].get("nodeName"):
            return
        if pod_state.is_deleting(pod) or pod_state.is_terminal(pod) or not self._touched(key):
            return
        condition: dict[str, Any] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        patch = {"status": {"conditions": [condition]}}
        try:
            self._client.patch(
                "pods", namespace, name, patch, patch_type="strategic", subresource="status"
            )
            self._client.delete("pods", namespace, name, uid=uid)
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone meanwhile
                raise
            return
        text = f"Marking for deletion Pod {namespace}/{name}"
        self._client.event(pod, "DeviceTaintManagerEviction", text, component=_COMPONENT)

    def _touched(self, key: _PodKey) -> bool:
        """Whether a claim of the pod has a device that it may not keep."""
        namespace, _, uid = key
        return any(
            self._limit(claim) is not None
            for claim in self._claims.values()
            if claim["metadata"]["namespace"] == namespace
            and any(user["uid"] == uid for user in claim["status"].get("reservedFor") or ())
        )


def _taints(slices: dict[str, Obj]) -> dict[str, list[Obj]]:
    """NoExecute taints of a pool's devices, by name of the device."""
    newest = max((spec["pool"]["generation"] for spec in slices.values()), default=0)
    found: dict[str, list[Obj]] = {}
    for spec in slices.values():
        if spec["pool"]["generation"] != newest:
            continue
        for device in spec.get("devices") or ():
            taints = [t for t in device.get("taints") or () if t["effect"] == "NoExecute"]
            if taints:
                found[device["name"]] = taints
    return found


def _results(claim: Obj) -> list[Obj]:
    """The devices that a claim has, as its allocation names them."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _pool(result: Obj) -> _Pool:
    return result["driver"], result["pool"]
