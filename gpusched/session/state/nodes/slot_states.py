"""The state of each node's free slots, numbered for problems of placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, compress, count
from operator import is_not, ne
from typing import Final

import numpy as np

from gpusched.api.meta.gpu_resources import GpuResources, gpu_resources
from gpusched.api.node.node import Node as ApiNode
from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.topology.islands import island_state
from gpusched.topology.slot_costs import NOT_NUMBERED, Node, SlotTables

_STATES_KEPT: Final = 1000
"""States beyond which, and beyond one a node, all are forgotten."""


class KeptSlotStates:
    """In which states the free slots of nodes were when the last session asked: the next one looks at those that differ."""

    def __init__(self) -> None:
        self._nodes: Sequence[ApiNode] = ()
        self._free: list[int] = []
        self._gpus: GpuResources | None = None
        self._numbers: dict[Node, int] = {}
        """Numbers of states as sessions met them."""
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        """The same of each row."""

    def follow(self, node_usage: NodeUsage) -> tuple[Ints, list[Node]]:
        """The state of each row, numbered in the order of the rows that are the first in theirs; and the states.

        So a session numbers them whatever the sessions before it met.
        """
        nodes, free, gpus = node_usage.nodes.nodes, node_usage.free_slots, gpu_resources()
        if (
            len(nodes) != len(self._nodes)
            or gpus != self._gpus
            or len(self._numbers) > max(len(nodes), _STATES_KEPT)
        ):
            self._numbers, self._rows = {}, np.zeros(len(nodes), dtype=np.int64)
            others: Iterable[int] = range(len(nodes))
        else:
            others = compress(count(), map(ne, free, self._free))
            if nodes is not self._nodes:
                others = chain(compress(count(), map(is_not, nodes, self._nodes)), others)
        known: dict[tuple[int, int, int], int] = {}
        for row in others:
            key = _basis(node_usage, row)
            number = known.get(key)
            if number is None:
                state = _find_state(node_usage, row)
                number = known[key] = self._numbers.setdefault(state, len(self._numbers))
            self._rows[row] = number
        self._nodes, self._free, self._gpus = nodes, list(free), gpus
        return self._in_order()

    def _in_order(self) -> tuple[Ints, list[Node]]:
        rows, states = self._rows, list(self._numbers)
        first = np.full(len(states), len(rows), dtype=np.int64)
        first[rows[::-1]] = np.arange(len(rows), dtype=np.int64)[::-1]  # the last one written stays
        there = np.argsort(first)[: np.count_nonzero(first < len(rows))]
        place = np.zeros(len(states), dtype=np.int64)
        place[there] = np.arange(len(there), dtype=np.int64)
        return place[rows], [states[number] for number in there.tolist()]


class SlotStates:
    """States of free slots by node; only touched rows are worked out again.

    Args:
        node_usage: usage of nodes, whose free slots are meant as they are now.
        kept: what the sessions before found.
    """

    def __init__(self, node_usage: NodeUsage, kept: KeptSlotStates) -> None:
        self._node_usage = node_usage
        self._kept = kept
        self._seen = 0
        self._numbers: dict[Node, int] = {}
        self._known: dict[tuple[int, int, int], int] = {}
        """Numbers by what they rest on: hashing states would take longer than all the rest."""
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
            self._states, states = self._kept.follow(node_usage)
            self._numbers = {state: number for number, state in enumerate(states)}
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

    def _state_number(self, row: int) -> int:
        key = _basis(self._node_usage, row)
        number = self._known.get(key)
        if number is None:
            state = _find_state(self._node_usage, row)
            number = self._known[key] = self._numbers.setdefault(state, len(self._numbers))
        return number


def _basis(node_usage: NodeUsage, row: int) -> tuple[int, int, int]:
    """What the state of a row rests on, as long as nodes stay: their layout and amounts by identity, which nodes that are alike share."""
    node = node_usage.nodes.nodes[row]
    return id(node.layout), id(node.allocatable), node_usage.free_slots[row]


def _find_state(node_usage: NodeUsage, row: int) -> Node:
    layout = node_usage.nodes.nodes[row].layout
    return island_state(layout, node_usage.slots_on(row), node_usage.free_slots[row])
