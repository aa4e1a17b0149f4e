"""GPU types of a session's nodes, and which of them pods that ask for GPUs are confined to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from gpusched.api.devices.gpu_types import FULL_SPEED, GpuTypeRequest, gpu_type_of, named_value
from gpusched.api.meta.gpu_resources import GpuResources, gpu_resources
from gpusched.api.node.node import Node
from gpusched.arrays.columns import Bools, Ints, NodeColumns
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.accounts.node_pools import EVEN_WEIGHT
from gpusched.session.framework.reasons import shorten

GPU_TYPES_NAMED_MAX: Final = 4
"""Types that one sentence names."""
UNLABELLED: Final = ""
"""The type of GPUs of which no label tells the product."""


@frozen(slots=False, eq=False)
class NodeGpuTypes:
    """Which type of GPUs each node has.

    Attributes:
        names: products as labels tell them, sorted; ``UNLABELLED`` stands for GPUs without a label.
        of_row: number of each node's type in ``names``, int64, shape (nodes,); -1 without GPUs.
    """

    names: tuple[str, ...]
    of_row: Ints

    @cached_property
    def _rows(self) -> dict[tuple[int, ...], Bools]:
        return {}

    @property
    def has_several_types(self) -> bool:
        """Whether GPUs of more than one type are there."""
        return len(self.names) > 1

    def rows_of_types(self, types: tuple[int, ...]) -> Bools:
        """Nodes with GPUs of one of these types, bool, shape (nodes,), read-only."""
        known = self._rows.get(types)
        if known is None:
            known = np.isin(self.of_row, np.array(types, dtype=np.int64))
            known.setflags(write=False)
            self._rows[types] = known
        return known

    def types_on(self, rows: Iterable[int]) -> tuple[int, ...]:
        """Types of the GPUs of some nodes, ascending."""
        return tuple(sorted({int(self.of_row[row]) for row in rows} - {-1}))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """How much a GPU of each type weighs in queues, in thousandths."""
        weights = gpu_resources().type_weights
        named = (named_value(weights, name) for name in self.names)
        return tuple(EVEN_WEIGHT if each is None else each[1] for each in named)

    def type_text(self, number: int) -> str:
        """A type's name for sentences."""
        return self.names[number] or "GPUs without a product label"


class GpuTypeCache:
    """Types of nodes' GPUs, cached while nodes do not change."""

    def __init__(self) -> None:
        self._epoch = -1
        self._generation: Ints | None = None
        self._resources: GpuResources | None = None
        self._products: list[str | None] = []
        self._nodes: Sequence[Node] = ()
        self._types = NodeGpuTypes((), np.zeros(0, dtype=np.int64))

    def of_nodes(self, nodes: NodeColumns) -> NodeGpuTypes:
        """The type of each node's GPUs as its labels are now."""
        resources = gpu_resources()
        same = self._epoch == nodes.epoch and self._resources == resources
        if same and self._generation is nodes.generation:
            return self._types
        before = self._products
        if same and self._generation is not None:
            after = list(before)
            for row in np.flatnonzero(self._generation != nodes.generation).tolist():
                after[row] = _product_label(nodes.nodes[row], resources)
        else:
            stay = dict(zip(map(id, self._nodes), before, strict=True))
            known = stay if self._resources == resources else {}
            after = [
                known[id(node)] if id(node) in known else _product_label(node, resources)
                for node in nodes.nodes
            ]
        if not same or after != before:
            names = tuple(sorted({product for product in after if product is not None}))
            number = {name: index for index, name in enumerate(names)}
            of_row = [-1 if product is None else number[product] for product in after]
            self._types = NodeGpuTypes(names, np.array(of_row, dtype=np.int64))
            self._products = after
        self._epoch, self._generation, self._resources = nodes.epoch, nodes.generation, resources
        self._nodes = nodes.nodes
        return self._types


def _product_label(node: Node, resources: GpuResources) -> str | None:
    """What a label tells of the node's GPUs; None for a node without GPUs."""
    product = gpu_type_of(node.labels, resources)
    if product:
        return product
    has_gpus = any(
        amount and resources.is_accelerator(name) for name, amount in node.allocatable.items
    )
    return UNLABELLED if has_gpus else None


def slowest_speed(
    request: GpuTypeRequest, types: NodeGpuTypes, numbers: tuple[int, ...] | None
) -> int:
    """Speed of a gang on the slowest of some types, in thousandths; None for all that it takes."""
    chosen = range(len(types.names)) if numbers is None else numbers
    named = (named_value(request.speeds, types.names[number]) for number in chosen)
    return min((each[1] for each in named if each is not None), default=FULL_SPEED)


def with_unknown_types_told(
    gang: Gang, types: Callable[[], NodeGpuTypes], *, in_part: bool
) -> Gang:
    """The gang with a warning where it names types of GPUs that no node has, beside some that are there.

    Args:
        gang: any gang.
        types: gives the types; called only for gangs that name some.
        in_part: whether other shards have nodes, too.
    """
    request = gang.terms.gpu_types
    if not request.speeds:
        return gang
    named = {named_value(request.speeds, product) for product in types().names}
    unknown = [each[0] for each in request.speeds if each not in named]
    if not unknown or len(unknown) == len(request.speeds):
        return gang
    whose = " of its shard" if in_part else ""
    warning = f"gpuTypes.speeds names {list_gpu_types(unknown)}, which no node{whose} has"
    return attrs.evolve(gang, warning="; ".join(filter(None, (gang.warning, warning))))


def list_gpu_types(names: Sequence[str]) -> str:
    """Names for a sentence, not all of many."""
    more = len(names) - GPU_TYPES_NAMED_MAX
    text = ", ".join(shorten(name) for name in names[:GPU_TYPES_NAMED_MAX])
    return f"{text} and {more} more" if more > 0 else text
