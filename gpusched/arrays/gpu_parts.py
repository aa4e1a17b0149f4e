"""What is free of each single GPU: one kind of GPU on all nodes, followed through a session."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.objects.slot import numbers_of
from gpusched.objects.units import DEVICE


class Slotted(Protocol):
    """A workbench, as far as it is read here."""

    nodes: NodeColumns
    touched: list[int]

    def slot_range(self, row: int, gpu: str) -> int:
        """Bitmask of all slots of one kind of GPU on a row."""

    def free_parts(self, row: int, slots: int) -> list[int]:
        """Free thousandths of each of these slots, by number."""


class GpuParts:
    """Free thousandths by node and GPU; rows are looked at again only when they were touched.

    Args:
        bench: moves under it.
        gpu: name of the resource.
    """

    def __init__(self, bench: Slotted, gpu: str) -> None:
        self._bench = bench
        self._slots = [bench.slot_range(row, gpu) for row in range(len(bench.nodes))]
        most = max((slots.bit_count() for slots in self._slots), default=0)
        self._free: Ints = np.zeros((len(self._slots), most), dtype=np.int64)
        self._seen = len(bench.touched)
        for row, slots in enumerate(self._slots):
            if slots:
                self._look(row)

    def free(self) -> Ints:
        """Shape (nodes, most GPUs of one node), 0 where a node has none; not to be changed."""
        touched = self._bench.touched
        if self._seen < len(touched):
            for row in sorted(set(touched[self._seen :])):
                self._look(row)
            self._seen = len(touched)
        return self._free

    def _look(self, row: int) -> None:
        slots = self._slots[row]
        self._free[row, : slots.bit_count()] = self._bench.free_parts(row, slots)


def whole_parts(slots: int, free: int) -> list[int]:
    """``DEVICE`` for each of ``slots`` that is in ``free``, else 0, by number."""
    return [DEVICE if free >> number & 1 else 0 for number in numbers_of(slots)]
