"""First fit: each pod on the first node, with the first devices in the order of their drivers' lists.

As kube-scheduler allocates devices (k8s.io/dynamic-resource-allocation): one pod after another, a
claim exactly, and nothing that was given is given otherwise for a later pod. Nodes are taken in the
order of their names; kube-scheduler has no score for devices either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.inventory import DeviceInventory
from gpusched.devices.requests import ReadyClaim, make_ready
from gpusched.devices.usage import DeviceUsage
from gpusched.lab.experiments.device_cluster import PlacedPod


class FirstFit:
    """Devices given by first fit, with what is taken of them.

    Args:
        catalog: slices, classes and templates; its claims are not looked at.
        nodes: labels of the nodes by name.
    """

    def __init__(self, catalog: DeviceCatalog, nodes: Mapping[str, Mapping[str, str]]) -> None:
        self._inventory = DeviceInventory(catalog)
        self._nodes = {
            name: self._inventory.node_devices(name, dict(nodes[name])) for name in sorted(nodes)
        }
        self._claims: dict[str, ReadyClaim] = {
            key.name: make_ready(key.name, each.spec, self._inventory.classes)
            for key, each in catalog.templates.items()
        }
        self.usage = DeviceUsage(self._inventory)
        self._full: set[tuple[str, str]] = set()
        """Nodes and templates for which nothing was found since something was given back there."""

    def place(self, template: str) -> PlacedPod | None:
        """Give one pod a node and devices; None where no node has any."""
        for name, node in self._nodes.items():
            if (name, template) in self._full:
                continue
            found = allocate(
                self._inventory, self.usage, node, [self._claims[template]], near=False, listed=True
            )
            if found.outcome is AllocationOutcome.ALLOCATED:
                devices = found.claims[0].devices
                self.usage.add(devices)
                return PlacedPod(name, devices)
            self._full.add((name, template))
        return None

    def place_all(self, templates: Sequence[str]) -> list[PlacedPod] | None:
        """Place pods one after another; where one finds nothing all are taken back, and None."""
        before = set(self._full)
        placed: list[PlacedPod] = []
        for each in templates:
            found = self.place(each)
            if found is None:
                for given in placed:
                    self.usage.add(given.devices, -1)
                self._full = before
                return None
            placed.append(found)
        return placed

    def give_back(self, pod: PlacedPod) -> None:
        """A pod has ended: its devices are free."""
        self.usage.add(pod.devices, -1)
        self._full.clear()
