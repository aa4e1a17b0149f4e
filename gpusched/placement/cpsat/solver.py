"""How every search of ours is tuned: one place, so that all are bounded and repeatable."""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from weakref import ReferenceType, ref

_STOPPED_S: Final = 0.001
"""Wall seconds that a solver gets once searches are to end."""


class SearchStopper:
    """Stops the searches of one process, which runs one job at a time."""

    def __init__(self) -> None:
        self._solver: ReferenceType[Any] | None = None
        self._stopped = False
        self.guards_wall_time = False
        """Whether searches are given up by the clock on the wall, too.

        So a daemon does, whose gangs wait meanwhile. A simulation and a file that is played again do not:
        what they answer does not depend on how much of a processor they get.
        """

    @property
    def stopped(self) -> bool:
        """Whether nothing that takes long should be begun any more."""
        return self._stopped

    def enter_search(self, solver: Any) -> None:
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

    def reset(self) -> None:
        """Searches may use their whole budget again."""
        self._stopped = False
        self._solver = None


SEARCH_STOPPER: Final = SearchStopper()


_GUARD_LEAST_S: Final = 5.0
"""Wall seconds that every search of a daemon has: setting one up takes time that no deterministic limit
counts, several times as much on a machine that is shared."""
_WALL_GUARD: Final = 10.0
"""Wall seconds per deterministic second after which a daemon gives a search up all the same: far
beyond what was ever seen, so that only a broken solver, or one without a processor, meets it."""


def configure_solver(solver: Any, *, budget_s: float, workers: int, seed: int) -> None:
    """Parameters of every search of ours: bounded, repeatable, and quick on counts of equal pods.

    Only deterministic time ends it, which passes as work is done; see ``SearchStopper`` for a daemon's.

    Args:
        solver: a ``CpSolver`` that has not run yet.
        budget_s: deterministic seconds.
        workers: threads.
        seed: of the search.
    """
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = budget_s
    if SEARCH_STOPPER.guards_wall_time:
        solver.parameters.max_time_in_seconds = max(_GUARD_LEAST_S, budget_s * _WALL_GUARD)
    solver.parameters.linearization_level = 2
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.max_presolve_iterations = 1
    SEARCH_STOPPER.enter_search(solver)


@cache
def _model_class() -> type[Any]:
    from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when asked for

    class SolverModel(cp_model.CpModel):
        """A model without the names that its methods had in old versions."""

        def _add_pre_pep8_methods(self) -> None:
            """Add none: a quarter of a millisecond for each model, often more than its search."""

    return SolverModel


def new_solver_model() -> Any:
    """A ``CpModel`` without variables and constraints."""
    return _model_class()()


def warm_up_solver() -> None:
    """Import the solver and solve a model of one variable: half a second, the first time."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when asked for

    model = new_solver_model()
    model.maximize(model.new_int_var(0, 1, "x"))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.solve(model)
