"""Plays the drivers of fake nodes' devices: publishes the slices that an annotation of the node asks for.

A slice belongs to its node and goes with it. A slice that somebody deletes comes back; when the
annotation changes, the pool gets its next generation.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.controllers.nodes.devices.device_entries import (
    DeviceEntriesError,
    DeviceEntry,
    read_device_text,
)
from gpusched.devcluster.controllers.nodes.devices.published_slices import classes_of, slices_of
from gpusched.devcluster.stages.node_pools import DEVICES_ANNOTATION

SLICES: Final = "resourceslices.resource.k8s.io"
CLASSES: Final = "deviceclasses.resource.k8s.io"
_PUBLISHED: Final = "devcluster.gpusched.io/published"
"""Label of every slice made here: slices that clients write for the node are left alone."""


class DeviceDrivers:
    """Follows nodes and the slices made for them.

    Args:
        client: the cluster.
        clock: time of the queue.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._asked: dict[str, str] = {}
        self._published: dict[str, set[str]] = {}

    async def run(self) -> None:
        """Watch and publish until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_nodes())
            group.create_task(self._watch_slices())
            group.create_task(serve_queue(self._queue, self.sync, name="device drivers"))

    async def _watch_nodes(self) -> None:
        async for item in self._client.watch("nodes"):
            meta = item.object["metadata"]
            asked = (meta.get("annotations") or {}).get(DEVICES_ANNOTATION, "")
            if item.type == "DELETED":
                self._asked.pop(meta["name"], None)
            elif asked != self._asked.get(meta["name"], "") or (asked and item.type == "ADDED"):
                self._asked[meta["name"]] = asked
                self._queue.add(meta["name"])

    async def _watch_slices(self) -> None:
        async for item in self._client.watch(SLICES):
            meta, node = item.object["metadata"], item.object["spec"].get("nodeName") or ""
            if _PUBLISHED not in (meta.get("labels") or {}):
                continue
            names = self._published.setdefault(node, set())
            if item.type != "DELETED":
                names.add(meta["name"])
                continue
            names.discard(meta["name"])
            if not names:
                del self._published[node]
            self._queue.add(node)

    def sync(self, name: str) -> None:
        """Bring the slices of one node to what its annotation says."""
        node = self._client.get("nodes", None, name)
        if node is None or "deletionTimestamp" in node["metadata"]:
            return
        text = (node["metadata"].get("annotations") or {}).get(DEVICES_ANNOTATION, "")
        try:
            entries = read_device_text(text) if text else ()
        except DeviceEntriesError as fault:
            note = f"annotation {DEVICES_ANNOTATION}: {fault}"
            self._client.event(node, "DevicesRefused", note, "Warning", component="device-drivers")
            return
        try:
            self._publish(node, entries)
        except StatusError as refusal:
            self._client.event(
                node, "DevicesRefused", refusal.message, "Warning", component="device-drivers"
            )
            raise

    def _publish(self, node: Obj, entries: tuple[DeviceEntry, ...]) -> None:
        for made in classes_of(entries):
            if self._client.get(CLASSES, None, made["metadata"]["name"]) is None:
                self._client.create(CLASSES, made)
        name = node["metadata"]["name"]
        have = self._slices(node, {each["metadata"]["name"] for each in slices_of(name, entries)})
        last = max((each["spec"]["pool"]["generation"] for each in have.values()), default=1)
        want = {each["metadata"]["name"]: each for each in slices_of(name, entries, last)}
        if any(own not in want or each["spec"] != want[own]["spec"] for own, each in have.items()):
            newer = slices_of(name, entries, last + 1)
            want = {each["metadata"]["name"]: each for each in newer}
        for own, each in want.items():
            if own not in have:
                self._client.create(SLICES, _owned(each, node))
            elif have[own]["spec"] != each["spec"]:
                self._client.update(SLICES, {**have[own], "spec": each["spec"]})
        for own in sorted(have.keys() - want.keys()):
            self._client.delete(SLICES, None, own)

    def _slices(self, node: Obj, wanted: set[str]) -> dict[str, Obj]:
        """Slices made for a node; those of a node of the same name before it are deleted."""
        found: dict[str, Obj] = {}
        for own in sorted(wanted | self._published.get(node["metadata"]["name"], set())):
            each = self._client.get(SLICES, None, own)
            if each is None or _PUBLISHED not in (each["metadata"].get("labels") or {}):
                continue
            owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()}
            if node["metadata"]["uid"] in owners:
                found[own] = each
            else:
                self._client.delete(SLICES, None, own)
        return found


def _owned(made: Obj, node: Obj) -> Obj:
    meta = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
    more = {
        "labels": {_PUBLISHED: "true"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    return {**made, "metadata": {**made["metadata"], **more}}
