"""In which state each node's free slots are, numbered for those who place gangs."""

from __future__ import annotations

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.arrays.workbench import Workbench
from gpusched.topology.islands import state_of
from gpusched.topology.slot_costs import Node, SlotTables


class SlotStates:
    """Follows a workbench: only rows that were touched are looked at again.

    Args:
        bench: whose free slots are meant, as they are now.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._seen = 0
        self._numbers: dict[Node, int] = {}
        self._states: Ints | None = None

    def now(self) -> tuple[Ints, SlotTables]:
        """States and what they cost.

        Returns:
            The state of each row's free slots, int64, shape (nodes,), read-only; and the costs
            of these states.
        """
        bench = self._bench
        seen, self._seen = self._seen, len(bench.touched)
        if self._states is None:
            rows = range(len(bench.free_slots))
            self._states = np.array([self._number(row) for row in rows], dtype=np.int64)
        elif seen < self._seen:
            self._states = self._states.copy()
            for row in sorted(set(bench.touched[seen:])):
                self._states[row] = self._number(row)
        self._states.setflags(write=False)
        return self._states, SlotTables(tuple(self._numbers), bench.population)

    def _number(self, row: int) -> int:
        bench = self._bench
        layout = bench.nodes.nodes[row].layout
        state = state_of(layout, bench.slots_on(row), bench.free_slots[row])
        return self._numbers.setdefault(state, len(self._numbers))
