"""Which nodes a Reservation keeps: those it names, or as many as it asks for of those with its labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gpusched.api.meta.quantity import format_quantity
from gpusched.api.node.node import Node
from gpusched.api.policy.reservation import AdvanceReservation, ReservationWindow
from gpusched.arrays.columns import Bools, NodeColumns
from gpusched.base.classes import frozen
from gpusched.session.framework.reasons import nodes_text, shorten

_NAMES_TOLD_MAX: Final = 3

NodeLoad = Callable[[ReservationWindow, int], int]
"""GPUs on a row that will still be held when the window begins, in thousandths of one."""


@frozen(slots=True, eq=False)
class ChosenNodes:
    """Nodes of a Reservation.

    Attributes:
        rows: of the nodes, bool, shape (nodes,).
        error: why they are not what it asks for; empty where they are.
    """

    rows: Bools
    error: str = ""


def choose_nodes(
    reservation: AdvanceReservation,
    window: ReservationWindow,
    nodes: NodeColumns,
    *,
    taken: Bools,
    load: NodeLoad,
) -> ChosenNodes:
    """The nodes that a Reservation keeps in a window.

    Those it names, or all with its labels. Of a number or an amount: nodes that it had before,
    then those that most likely are empty when the window begins, by name; none that another
    Reservation keeps at the same time.

    Args:
        reservation: whose nodes are chosen.
        window: for which they are.
        nodes: of the cluster.
        taken: rows that another Reservation keeps at that time, bool, shape (nodes,).
        load: what is still held on a row then; asked only where nodes are to be chosen.
    """
    if reservation.node_names:
        return _named_nodes(reservation.node_names, nodes)
    matching = np.array(
        [reservation.may_keep(node.name, node.labels) for node in nodes.nodes], dtype=np.bool_
    )
    labels = ", ".join(f"{key}={value}" for key, value in reservation.node_selector)
    where = f" with {shorten(labels)}" if labels else ""
    if not matching.any():
        return ChosenNodes(matching, f"there is no node{where}")
    if not reservation.node_count and not reservation.resources.items:
        return ChosenNodes(matching)
    free = np.flatnonzero(matching & ~taken).tolist()
    had = frozenset(reservation.chosen)
    first = [row for row in free if nodes.nodes[row].name in had]
    rows, error = _enough(reservation, nodes, first)
    if error and len(first) < len(free):
        fresh = [row for row in free if nodes.nodes[row].name not in had]
        fresh.sort(
            key=lambda row: (
                _takes_nothing(nodes.nodes[row]),
                load(window, row),
                nodes.nodes[row].name,
            )
        )
        rows, error = _enough(reservation, nodes, [*first, *fresh])
    chosen = np.zeros(len(nodes), dtype=np.bool_)
    chosen[rows] = True
    if error:
        kept = int((matching & taken).sum())
        beside = f", {kept} more are kept by other Reservations then" if kept else ""
        error = f"{error}; there are {nodes_text(len(free))}{where}{beside}"
    return ChosenNodes(chosen, error)


def _named_nodes(names: Sequence[str], nodes: NodeColumns) -> ChosenNodes:
    rows = np.zeros(len(nodes), dtype=np.bool_)
    missing = [name for name in names if name not in nodes.row]
    rows[[nodes.row[name] for name in names if name in nodes.row]] = True
    if not missing:
        return ChosenNodes(rows)
    told = ", ".join(missing[:_NAMES_TOLD_MAX])
    more = f" and {len(missing) - _NAMES_TOLD_MAX} more" if len(missing) > _NAMES_TOLD_MAX else ""
    count = "node" if len(missing) == 1 else "nodes"
    verb = "does" if len(missing) == 1 else "do"
    return ChosenNodes(rows, f"{count} {told}{more} {verb} not exist")


def _takes_nothing(node: Node) -> bool:
    return node.unschedulable or bool(node.not_ready)


def _enough(
    reservation: AdvanceReservation, nodes: NodeColumns, rows: Sequence[int]
) -> tuple[list[int], str]:
    """The first of these rows that are enough; or all of them and what is missing."""
    if reservation.node_count:
        count = reservation.node_count
        lacks = "" if len(rows) >= count else f"needs {nodes_text(count)}"
        return list(rows[:count]), lacks
    left = dict(reservation.resources.items)
    found: list[int] = []
    for row in rows:
        if not left:
            break
        offers = nodes.nodes[row].allocatable
        if any(offers.get(name) for name in left):
            found.append(row)
            left = {
                name: amount - offers.get(name)
                for name, amount in left.items()
                if amount > offers.get(name)
            }
    told = ", ".join(
        f"{format_quantity(amount, resource=name)} {name}"
        for name, amount in sorted(reservation.resources.items)
    )
    return found, f"needs nodes with {told} together" if left else ""
