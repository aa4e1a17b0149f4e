"""The best node for pods that ask for amounts alone, found in plain ints where few kinds of nodes have room.

Pods of a burst may all differ, so that what is worked out for one serves no other. What they choose among hardly
changes from one to the next: the nodes of a kind that are empty, and some that were begun. Those are kept, and of each a
pod is told by arithmetic on a few ints whether it fits and how many points it gets, as policies say by ``Fullness``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Bools, Ints, RequestVector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import define, frozen
from gpusched.session.framework.hook_calls import NodeScoreHook

_KINDS_MAX: Final = 12
"""Kinds of nodes with room up to which ints cost less than arrays."""
_REST_MOVES: Final = 64
"""Moves after which kinds are counted again where they were too many."""
_FOLLOWED_MAX: Final = 64
"""Moves beyond which all nodes are looked at again rather than each that moved."""
_NO_ROWS: Final[list[int]] = []

_Terms = tuple[tuple[int, int, int, tuple[tuple[int, int], ...]], ...]
"""By hook: its weight, the points of a full node, the divisor, and weights by position among the columns."""


@define
class _NodeKind:
    """Nodes that offer and hold the same amounts.

    Attributes:
        offered, used, free: amounts by position among the columns.
        rows: of these nodes, ascending; some may have changed since.
        begin: those before this position have.
    """

    offered: list[int]
    used: list[int]
    free: list[int]
    rows: list[int]
    begin: int = 0


class OpenNodes:
    """Nodes with room for pods that ask for the same resources.

    Args:
        node_usage: moves under it.
        columns: of these resources.
    """

    def __init__(self, node_usage: NodeUsage, columns: Ints) -> None:
        self._node_usage = node_usage
        self._columns = columns
        self._least: list[int] = []
        """Amounts from which on every node with room is known; empty while none is."""
        self._begun: dict[int, _NodeKind] = {}
        """By row, nodes that changed since the others were looked at, and have room."""
        self._untouched: list[_NodeKind] = []
        self._changed: Bools = np.zeros(len(node_usage.nodes), dtype=np.bool_)
        self._seen = 0
        self._rests_until = 0

    def best_row(self, amounts: Sequence[int], terms: _Terms, allowed: Bools) -> int | None:
        """The row with the most points that takes the amounts, the first of several; -1 for none.

        Args:
            amounts: that a pod asks for, by position among the columns, all above zero.
            terms: by which nodes are rated.
            allowed: rows that filters allow.

        Returns:
            None where too many kinds of nodes have room.
        """
        if not self._follow(amounts):
            return None
        rated = []
        for kind in (*self._begun.values(), *self._untouched):
            for free, asked in zip(kind.free, amounts, strict=True):
                if free < asked:
                    break
            else:
                rated.append((_points(kind, amounts, terms), kind))
        while rated:
            best = max([points for points, _ in rated])
            rows = [self._first_row(kind, allowed) for points, kind in rated if points == best]
            found = [row for row in rows if row >= 0]
            if found:
                return min(found)
            rated = [each for each in rated if each[0] != best]
        return -1

    def _first_row(self, kind: _NodeKind, allowed: Bools) -> int:
        """The first row of a kind that filters allow; -1 where there is none."""
        rows, changed = kind.rows, self._changed
        if self._begun.get(rows[0]) is kind:
            return rows[0] if allowed[rows[0]] else -1
        while kind.begin < len(rows) and changed[rows[kind.begin]]:
            kind.begin += 1
        if kind.begin == len(rows):
            return -1
        if allowed[rows[kind.begin]]:
            return rows[kind.begin]
        left = np.array(rows[kind.begin :], dtype=np.int64)
        left = left[allowed[left] & ~changed[left]]
        return int(left[0]) if len(left) else -1

    def _follow(self, amounts: Sequence[int]) -> bool:
        """Take in what changed; whether all nodes with room for so much are known."""
        touched = self._node_usage.touched_rows
        new = len(touched) - self._seen
        if not self._least:
            return len(touched) >= self._rests_until and self._look_again(amounts)
        for least, asked in zip(self._least, amounts, strict=True):
            if asked < least:
                return self._look_again(amounts)
        if new > _FOLLOWED_MAX:
            return self._look_again(amounts)
        for row in touched[self._seen :] if new else _NO_ROWS:
            self._follow_row(row)
        self._seen = len(touched)
        return len(self._begun) <= _KINDS_MAX or self._look_again(amounts)

    def _follow_row(self, row: int) -> None:
        usage, kind = self._node_usage, self._begun.get(row)
        used: list[int] = usage.used[row].take(self._columns).tolist()
        if kind is None:
            self._changed[row] = True
            offered: list[int] = usage.nodes.allocatable[row].take(self._columns).tolist()
        else:
            offered = kind.offered
        free = [most - taken for most, taken in zip(offered, used, strict=True)]
        for least, left in zip(self._least, free, strict=True):
            if left < least:
                self._begun.pop(row, None)
                return
        if kind is None:
            self._begun[row] = _NodeKind(offered, used, free, [row])
        else:
            kind.used, kind.free = used, free

    def _look_again(self, amounts: Sequence[int]) -> bool:
        """Find kinds of nodes with room for these amounts, and for somewhat less; False where they are too many."""
        usage = self._node_usage
        before, least = self._least, [each - each // 4 for each in amounts]
        if before:
            least = [
                known if asked >= known else lower
                for known, asked, lower in zip(before, amounts, least, strict=True)
            ]
        self._seen = len(usage.touched_rows)
        self._begun, self._untouched, self._least = {}, [], []
        self._rests_until = self._seen + _REST_MOVES
        alike = usage.alike.few_groups()
        if alike is None:
            return False
        firsts, group = alike
        numbers = usage.alike.with_room(self._columns, np.array(least, dtype=np.int64)).tolist()
        if len(numbers) > _KINDS_MAX:
            return False
        self._changed[:] = False
        for number in numbers:
            offered = usage.nodes.allocatable[firsts[number]].take(self._columns).tolist()
            used = usage.used[firsts[number]].take(self._columns).tolist()
            free = [most - taken for most, taken in zip(offered, used, strict=True)]
            rows = np.flatnonzero(group == number).tolist()
            self._untouched.append(_NodeKind(offered, used, free, rows))
        self._least = least
        return True


def _points(kind: _NodeKind, amounts: Sequence[int], terms: _Terms) -> int:
    """Points of nodes of a kind that take the amounts."""
    points = 0
    for times, full, divisor, weights in terms:
        of_hook = 0
        for position, weight in weights:
            after = kind.used[position] + amounts[position]
            of_hook += weight * (after * full // kind.offered[position])
        points += times * (of_hook // divisor)
    return points


@frozen(slots=True, eq=False)
class _RequestShape:
    """Resources that pods ask for, and by what nodes are rated for them; no open nodes where that is not told."""

    columns: Ints
    terms: _Terms = ()
    open_nodes: OpenNodes | None = None


class AmountChoices:
    """Nodes for pods of which amounts tell everything.

    Args:
        node_usage: of the session.
        hooks: scores that plugins registered.
        allowed_rows: rows that filters allow pods of a class.
    """

    def __init__(
        self,
        node_usage: NodeUsage,
        hooks: Sequence[NodeScoreHook],
        allowed_rows: Callable[[PodClass], Bools],
    ) -> None:
        self._node_usage = node_usage
        self._allowed_rows = allowed_rows
        self._always = [each for each in hooks if not each.only_with]
        self._sometimes = [each for each in hooks if each.only_with]
        self._told = bool(self._always) and all(each.fullness for each in self._always)
        self._shapes: dict[tuple[str, tuple[str, ...]], _RequestShape] = {}
        self._open: dict[bytes, OpenNodes] = {}

    def best_row(self, pod_class: PodClass) -> tuple[int, RequestVector] | None:
        """The row where a pod of a class without a share, claims or rules about others goes next, and what it asks for.

        Returns:
            Row -1 where it fits nowhere; None where more than these amounts counts.
        """
        if not self._told or (pod_class.aligned and self._node_usage.numa_rows):
            return None
        for hook in self._sometimes:
            if hook.concerns(pod_class):
                return None
        items = [item for item in pod_class.requests.items if item[1]]
        key = pod_class.gpu, tuple([name for name, _ in items])
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._make_shape(*key)
        if shape.open_nodes is None:
            return None
        amounts = [amount for _, amount in items]
        allowed = self._allowed_rows(pod_class)
        row = shape.open_nodes.best_row(amounts, shape.terms, allowed)
        if row is None:
            return None
        return row, RequestVector(shape.columns, np.array(amounts, dtype=np.int64), "")

    def _make_shape(self, gpu: str, names: tuple[str, ...]) -> _RequestShape:
        by_name = self._node_usage.nodes.columns
        columns = np.array([by_name.get(name, -1) for name in names], dtype=np.int64)
        if -1 in columns or not names:
            return _RequestShape(columns)
        terms = []
        for hook in self._always:
            said = hook.fullness and hook.fullness(names, gpu)
            if not said or not all(name in names for name, _ in said.weights):
                return _RequestShape(columns)
            weights = tuple([(names.index(name), weight) for name, weight in said.weights])
            terms.append((hook.weight, said.full, said.divisor, weights))
        known = self._open.get(columns.tobytes())
        if known is None:
            known = self._open[columns.tobytes()] = OpenNodes(self._node_usage, columns)
        return _RequestShape(columns, tuple(terms), known)
