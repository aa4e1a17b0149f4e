"""Which extended resources are GPUs, what is told of them by labels, and which list is in force.

The list is configuration (``gpuResources``) and reaches almost every amount: whole GPUs are counted
in thousandths in requests, capacities, quotas and sentences. It is therefore carried by the context
(``contextvars``) of what a daemon, a session or a command does, as ``decimal`` carries its precision,
and not handed through some two hundred signatures. A session takes the list of its snapshot, so that
a decision remains a function of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Final

from gpusched.base.classes import frozen


@frozen(slots=True, kw_only=True)
class GpuResource:
    """One extended resource whose pieces are whole GPUs, and where nodes tell more of them.

    Attributes:
        name: of the resource, such as ``nvidia.com/gpu``.
        slice_prefix: with which names of resources begin whose pieces are parts that the hardware
            makes of such a GPU; empty for none.
        product_labels: of a node, that name the product, by which layouts are found.
        memory_label: of a node, the MiB of each GPU; empty for none.
        replicas_label: of a node, how often the device plugin offers each GPU; empty for none.
        driver: of dynamic resource allocation, that publishes such GPUs; empty for none.
    """

    name: str
    slice_prefix: str = ""
    product_labels: tuple[str, ...] = ()
    memory_label: str = ""
    replicas_label: str = ""
    driver: str = ""


SLICES_OF_A_GPU: Final = 7
"""Compute slices of a GPU that can be partitioned, by which its parts are measured."""
_SLICE: Final = re.compile(r"([0-9]{1,3})g\.")


@frozen(slots=True, kw_only=True)
class DeviceQuota:
    """One row of ``deviceQuota``: amounts of resources that queues are charged with for one device.

    Attributes:
        device_class: name of a DeviceClass that requests name; empty where ``selector`` says which.
        selector: CEL over ``device``; empty where ``device_class`` says which.
        amounts: base units by resource, for a whole card, sorted.
        capacities: resources, each with the name of a capacity of the device that is their amount,
            sorted.
        by_part: whether a partition of a card, and a share of a device, count as the part of the
            amounts that they are.
    """

    device_class: str = ""
    selector: str = ""
    amounts: tuple[tuple[str, int], ...] = ()
    capacities: tuple[tuple[str, str], ...] = ()
    by_part: bool = True

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources that the row counts in."""
        return (*(name for name, _ in self.amounts), *(name for name, _ in self.capacities))


@frozen(slots=False)
class GpuResources:
    """The GPU resources of a cluster.

    Attributes:
        listed: at least one; the first is the resource of pods that ask for a share of a GPU, of
            queues that limit GPUs without naming a resource, and of bare numbers in scenarios.
        type_weights: GPU types and how much a GPU of the type weighs in what queues hold, deserve
            and lose, in thousandths, at least 1,000 each; sorted by name. Others weigh 1,000.
        prices: GPU types and the price of a GPU of the type for an hour, in thousandths; sorted by name.
        other_price: of a GPU of any other type.
        device_quota: amounts that devices of resource claims count as; the first row that is about a
            device counts, and devices of no row count as nothing.
    """

    listed: tuple[GpuResource, ...]
    type_weights: tuple[tuple[str, int], ...] = ()
    device_quota: tuple[DeviceQuota, ...] = ()
    prices: tuple[tuple[str, int], ...] = ()
    other_price: int = 1_000

    @property
    def main(self) -> GpuResource:
        """The resource that is meant where only GPUs are spoken of."""
        return self.listed[0]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the resources, sorted. A node that offers several numbers its slots so."""
        return tuple(sorted(each.name for each in self.listed))

    @cached_property
    def whole(self) -> frozenset[str]:
        """Names of the resources, as a set."""
        return frozenset(self.names)

    @cached_property
    def slice_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the names of parts of GPUs, each a resource of its own."""
        return tuple(each.slice_prefix for each in self.listed if each.slice_prefix)

    def sevenths(self, name: str) -> int:
        """How many sevenths of a GPU a piece of a resource is; 0 where it is no part of one."""
        for prefix in self.slice_prefixes:
            if name.startswith(prefix) and (found := _SLICE.match(name, len(prefix))):
                return int(found[1])
        return 0

    @cached_property
    def product_labels(self) -> tuple[tuple[str, str], ...]:
        """Names of resources with each label that tells the product, in the order of the list."""
        return tuple((each.name, label) for each in self.listed for label in each.product_labels)

    @cached_property
    def drivers(self) -> frozenset[str]:
        """Names of drivers that publish such GPUs."""
        return frozenset(each.driver for each in self.listed if each.driver)

    @cached_property
    def known_accelerators(self) -> dict[str, bool]:
        """Answers of ``is_accelerator`` that a caller keeps, as it is asked for the same names."""
        return {}

    def is_accelerator(self, resource: str) -> bool:
        """Whether a resource is a GPU or a part of one."""
        return resource in self.whole or resource.startswith(self.slice_prefixes)


DEFAULT_DEVICE_QUOTA: Final = (
    DeviceQuota(device_class="gpu.nvidia.com", amounts=(("nvidia.com/gpu", 1000),)),
    DeviceQuota(device_class="mig.nvidia.com", amounts=(("nvidia.com/gpu", 1000),)),
)
"""Classes of NVIDIA's driver for dynamic resource allocation."""

DEFAULT_GPU_RESOURCES: Final = GpuResources(
    (
        GpuResource(
            name="nvidia.com/gpu",
            slice_prefix="nvidia.com/mig-",
            product_labels=("nvidia.com/gpu.product",),
            memory_label="nvidia.com/gpu.memory",
            replicas_label="nvidia.com/gpu.replicas",
        ),
        GpuResource(
            name="amd.com/gpu",
            product_labels=("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
        ),
        GpuResource(name="gpu.intel.com/i915", product_labels=("gpu.intel.com/product",)),
        GpuResource(name="gpu.intel.com/xe", product_labels=("gpu.intel.com/product",)),
        GpuResource(
            name="habana.ai/gaudi",
            product_labels=(
                "habana.ai/gaudi.product",
                "intel.feature.node.kubernetes.io/gaudi.product",
            ),
        ),
        GpuResource(name="huawei.com/Ascend910", product_labels=("accelerator",)),
    ),
    device_quota=DEFAULT_DEVICE_QUOTA,
)
"""What is in force where no configuration says otherwise."""

_IN_FORCE: Final = ContextVar("gpu_resources", default=DEFAULT_GPU_RESOURCES)


def gpu_resources() -> GpuResources:
    """The list in force in this context."""
    return _IN_FORCE.get()


@contextmanager
def gpu_resources_in_force(resources: GpuResources) -> Iterator[None]:
    """Make a list the one in force, in this context and in what is started from it."""
    token = _IN_FORCE.set(resources)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)
