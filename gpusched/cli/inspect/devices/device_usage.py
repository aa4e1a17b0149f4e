"""Devices and what claims hold of them, worked out from API objects for commands that print."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.cli.inspect.cluster_reader import value_at
from gpusched.cli.inspect.devices.device_reader import DeviceObjects
from gpusched.cli.inspect.pod_groups import gang_of_pod
from gpusched.devices.inventory import DeviceId, DeviceInventory
from gpusched.devices.usage import DeviceUsage


class DevicesInUse:
    """Devices and what is taken of them, as the API shows both.

    Args:
        objects: devices of the cluster.
    """

    def __init__(self, objects: DeviceObjects) -> None:
        self.objects = objects
        self.inventory = DeviceInventory(objects.catalog)
        self.usage = DeviceUsage(self.inventory)
        self.nodes = [
            self.inventory.node_devices(name, labels) for name, labels in objects.labels.items()
        ]
        gangs = {
            value_at(pod, "metadata", "uid"): (
                f"{value_at(pod, 'metadata', 'namespace')}/{gang_of_pod(pod)}"
            )
            for pod in objects.pods
        }
        self._holders: dict[DeviceId, list[str]] = {}
        for claim in objects.catalog.claims.values():
            if claim.allocation is None:
                continue
            self.usage.add(claim.allocation.devices)
            names = [
                gangs.get(each.uid, f"{claim.namespace}/{each.name}") for each in claim.reserved_for
            ]
            for device in claim.allocation.devices:
                key = DeviceId(device.driver, device.pool, device.device)
                self._holders.setdefault(key, []).extend(names or [f"claim {claim.key}"])

    def holders(self, device: DeviceId) -> Sequence[str]:
        """Gangs, pods or claims that hold a device."""
        return self._holders.get(device, ())
