"""A small cluster that exists nowhere, for trying plugins on: gangs that run, that fit, that wait and that claim."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from gpusched.api.meta.identity import ObjectKey, format_time
from gpusched.api.serializer.codecs import CODECS
from gpusched.cache.cache import Cache

_NAMESPACE: Final = "made-up"
_GPUS: Final = 8
_GROUPS: Final = "scheduling.gpusched.io/v1alpha1"
Json = dict[str, Any]


def made_up_cluster(schedulers: Collection[str], *, gpu: str, now: float) -> Cache:
    """Four nodes in two racks, two queues of which one holds more than it deserves, and gangs in both.

    Args:
        schedulers: names whose pods are ours.
        gpu: name of the resource that nodes offer and pods request.
        now: seconds since the epoch; everything is some minutes old.
    """
    cache = Cache(schedulers)
    objects = _Objects(scheduler=min(schedulers), gpu=gpu, created=format_time(now - 600))
    for kind, item in objects.every():
        entity = _entity_of(kind, item)
        key = ObjectKey(item["metadata"].get("namespace", ""), item["metadata"]["name"])
        match kind:
            case "nodes":
                cache.put_node(entity)
            case "pods":
                cache.put_pod(entity)
            case "queues":
                cache.put_queue(key, entity)
            case "podgroups":
                cache.put_group(key, entity)
            case _:
                cache.put_namespace(key, entity)
    return cache


def _entity_of(kind: str, item: Json) -> Any:
    """An object as the daemon reads it."""
    event = msgspec.json.encode({"type": "ADDED", "object": item})
    return CODECS[kind].decode_event(event).item


class _Objects:
    """The objects as an API server would send them."""

    def __init__(self, *, scheduler: str, gpu: str, created: str) -> None:
        self._scheduler = scheduler
        self._gpu = gpu
        self._created = created

    def every(self) -> Iterator[tuple[str, Json]]:
        """Kind and object, what others need first."""
        yield "namespaces", self._metadata(_NAMESPACE, namespaced=False)
        for number in range(4):
            yield "nodes", self._node(number)
        for name, deserved in (("team-a", 3 * _GPUS), ("team-b", _GPUS)):
            yield "queues", self._queue(name, deserved)
        # team-b runs on three nodes and deserves one; one member of its gang is beyond the minimum.
        yield "podgroups", self._group("runs", queue="team-b", least=2)
        for number in range(3):
            yield "pods", self._pod("runs", number, gpus=_GPUS, node=f"node-{number}")
        yield "podgroups", self._group("fits", queue="team-a", least=2)
        for number in range(2):
            yield "pods", self._pod("fits", number, gpus=2)
        yield "podgroups", self._group("claims", queue="team-a", least=2)
        for number in range(3):
            yield "pods", self._pod("claims", number, gpus=_GPUS)
        yield "podgroups", self._group("waits", queue="team-b", least=9)
        for number in range(9):
            yield "pods", self._pod("waits", number, gpus=_GPUS)
        yield "pods", self._picky_pod()

    def _metadata(self, name: str, *, namespaced: bool = True, **more: Any) -> Json:
        metadata = {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": self._created,
            **more,
        }
        if namespaced:
            metadata["namespace"] = _NAMESPACE
        return {"metadata": metadata}

    def _node(self, number: int) -> Json:
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", self._gpu: str(_GPUS)}
        labels = {
            "gpusched.io/rack": f"rack-{number // 2}",
            "kubernetes.io/hostname": f"node-{number}",
            "topology.kubernetes.io/zone": "zone-0",
        }
        ready = {"type": "Ready", "status": "True"}
        return {
            **self._metadata(f"node-{number}", namespaced=False, labels=labels),
            "spec": {},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
        }

    def _queue(self, name: str, gpus: int) -> Json:
        return {
            **self._metadata(name, namespaced=False),
            "apiVersion": _GROUPS,
            "kind": "Queue",
            "spec": {"deserved": {self._gpu: str(gpus)}, "reclaimable": True},
        }

    def _group(self, name: str, *, queue: str, least: int) -> Json:
        return {
            **self._metadata(name),
            "apiVersion": _GROUPS,
            "kind": "PodGroup",
            "spec": {"queue": queue, "minMember": least, "topology": {"preferred": "rack"}},
        }

    def _pod(self, group: str, number: int, *, gpus: int, node: str = "") -> Json:
        amounts = {"cpu": "1", "memory": "1Gi", self._gpu: str(gpus)}
        notes = {}
        status: Json = {"phase": "Pending"}
        if node:
            slots = ",".join(str(slot) for slot in range(gpus))
            notes = {"gpusched.io/slots": slots, "gpusched.io/plan": "made-up"}
            bound = {
                "type": "PodScheduled", "status": "True", "lastTransitionTime": self._created,
            }  # fmt: skip
            status = {"phase": "Running", "startTime": self._created, "conditions": [bound]}
        return {
            **self._metadata(
                f"{group}-{number}", labels={"gpusched.io/pod-group": group}, annotations=notes
            ),
            "spec": {
                "schedulerName": self._scheduler,
                "nodeName": node,
                "priority": 0,
                "containers": [
                    {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
                ],
            },
            "status": status,
        }

    def _picky_pod(self) -> Json:
        """A pod alone of high priority with rules about nodes and other pods."""
        pod = self._pod("alone", 0, gpus=1)
        pod["metadata"]["labels"] = {"gpusched.io/queue": "team-b", "app": "alone"}
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "alone"}},
        }
        pod["spec"] |= {
            "priority": 1000,
            "nodeSelector": {"topology.kubernetes.io/zone": "zone-0"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
            },
        }
        return pod
