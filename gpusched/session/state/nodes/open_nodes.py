"""The best node for pods that ask for amounts alone, found in plain ints where few kinds of nodes have room.

Pods of a burst may all differ, so that what is worked out for one serves no other. What they choose among hardly
changes from one to the next: the nodes of a kind that are empty, and some that were begun. Those are kept, and of each a
pod is told by arithmetic on a few ints whether it fits and how many points it gets, as policies say by ``Fullness``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, Final

import attrs
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

_NEAR: Final = 16
"""Rows that are looked at one by one before all that are left."""
_NO_ROWS: Final[Ints] = np.zeros(0, dtype=np.int64)
_AMOUNT: Final = itemgetter(1)
_OWN_FIELDS: Final = ("aligned", "claims", "share", "unsupported")
"""Of a class, by which more than amounts counts for it."""

_Weights = tuple[tuple[int, int, int], ...]
"""Of resources: their positions among the amounts, their columns, and what they weigh."""
_Terms = tuple[tuple[int, int, int, _Weights], ...]
"""By hook: its weight, the points of a full node, the divisor, and weights of resources."""


@define
class _NodeKind:
    """Nodes that offer and hold the same amounts.

    Attributes:
        offered, used: amounts by column.
        rows: of these nodes, ascending; some may have changed since.
        numbers: the same as an array, of nodes that nothing was placed on since all were looked at.
        begins: by the ``id`` of what filters allow, that itself, and the position before which nothing is left of it.
    """

    offered: list[int]
    used: list[int]
    rows: list[int]
    numbers: Ints = _NO_ROWS
    begins: dict[int, tuple[Bools, int]] = attrs.field(factory=dict)

    def first_row(self, allowed: Bools, changed: Bools) -> int:
        """The first row that is allowed and has not changed; -1 where there is none."""
        rows, known = self.rows, self.begins.get(id(allowed))
        begin = 0 if known is None else known[1]
        near = min(begin + _NEAR, len(rows))
        for position in range(begin, near):
            row = rows[position]
            if allowed[row] and not changed[row]:
                break
        else:
            left = self.numbers[near:]
            found = np.flatnonzero(allowed[left] & ~changed[left])
            position = near + int(found[0]) if len(found) else len(rows)
        self.begins[id(allowed)] = (allowed, position)
        return rows[position] if position < len(rows) else -1

    def points(self, amounts: Sequence[int], terms: _Terms) -> int:
        """Points of these nodes with a pod that they take."""
        offered, used, points = self.offered, self.used, 0
        for times, full, divisor, weights in terms:
            of_hook = 0
            for position, column, weight in weights:
                after = used[column] + amounts[position]
                of_hook += weight * (after * full // offered[column])
            points += times * (of_hook // divisor)
        return points


class OpenNodes:
    """Nodes with room for pods that ask for the same resources.

    Args:
        node_usage: moves under it.
        columns: of these resources.
    """

    def __init__(self, node_usage: NodeUsage, columns: Sequence[int]) -> None:
        self._node_usage = node_usage
        self._columns = columns
        self._least: list[tuple[int, int]] = []
        """By column, amounts from which on every node with room is known; empty while none is."""
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
        asked = tuple(zip(self._columns, amounts, strict=True))
        best, row = 0, -1
        for kind in (*self._begun.values(), *self._untouched):
            offered, used = kind.offered, kind.used
            for column, amount in asked:
                if offered[column] - used[column] < amount:
                    break
            else:
                points = kind.points(amounts, terms)
                if row < 0 or points >= best:
                    first = self._first_row(kind, allowed)
                    if first >= 0 and (row < 0 or points > best or first < row):
                        best, row = points, first
        return row

    def _first_row(self, kind: _NodeKind, allowed: Bools) -> int:
        """The first row of a kind that filters allow; -1 where there is none."""
        if self._begun.get(kind.rows[0]) is kind:
            return kind.rows[0] if allowed[kind.rows[0]] else -1
        return kind.first_row(allowed, self._changed)

    def _follow(self, amounts: Sequence[int]) -> bool:
        """Take in what changed; whether all nodes with room for so much are known."""
        touched = self._node_usage.touched_rows
        if not self._least:
            return len(touched) >= self._rests_until and self._look_again(amounts)
        for (_, least), asked in zip(self._least, amounts, strict=True):
            if asked < least:
                return self._look_again(amounts)
        new = len(touched) - self._seen
        if new > _FOLLOWED_MAX:
            return self._look_again(amounts)
        if new:
            for row in touched[self._seen :]:
                self._follow_row(row)
            self._seen = len(touched)
        return len(self._begun) <= _KINDS_MAX or self._look_again(amounts)

    def _follow_row(self, row: int) -> None:
        usage, kind = self._node_usage, self._begun.get(row)
        used: list[int] = usage.used[row].tolist()
        if kind is None:
            self._changed[row] = True
            kind = _NodeKind(usage.nodes.allocatable[row].tolist(), used, [row])
        offered = kind.offered
        for column, least in self._least:
            if offered[column] - used[column] < least:
                self._begun.pop(row, None)
                return
        kind.used = used
        self._begun[row] = kind

    def _look_again(self, amounts: Sequence[int]) -> bool:
        """Find kinds of nodes with room for these amounts, and for somewhat less; False where they are too many."""
        usage = self._node_usage
        least = [each - each // 4 for each in amounts]
        if self._least:
            least = [
                known if asked >= known else lower
                for (_, known), asked, lower in zip(self._least, amounts, least, strict=True)
            ]
        self._seen = len(usage.touched_rows)
        self._begun, self._untouched, self._least = {}, [], []
        self._rests_until = self._seen + _REST_MOVES
        alike = usage.alike.few_groups()
        if alike is None:
            return False
        firsts, group = alike
        columns = np.array(self._columns, dtype=np.int64)
        numbers = usage.alike.with_room(columns, np.array(least, dtype=np.int64)).tolist()
        if len(numbers) > _KINDS_MAX:
            return False
        self._changed[:] = False
        for number in numbers:
            first = int(firsts[number])
            offered, used = usage.nodes.allocatable[first].tolist(), usage.used[first].tolist()
            rows = np.flatnonzero(group == number)
            self._untouched.append(_NodeKind(offered, used, rows.tolist(), rows))
        self._least = list(zip(self._columns, least, strict=True))
        return True


@frozen(slots=True, eq=False)
class _RequestShape:
    """Resources that pods ask for, and by what nodes are rated for them; no open nodes where that is not told."""

    columns: Ints
    terms: _Terms = ()
    open_nodes: OpenNodes | None = None


@frozen
class PlainClasses:
    """What filters and rules between pods say of classes of pods.

    Attributes:
        fields: of a class that they may read; None where they may read any.
        allowed_rows: nodes that filters allow pods of a class, bool, shape (nodes,).
        may_have_rules: whether pods of a class may have rules about others, or be meant by theirs.
        filter_faults: how often a filter failed.
    """

    fields: Callable[[], frozenset[str] | None]
    allowed_rows: Callable[[PodClass], Bools]
    may_have_rules: Callable[[PodClass], bool]
    filter_faults: Callable[[], int]


class AmountChoices:
    """Nodes for pods of which amounts tell everything.

    Args:
        node_usage: of the session.
        hooks: scores that plugins registered.
        classes: what else may be said of pods.
    """

    def __init__(
        self, node_usage: NodeUsage, hooks: Sequence[NodeScoreHook], classes: PlainClasses
    ) -> None:
        self._node_usage = node_usage
        self._classes = classes
        self._always = [each for each in hooks if not each.only_with]
        self._sometimes = [each for each in hooks if each.only_with]
        self._told = bool(self._always) and all(each.fullness for each in self._always)
        self._shapes: dict[tuple[str, tuple[str, ...]], _RequestShape] = {}
        self._open: dict[tuple[int, ...], OpenNodes] = {}
        self._rows: dict[Any, Bools | None] = {}
        """Rows by what may tell classes apart beside amounts."""

    @cached_property
    def _traits_of(self) -> Callable[[PodClass], Any] | None:
        """What may tell classes apart beside amounts; None where anything may."""
        fields = self._classes.fields() if self._told else None
        if fields is None:
            return None
        only_with = {name for each in self._sometimes for name in each.only_with}
        return attrgetter(*sorted({*fields, *only_with, *_OWN_FIELDS}))

    def allowed_rows(self, pod_class: PodClass) -> Bools | None:
        """Rows that filters allow pods of a class; None where more than amounts and filters counts for it."""
        traits_of = self._traits_of
        if traits_of is None:
            return None
        traits = traits_of(pod_class)
        if traits in self._rows:
            return self._rows[traits]
        faults = self._classes.filter_faults()
        rows = self._classes.allowed_rows(pod_class) if self._is_plain(pod_class) else None
        if self._classes.filter_faults() == faults:
            self._rows[traits] = rows
        return rows

    def _is_plain(self, pod_class: PodClass) -> bool:
        if pod_class.claims or pod_class.share is not None or pod_class.unsupported:
            return False
        if pod_class.aligned and self._node_usage.numa_rows:
            return False
        if any(hook.concerns(pod_class) for hook in self._sometimes):
            return False
        return not self._classes.may_have_rules(pod_class)

    def best_row(self, pod_class: PodClass, allowed: Bools) -> tuple[int, RequestVector] | None:
        """The row where a pod of a class goes next, and what it asks for.

        Args:
            pod_class: of the pod.
            allowed: as ``allowed_rows`` says.

        Returns:
            Row -1 where it fits nowhere; None where policies have to be asked.
        """
        items = pod_class.requests.items
        if not all(map(_AMOUNT, items)):
            items = tuple([item for item in items if item[1]])
        names, amounts = zip(*items, strict=True) if items else ((), ())
        shape = self._shapes.get((pod_class.gpu, names))
        if shape is None:
            shape = self._shapes[pod_class.gpu, names] = self._make_shape(pod_class.gpu, names)
        if shape.open_nodes is None:
            return None
        row = shape.open_nodes.best_row(amounts, shape.terms, allowed)
        if row is None:
            return None
        return row, RequestVector(shape.columns, np.array(amounts, dtype=np.int64), "")

    def _make_shape(self, gpu: str, names: tuple[str, ...]) -> _RequestShape:
        by_name = self._node_usage.nodes.columns
        own = tuple([by_name.get(name, -1) for name in names])
        columns = np.array(own, dtype=np.int64)
        if -1 in own or not names:
            return _RequestShape(columns)
        terms = []
        for hook in self._always:
            said = hook.fullness and hook.fullness(names, gpu)
            if not said or not all(name in names for name, _ in said.weights):
                return _RequestShape(columns)
            weights = tuple([(names.index(n), by_name[n], weight) for n, weight in said.weights])
            terms.append((hook.weight, said.full, said.divisor, weights))
        known = self._open.get(own)
        if known is None:
            known = self._open[own] = OpenNodes(self._node_usage, own)
        return _RequestShape(columns, tuple(terms), known)
