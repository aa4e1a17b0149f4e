"""Tells an operator, once, that placements are made without the solver, and when they are not."""

from __future__ import annotations

from gpusched.io.observe.daemon_events import SOLVER, DaemonEvents
from gpusched.io.observe.logs import Logger
from gpusched.io.solver.process import SolverProcess

_log = Logger(__name__)
_WELL = "the solver answers again"


class SolverReport:
    """See the module. Called in the event loop.

    Args:
        solver: of this daemon.
        daemon_events: writes events.
    """

    def __init__(self, solver: SolverProcess, daemon_events: DaemonEvents) -> None:
        self._solver = solver
        self._daemon_events = daemon_events
        self.degraded = ""
        """Empty when all is well, else what is wrong."""

    def after_session(self) -> None:
        """A session has ended."""
        error = self._solver.error
        if bool(error) == bool(self.degraded):
            return
        self.degraded = error
        if error:
            _log.error("the solver does not work", why=error)
            self._daemon_events.warn(
                SOLVER, reason="SolverDegraded", action="Scheduling", message=error
            )
        else:
            _log.info(_WELL)
            self._daemon_events.recovered(
                SOLVER, reason="SolverRecovered", action="Scheduling", message=_WELL
            )
