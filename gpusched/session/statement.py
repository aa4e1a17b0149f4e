"""A batch of moves that is kept or dropped as a whole.

Operations are data; a checkpoint is an index into their list, and rolling back undoes what
lies behind it, newest first. Plugins are told nothing: what they read follows the statement.
"""

from __future__ import annotations

import attrs

from gpusched.arrays.columns import Demand, Workbench
from gpusched.errors import InvariantBroken
from gpusched.objects.pod import Pod
from gpusched.topology.fabric import choose_slots


@attrs.frozen(slots=True, eq=False)
class Place:
    """One pod on one row with its slots."""

    pod: Pod
    row: int
    slots: int
    ask: Demand


class Statement:
    """Moves tried on a workbench.

    A statement ends with ``keep`` or with ``discard``; afterwards it takes no moves.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._places: list[Place] = []
        self._open = True

    @property
    def places(self) -> tuple[Place, ...]:
        """What was placed so far, in order."""
        return tuple(self._places)

    def checkpoint(self) -> int:
        """A point to which ``rollback`` can return."""
        return len(self._places)

    def place(self, pod: Pod, row: int, ask: Demand) -> None:
        """Put a pod on a row where it fits.

        Raises:
            InvariantBroken: it does not fit; the caller asked the wrong board.
        """
        self._must_be_open()
        bench = self._bench
        free = bench.free_on(row, ask.columns)
        if (free < ask.amounts).any():
            raise InvariantBroken(f"pod {pod.key} does not fit {bench.nodes.nodes[row].name}")
        slots = 0
        if pod.pod_class.gpus:
            slots = choose_slots(
                bench.free_slots[row] & self._range(row, pod.pod_class.gpu),
                pod.pod_class.gpus,
                bench.nodes.nodes[row].layout,
            )
        bench.add(row, ask, slots=slots)
        self._places.append(Place(pod, row, slots, ask))

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo everything behind the checkpoint."""
        self._must_be_open()
        while len(self._places) > checkpoint:
            place = self._places.pop()
            self._bench.remove(place.row, place.ask, slots=place.slots)

    def keep(self) -> tuple[Place, ...]:
        """The moves stand."""
        self._must_be_open()
        self._open = False
        return tuple(self._places)

    def discard(self) -> None:
        """None of it happened."""
        self.rollback()
        self._open = False

    def _range(self, row: int, gpu: str) -> int:
        return self._bench.slot_range(row, gpu)

    def _must_be_open(self) -> None:
        if not self._open:
            raise InvariantBroken("a statement that was kept or discarded was used again")
