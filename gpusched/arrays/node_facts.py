"""What nodes are and offer, whatever is held on them: worked out once while no node changes."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import Final

import numpy as np

from gpusched.api.node.node import Node
from gpusched.arrays.columns import Bools, NodeColumns, exact_sums

_SOFT_TAINTS: Final = attrgetter("soft_taints")


class NodeFacts:
    """Facts of all nodes of one moment, each worked out when it is asked for; read-only.

    Args:
        nodes: as the snapshot has them.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes.nodes
        self._allocatable = nodes.allocatable

    def are_of(self, nodes: NodeColumns) -> bool:
        """Whether these nodes, of perhaps another moment, are the same objects."""
        return nodes.nodes is self._nodes and nodes.allocatable is self._allocatable

    @cached_property
    def usable(self) -> Bools:
        """Whether each node is ready and not cordoned, bool, shape (nodes,)."""
        each = [not node.not_ready and not node.unschedulable for node in self._nodes]
        return np.array(each, dtype=np.bool_)

    @cached_property
    def usable_nodes(self) -> tuple[Node, ...]:
        """Nodes that are usable."""
        pairs = zip(self._nodes, self.usable.tolist(), strict=True)
        return tuple(node for node, usable in pairs if usable)

    @cached_property
    def offered(self) -> list[int]:
        """What usable nodes offer together, by column."""
        return exact_sums(self._allocatable[self.usable])

    @cached_property
    def some_avoided(self) -> bool:
        """Whether any node refused a pod lately."""
        return any(node.avoided for node in self._nodes)

    @cached_property
    def some_soft_taints(self) -> bool:
        """Whether any node asks pods to stay away, and takes them all the same."""
        return any(map(_SOFT_TAINTS, self._nodes))

    @cached_property
    def numa_rows(self) -> tuple[int, ...]:
        """Rows of nodes whose NUMA nodes count."""
        return tuple(row for row, node in enumerate(self._nodes) if node.cells is not None)


class KeptNodeFacts:
    """Facts of the nodes of one session after another."""

    def __init__(self) -> None:
        self._facts: NodeFacts | None = None

    def find(self, nodes: NodeColumns) -> NodeFacts:
        """Facts of these nodes, those of the session before where they are the same."""
        if self._facts is None or not self._facts.are_of(nodes):
            self._facts = NodeFacts(nodes)
        return self._facts
