"""Extended resources that nodes have as devices only: which class stands for each, and how many devices may match.

As kube-scheduler has it, a node that publishes some of a resource itself (a device plugin's) serves requests from
that alone. Any other node serves them from devices of the class that stands for the resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import DeviceClass, ExtendedRequest
from gpusched.api.devices.dynamic.slices import Device, NodeReach
from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import unit_of
from gpusched.api.node.node import Node
from gpusched.api.pod.extended_requests import BY_CLASS
from gpusched.api.pod.pod import Pod
from gpusched.cache.queues.device_worth import PublishedPool
from gpusched.devices.allocator import share_of_capacity
from gpusched.devices.extended_resources import served_resources
from gpusched.devices.inventory import PoolId, node_is_reached

_NONE: Final[Mapping[str, DeviceClass]] = MappingProxyType({})
_NOWHERE: Final = NodeReach()
_SHARES_MAX: Final = 1_000
"""Shares of one device that are counted."""


class ServedResources:
    """Follows classes, slices and what pods ask for."""

    def __init__(self) -> None:
        self.classes: Mapping[str, DeviceClass] = _NONE
        """By resource."""
        self.by_node: Mapping[str, Resources] = {}
        """Devices that only one node reaches."""
        self._reaching: Sequence[tuple[NodeReach, str, int]] = ()
        """Of devices that several nodes may reach: reach, resource, how many."""
        self._asked: set[str] = set()
        """Resources named after classes that pods ask for."""
        self._others: dict[UID, tuple[ExtendedRequest, ...]] = {}
        """What pods of other schedulers that wait for a node ask for."""
        self._seen: tuple[int, ...] = ()
        self._catalog = NO_DEVICES

    def note_other(self, pod: Pod) -> None:
        """A pod of another scheduler appeared or changed."""
        if pod.node or pod.finished or pod.deleting:
            self._others.pop(pod.uid, None)
        else:
            self._others[pod.uid] = pod.extended

    def forget(self, uid: UID) -> None:
        """A pod is gone."""
        self._others.pop(uid, None)

    def others_wait(self) -> bool:
        """Whether pods of other schedulers wait that devices may serve."""
        return any(
            each.resource in self.classes for asked in self._others.values() for each in asked
        )

    def note_requests(self, requests: Sequence[ExtendedRequest]) -> None:
        """Pods ask for these."""
        for each in requests:
            if each.resource.startswith(BY_CLASS):
                self._asked.add(each.resource)

    def follow_catalog(
        self, catalog: DeviceCatalog, pools: Mapping[PoolId, PublishedPool]
    ) -> tuple[bool, list[str] | None]:
        """Follow the catalog; whether other classes stand for resources, and nodes that have others, None for all.

        Args:
            catalog: of now.
            pools: its devices.
        """
        seen = (id(catalog.slices), id(catalog.classes), len(self._asked))
        if seen == self._seen:
            return False, []
        self._seen, self._catalog = seen, catalog  # kept, so that no other object gets its ``id``
        before, by_node, reaching = self.classes, self.by_node, self._reaching
        self.classes = served_resources(self._asked, catalog.classes)
        self._count_devices(pools)
        reclassed = {name: each.name for name, each in before.items()} != {
            name: each.name for name, each in self.classes.items()
        }
        if reaching != self._reaching:
            return reclassed, None
        names = sorted({*by_node, *self.by_node})
        return reclassed, [name for name in names if by_node.get(name) != self.by_node.get(name)]

    def _count_devices(self, pools: Mapping[PoolId, PublishedPool]) -> None:
        counts: dict[str, Counter[str]] = {}
        reaching: Counter[tuple[NodeReach, str]] = Counter()
        for resource, device_class in self.classes.items():
            for pool in pools.values():
                verdicts = pool.selector_verdicts(device_class.selectors)
                for (device, node), verdict in zip(pool.devices.values(), verdicts, strict=True):
                    if verdict is not True:
                        continue
                    if node:
                        counts.setdefault(node, Counter())[resource] += _count_copies(device)
                    else:
                        reaching[_device_reach(device, pool), resource] += _count_copies(device)
        self.by_node = {node: _device_amounts(found) for node, found in counts.items()}
        self._reaching = tuple([(reach, name, count) for (reach, name), count in reaching.items()])

    def on_node(self, node: Node) -> Resources:
        """Amounts of resources that a node has as devices only.

        Args:
            node: as it is in the API.
        """
        if not self.by_node and not self._reaching:
            return NOTHING
        found = self.by_node.get(node.name, NOTHING)
        for reach, resource, count in self._reaching:
            if node_is_reached(reach, node.name, node.labels):
                found = found.plus(_device_amounts({resource: count}))
        return Resources(tuple(item for item in found.items if not node.allocatable.get(item[0])))


def _device_reach(device: Device, pool: PublishedPool) -> NodeReach:
    if device.reach is not None:
        return device.reach
    for part in pool.slices:
        if part.reach is not None and any(each is device for each in part.devices):
            return part.reach
    return _NOWHERE


def _count_copies(device: Device) -> int:
    """How often a device can be given to requests that name no capacity."""
    if not device.shareable:
        return 1
    found = _SHARES_MAX
    for each in device.capacities:
        part = share_of_capacity(each.amount, each.policy, None)
        if part is None or part > each.amount:
            return 0
        if part:
            found = min(found, each.amount // part)
    return found


def _device_amounts(counts: Mapping[str, int]) -> Resources:
    return Resources.of({name: count * unit_of(name) for name, count in counts.items() if count})
