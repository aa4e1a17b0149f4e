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
        news: writes events.
    """

    def __init__(self, solver: SolverProcess, news: DaemonEvents) -> None:
        self._solver = solver
        self._news = news
        self.degraded = ""
        """Empty when all is well, else what is wrong."""

    def after_session(self) -> None:
        """A session has ended."""
        trouble = self._solver.trouble
        if bool(trouble) == bool(self.degraded):
            return
        self.degraded = trouble
        if trouble:
            _log.error("the solver does not work", why=trouble)
            self._news.warn(SOLVER, reason="SolverDegraded", action="Scheduling", sentence=trouble)
        else:
            _log.info(_WELL)
            self._news.well(SOLVER, reason="SolverRecovered", action="Scheduling", sentence=_WELL)
