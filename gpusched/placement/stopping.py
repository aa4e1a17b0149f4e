"""Lets the process around a search end it early, with what was found so far.

Limits of searches are deterministic, so that answers repeat. A machine that is slower than any
that was measured would make those who wait for an answer wait too long: whoever runs jobs in a
process of its own stops them here, from another thread. Nothing here reads a clock.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import ReferenceType, ref

_STOPPED_S: Final = 0.001
"""Wall seconds that a solver gets once searches are to end."""


class Stopping:
    """Of one process, which runs one job at a time."""

    def __init__(self) -> None:
        self._solver: ReferenceType[Any] | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether nothing that takes long should be begun any more."""
        return self._stopped

    def begun(self, solver: Any) -> None:
        """A solver is about to search: it is the one to be stopped, or has no time at all.

        Args:
            solver: a ``CpSolver`` whose parameters are set.
        """
        self._solver = ref(solver)
        if self._stopped:
            solver.parameters.max_time_in_seconds = _STOPPED_S

    def stop(self) -> None:
        """End the search that runs and those to come. May be called from any thread, again.

        A call that comes in the moment before a search begins is lost on that search.
        """
        self._stopped = True
        solver = self._solver() if self._solver is not None else None
        if solver is not None:
            solver.stop_search()

    def again(self) -> None:
        """Searches may take their time again."""
        self._stopped = False
        self._solver = None


STOPPING: Final = Stopping()
