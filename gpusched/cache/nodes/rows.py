"""Keeps the node columns: rows that changed are rewritten, the rest is shared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import Resources
from gpusched.api.node.node import Node
from gpusched.arrays.columns import Ints, NodeColumns, SharedSlots, exact_sums
from gpusched.base import limits
from gpusched.base.limits import COLUMN_MAX
from gpusched.cache.ledger import Ledger, NodeHoldings


class NodeColumnRows:
    """Nodes as objects in, columns out."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._changed: set[str] = set()
        self._moved = True
        self._generation = 0
        self._current: NodeColumns | None = None

    def put_node(self, node: Node) -> None:
        """A node appeared or changed."""
        known = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if known is None or known.uid != node.uid or known.allocatable != node.allocatable:
            self._moved = True
        else:
            self._changed.add(node.name)

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        if self._nodes.pop(name, None) is not None:
            self._moved = True

    def get(self, name: str) -> Node | None:
        """The node of that name."""
        return self._nodes.get(name)

    def node_names(self) -> list[str]:
        """Names of all nodes, sorted."""
        return sorted(self._nodes)

    def sum_ahead(self, ledger: Ledger) -> Iterator[None]:
        """Add up what is held on nodes before their rows are written, where these are many; yields between parts."""
        most = limits.NODES_SUMMED_AT_ONCE
        if not self._moved and len(ledger.dirty) <= most:
            return
        due = [
            name
            for name, node in self._nodes.items()
            if name in ledger.dirty or not self._is_shown(node)
        ]
        for at in range(0, len(due) if len(due) > most else 0, most):
            for name in due[at : at + most]:
                node = self._nodes.get(name)
                if node is not None:
                    ledger.sum_ahead(name, node.allocatable, node.labels)
            yield

    def _is_shown(self, node: Node) -> bool:
        old = self._current
        row = None if old is None else old.row.get(node.name)
        return old is not None and row is not None and old.nodes[row] is node

    def build_columns(self, ledger: Ledger) -> NodeColumns:
        """The columns of this moment; the ledger's dirty marks are taken."""
        self._generation += 1
        if self._moved or self._current is None:
            current = self._rebuild_columns(ledger)
        else:
            current = self._refresh_columns(self._current, ledger)
        ledger.clear_marks()
        self._changed.clear()
        self._moved = False
        self._current = current
        return current

    def _rebuild_columns(self, ledger: Ledger) -> NodeColumns:
        nodes = tuple(self._nodes[name] for name in sorted(self._nodes))
        names = sorted({name for node in nodes for name, _ in node.allocatable.items})
        columns = {name: column for column, name in enumerate(names)}
        allocatable = np.zeros((len(nodes), len(names)), dtype=np.int64)
        used = np.zeros((len(nodes), len(names)), dtype=np.int64)
        leaving = np.zeros_like(used)
        foreign = np.zeros_like(used)
        free = [0] * len(nodes)
        shared: dict[int, SharedSlots] = {}
        kept = self._unchanged_rows(nodes, columns, ledger)
        if kept and self._current is not None:
            to, since = [*kept], [*kept.values()]
            old = self._current
            allocatable[to], used[to] = old.allocatable[since], old.used[since]
            leaving[to], foreign[to] = old.leaving[since], old.foreign[since]
            for row, at in kept.items():
                free[row] = old.free_slots[at]
                if at in old.shared:
                    shared[row] = old.shared[at]
        for row, node in enumerate(nodes):
            if row in kept:
                continue
            for name, amount in node.allocatable.items:
                allocatable[row, columns[name]] = amount
            use = _write_use((used, leaving, foreign), row, node, columns=columns, ledger=ledger)
            free[row] = use.free_slots
            if use.shared:
                shared[row] = use.shared
        generation = np.full(len(nodes), self._generation, dtype=np.int64)
        for array in (allocatable, used, leaving, foreign, generation):
            array.setflags(write=False)
        return NodeColumns(
            nodes=nodes,
            row={node.name: row for row, node in enumerate(nodes)},
            columns=columns,
            allocatable=allocatable,
            used=used,
            leaving=leaving,
            foreign=foreign,
            free_slots=tuple(free),
            generation=generation,
            epoch=self._generation,
            shared=shared,
        )

    def _unchanged_rows(
        self, nodes: tuple[Node, ...], columns: dict[str, int], ledger: Ledger
    ) -> dict[int, int]:
        """Rows of nodes that are as they were, each with the row that it had."""
        old = self._current
        if old is None or old.columns != columns:
            return {}
        found: dict[int, int] = {}
        for row, node in enumerate(nodes):
            at = old.row.get(node.name)
            if at is not None and old.nodes[at] is node and node.name not in ledger.dirty:
                found[row] = at
        return found

    def _refresh_columns(self, old: NodeColumns, ledger: Ledger) -> NodeColumns:
        changed = [old.row[name] for name in sorted(self._changed)]
        # What a share by memory takes hangs by a label of the node.
        dirty = sorted(
            {old.row[name] for name in ledger.dirty if name in old.row}
            | {row for row in changed if row in old.shared}
        )
        if not dirty and not changed:
            return old
        nodes, free, generation = old.nodes, old.free_slots, old.generation
        used, leaving, foreign, shared = old.used, old.leaving, old.foreign, old.shared
        if changed:
            listed = list(nodes)
            for row in changed:
                listed[row] = self._nodes[listed[row].name]
            nodes = tuple(listed)
            generation = generation.copy()
            generation[changed] = self._generation
            generation.setflags(write=False)
        if dirty:
            used, leaving, foreign = used.copy(), leaving.copy(), foreign.copy()
            masks, parts = list(free), dict(shared)
            for row in dirty:
                used[row] = leaving[row] = foreign[row] = 0
                use = _write_use(
                    (used, leaving, foreign),
                    row,
                    nodes[row],
                    columns=old.columns,
                    ledger=ledger,
                )
                masks[row] = use.free_slots
                parts.pop(row, None)
                if use.shared:
                    parts[row] = use.shared
            for array in (used, leaving, foreign):
                array.setflags(write=False)
            free, shared = tuple(masks), parts
        return NodeColumns(
            nodes=nodes,
            row=old.row,
            columns=old.columns,
            allocatable=old.allocatable,
            used=used,
            leaving=leaving,
            foreign=foreign,
            free_slots=free,
            generation=generation,
            epoch=old.epoch,
            shared=shared,
        )


