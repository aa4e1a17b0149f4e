"""The state of each node's free slots, numbered for problems of placement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.topology.islands import island_state
from gpusched.topology.slot_costs import NOT_NUMBERED, Node, SlotTables


class SlotStates:
    """States of free slots by node; only touched rows are worked out again.

    Args:
        node_usage: usage of nodes, whose free slots are meant as they are now.
    """

    def __init__(self, node_usage: NodeUsage) -> None:
        self._node_usage = node_usage
        self._seen = 0
        self._numbers: dict[Node, int] = {}
        self._known: dict[tuple[int, int, int], int] = {}
        """Numbers by identity of layout and amounts, which nodes that are alike share, and by
        free slots: hashing them would take longer than all the rest."""
        self._states: Ints | None = None
        self._tables = SlotTables((), node_usage.population)
        self._left: dict[int, tuple[Ints, Ints]] = {}
        """Pods that fit each row by size, and the states for which that was worked out."""

    def current_states(self) -> tuple[Ints, SlotTables]:
        """States of free slots, and what it costs to take some.

        Returns:
            The state of each row's free slots, int64, shape (nodes,), read-only; and the costs
            of these states, the same object as long as there are no more of them.
        """
        node_usage = self._node_usage
        seen, self._seen = self._seen, len(node_usage.touched_rows)
        if self._states is None:
            self._states = self._number_all_rows()
        elif seen < self._seen:
            self._states = self._states.copy()
            for row in sorted(set(node_usage.touched_rows[seen:])):
                self._states[row] = self._state_number(row)
        self._states.setflags(write=False)
        if len(self._numbers) > len(self._tables.states):
            self._tables = SlotTables(tuple(self._numbers), node_usage.population)
        return self._states, self._tables

    def count_pods_left(self, size: int, rows: Sequence[int] | None = None) -> Ints:
        """Pods of so many slots that the free slots of rows suffice for, int64, shape (rows,); of all where none are given.

        Very many where slots are not numbered; read-only.
        """
        if rows is not None and self._states is None:  # before all have to be numbered
            return np.array([self._free_slots(row) // size for row in rows], dtype=np.int64)
        found = self._count_all(size)
        return found if rows is None else found[rows]

    def _free_slots(self, row: int) -> int:
        slots = self._node_usage.slots_on(row)
        return (slots & self._node_usage.free_slots[row]).bit_count() if slots else NOT_NUMBERED

    def _count_all(self, size: int) -> Ints:
        states, tables = self.current_states()
        known = self._left.get(size)
        if known is None or known[1] is not states:
            left = [tables.count_free(number) // size for number in range(len(tables.states))]
            found = np.array(left, dtype=np.int64)[states]
            found.setflags(write=False)
            known = self._left[size] = (found, states)
        return known[0]

    def _number_all_rows(self) -> Ints:
        """States of all rows: once a session for every node, so that what is known costs one look."""
        node_usage, known = self._node_usage, self._known
        pairs = zip(node_usage.nodes.nodes, node_usage.free_slots, strict=True)
        numbers = []
        for row, (node, free) in enumerate(pairs):
            number = known.get((id(node.layout), id(node.allocatable), free))
            numbers.append(self._state_number(row) if number is None else number)
        return np.array(numbers, dtype=np.int64)

    def _state_number(self, row: int) -> int:
        node_usage = self._node_usage
        node, free = node_usage.nodes.nodes[row], node_usage.free_slots[row]
        key = (id(node.layout), id(node.allocatable), free)
        number = self._known.get(key)
        if number is None:
            state = island_state(node.layout, node_usage.slots_on(row), free)
            number = self._numbers.setdefault(state, len(self._numbers))
            self._known[key] = number
        return number
