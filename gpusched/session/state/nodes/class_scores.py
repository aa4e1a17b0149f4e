"""Scores of nodes for one class of pods: what policies say, summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Bools, Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.session.framework.hook_calls import NodeScoreHook
from gpusched.session.framework.view import NodeRows

_FEW: Final = 16
"""Up to so many rows are rated as they are: groups would save nothing."""


class ClassScores:
    """See the module.

    Args:
        node_usage: moves under it.
        hooks: what plugins registered.
        pod_class: of the pods.
    """

    def __init__(
        self, node_usage: NodeUsage, hooks: Sequence[NodeScoreHook], pod_class: PodClass
    ) -> None:
        self._node_usage = node_usage
        self._pod_class = pod_class
        # Amounts of a node do not say how its GPUs are shared.
        grouped = pod_class.share is None
        asked = [each for each in hooks if each.concerns(pod_class)]
        self._alike = [each for each in asked if each.alike and grouped]
        self._each = [each for each in asked if not (each.alike and grouped)]
        self._by_amounts: dict[bytes, Ints] = {}
        """Scores of nodes by what they offer and hold, where nothing else counts."""
        self._known: tuple[int, Ints | None] | None = None
        """What hooks that look at each node say of all, and how much had happened then."""

    def of_rows(self, rows: Sequence[int]) -> Ints:
        """Scores of these rows, int64, larger is better."""
        if len(rows) == 1 and not self._each and self._alike:
            return self._of_row(rows[0])
        return self._points_of([*self._alike, *self._each], NodeRows(self._node_usage, rows))

    def _of_row(self, row: int) -> Ints:
        """The same of one row where nodes that are alike are equally good: equal pods fill equal nodes in equal steps."""
        usage = self._node_usage
        key = usage.nodes.allocatable[row].tobytes() + usage.used[row].tobytes()
        known = self._by_amounts.get(key)
        if known is None:
            points = self._points_of(self._alike, NodeRows(usage, [row]))
            known = self._by_amounts[key] = points
        return known

    def of_fitting(self, fit: Bools) -> Ints:
        """Scores of all rows, int64, shape (nodes,); rows that do not fit may have any."""
        groups = self._node_usage.alike.few_groups() if self._alike else None
        rows = np.flatnonzero(fit)
        if len(rows) <= _FEW or groups is None:
            return self._of_ungrouped(fit, rows)
        firsts, group = groups
        asked = np.zeros(len(firsts), dtype=np.bool_)
        asked[group[rows]] = True
        points: Ints = np.zeros(len(firsts), dtype=np.int64)
        points[asked] = self._points_of(self._alike, NodeRows(self._node_usage, firsts[asked]))
        others = self._of_each()
        return points[group] if others is None else points[group] + others

    def are_alike(self) -> bool:
        """Whether rows that are alike have equal scores: all hooks say so, or have no opinion."""
        return bool(self._alike) and self._of_each() is None

    def of_alike(self, rows: Sequence[int] | Ints) -> Ints:
        """Scores of some rows where those of rows that are alike are equal."""
        return self._points_of(self._alike, NodeRows(self._node_usage, rows))

    def _of_each(self) -> Ints | None:
        """What hooks say that look at each node, of all nodes; None where they have no opinion."""
        if not self._each:
            return None
        now = len(self._node_usage.touched_rows)
        if self._known is None or self._known[0] != now:
            rows = NodeRows(self._node_usage, None)
            said = [each.score(self._pod_class, rows) for each in self._each]
            opinions = [each for each in said if each is not None]
            total: Ints | None = np.sum(opinions, axis=0, dtype=np.int64) if opinions else None
            self._known = (now, total)
        return self._known[1]

    def _of_ungrouped(self, fit: Bools, rows: Ints) -> Ints:
        hooks = [*self._alike, *self._each]
        if len(rows) > len(fit) // 4:
            return self._points_of(hooks, NodeRows(self._node_usage, None))
        points: Ints = np.zeros(len(fit), dtype=np.int64)
        if len(rows):  # most classes of a full cluster: nobody is asked for scores
            points[rows] = self._points_of(hooks, NodeRows(self._node_usage, rows))
        return points

    def _points_of(self, hooks: Sequence[NodeScoreHook], rows: NodeRows) -> Ints:
        points: Ints | None = None
        for each in hooks:
            opinion = each.score(self._pod_class, rows)
            if opinion is not None:
                points = opinion if points is None else points + opinion
        return np.zeros(len(rows), dtype=np.int64) if points is None else points
