"""Recorded decisions of Kubernetes' own allocators, as catalogs, usage and claims.

Origin of the data: see tests/devices/data/README.md.
"""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path

import attrs

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.decode import CODECS
from gpusched.api.meta.identity import ObjectKey
from gpusched.devices.inventory import DeviceId, DeviceInventory
from gpusched.devices.usage import DeviceUsage

DATA = Path(__file__).parent / "data"


@functools.cache
def recorded(name):
    """The cases of a file."""
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))["cases"]


def entity(kind, obj, namespace=""):
    """An object of the data as the API would serve it."""
    metadata = {"uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1"}
    if namespace:
        metadata["namespace"] = namespace
    full = {**obj, "metadata": {**metadata, **obj["metadata"]}}
    return CODECS[kind].entity_of(json.dumps(full).encode())


def claim_entity(obj):
    """A ResourceClaim."""
    return entity("ResourceClaim", obj, "default")


@attrs.frozen
class World:
    """Devices of one case, and what is taken of them."""

    catalog: DeviceCatalog
    inventory: DeviceInventory
    usage: DeviceUsage

    def devices_of(self, node, labels=None):
        """Devices that a node reaches."""
        return self.inventory.node_devices(node, labels or {})


ALL_GATES = frozenset(
    [
        "DRAAdminAccess", "DRAPrioritizedList", "DRAPartitionableDevices", "DRADeviceTaints",
        "DRAConsumableCapacity", "DRAListTypeAttributes",
        "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    ]
)  # fmt: skip


def honoured(part, gates):
    """A slice without what a server with only these gates on drops; None where nothing is left."""
    if "DRAPartitionableDevices" not in gates and (part.reach is None or part.counters):
        return None
    devices = part.devices
    if "DRADeviceTaints" not in gates:
        devices = [attrs.evolve(each, taints=()) for each in devices]
    if "DRAListTypeAttributes" not in gates:
        devices = [
            attrs.evolve(
                each,
                attributes=tuple(
                    pair for pair in each.attributes if not (pair[1] and isinstance(pair[1], tuple))
                ),
            )
            for each in devices
        ]
    if "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus" not in gates:
        devices = [each for each in devices if not each.binding_conditions]
    return attrs.evolve(part, devices=tuple(devices))


def world(case, gates=ALL_GATES):
    """The cluster of a case."""
    slices = [
        kept
        for each in case["resourceSlices"]
        if (kept := honoured(entity("ResourceSlice", each), gates)) is not None
    ]
    catalog = DeviceCatalog(
        slices=tuple(sorted(slices, key=lambda each: each.name)),
        classes={
            each["metadata"]["name"]: entity("DeviceClass", each) for each in case["deviceClasses"]
        },
        claims={
            ObjectKey("default", each["metadata"]["name"]): claim_entity(each)
            for each in case.get("claims", ())
        },
        served=True,
    )
    inventory = DeviceInventory(catalog)
    return World(catalog, inventory, DeviceUsage(inventory))


def device_id(obj):
    """The device that a result or a state names."""
    return DeviceId(obj["driver"], obj["pool"], obj["device"])
