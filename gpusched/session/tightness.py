"""How much room each node's domains have, kept up to date while a session moves pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.arrays.workbench import Workbench
from gpusched.objects.units import GPU_RESOURCES
from gpusched.placement.problem import Level
from gpusched.session.followed import Followed, Rows

STEPS: Final = 256
"""In so many steps tightness and scores are compared: they are the last thing that counts."""


class Tightness:
    """Free GPUs of each node's domain, added up over all levels and brought down to a few steps.

    Nodes of one narrowest domain are in the same domains throughout, so that these are counted
    and not the nodes.

    Args:
        bench: of the session.
        levels: widest first, without hosts.
    """

    def __init__(self, bench: Workbench, levels: Sequence[Level]) -> None:
        self._bench = bench
        nodes = bench.nodes
        self._columns = [nodes.columns[name] for name in GPU_RESOURCES if name in nodes.columns]
        self._free = Followed(bench, self._count)
        self._counted: Ints = np.zeros(len(nodes), dtype=np.int64)
        self._levels = levels
        narrowest = levels[-1].domain if levels else np.zeros(len(nodes), dtype=np.int64)
        _, some, which = np.unique(narrowest, return_index=True, return_inverse=True)
        self._which = which
        """Of each node its narrowest domain, counted without gaps."""
        self._domains = [level.domain[some] for level in levels]
        """Of each narrowest domain the one of each level that it lies in."""
        self._rooms = [
            np.zeros(int(level.domain.max(initial=-1)) + 1, dtype=np.int64) for level in levels
        ]
        self._now: Ints = np.zeros(len(nodes), dtype=np.int64)

    def now(self) -> Ints:
        """Steps by node, shape (nodes,), less is tighter; read-only."""
        free = self._free.now()
        if free is self._counted:
            return self._now
        rows = np.flatnonzero(free != self._counted)
        more = free[rows] - self._counted[rows]
        self._counted = free
        if len(rows) and self._levels:
            total = np.zeros(len(self._domains[0]), dtype=np.int64)
            for level, domains, room in zip(self._levels, self._domains, self._rooms, strict=True):
                np.add.at(room, level.domain[rows], more)
                total += room[domains]
            values, steps = np.unique(total, return_inverse=True)
            if len(values) > STEPS:
                steps = steps * STEPS // len(values)
            self._now = steps[self._which]
            self._now.setflags(write=False)
        return self._now

    def _count(self, rows: Rows) -> Ints:
        bench = self._bench
        free = bench.nodes.allocatable[rows][:, self._columns] - bench.used[rows][:, self._columns]
        total: Ints = np.maximum(free, 0).sum(axis=1)
        return total
