"""Which members of several roles fit one node together, where amounts cannot say it.

Devices are the reason: two halves of a GPU or a whole one may fit, or a whole one and a half, and
no sum tells which. What fits together is downward closed, so its maximal vectors of counts say all.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen

UNLIMITED: Final = 2**53
"""Members that a node takes of a role as far as the mixes go, where they have no rule for it."""


@frozen(eq=False, kw_only=True)
class RoleMixes:
    """What each node takes of roles that compete for something other than amounts.

    Attributes:
        roles: numbers of the roles whose members count together, by place in the vectors; each
            role is in one place at most.
        state: number of each node's table, int64, shape (nodes,); -1 where there is no rule.
        tables: maximal vectors of members by place: what is at most one of them in every place
            fits. Without any vector a node takes no member of these roles.
    """

    roles: tuple[tuple[int, ...], ...]
    state: Ints
    tables: tuple[tuple[tuple[int, ...], ...], ...]

    def place_of(self, role: int) -> int:
        """Where members of a role count, -1 where these rules are not about it."""
        return next((at for at, roles in enumerate(self.roles) if role in roles), -1)

    @cached_property
    def _padded(self) -> Ints:
        """All vectors, shape (tables, vectors, places); -1 where a table has fewer."""
        longest = max((len(table) for table in self.tables), default=0)
        padded: Ints = np.full((len(self.tables), longest, len(self.roles)), -1, dtype=np.int64)
        for number, table in enumerate(self.tables):
            if table:
                padded[number, : len(table)] = table
        return padded

    def most_alone(self, place: int) -> Ints:
        """Members of one place that each node takes when it has no others, shape (nodes,)."""
        most: Ints = np.full(len(self.state), UNLIMITED, dtype=np.int64)
        ruled = self.state >= 0
        if ruled.any():
            most[ruled] = self._padded[:, :, place].max(axis=1, initial=0)[self.state[ruled]]
        return most

    def room_beside(self, place: int, held: Ints) -> Ints:
        """How many more members of a place fit beside those that nodes have.

        Args:
            place: in the vectors.
            held: members by place and node, shape (places, nodes).

        Returns:
            int64, shape (nodes,); ``UNLIMITED`` where there is no rule.
        """
        room: Ints = np.full(len(self.state), UNLIMITED, dtype=np.int64)
        rows = np.flatnonzero(self.state >= 0)
        if rows.size:
            left = self._padded[self.state[rows]] - held[:, rows].T[:, None, :]
            fitting = (left >= 0).all(axis=2)
            room[rows] = np.where(fitting, left[:, :, place], 0).max(axis=1, initial=0)
        return room

    def allow_counts(self, table: int, counts: Ints) -> Bools:
        """Which of some vectors of members fit nodes with a table.

        Args:
            table: its number.
            counts: members by place, shape (vectors, places).

        Returns:
            bool, shape (vectors,).
        """
        fitting: Bools = ~np.any(counts, axis=1)
        for vector in self.tables[table]:
            fitting |= np.all(counts <= np.array(vector, dtype=np.int64), axis=1)
        return fitting
