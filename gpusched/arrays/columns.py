"""Nodes as columns: one row a node, sorted by name; one column a resource name.

``NodeColumns`` is what a snapshot holds: read-only. ``Workbench`` is a session's own copy of
the part that moves, with a log of touched rows by which others refresh only what changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from gpusched.limits import COLUMN_MAX
from gpusched.objects.node import Node
from gpusched.objects.resources import Resources
from gpusched.objects.slot import mask_of, slot_ranges

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@attrs.frozen(slots=True, kw_only=True, eq=False)
class NodeColumns:
    """All nodes of one moment; arrays are read-only.

    Attributes:
        nodes: sorted by name; the row is the position.
        row: name to row.
        columns: resource name to column.
        allocatable, used: int64, shape (nodes, resources), base units. ``used`` may exceed
            ``allocatable``: free is then zero for that resource.
        free_slots: bitmask of free GPU slots by row.
        generation: int64, shape (nodes,): counter of the last change of the node object.
        epoch: changes whenever rows mean other nodes than before.
    """

    nodes: tuple[Node, ...]
    row: dict[str, int]
    columns: dict[str, int]
    allocatable: Ints
    used: Ints
    free_slots: tuple[int, ...]
    generation: Ints
    epoch: int

    def __len__(self) -> int:
        return len(self.nodes)


@attrs.frozen(slots=True, eq=False)
class Demand:
    """A request as columns; ``missing`` names a resource that no node offers, else empty."""

    columns: Ints
    amounts: Ints
    missing: str


def demand(requests: Resources, columns: dict[str, int]) -> Demand:
    """The request's non-zero resources as column numbers and amounts."""
    wanted = [(columns.get(name, -1), name, amount) for name, amount in requests.items if amount]
    missing = next((name for column, name, _ in wanted if column < 0), "")
    known = [(column, amount) for column, _, amount in wanted if column >= 0]
    return Demand(
        np.array([column for column, _ in known], dtype=np.int64),
        np.array([amount for _, amount in known], dtype=np.int64),
        missing,
    )


def how_many_fit(free: Ints, amounts: Ints) -> Ints:
    """How many equal requests fit each row.

    Args:
        free: shape (rows, resources asked); negative where a node is over its allocatable.
        amounts: shape (resources asked,), all positive.

    Returns:
        int64, shape (rows,), never negative.
    """
    if amounts.size == 0:
        return np.full(free.shape[0], COLUMN_MAX, dtype=np.int64)
    fits: Ints = (free // amounts).min(axis=1)
    return np.maximum(fits, 0)


class Workbench:
    """What a session moves: usage and free slots, with a log of touched rows."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.used: Ints = nodes.used.copy()
        self.free_slots: list[int] = list(nodes.free_slots)
        self._ranges: dict[tuple[int, str], int] = {}
        self.touched: list[int] = []
        """Every row in the order it was changed; a position in it is a point in time."""

    def add(self, row: int, ask: Demand, *, slots: int) -> None:
        """Charge a row with a request and take these slots."""
        self.used[row, ask.columns] += ask.amounts
        self.free_slots[row] &= ~slots
        self.touched.append(row)

    def remove(self, row: int, ask: Demand, *, slots: int) -> None:
        """The exact reverse of ``add``."""
        self.used[row, ask.columns] -= ask.amounts
        self.free_slots[row] |= slots
        self.touched.append(row)

    def slot_range(self, row: int, gpu: str) -> int:
        """Bitmask of all slots of one kind of GPU on a row; 0 when they are not numbered."""
        known = self._ranges.get((row, gpu))
        if known is None:
            numbers = slot_ranges(self.nodes.nodes[row].allocatable).get(gpu)
            known = self._ranges[row, gpu] = mask_of(numbers) if numbers else 0
        return known

    def free(self, rows: Sequence[int] | slice, columns: Ints) -> Ints:
        """Free amounts, shape (rows, columns); negative where a node is over its allocatable."""
        if not isinstance(rows, slice) and len(rows) == 1:
            return self.free_on(rows[0], columns)[np.newaxis]
        allocatable: Ints = self.nodes.allocatable[rows][:, columns]
        used: Ints = self.used[rows][:, columns]
        return allocatable - used

    def free_on(self, row: int, columns: Ints) -> Ints:
        """The same of one row, shape (columns,)."""
        free: Ints = self.nodes.allocatable[row].take(columns) - self.used[row].take(columns)
        return free
