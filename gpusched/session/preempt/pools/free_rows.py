"""What is free on nodes as lists of ints, which the fields of all classes of claimants share.

Arrays are read once a session, and then on nodes of which something moved. Most that moves is put back, or
takes just what has left.
"""

from __future__ import annotations

from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import define
from gpusched.session.state.session import Session


@define(eq=False)
class FreeColumns:
    """Free amounts of all nodes in some columns.

    Attributes:
        amounts: by row; lists are replaced, never changed.
        changed: rows whose amounts have become others, in order.
        seen: how many touched rows of the usage were looked at.
    """

    amounts: list[list[int]]
    changed: list[int]
    seen: int


class FreeRows:
    """See the module.

    Args:
        usage: of nodes.
    """

    def __init__(self, usage: NodeUsage) -> None:
        self._usage = usage
        self._known: dict[tuple[int, ...], FreeColumns] = {}

    def in_columns(self, columns: Ints) -> FreeColumns:
        """What is free in some columns, as one looks at nodes now."""
        about, touched = tuple(columns.tolist()), self._usage.touched_rows
        known = self._known.get(about)
        if known is None:
            amounts = self._usage.free_amounts(slice(None), columns).tolist()
            known = self._known[about] = FreeColumns(amounts, [], len(touched))
        elif known.seen < len(touched):
            rows = sorted(set(touched[known.seen :]))
            known.seen = len(touched)
            now = self._usage.free_amounts(rows, columns).tolist()
            for row, free in zip(rows, now, strict=True):
                if free != known.amounts[row]:
                    known.amounts[row] = free
                    known.changed.append(row)
        return known


def session_free_rows(session: Session) -> FreeRows:
    """What is free on the nodes of a session, for all its actions."""
    return session.cycle_state.get_or_make(FreeRows, lambda: FreeRows(session.node_usage))
