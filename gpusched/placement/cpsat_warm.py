"""Loads the solver ahead of its first use."""

from __future__ import annotations


def warm() -> None:
    """Import the solver and solve a model of one variable: half a second, the first time."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when asked for

    model = cp_model.CpModel()
    model.maximize(model.new_int_var(0, 1, "x"))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.solve(model)
