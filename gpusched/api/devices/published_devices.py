"""What others say about the inside of nodes: devices that drivers publish, and NUMA zones.

ResourceSlices are of ``resource.k8s.io``: the GPUs of a node with attributes such as their PCIe
root and NUMA node. NodeResourceTopologies are of ``topology.node.k8s.io``: what is free in each
NUMA node, and how strictly the kubelet keeps pods inside one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from gpusched.api.devices.dynamic.slices import AttributeValue, ResourceSlice
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    parse_resources,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.wire import Metadata, Quantities
from gpusched.base.classes import frozen
from gpusched.base.limits import SLOTS_PER_NODE_MAX

GPU_DRIVERS: Final = frozenset({"gpu", "gaudi", "npu"})
"""First labels of the names of drivers whose devices are slots: ``gpu.nvidia.com``."""
LINKS: Final = (
    ("numanode", "numa", "numanodeid", "numaid"),
    ("cpusocketid", "socket"),
    ("pcieroot", "pciroot"),
    ("nvlinkdomain", "nvlink", "xgmihive", "island"),
)
"""Attributes whose equal values mean nearness, by what they tell, widest first; each may be missing."""
_WHOLE: Final = frozenset({"", "gpu", "amdgpu", "gaudi", "npu"})
"""Types of devices that are whole GPUs; slices of one say another type."""


@frozen(slots=True)
class PublishedDevice:
    """One GPU that a driver publishes.

    Attributes:
        name: inside its pool.
        attributes: text by lower-case name without the domain, sorted; of lists the first one.
    """

    name: str
    attributes: tuple[tuple[str, str], ...]

    def get(self, *names: str) -> str:
        """The first of these attributes that it has; empty for none."""
        known = dict(self.attributes)
        return next((known[name] for name in names if known.get(name)), "")


@frozen(slots=True, kw_only=True)
class DeviceSlice:
    """A part of what one driver publishes for one node.

    Attributes:
        node: empty when it is not about one node, and of no use here.
        generation, parts: of the pool: only slices of its newest generation count, and only
            when there are so many of them.
        devices: that are whole GPUs.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    node: str
    driver: str
    pool: str
    generation: int
    parts: int
    devices: tuple[PublishedDevice, ...]


@frozen(slots=True)
class NumaZone:
    """A NUMA node as an agent on the node reports it.

    Attributes:
        offered, free: by resource.
    """

    name: str
    offered: Resources
    free: Resources


@frozen(slots=True, kw_only=True)
class NumaZones:
    """The NUMA nodes of a node.

    Attributes:
        name: of the node.
        policy: of the kubelet's topology manager, such as ``single-numa-node``.
        scope: ``container`` or ``pod``.
        zones: in the order of their names.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    policy: str
    scope: str
    zones: tuple[NumaZone, ...]


def gpu_slice(part: ResourceSlice) -> DeviceSlice:
    """What a ResourceSlice tells of a node's whole GPUs; of drivers that have none nothing is kept."""
    first = part.driver.partition(".")[0]
    gpus = part.driver in gpu_resources().drivers or first in GPU_DRIVERS
    devices = [
        PublishedDevice(each.name, _texts(each.attributes))
        for each in (part.devices[:SLOTS_PER_NODE_MAX] if gpus else ())
    ]
    return DeviceSlice(
        name=part.name,
        uid=part.uid,
        resource_version=part.resource_version,
        node=part.reach.node if gpus and part.reach is not None else "",
        driver=part.driver,
        pool=part.pool,
        generation=part.generation,
        parts=part.slices,
        devices=tuple(each for each in devices if each.get("type") in (_WHOLE | {first})),
    )


def _texts(attributes: Iterable[tuple[str, AttributeValue]]) -> tuple[tuple[str, str], ...]:
    """Texts and numbers by lower-case name without the domain; of lists the first one."""
    found: dict[str, str] = {}
    for name, value in attributes:
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, int | str) and not isinstance(first, bool) and str(first):
            found[_short_name(name)] = str(first)
    return tuple([_shared_text(*each) for each in sorted(found.items())])


@lru_cache(maxsize=16384)
def _shared_text(name: str, text: str) -> tuple[str, str]:
    """A name with a text; one object for all devices that have it."""
    return name, text


@lru_cache(maxsize=4096)
def _short_name(attribute: str) -> str:
    return attribute.rpartition("/")[2].lower()


# -- NodeResourceTopology --------------------------------------------------------------------
class _WireZoneAttribute(Struct, gc=False):
    name: str = ""
    value: str = ""


class _ZoneResource(Struct, gc=False):
    name: str = ""
    allocatable: str | int | float = 0
    available: str | int | float = 0


class _WireZone(Struct, gc=False):
    name: str = ""
    type: str = ""
    resources: list[_ZoneResource] | None = None


class NodeResourceTopology(Struct, gc=False, rename={"topology_policies": "topologyPolicies"}):
    """A NodeResourceTopology on the wire; it bears its node's name."""

    metadata: Metadata
    topology_policies: list[str] | None = None
    zones: list[_WireZone] | None = None
    attributes: list[_WireZoneAttribute] | None = None


_POLICIES: Final = {
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "SingleNUMANode": ("single-numa-node", "container"),
    "Restricted": ("restricted", "container"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
}
"""The older field, in the words of the kubelet."""


def decode_numa_zones(parsed: NodeResourceTopology) -> NumaZones:
    """A NodeResourceTopology; what is no NUMA node is left out.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    policy, scope = "", "container"
    for older in parsed.topology_policies or ():
        policy, scope = _POLICIES.get(older, (policy, scope))
    told = {each.name: each.value for each in parsed.attributes or ()}
    zones = [each for each in parsed.zones or () if each.type in {"", "Node"}]
    return NumaZones(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        policy=told.get("topologyManagerPolicy", policy),
        scope=told.get("topologyManagerScope", scope),
        zones=tuple(_zone(each) for each in sorted(zones, key=_numa_order)),
    )


def _numa_order(zone: _WireZone) -> tuple[int, str]:
    """By the number at the end of the name, as ``node-10`` comes behind ``node-9``."""
    digits = zone.name[len(zone.name.rstrip("0123456789")) :]
    return (int(digits) if 0 < len(digits) < 6 else 0, zone.name)


def _zone(parsed: _WireZone) -> NumaZone:
    offered: Quantities = {each.name: each.allocatable for each in parsed.resources or ()}
    free: Quantities = {each.name: each.available for each in parsed.resources or ()}
    return NumaZone(
        parsed.name,
        parse_resources(offered, field="zones.resources.allocatable"),
        parse_resources(free, field="zones.resources.available"),
    )


ZONES: Final = KindCodec(
    "NodeResourceTopology", wire_type=NodeResourceTopology, entity=decode_numa_zones
)
CODECS: Final = {"NodeResourceTopology": ZONES}
"""By kind."""
