"""Which layout of a node counts, of all sources that describe its GPUs.

In this order, and one that does not match the node's GPUs leaves the word to the next: what the
drivers of dynamic resource allocation publish, the annotation, the layout that the label names,
the layout of the product, nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.api.devices.gpu_layout import FLAT, GpuLayout, GpuLayoutCatalog, Island
from gpusched.api.devices.slots import slot_ranges
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.node.node import Node
from gpusched.base.classes import frozen

LABEL: Final = "gpusched.io/gpu-layout"


@frozen(slots=True)
class LayoutIssue:
    """Something said about a node's GPUs that does not count.

    Attributes:
        field: where it is said, for metrics.
        why: a sentence without its subject.
    """

    field: str
    why: str

    @property
    def message(self) -> str:
        """For the event and the log."""
        return f"{self.field}: {self.why}"


_ANNOTATION: Final = f"metadata.annotations[{LABEL}]"
_NAMED: Final = f"metadata.labels[{LABEL}]"
_SLICES: Final = "ResourceSlice.spec.devices"


def choose_layout(
    node: Node, catalogue: GpuLayoutCatalog, devices: GpuLayout | None = None
) -> tuple[GpuLayout, tuple[LayoutIssue, ...]]:
    """The layout that counts, and what was said that does not.

    Args:
        node: as the API has it.
        catalogue: of products and names.
        devices: what drivers publish; None for nothing.
    """
    ranges = slot_ranges(node.allocatable)
    whole = gpu_resources().whole
    # Layouts name whole GPUs; slices stand behind them and are one island.
    count = sum(len(numbers) for name, numbers in ranges.items() if name in whole)
    if not count:
        return FLAT, ()
    doubts: list[LayoutIssue] = []
    # A GPU that failed is missing from the allocatable ones, not from the layout.
    counts = {count, max(count, node.gpus_installed)}
    if devices is not None and devices.slots not in counts:
        doubts.append(LayoutIssue(_SLICES, f"name {_gpus(devices.slots)}, the node has {count}"))
    elif devices is not None and devices.islands:
        return devices, tuple(doubts)
    if node.layout_error:
        doubts.append(LayoutIssue(_ANNOTATION, node.layout_error))
    elif node.layout:
        said = GpuLayout(node.layout, node.numa)
        if said.slots in counts:
            return said, tuple(doubts)
        doubts.append(LayoutIssue(_ANNOTATION, f"names {_gpus(said.slots)}, the node has {count}"))
    named = node.labels.get(LABEL, "")
    if named:
        known = catalogue.get(named)
        if known is not None and known.slots >= count:
            return known, tuple(doubts)
        why = (
            f"names the layout {named!a}, which is not in gpu-layouts.yaml"
            if known is None
            else f"names the layout {named} of {_gpus(known.slots)}, the node has {count}"
        )
        doubts.append(LayoutIssue(_NAMED, why))
    return _by_product(node, catalogue, ranges), tuple(doubts)


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _by_product(node: Node, catalogue: GpuLayoutCatalog, ranges: Mapping[str, range]) -> GpuLayout:
    """Of each kind of GPU that the node has; a product that is not known says nothing."""
    islands: list[Island] = []
    seen: set[str] = set()
    for gpu, label in gpu_resources().product_labels:
        known = catalogue.get(node.labels.get(label, ""))
        numbers = ranges.get(gpu)
        if known is None or numbers is None or gpu in seen or known.slots < len(numbers):
            continue
        seen.add(gpu)
        if len(ranges) == 1:
            return known
        islands += (moved for each in known.islands if (moved := _renumber_island(each, numbers)))
    return GpuLayout(tuple(islands))


def _renumber_island(island: Island, numbers: range) -> Island:
    """The island of a kind of GPU whose slots begin at another number."""
    slots = tuple(numbers[each] for each in island if isinstance(each, int) and each < len(numbers))
    inside = tuple(
        moved
        for each in island
        if not isinstance(each, int) and (moved := _renumber_island(each, numbers))
    )
    return slots or inside