def _write_use(
    arrays: tuple[Ints, Ints, Ints],
    row: int,
    node: Node,
    *,
    columns: dict[str, int],
    ledger: Ledger,
) -> NodeHoldings:
    """Fill one row: use, what will be free of it, what is others'.

    What is held of a resource that no node offers has no column and blocks no pod.
    """
    used, leaving, foreign = arrays
    use = ledger.sum_holdings(node.name, node.allocatable, node.labels)
    for name, amount in use.amounts.items():
        column = columns.get(name)
        if column is not None:
            used[row, column] = min(amount, COLUMN_MAX)
            foreign[row, column] = max(0, used[row, column] - use.ours.get(name, 0))
    for name, amount in use.leaving.items():
        column = columns.get(name)
        if column is not None:
            leaving[row, column] = min(amount, COLUMN_MAX)
    return use


def unfit_for_binding(node: Node | None, name: str, uid: UID) -> str:
    """Why a pod must not be bound to a node that was decided on; empty when it may.

    Args:
        node: as it is now, None when it is gone.
        name: of the node.
        uid: that the node had when it was decided on.
    """
    if node is None:
        return f"node {name} is gone"
    if node.uid != uid:
        return f"node {name} was removed and added again"
    return f"node {name} is not ready: {node.not_ready}" if node.not_ready else ""


class CapacitySum:
    """Allocatable of all nodes, summed again when some node has changed."""

    def __init__(self) -> None:
        self._summed: tuple[Ints, Resources] | None = None

    def sum_nodes(self, nodes: NodeColumns) -> Resources:
        """Allocatable amounts of these nodes together, without devices."""
        if self._summed is None or self._summed[0] is not nodes.allocatable:
            sums = dict(zip(nodes.columns, exact_sums(nodes.allocatable), strict=True))
            self._summed = (nodes.allocatable, Resources.of(sums))
        return self._summed[1]
