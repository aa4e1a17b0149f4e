"""Nodes as columns: one row a node, sorted by name; one column a resource name.

``NodeColumns`` is what a snapshot holds: read-only. A session's own copy of the part that
moves is ``arrays.workbench.Workbench``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from gpusched.api.devices.gpu_share import GpuShare, shared_resource
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import frozen
from gpusched.base.limits import COLUMN_MAX

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
SharedSlots = Mapping[int, tuple[int, int]]


@frozen(slots=True, kw_only=True, eq=False)
class NodeColumns:
    """All nodes of one moment; arrays are read-only.

    Attributes:
        nodes: sorted by name; the row is the position.
        row: name to row.
        columns: resource name to column.
        allocatable, used: int64, shape (nodes, resources), base units. ``used`` may exceed
            ``allocatable``: free is then zero for that resource.
        leaving: the part of ``used`` that belongs to pods being deleted, same shape.
        foreign: the part of ``used`` that no queue of ours is charged with, same shape.
        free_slots: bitmask of free GPU slots by row.
        generation: int64, shape (nodes,): counter of the last change of the node object.
        epoch: changes whenever rows mean other nodes than before.
        shared: by row, only of nodes with shares: what is taken of each slot that is shared, and
            the part of that which leaves, in thousandths. ``used`` counts such a GPU as a whole.
    """

    nodes: tuple[Node, ...]
    row: dict[str, int]
    columns: dict[str, int]
    allocatable: Ints
    used: Ints
    leaving: Ints
    foreign: Ints
    free_slots: tuple[int, ...]
    generation: Ints
    epoch: int
    shared: Mapping[int, SharedSlots] = MappingProxyType({})

    def __len__(self) -> int:
        return len(self.nodes)


@frozen(slots=True, eq=False)
class RequestVector:
    """A request as columns; ``missing`` names a resource that no node offers, else empty.

    ``share`` is the part of one GPU that is asked for beside them, None for none; ``gpu`` is then
    the column of the GPUs.
    """

    columns: Ints
    amounts: Ints
    missing: str
    share: GpuShare | None = None
    gpu: int = -1

    @property
    def with_whole_gpus(self) -> RequestVector:
        """The same with a whole GPU in place of the share: never less than what it takes."""
        if self.share is None or self.gpu < 0:
            return self
        columns: Ints = np.append(self.columns, self.gpu)
        return RequestVector(columns, np.append(self.amounts, DEVICE), self.missing)


def request_vector(requests: Resources, columns: dict[str, int]) -> RequestVector:
    """The request's non-zero resources as column numbers and amounts."""
    wanted = [(columns.get(name, -1), name, amount) for name, amount in requests.items if amount]
    missing = next((name for column, name, _ in wanted if column < 0), "")
    known = [(column, amount) for column, _, amount in wanted if column >= 0]
    return RequestVector(
        np.array([column for column, _ in known], dtype=np.int64),
        np.array([amount for _, amount in known], dtype=np.int64),
        missing,
    )


def pod_class_vector(pod_class: PodClass, columns: dict[str, int]) -> RequestVector:
    """What one pod of a class asks of its node."""
    share = pod_class.share
    if share is None:
        return request_vector(pod_class.requests, columns)
    others = tuple(item for item in pod_class.requests.items if item[0] != shared_resource())
    ask = request_vector(Resources(others), columns)
    gpu = columns.get(shared_resource(), -1)
    return RequestVector(
        ask.columns, ask.amounts, ask.missing or ("" if gpu >= 0 else shared_resource()), share, gpu
    )


def rows_with_any(marks: Ints | Bools) -> Ints:
    """Rows of which some entry is not zero, ascending; quick where few are.

    Args:
        marks: shape (rows, columns).
    """
    if not marks.flags.c_contiguous:
        return np.flatnonzero(marks.any(axis=1))
    rows: Ints = np.flatnonzero(marks) // max(1, marks.shape[1])
    return rows[np.diff(rows, prepend=-1) > 0]


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
    fits: Ints
    if free.shape[0] < _MANY_ROWS:
        fits = (free // amounts).min(axis=1)
        return np.maximum(fits, 0)
    fits = free[:, 0] // amounts[0]
    for column in range(1, amounts.size):
        np.minimum(fits, free[:, column] // amounts[column], out=fits)
    return np.maximum(fits, 0, out=fits)


_MANY_ROWS: Final = 96
"""From so many rows on each resource by itself is quicker: numpy divides by one number without dividing."""


def exact_sums(matrix: Ints) -> list[int]:
    """The sum of each column as Python ints: the amounts of many nodes may exceed 64 bits."""
    low = (matrix & 0xFFFFFFFF).sum(axis=0).tolist()
    high = (matrix >> 32).sum(axis=0).tolist()
    return [(above << 32) + below for above, below in zip(high, low, strict=True)]
