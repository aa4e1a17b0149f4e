"""How every search of ours is tuned: one place, so that all are bounded and repeatable."""

from __future__ import annotations

from typing import Any, Final

from gpusched.placement.stopping import STOPPING

_GUARD_LEAST_S: Final = 5.0
"""Wall seconds that every search has: setting one up takes time that no deterministic limit
counts, several times as much on a machine that is shared."""
_WALL_GUARD: Final = 10.0
"""Wall seconds per deterministic second after which a search is given up all the same: far
beyond what was ever seen, so that only a broken solver meets it."""


def tune(solver: Any, *, budget_s: float, workers: int, seed: int) -> None:
    """Parameters of every search of ours: bounded, repeatable, and quick on counts of equal pods.

    Args:
        solver: a ``CpSolver`` that has not run yet.
        budget_s: deterministic seconds.
        workers: threads.
        seed: of the search.
    """
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = budget_s
    solver.parameters.max_time_in_seconds = max(_GUARD_LEAST_S, budget_s * _WALL_GUARD)
    solver.parameters.linearization_level = 2
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.max_presolve_iterations = 1
    STOPPING.begun(solver)
