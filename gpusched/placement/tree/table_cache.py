"""Tables that outlive one problem, so that gangs of one kind on one cluster need few new ones.

Tables are kept by what is in them, so an answer is the same with and without a memory.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define
from gpusched.placement.tree.min_plus import CostTables
from gpusched.placement.tree.node_costs import SortedNodes

KINDS_MAX: Final = 32
"""Kinds of gangs whose tables are kept."""
COSTS_MAX: Final = 4_000_000
"""Ints in the tables of one kind; beyond, they are forgotten."""

Kind = tuple[int, tuple[tuple[int, int], ...]]
"""Members, and where the bits of each term are."""


def useful_nodes_by_domain(rows: Ints, domain: Ints, kinds: Ints, members: int) -> Ints:
    """Nodes by domain and kind, without those that are one too many of a kind to get members.

    Args:
        rows: nodes, ascending.
        domain: of all nodes.
        kinds: of the rows.
        members: no more nodes than this get any.
    """
    order = np.lexsort((kinds, domain[rows]))
    rows, kinds = rows[order], kinds[order]
    within = domain[rows]
    if len(rows) <= members:
        return rows
    far = (within[members:] == within[:-members]) & (kinds[members:] == kinds[:-members])
    keep = np.ones(len(rows), dtype=np.bool_)
    keep[members:] = ~far
    return rows[keep]


@define(eq=False)
class CachedTables:
    """Tables of one kind of gangs, and those of the narrowest domains as they were last.

    Attributes:
        tables: all of them.
        leaves: number of each node's table, 0 where it takes nothing.
        domain: of each node.
        wholes: number of each domain's table.
        kinds: prices of kinds of nodes, how many terms come before those of nodes, and what was
            made of it: the table of each kind.
    """

    tables: CostTables
    leaves: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    domain: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    wholes: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    kinds: tuple[Ints, int, Ints] | None = None

    def domain_tables(self, leaves: Ints, domain: Ints, count: int) -> Ints:
        """The table of each domain; only those with changed nodes are worked out.

        Args:
            leaves: number of each node's table.
            domain: of each node.
            count: domains there are.
        """
        same = np.array_equal(self.domain, domain) and len(self.wholes) == count
        if same:
            stale = np.zeros(count, dtype=np.bool_)
            stale[domain[leaves != self.leaves]] = True
            rows = np.flatnonzero(stale[domain] & (leaves != self.tables.none))
        else:
            stale = np.ones(count, dtype=np.bool_)
            rows = np.flatnonzero(leaves != self.tables.none)
        if stale.any():
            # Nodes of one kind side by side: the same pairs come again and again.
            rows = useful_nodes_by_domain(rows, domain, leaves[rows], self.tables.members)
            merge = self.tables.merge_tables(domain[rows], leaves[rows], count)
            wholes = np.where(stale, merge.numbers, self.wholes if same else 0)
            self.leaves, self.domain, self.wholes = leaves, domain, wholes
        return self.wholes


@define(eq=False)
class TableCache:
    """Tables by kind of gang; those that were not used for longest go first."""

    _kinds: dict[Kind, CachedTables] = attrs.field(factory=dict)
    _sortings: dict[tuple[int, bytes], SortedNodes] = attrs.field(factory=dict)

    def find_sorting(self, members: int, ask: Ints) -> SortedNodes:
        """How nodes were sorted last for so many members that ask for so much."""
        key = (members, ask.tobytes())
        found = self._sortings.pop(key, None) or SortedNodes()
        self._sortings[key] = found
        while len(self._sortings) > KINDS_MAX:
            del self._sortings[next(iter(self._sortings))]
        return found

    def tables_for(self, kind: Kind, words: int) -> CachedTables:
        """What is known of this kind; new where nothing is."""
        found = self._kinds.pop(kind, None)
        if found is None or found.tables.size > COSTS_MAX:
            found = CachedTables(CostTables(kind[0], words))
        self._kinds[kind] = found
        while len(self._kinds) > KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]
        return found
