"""Free GPUs in each node's domains, up to date while a session moves pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.placement.model.problem import DomainLevel
from gpusched.session.state.nodes.tracked_array import Rows

TIGHTNESS_STEPS: Final = 256
"""Steps in which tightness and scores are compared, as they are the last thing that counts."""


class Tightness:
    """Free GPUs of each node's domain, added up over all levels and brought down to a few steps.

    Nodes of one narrowest domain are in the same domains throughout, so that these are counted
    and not the nodes.

    Args:
        node_usage: of the session.
        levels: widest first, without hosts.
    """

    def __init__(self, node_usage: NodeUsage, levels: Sequence[DomainLevel]) -> None:
        self._node_usage = node_usage
        nodes = node_usage.nodes
        self._columns = [
            nodes.columns[name] for name in gpu_resources().names if name in nodes.columns
        ]
        self._seen = len(node_usage.touched_rows)
        self._free = self._count_free(slice(None))
        self._levels = levels
        narrowest = levels[-1].domain if levels else np.zeros(len(nodes), dtype=np.int64)
        _, some, which = np.unique(narrowest, return_index=True, return_inverse=True)
        self._which = which
        """Narrowest domain of each node, numbered without gaps."""
        self._domains = [level.domain[some] for level in levels]
        """Domain of each level in which a narrowest domain lies."""
        self._rooms = [level.sum_by_domain(self._free) for level in levels]
        self._now = self._rank_domains()

    def current_steps(self) -> Ints:
        """Steps by node, shape (nodes,), less is tighter; read-only."""
        touched = self._node_usage.touched_rows
        if self._seen < len(touched):
            rows = sorted(set(touched[self._seen :]))
            self._seen = len(touched)
            free = self._count_free(rows)
            more = free - self._free[rows]
            if more.any():
                self._free[rows] = free
                for level, room in zip(self._levels, self._rooms, strict=True):
                    np.add.at(room, level.domain[rows], more)
                self._now = self._rank_domains()
        return self._now

    def _rank_domains(self) -> Ints:
        if not self._levels:
            return np.zeros(len(self._which), dtype=np.int64)
        total = sum(room[of] for of, room in zip(self._domains, self._rooms, strict=True))
        values, steps = np.unique(total, return_inverse=True)
        if len(values) > TIGHTNESS_STEPS:
            steps = steps * TIGHTNESS_STEPS // len(values)
        now: Ints = steps[self._which]
        now.setflags(write=False)
        return now

    def _count_free(self, rows: Rows) -> Ints:
        node_usage = self._node_usage
        free = (
            node_usage.nodes.allocatable[rows][:, self._columns]
            - node_usage.used[rows][:, self._columns]
        )
        total: Ints = np.maximum(free, 0).sum(axis=1)
        return total
