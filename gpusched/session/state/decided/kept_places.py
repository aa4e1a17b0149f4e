"""Where the last session put gangs, and how full that left the nodes: what it found of others then stays true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.node.node import Node
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.session.state.statement import Assignment

_Rows = list[tuple[int, int]]
"""Rows of nodes, and slots there, ascending."""


class KeptPlaces:
    """Of the last session that decided about everybody; nothing of one that left some to the next, or might bind no more."""

    def __init__(self) -> None:
        self._nodes: Sequence[Node] = ()
        self._used: Ints = np.zeros((0, 0), dtype=np.int64)
        self._places: dict[GangKey, _Rows] = {}

    def keep(
        self, nodes: NodeColumns, used: Ints, placed: Iterable[tuple[GangKey, Sequence[Assignment]]]
    ) -> None:
        """Keep what a session has come to.

        Args:
            nodes: of its snapshot.
            used: as it left them, shape (nodes, resources); not changed any more.
            placed: gangs that it gave places, with these.
        """
        self._nodes, self._used = nodes.nodes, used
        self._places = {key: _rows(places) for key, places in placed}

    def forget(self) -> None:
        """The last session decided about some gangs alone."""
        self._places.clear()

    def are_as_left(
        self, nodes: NodeColumns, used: Ints, placed: Iterable[tuple[GangKey, Sequence[Assignment]]]
    ) -> bool:
        """Whether these gangs have the very places that they were given then, and the nodes are the same and as full."""
        return (
            all(self._places.get(key) == _rows(places) for key, places in placed)
            and self._nodes == nodes.nodes
            and np.array_equal(self._used, used)
        )


def _rows(places: Sequence[Assignment]) -> _Rows:
    return sorted((place.row, place.slots) for place in places)
