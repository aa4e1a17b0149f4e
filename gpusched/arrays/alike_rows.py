"""Nodes that offer and hold the same amounts, in groups: what is true of one is worked out once.

A cluster of thousands of nodes has few kinds of them, and most of a kind are empty or full. Groups
follow the log of touched rows, so that a placement moves one row; the next session begins with those of
the one before and moves rows that differ.
"""

from __future__ import annotations

from operator import add
from typing import Protocol

import numpy as np

from gpusched.arrays.columns import Ints, NodeColumns, rows_with_any


class UsedNodes(Protocol):
    """Node usage, as far as it is read here."""

    nodes: NodeColumns
    used: Ints
    touched_rows: list[int]


class AlikeRows:
    """See the module. Groups are numbered from 0 without gaps; a number may mean another later.

    Args:
        node_usage: moves under it.
    """

    def __init__(self, node_usage: UsedNodes) -> None:
        self._node_usage = node_usage
        self._seen = len(node_usage.touched_rows)
        self._number: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._members: list[set[int]] = []
        self._group: Ints = np.zeros(len(node_usage.nodes), dtype=np.int64)
        self._first: Ints = np.zeros(len(node_usage.nodes), dtype=np.int64)
        self._free: Ints = np.zeros_like(node_usage.nodes.allocatable.T, order="C")
        """What is free by column and group, so that one amount is compared with a piece of memory."""
        self._offered, self._used = node_usage.nodes.allocatable.copy(), node_usage.used.copy()
        """What nodes offer and hold, by which their rows are grouped."""
        offers, used = _rows_as_bytes(self._offered), _rows_as_bytes(self._used)
        rows: dict[bytes, list[int]] = {}
        for row, key in enumerate(map(add, offers, used)):
            rows.setdefault(key, []).append(row)
        for key, members in rows.items():
            number = self._add_group(key, members[0])
            self._members[number].update(members)
            self._group[members] = number

    def follow(self, node_usage: UsedNodes) -> bool:
        """Group the nodes of another usage instead; False, and nothing is done, where most of them differ."""
        offered, used = node_usage.nodes.allocatable, node_usage.used
        if offered.shape != self._offered.shape:
            return False
        differ = (offered != self._offered) | (used != self._used)
        rows = rows_with_any(differ).tolist()
        if 2 * len(rows) > len(offered):
            return False
        self._node_usage, self._seen = node_usage, len(node_usage.touched_rows)
        for row in rows:
            self._remove_row(row)
            self._offered[row] = offered[row]
            self._add_row(row)
        return True

    def groups(self) -> tuple[Ints, Ints]:
        """One row of each group, shape (groups,), and the group of each row, shape (nodes,); read-only."""
        touched = self._node_usage.touched_rows
        if self._seen < len(touched):
            for row in set(touched[self._seen :]):
                self._remove_row(row)
                self._add_row(row)
            self._seen = len(touched)
        return self._first[: len(self._keys)], self._group

    def few_groups(self) -> tuple[Ints, Ints] | None:
        """The same; None where most nodes are unlike, so that groups save nothing."""
        firsts, group = self.groups()
        return (firsts, group) if 2 * len(firsts) <= len(group) else None

    def is_lone(self, number: int) -> bool:
        """Whether a group of the last look is one row."""
        return len(self._members[number]) == 1

    def free_amounts(self, columns: Ints) -> Ints:
        """What nodes of each group of the last look have free, shape (groups, columns)."""
        return self._free[:, : len(self._keys)].take(columns, 0).T

    def with_room(self, columns: Ints, amounts: Ints) -> Ints:
        """Numbers of groups of the last look whose nodes have so much free, ascending."""
        count, fits = len(self._keys), None
        for column, amount in zip(columns.tolist(), amounts.tolist(), strict=True):
            enough = self._free[column, :count] >= amount
            fits = enough if fits is None else np.logical_and(fits, enough, out=fits)
        return np.arange(count) if fits is None else fits.nonzero()[0]

    def _add_row(self, row: int) -> None:
        self._used[row] = self._node_usage.used[row]
        key = self._offered[row].tobytes() + self._used[row].tobytes()
        number = self._number.get(key)
        if number is None:
            number = self._add_group(key, row)
        self._members[number].add(row)
        self._group[row] = number

    def _add_group(self, key: bytes, row: int) -> int:
        """A group of which a row is the first that is seen; its number."""
        number = self._number[key] = len(self._keys)
        self._keys.append(key)
        self._members.append(set())
        self._first[number] = row
        self._free[:, number] = self._offered[row] - self._used[row]
        return number

    def _remove_row(self, row: int) -> None:
        number = int(self._group[row])
        members = self._members[number]
        members.remove(row)
        if members:
            if self._first[number] == row:
                self._first[number] = next(iter(members))
            return
        # The last group takes the number of the one that has no rows any more.
        del self._number[self._keys[number]]
        last, moved = self._keys.pop(), self._members.pop()
        if number < len(self._keys):
            self._keys[number], self._members[number] = last, moved
            self._number[last] = number
            self._first[number] = self._first[len(self._keys)]
            self._free[:, number] = self._free[:, len(self._keys)]
            self._group[list(moved)] = number


def _rows_as_bytes(amounts: Ints) -> list[bytes]:
    """Each row's amounts; one copy of all of them costs less than one of each."""
    data, width = amounts.tobytes(), amounts.itemsize * amounts.shape[1]
    return [data[row * width : (row + 1) * width] for row in range(len(amounts))]
