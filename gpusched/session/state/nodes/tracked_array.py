"""Arrays by node that follow usage: only touched rows are worked out again."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage

Rows = slice | list[int]


class TrackedArray:
    """One array, each row of which depends on the usage of that node alone.

    Args:
        node_usage: that moves.
        count: what some rows are now, shape (rows, ...).
    """

    def __init__(self, node_usage: NodeUsage, count: Callable[[Rows], Ints]) -> None:
        self._node_usage = node_usage
        self._count = count
        self._seen = len(node_usage.touched_rows)
        self._now = count(slice(None))
        self._now.setflags(write=False)

    def current_values(self) -> Ints:
        """The array as usage is now, shape (nodes, ...), read-only; a new one when it has changed."""
        touched = self._node_usage.touched_rows
        if self._seen < len(touched):
            rows = sorted(set(touched[self._seen :]))
            self._seen = len(touched)
            now = self._now.copy()
            now[rows] = self._count(rows)
            now.setflags(write=False)
            self._now = now
        return self._now
