"""What a session moves: use of nodes now, and as it will be when those who leave are gone.

Three amounts a node and resource: ``real``, what is held now (pods that are being deleted or
evicted hold their room until they are gone); ``releasing``, the part of it that will be free;
``reserved``, what is promised to pods that wait for it. Seen *now*, a pod may take what is free
and not needed to keep a promise; seen *later*, everything that will be free and is not promised::

    later = real - releasing + reserved
    now   = max(real, later)

``used`` shows one of the two. While room is held back for those whose turn comes at a later
time (``hold_back``), both count it as used. A log of touched rows tells others what to compute
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from gpusched.arrays.columns import Demand, Ints, NodeColumns
from gpusched.arrays.gpu_parts import GpuParts, whole_parts
from gpusched.objects.resources import Resources
from gpusched.objects.slot import mask_of, slot_ranges

DEFAULT_POPULATION: Final = ((1, 300), (2, 120), (4, 180), (8, 400))
"""Where nothing else is known of who asks for GPUs."""


class Workbench:
    """See the module.

    Args:
        nodes: as the snapshot has them.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.used: Ints = nodes.used.copy()
        """As the bench is looked at: shape (nodes, resources)."""
        self.later = False
        """Whether it is looked at as it will be."""
        self.free_slots: list[int] = list(nodes.free_slots)
        self.touched: list[int] = []
        """Every row in the order it was changed; a position in it is a point in time."""
        self.population: tuple[tuple[int, int], ...] = DEFAULT_POPULATION
        """Sizes of GPU requests and how many of a thousand have them; fixed in a session."""
        self.zoned: dict[int, list[tuple[int, Demand]]] = {
            row: [] for row, node in enumerate(nodes.nodes) if node.cells is not None
        }
        """Rows whose NUMA nodes count, with slots and requests of what was added to each."""
        self._real: Ints = self.used.copy()
        self._releasing: Ints = nodes.leaving.copy()
        self._reserved: Ints = np.zeros_like(self.used)
        self._split: set[int] = set(np.flatnonzero(nodes.leaving.any(axis=1)).tolist())
        """Rows on which now and later may differ."""
        self._back: dict[int, Ints] = {}
        self._ranges: dict[tuple[int, str], int] = {}
        self._gpu_parts: dict[str, GpuParts] = {}

    # -- looking ---------------------------------------------------------------------------
    def look(self, *, later: bool) -> None:
        """Show use as it is now, or as it will be when those who leave are gone."""
        if later == self.later:
            return
        self.later = later
        rows = sorted(self._split)
        if rows:
            self.used[rows] = self._seen(rows)
            self.touched.extend(rows)
        for row in sorted(self._back):
            self._show(row)

    @property
    def parts(self) -> bool:
        """Whether anything is being released, so that now and later may differ."""
        return bool(self._split)

    def _seen(self, rows: int | list[int]) -> Ints:
        later: Ints = self._real[rows] - self._releasing[rows] + self._reserved[rows]
        return later if self.later else np.maximum(self._real[rows], later)

    def _show(self, row: int) -> None:
        back = self._back.get(row)
        if back is not None:
            self.used[row] = np.maximum(self._seen(row), self.held_on(row) + back)
        elif row in self._split:
            self.used[row] = self._seen(row)
        self.touched.append(row)

    def hold_back(self, amounts: Mapping[int, Ints]) -> None:
        """Count so much as used beyond what is held and promised, until called with nothing.

        Args:
            amounts: by row, shape (resources,); far below zero where nothing is held back.
        """
        before, self._back = self._back, dict(amounts)
        for row in sorted({*before, *amounts}):
            self.used[row] = self._seen(row)
            self._show(row)

    @property
    def staying(self) -> Ints:
        """What is held once those who leave have left, and promised: shape (nodes, resources)."""
        staying: Ints = self._real - self._releasing + self._reserved
        return staying

    def held_on(self, row: int) -> Ints:
        """What is held and promised on a row, by those too who leave: shape (resources,)."""
        held: Ints = self._real[row] + self._reserved[row]
        return held

    # -- moving ----------------------------------------------------------------------------
    def add(self, row: int, ask: Demand, *, slots: int) -> None:
        """Charge a row with a request and take these slots."""
        self._real[row, ask.columns] += ask.amounts
        self.free_slots[row] &= ~slots
        if slots and row in self.zoned:
            self.zoned[row].append((slots, ask))
        if row not in self._split:
            self.used[row, ask.columns] += ask.amounts
        self._show(row)

    def remove(self, row: int, ask: Demand, *, slots: int) -> None:
        """The exact reverse of ``add``."""
        self._real[row, ask.columns] -= ask.amounts
        self.free_slots[row] |= slots
        if slots and row in self.zoned:
            added = self.zoned[row]
            self.zoned[row] = [each for each in added if each[0] != slots]
        if row not in self._split:
            self.used[row, ask.columns] -= ask.amounts
        self._show(row)

    def release(self, row: int, ask: Demand, *, times: int = 1) -> None:
        """What a pod there holds will be free; ``times=-1`` takes that back."""
        self._releasing[row, ask.columns] += ask.amounts * times
        self._split.add(row)
        self._show(row)

    def reserve(self, row: int, ask: Demand, *, times: int = 1) -> None:
        """Promise room; ``times=-1`` takes the promise back."""
        self._reserved[row, ask.columns] += ask.amounts * times
        self._split.add(row)
        self._show(row)

    # -- reading ---------------------------------------------------------------------------
    def slot_range(self, row: int, gpu: str) -> int:
        """Bitmask of all slots of one kind of GPU on a row; 0 when they are not numbered."""
        known = self._ranges.get((row, gpu))
        if known is None:
            numbers = slot_ranges(self.nodes.nodes[row].allocatable).get(gpu)
            known = self._ranges[row, gpu] = mask_of(numbers) if numbers else 0
        return known

    def slots_on(self, row: int) -> int:
        """Bitmask of all slots of a row, of whatever kind."""
        return _slots(self.nodes.nodes[row].allocatable)

    def free_parts(self, row: int, slots: int) -> list[int]:
        """Free thousandths of each of some slots of a row, by number."""
        return whole_parts(slots, self.free_slots[row])

    def gpu_parts(self, gpu: str) -> Ints:
        """Free thousandths of each GPU of one kind: shape (nodes, GPUs); see ``GpuParts``."""
        parts = self._gpu_parts.get(gpu)
        if parts is None:
            parts = self._gpu_parts[gpu] = GpuParts(self, gpu)
        return parts.free()

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


@lru_cache(maxsize=4096)
def _slots(allocatable: Resources) -> int:
    mask = 0
    for numbers in slot_ranges(allocatable).values():
        mask |= mask_of(numbers)
    return mask
