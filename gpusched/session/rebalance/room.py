"""Room on nodes by row: what a gang is to have there, with everything else held back from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.session.state.session import Session

Room = Mapping[int, Ints]
"""Amounts by row, all resources of nodes each."""

_MORE_THAN_ANY_NODE: Final = 2**61
"""Held back from everybody, far more than any node has and far from overflow."""


def all_but(session: Session, own: Room) -> dict[int, Ints]:
    """What to hold back from a gang that is to have this room and no other."""
    usage = session.node_usage
    allocatable = usage.nodes.allocatable
    return {
        row: allocatable[row] - usage.holdings_on(row) - own[row]
        if row in own
        else np.full(allocatable.shape[1], _MORE_THAN_ANY_NODE, dtype=np.int64)
        for row in range(len(allocatable))
    }


@contextmanager
def holding_back(session: Session, amounts: Room) -> Iterator[None]:
    """Inside, so much counts as used."""
    session.node_usage.count_as_used(amounts)
    try:
        yield
    finally:
        session.node_usage.count_as_used({})
